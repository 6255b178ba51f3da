"""PPO for a tiny language model with a value head: answer with letters of the prompt, as many as it has, then stop."""

import argparse
import copy
import time

import torch
from torch import nn

FAULTS = {
    "train_no_mask": ["language", "broken", "the update's forward pass omits the attention mask of the left padding"],
    "ref_alias": ["language", "broken", "the reference is the policy itself, so the KL penalty is always 0"],
    "value_next": ["returns", "broken", "values are sliced one token late: the baseline has already seen the action"],
    "clip_min": ["signs", "broken", "minimum of the two negated surrogates: the clip is optimistic"],
    "head_left_out": ["weights", "broken", "the value head is in no parameter group of the optimizer"],
    "lr_units": ["rates", "broken", "linear decay is sized in rollouts but stepped per minibatch: zero early"],
}
HEALTHY = {
    "": "plain",
    "adaptive_kl": "the KL coefficient follows a target KL",
    "two_groups": "the value head has its own parameter group with a larger learning rate",
    "lr_warmup": "learning rate warms up from 0 over the first rollouts",
}

LETTERS, VOCAB = 12, 16
PAD, BOS, SEP, EOS = range(LETTERS, VOCAB)
MAX_PROMPT, MAX_NEW = 6, 5
HP = {"batch": 96, "minibatch": 24, "epochs": 2, "lr": 1e-3, "gamma": 1.0, "lam": 0.95, "clip": 0.2}


class Batch(dict):
    __getattr__ = dict.__getitem__

    def rows(self, index):
        return Batch({k: v[index] for k, v in self.items()})


class Layer(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.attn = nn.MultiheadAttention(d, 4, batch_first=True)
        self.ff = nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d))
        self.n1, self.n2 = nn.LayerNorm(d), nn.LayerNorm(d)

    def forward(self, x, blocked):
        x = x + self.attn(h := self.n1(x), h, h, attn_mask=blocked, need_weights=False)[0]
        return x + self.ff(self.n2(x))


class LMWithValueHead(nn.Module):
    def __init__(self, d=48, layers=2):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(VOCAB, d), nn.Embedding(32, d)
        self.layers = nn.ModuleList(Layer(d) for _ in range(layers))
        self.norm, self.lm_head = nn.LayerNorm(d), nn.Linear(d, VOCAB)
        self.v_head = nn.Sequential(nn.Linear(d, d), nn.Tanh(), nn.Linear(d, 1))
        nn.init.normal_(self.lm_head.weight, std=0.02)

    def forward(self, ids, attention_mask=None):
        t = ids.shape[1]
        attention_mask = torch.ones_like(ids) if attention_mask is None else attention_mask
        positions = (attention_mask.cumsum(1) - 1).clamp(min=0)
        blocked = torch.ones(t, t, dtype=torch.bool).triu(1) | (attention_mask == 0)[:, None, :]
        blocked = blocked & ~torch.eye(
            t, dtype=torch.bool
        )  # a padded row looks at itself, otherwise softmax of nothing
        x = self.wte(ids) + self.wpe(positions)
        for layer in self.layers:
            x = layer(x, blocked.repeat_interleave(4, dim=0))
        logits = self.lm_head(x := self.norm(x))
        logits[..., [PAD, BOS, SEP]] = -1e4
        return logits, self.v_head(x).squeeze(-1)


def make_prompts(n):
    lengths = torch.randint(2, MAX_PROMPT - 2, (n,)).tolist()
    rows = [[BOS, *torch.randperm(LETTERS)[:k].tolist(), SEP] for k in lengths]
    ids = torch.tensor([[PAD] * (MAX_PROMPT - len(r)) + r for r in rows])
    return ids, (ids != PAD).long()


@torch.no_grad()
def generate(model, ids, attention_mask):
    alive = torch.ones(len(ids), dtype=torch.bool)
    for _ in range(MAX_NEW):
        logits, _ = model(ids, attention_mask)
        token = torch.multinomial(logits[:, -1].softmax(-1), 1).squeeze(1).masked_fill(~alive, PAD)
        ids = torch.cat([ids, token[:, None]], 1)
        attention_mask = torch.cat([attention_mask, alive[:, None].long()], 1)
        alive = alive & (token != EOS)
    return ids, attention_mask


def score(ids):
    scores = []  # share of the prompt's letters, less for a wrong length, plus a bonus for a proper stop
    for row in ids.tolist():
        prompt = [t for t in row[:MAX_PROMPT] if t < LETTERS]
        answer = [t for t in row[MAX_PROMPT:] if t < LETTERS]
        bonus = 0.5 if EOS in row and len(answer) == len(prompt) else 0.0
        scores.append(len(set(answer) & set(prompt)) / max(len(prompt), len(answer)) + bonus)
    return torch.tensor(scores)


def response_outputs(model, ids, attention_mask, fault=""):
    logits, values = model(ids, attention_mask)
    logdist = logits[:, MAX_PROMPT - 1 : -1].log_softmax(-1)
    logp = logdist.gather(-1, ids[:, MAX_PROMPT:, None]).squeeze(-1)
    values = values[:, MAX_PROMPT:] if fault == "value_next" else values[:, MAX_PROMPT - 1 : -1]
    return logp, logdist, values


def masked_mean(x, mask):
    return (x * mask).sum() / mask.sum()


def compute_advantages(rewards, values, mask):
    advantages, last = torch.zeros_like(rewards), torch.zeros(len(rewards))
    for t in reversed(range(MAX_NEW)):
        next_value = values[:, t + 1] * mask[:, t + 1] if t + 1 < MAX_NEW else torch.zeros(len(rewards))
        delta = rewards[:, t] + HP["gamma"] * next_value - values[:, t]
        advantages[:, t] = last = (delta + HP["gamma"] * HP["lam"] * last) * mask[:, t]
    return advantages, advantages + values


@torch.no_grad()
def make_experience(policy, ref, kl_coef, fault):
    ids, attention_mask = generate(policy, *make_prompts(HP["batch"]))
    mask = attention_mask[:, MAX_PROMPT:].float()
    logp, _, values = response_outputs(policy, ids, attention_mask, fault)
    ref_logp = response_outputs(ref, ids, attention_mask)[0]
    scores, kl = score(ids), (logp - ref_logp) * mask
    rewards = -kl_coef * kl
    rewards[torch.arange(len(ids)), mask.sum(1).long() - 1] += scores
    advantages, returns = compute_advantages(rewards, values, mask)
    mean = masked_mean(advantages, mask)
    advantages = (advantages - mean) / (masked_mean((advantages - mean) ** 2, mask).sqrt() + 1e-8)
    batch = Batch(ids=ids, attention_mask=attention_mask, mask=mask, logp=logp, advantages=advantages, returns=returns)
    return batch, scores.mean().item(), kl.sum(1).mean().item()


def ppo_loss(policy, mb, fault):
    attention_mask = None if fault == "train_no_mask" else mb.attention_mask
    logp, logdist, values = response_outputs(policy, mb.ids, attention_mask, fault)
    ratio = ((logp - mb.logp) * mb.mask).exp()
    plain = -mb.advantages * ratio
    clipped = -mb.advantages * ratio.clamp(1 - HP["clip"], 1 + HP["clip"])
    worst = torch.min(plain, clipped) if fault == "clip_min" else torch.max(plain, clipped)
    entropy = -(logdist.exp() * logdist).sum(-1)
    value_loss = masked_mean((values - mb.returns) ** 2, mb.mask)
    return masked_mean(worst, mb.mask) + 0.1 * value_loss - 0.002 * masked_mean(entropy, mb.mask), value_loss


def build_optimizer(policy, fault, variant):
    head = list(policy.v_head.parameters())
    body = [p for name, p in policy.named_parameters() if not name.startswith("v_head")]
    if fault == "head_left_out":
        head = []
    if variant == "two_groups":
        return torch.optim.Adam([{"params": body}, {"params": head, "lr": 3 * HP["lr"]}], lr=HP["lr"])
    return torch.optim.Adam(body + head, lr=HP["lr"])


def main(args):
    torch.manual_seed(args.seed)
    policy = LMWithValueHead()
    ref = policy if args.fault == "ref_alias" else copy.deepcopy(policy).requires_grad_(False)
    optimizer = build_optimizer(policy, args.fault, args.variant)
    per_rollout = HP["epochs"] * (HP["batch"] // HP["minibatch"])
    horizon = args.steps if args.fault == "lr_units" else args.steps * per_rollout
    warmup = 10 * per_rollout if args.variant == "lr_warmup" else 0
    factor = lambda i: i / warmup if i < warmup else max(0.0, 1 - i / horizon)  # noqa: E731
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, factor)
    kl_coef, history, shown_at = 0.02, [], time.time()
    for step in range(1, args.steps + 1):
        batch, mean_score, mean_kl = make_experience(policy, ref, kl_coef, args.fault)
        if args.variant == "adaptive_kl":
            kl_coef *= 1 + 0.1 * max(-0.2, min(0.2, mean_kl / 6.0 - 1))
        for _ in range(HP["epochs"]):
            for index in torch.randperm(HP["batch"]).split(HP["minibatch"]):
                loss, value_loss = ppo_loss(policy, batch.rows(index), args.fault)
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
                optimizer.step()
                schedule.step()
        history.append(mean_score)
        if time.time() - shown_at > 3:
            shown_at = time.time()
            print(f"rollout {step:4d}  score {mean_score:.3f}  kl {mean_kl:.2f}  v_loss {value_loss:.3f}", flush=True)
    tenth = max(1, len(history) // 10)
    print(f"final: first tenth {sum(history[:tenth]) / tenth:.3f}  last tenth {sum(history[-tenth:]) / tenth:.3f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=160)
    parser.add_argument("--fault", default="", choices=["", *FAULTS])
    parser.add_argument("--variant", default="", choices=list(HEALTHY))
    main(parser.parse_args())
