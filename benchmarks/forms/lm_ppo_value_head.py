"""RLHF-style PPO on tokens: policy head and value head on one causal transformer trunk, frozen reference model.

Task: the prompt holds five digits (0-7); the answer is those digits that are 4 or more, in order, then <eos>. The score
(1 for an exact answer, else half the share of agreeing positions) arrives with the last token of the answer; each token
also pays beta * (log pi - log pi_ref), taken at sampling time, inside of the rewards.

A token is an action, the text before it the state: V(s_t) is read at the position that predicts token t. An answer is
over at <eos> or at MAX_NEW tokens; both are true ends of the task (the score is final), so nothing is bootstrapped after
them. Tokens after the end are masked out of the losses and out of the whitening of the advantages. The reference is a
copy of the warmed-up model, without gradients on purpose.
"""

import argparse
import copy
import math

import torch
from torch import nn
from torch.nn import functional as F

N_DIGITS, N_PROMPT = 8, 5
PAD, SEP, EOS = N_DIGITS, N_DIGITS + 1, N_DIGITS + 2
VOCAB = N_DIGITS + 3
P = N_PROMPT + 1
MAX_NEW = N_PROMPT + 1


class SelfAttention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.proj = nn.Linear(width, width)

    def forward(self, x):
        b, t, w = x.shape
        q, k, v = (f(x).view(b, t, self.heads, -1).transpose(1, 2) for f in (self.query, self.key, self.value))
        scores = q @ k.transpose(-1, -2) / math.sqrt(w // self.heads)
        future = torch.ones(t, t, dtype=torch.bool).triu(1)
        att = scores.masked_fill(future, float("-inf")).softmax(-1)
        return self.proj((att @ v).transpose(1, 2).reshape(b, t, w))


class Layer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attn = SelfAttention(width, heads)
        self.ff = nn.Sequential(nn.Linear(width, 3 * width), nn.ReLU(), nn.Linear(3 * width, width))

    def forward(self, x):
        x = x + self.attn(self.ln1(x))
        return x + self.ff(self.ln2(x))


class ActorCriticLM(nn.Module):
    def __init__(self, width=48, heads=4, depth=2):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, width)
        self.position = nn.Parameter(0.02 * torch.randn(P + MAX_NEW, width))
        self.layers = nn.Sequential(*[Layer(width, heads) for _ in range(depth)], nn.LayerNorm(width))
        self.lm_head = nn.Linear(width, VOCAB)
        self.value_head = nn.Linear(width, 1)
        nn.init.zeros_(self.value_head.weight)
        nn.init.zeros_(self.value_head.bias)

    def forward(self, ids):
        h = self.layers(self.embed(ids) + self.position[: ids.shape[1]])
        return self.lm_head(h), self.value_head(h).squeeze(-1)


def new_prompts(n, gen):
    return torch.cat([torch.randint(N_DIGITS, (n, N_PROMPT), generator=gen), torch.full((n, 1), SEP)], 1)


def right_answer(row):
    return [d for d in row[:N_PROMPT] if d >= N_DIGITS // 2] + [EOS]


def score_answer(row, n_tokens):
    got, want = row[P : P + n_tokens], right_answer(row)
    if got == want:
        return 1.0
    return 0.5 * sum(g == w for g, w in zip(got, want, strict=False)) / max(len(got), len(want))


def answer_stats(model, ids):
    """log-probs of the answer's tokens, state values and entropies at the positions that predict them"""
    logits, values = model(ids[:, :-1])
    logp_all = logits[:, P - 1 :].log_softmax(-1)
    logp = logp_all.gather(2, ids[:, P:, None]).squeeze(2)
    entropy = -(logp_all.exp() * logp_all).sum(-1)
    return logp, values[:, P - 1 :], entropy


@torch.no_grad()
def sample(model, prompts, gen=None):
    """Sampled with `gen`, greedy without it."""
    ids = prompts
    alive = torch.ones(len(prompts), dtype=torch.bool)
    mask = torch.zeros(len(prompts), MAX_NEW)
    for t in range(MAX_NEW):
        logits = model(ids)[0][:, -1]
        tok = logits.argmax(-1) if gen is None else torch.multinomial(logits.softmax(-1), 1, generator=gen)[:, 0]
        tok = tok.masked_fill(~alive, PAD)
        mask[:, t] = alive.float()
        alive = alive & (tok != EOS)
        ids = torch.cat([ids, tok[:, None]], 1)
        if not alive.any():
            break
    missing = P + MAX_NEW - ids.shape[1]
    return F.pad(ids, (0, missing), value=PAD), mask


def scores_of(ids, mask):
    return torch.tensor([score_answer(r, int(n)) for r, n in zip(ids.tolist(), mask.sum(1).tolist(), strict=True)])


def masked_mean(x, mask):
    return (x * mask).sum() / mask.sum()


def gae(rewards, values, mask, gamma, lam):
    adv = torch.zeros_like(rewards)
    carry = torch.zeros(len(rewards))
    for t in reversed(range(MAX_NEW)):
        if t + 1 < MAX_NEW:
            goes_on = mask[:, t + 1]
            next_value = values[:, t + 1]
        else:
            goes_on = torch.zeros(len(rewards))
            next_value = torch.zeros(len(rewards))
        delta = rewards[:, t] + gamma * goes_on * next_value - values[:, t]
        carry = delta + gamma * lam * goes_on * carry
        adv[:, t] = carry
    return adv * mask, (adv + values) * mask


def pretrain(model, gen, steps=70, batch=64):
    opt = torch.optim.Adam(model.parameters(), lr=2e-3)
    for _ in range(steps):
        prompts = new_prompts(batch, gen)
        answers = [right_answer(r) for r in prompts.tolist()]
        target = torch.tensor([a + [PAD] * (MAX_NEW - len(a)) for a in answers])
        logits, _ = model(torch.cat([prompts, target], 1)[:, :-1])
        loss = F.cross_entropy(logits[:, P - 1 :].transpose(1, 2), target, ignore_index=PAD)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--updates", type=int, default=40)
    args = parser.parse_args()
    batch, epochs, minibatch = 256, 3, 128
    gamma, lam, clip, beta, vf_coef, ent_coef = 1.0, 0.95, 0.2, 0.02, 0.5, 0.001

    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    gen = torch.Generator().manual_seed(args.seed + 1)

    model = ActorCriticLM()
    pretrain(model, gen)
    reference = copy.deepcopy(model).eval().requires_grad_(False)
    test = new_prompts(256, torch.Generator().manual_seed(10_000 + args.seed))
    exact = (scores_of(*sample(model, test)) == 1).float().mean()
    print(f"pretrained: exact {exact:.3f}")

    opt = torch.optim.Adam(model.parameters(), lr=1e-3, eps=1e-5)
    for update in range(1, args.updates + 1):
        ids, mask = sample(model, new_prompts(batch, gen), gen)
        score = scores_of(ids, mask)
        with torch.no_grad():
            old_logp, old_values, _ = answer_stats(model, ids)
            ref_logp, _, _ = answer_stats(reference, ids)
        kl = (old_logp - ref_logp) * mask
        rewards = -beta * kl
        last = mask.sum(1).long() - 1
        rewards[torch.arange(batch), last] += score
        adv, returns = gae(rewards, old_values, mask, gamma, lam)
        mean = masked_mean(adv, mask)
        adv = (adv - mean) / (masked_mean((adv - mean) ** 2, mask).sqrt() + 1e-8)

        for _ in range(epochs):
            for rows in torch.randperm(batch, generator=gen).split(minibatch):
                logp, values, entropy = answer_stats(model, ids[rows])
                m, a = mask[rows], adv[rows]
                ratio = ((logp - old_logp[rows]) * m).exp()
                pg = -torch.minimum(ratio * a, ratio.clamp(1 - clip, 1 + clip) * a)
                vf = (values - returns[rows]).square()
                loss = masked_mean(pg + vf_coef * vf - ent_coef * entropy, m)
                opt.zero_grad(set_to_none=True)
                loss.backward()
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                opt.step()

        if update % 10 == 0:
            seq_kl = kl.sum(1).mean()
            print(f"update {update:3d}  score {score.mean():.3f}  kl {seq_kl:.3f}  vf loss {masked_mean(vf, m):.4f}")

    exact = (scores_of(*sample(model, test)) == 1).float().mean()
    print(f"after PPO: exact {exact:.3f}")


if __name__ == "__main__":
    main()
