# PPO for a GRU language model.
#
# Task: the prompt is the beginning of a bracket expression, e.g.  "( [ ] {" ; the model has to close what is
# still open, innermost first, and then emit <eos>.  One sequence = one episode, the reward comes with the last token.
#
# The sampler is a separate copy of the model (that is how it was on the cluster: rollouts on one machine,
# training on another), refreshed at the start of every iteration.

import argparse
import copy
import random
from types import SimpleNamespace as NS

import numpy as np
import torch
from torch import nn

FAULTS = {
    "zero_in_micro": ["weights", "broken", "gradients are cleared for every micro-batch, only the last one counts"],
    "gae_batch_axis": ["returns", "broken", "GAE runs along the batch instead of along the tokens"],
    "eos_untrained": ["language", "broken", "the loss mask drops the <eos> token, so stopping is never trained"],
    "stale_sampler": [
        "language",
        "broken",
        "sampler synced every 25 iterations only, old log-probs taken from the learner",
    ],
    "ratio_one": [
        "signs",
        "broken",
        "old log-probs are the current ones detached, the ratio is always 1 and never clips",
    ],
    "value_outer": ["shapes", "broken", "values (M,1) minus returns (M,) gives an (M,M) value loss"],
    "pess_flipped": ["signs", "broken", "max of the two surrogates instead of min: optimistic clipping"],
    "self_check": ["goal", "not proven", "the checker compares the answer with itself, nearly every answer scores"],
}
HEALTHY = {
    "": "plain",
    "warmup": "learning rate warms up linearly from 0",
    "frozen_embed": "the token embedding is a fixed random table, frozen on purpose",
    "kl_stop": "the epochs of an iteration stop early when the approximate KL is too large",
    "value_optimizer": "the value head has an optimizer of its own with another learning rate",
}

VOCAB = ["<pad>", "<bos>", "<eos>", "(", ")", "[", "]", "{", "}"]
PAD, BOS, EOS = 0, 1, 2
OPEN = [3, 5, 7]
PROMPT_LEN, ANSWER_LEN = 7, 5

hp = NS(
    hidden=64, embed=24, rollout=128, epochs=2, minibatch=64, micro=16, lr=3e-3, value_lr=6e-3,
    gamma=1.0, lam=0.95, clip=0.2, vf_coef=0.5, ent_coef=0.01, max_grad_norm=0.5, target_kl=0.02,
)  # fmt: skip


class GRULanguageModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(len(VOCAB), hp.embed)
        self.cell = nn.GRUCell(hp.embed, hp.hidden)
        self.lm_head = nn.Linear(hp.hidden, len(VOCAB))
        self.value_head = nn.Sequential(nn.Linear(hp.hidden, 32), nn.Tanh(), nn.Linear(32, 1))
        # <pad> and <bos> are never written
        self.register_buffer("never", torch.tensor([i in (PAD, BOS) for i in range(len(VOCAB))]))

    def read(self, tokens, h=None):
        """Feed tokens (B, L); the state stands still on padding. Returns the states after each token."""
        if h is None:
            h = tokens.new_zeros((tokens.shape[0], hp.hidden), dtype=torch.float32)
        states = []
        for t in range(tokens.shape[1]):
            tok = tokens[:, t]
            h = torch.where((tok == PAD)[:, None], h, self.cell(self.embedding(tok), h))
            states.append(h)
        return torch.stack(states, dim=1)

    def heads(self, states):
        logits = self.lm_head(states).masked_fill(self.never, -1e9)
        return torch.log_softmax(logits, dim=-1), self.value_head(states)

    def evaluate(self, prompts, answers):
        """log-prob of the written tokens (B, T), entropy (B, T) and value before each token (B, T, 1)"""
        states = self.read(torch.cat([prompts, answers[:, :-1]], dim=1))[:, PROMPT_LEN - 1 :]
        logp_all, values = self.heads(states)
        logp = logp_all.gather(-1, answers[..., None].clamp(min=EOS))[..., 0]  # padding is masked later
        entropy = -(logp_all.exp() * logp_all).sum(-1)
        return logp, entropy, values

    @torch.no_grad()
    def sample(self, prompts, greedy=False):
        h = self.read(prompts)[:, -1]
        running = torch.ones(len(prompts), dtype=torch.bool)
        answers, mask = [], []
        for _ in range(ANSWER_LEN):
            logp, _ = self.heads(h)
            tok = logp.argmax(-1) if greedy else torch.distributions.Categorical(logits=logp).sample()
            tok = torch.where(running, tok, torch.full_like(tok, PAD))
            answers.append(tok)
            mask.append(running)
            running = running & (tok != EOS)
            h = self.read(tok[:, None], h)[:, -1]
        return torch.stack(answers, 1), torch.stack(mask, 1)


def new_prompts(n):
    """Left-padded prompts together with the closers that are still missing."""
    out, missing = torch.full((n, PROMPT_LEN), PAD), []
    for i in range(n):
        toks, stack, depth = [BOS], [], random.randint(1, 3)
        while len(stack) < depth:
            b = random.choice(OPEN)
            toks.append(b)
            if random.random() < 0.3 and len(toks) + 2 * (depth - len(stack)) < PROMPT_LEN:
                toks.append(b + 1)  # closed again at once
            else:
                stack.append(b)
        out[i, PROMPT_LEN - len(toks) :] = torch.tensor(toks)
        missing.append([b + 1 for b in reversed(stack)])
    return out, missing


def grade(answer, missing, fault=""):
    """0.6 for the share of closers that are right (up to the first mistake), 0.4 for a perfect end."""
    want = [*missing, EOS]
    if fault == "self_check":
        want = answer
    right = 0
    for got, exp in zip(answer, want, strict=False):
        if got != exp:
            break
        right += 1
    perfect = right == len(want)
    return 0.6 * min(right, len(missing)) / len(missing) + 0.4 * perfect


def gae(rewards, values, mask):
    """All (B, T), time on axis 1. Nothing follows the last written token."""
    adv = torch.zeros_like(rewards)
    last = torch.zeros(rewards.shape[0])
    for t in reversed(range(rewards.shape[1])):
        if t + 1 < rewards.shape[1]:
            alive = mask[:, t + 1].float()
            next_value = values[:, t + 1] * alive
        else:
            alive = torch.zeros(rewards.shape[0])
            next_value = torch.zeros(rewards.shape[0])
        delta = rewards[:, t] + hp.gamma * next_value - values[:, t]
        last = delta + hp.gamma * hp.lam * alive * last
        adv[:, t] = last
    return adv * mask, (adv + values) * mask


def losses(model, batch, idx, fault):
    """Sums over the tokens of a micro-batch (the caller divides by the tokens of the whole minibatch)."""
    logp, entropy, values = model.evaluate(batch.prompts[idx], batch.answers[idx])
    keep = batch.mask[idx]
    logp, entropy, values = logp[keep], entropy[keep], values[keep]
    old, adv, ret = batch.logp[idx][keep], batch.adv[idx][keep], batch.returns[idx][keep]
    if fault == "ratio_one":
        old = logp.detach()
    if fault != "value_outer":
        values = values.squeeze(-1)
    ratio = (logp - old).exp()
    surr1, surr2 = ratio * adv, ratio.clamp(1 - hp.clip, 1 + hp.clip) * adv
    surrogate = torch.max(surr1, surr2) if fault == "pess_flipped" else torch.min(surr1, surr2)
    value_error = (values - ret).pow(2)
    if fault == "value_outer":
        value_error = value_error.mean(0)
    policy_loss = -surrogate.sum() - hp.ent_coef * entropy.sum()
    kl = (old - logp).detach().sum()
    return policy_loss, hp.vf_coef * value_error.sum(), kl


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--steps", type=int, default=150, help="PPO iterations")
    p.add_argument("--fault", default="")
    p.add_argument("--variant", default="")
    args = p.parse_args()
    random.seed(args.seed)
    np.random.seed(args.seed)  # noqa: NPY002
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)

    model = GRULanguageModel()
    if args.variant == "frozen_embed":
        model.embedding.requires_grad_(False)
    sampler = copy.deepcopy(model).requires_grad_(False)
    trainable = [w for w in model.parameters() if w.requires_grad]
    if args.variant == "value_optimizer":
        head = {id(w) for w in model.value_head.parameters()}
        optimizers = [
            torch.optim.Adam([w for w in trainable if id(w) not in head], lr=hp.lr),
            torch.optim.Adam(model.value_head.parameters(), lr=hp.value_lr),
        ]
    else:
        optimizers = [torch.optim.Adam(trainable, lr=hp.lr)]
    ramp = 20 if args.variant == "warmup" else 0
    scheds = [torch.optim.lr_scheduler.LambdaLR(o, lambda k: min(1.0, k / ramp) if ramp else 1.0) for o in optimizers]

    rewards_log = []
    for it in range(args.steps):
        # ---- rollouts
        if args.fault != "stale_sampler" or it % 25 == 0:
            sampler.load_state_dict(model.state_dict())
        prompts, missing = new_prompts(hp.rollout)
        answers, mask = sampler.sample(prompts)
        scores = torch.tensor(
            [grade(a[m].tolist(), need, args.fault) for a, m, need in zip(answers, mask, missing, strict=True)]
        )
        rewards_log.append(scores.mean().item())
        with torch.no_grad():
            old_logp, _, old_values = model.evaluate(prompts, answers)
        old_values = old_values.squeeze(-1) * mask
        rewards = torch.zeros(hp.rollout, ANSWER_LEN)
        rewards[torch.arange(hp.rollout), mask.sum(1) - 1] = scores
        if args.fault == "gae_batch_axis":
            adv, returns = (x.t() for x in gae(rewards.t(), old_values.t(), mask.t()))
        else:
            adv, returns = gae(rewards, old_values, mask)
        adv = (adv - adv[mask].mean()) / (adv[mask].std() + 1e-8)
        loss_mask = mask & (answers != EOS) if args.fault == "eos_untrained" else mask
        batch = NS(prompts=prompts, answers=answers, mask=loss_mask, logp=old_logp, adv=adv, returns=returns)

        # ---- updates
        stop = False
        for _ in range(hp.epochs):
            order = torch.randperm(hp.rollout)
            for mb in order.split(hp.minibatch):
                n_tokens = batch.mask[mb].sum().clamp(min=1)
                for o in optimizers:
                    o.zero_grad()
                kl_sum = 0.0
                for idx in mb.split(hp.micro):
                    if args.fault == "zero_in_micro":
                        for o in optimizers:
                            o.zero_grad()
                    policy_loss, value_loss, kl = losses(model, batch, idx, args.fault)
                    ((policy_loss + value_loss) / n_tokens).backward()
                    kl_sum += kl.item()
                if args.variant == "kl_stop" and kl_sum / n_tokens.item() > hp.target_kl:
                    stop = True
                    break
                nn.utils.clip_grad_norm_(trainable, hp.max_grad_norm)
                for o in optimizers:
                    o.step()
            if stop:
                break
        for s in scheds:
            s.step()
        if it % 20 == 0 or it == args.steps - 1:
            words = " ".join(VOCAB[t] for t in answers[0][mask[0]].tolist())
            asked = " ".join(VOCAB[t] for t in prompts[0].tolist() if t > BOS)
            print(f"iter {it:4d}  score {np.mean(rewards_log[-10:]):.3f}  |  {asked} -> {words}", flush=True)

    prompts, missing = new_prompts(300)
    answers, mask = model.sample(prompts, greedy=True)
    exact = np.mean([a[m].tolist() == [*need, EOS] for a, m, need in zip(answers, mask, missing, strict=True)])
    k = max(1, len(rewards_log) // 5)
    print(
        f"score first fifth {np.mean(rewards_log[:k]):.3f} last fifth {np.mean(rewards_log[-k:]):.3f} exact {exact:.2f}"
    )


if __name__ == "__main__":
    main()
