"""GRPO from scratch on a toy string task.

The prompt is a count and a letter ("4c>"), the right answer is the letter that many times and then the end
token ("cccc$").  A two-layer causal transformer samples a group of completions per prompt, a checker scores
them, and the policy is pushed with a clipped, group-normalised policy gradient and a KL penalty to a frozen
reference.
"""

# ruff: noqa: B905, E402, NPY002
FAULTS = {
    "temperature_missing": [
        "language",
        "broken",
        "completions are sampled at temperature 1.3 but log-probs are those of temperature 1",
    ],
    "reference_is_policy": [
        "language",
        "broken",
        "the reference is the policy object itself, so the KL is only ever to the policy of this very batch",
    ],
    "mask_shifted": [
        "language",
        "broken",
        "the loss mask is one position late: the first answer token is dropped and a padding token is trained",
    ],
    "kl_sign": ["signs", "broken", "the KL penalty is subtracted from the loss, which rewards drifting away"],
    "group_axis": [
        "returns",
        "broken",
        "rewards are folded as (group, prompt), so each sample is compared with answers to other prompts",
    ],
    "schedule_per_minibatch": [
        "rates",
        "broken",
        "the linear schedule is sized in iterations but stepped per minibatch, so the rate is zero early",
    ],
    "lenient_checker": [
        "goal",
        "not proven",
        "the checker only asks that no wrong letter is used, so an empty answer scores full marks",
    ],
}
HEALTHY = {
    "": "plain: GRPO with clipping, KL to a frozen copy, two passes over each batch of completions",
    "warm_start": "a short supervised phase comes first, and the reference is the model after it",
    "single_pass": "one full-batch update per batch, so the ratio is always 1 and the shown loss is near 0",
    "accumulate": "each minibatch is split in four micro-batches whose scaled gradients are added up",
}

import argparse
import copy
import math
import random
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

LETTERS = "abcd"
COUNTS = "1234"
ITOS = ["_", "$", ">", *COUNTS, *LETTERS]
STOI = {ch: i for i, ch in enumerate(ITOS)}
PAD, END = STOI["_"], STOI["$"]
PROMPT_LEN = 3


@dataclass
class Config:
    steps: int = 160
    prompts: int = 16
    group: int = 8
    passes: int = 2
    minibatches: int = 2
    max_new: int = 6
    temperature: float = 1.3
    lr: float = 1.5e-3
    clip: float = 0.2
    beta: float = 0.02
    width: int = 48
    heads: int = 4
    layers: int = 2


# ---------------------------------------------------------------- model


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.ln1, self.ln2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.ff = nn.Sequential(nn.Linear(width, 3 * width), nn.GELU(), nn.Linear(3 * width, width))

    def forward(self, x):
        b, t, w = x.shape
        q, k, v = (z.view(b, t, self.heads, -1).transpose(1, 2) for z in self.qkv(self.ln1(x)).chunk(3, dim=-1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, w))
        return x + self.ff(self.ln2(x))


class CharLM(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.tok = nn.Embedding(len(ITOS), cfg.width)
        self.pos = nn.Embedding(PROMPT_LEN + cfg.max_new, cfg.width)
        self.blocks = nn.Sequential(*[Block(cfg.width, cfg.heads) for _ in range(cfg.layers)])
        self.norm = nn.LayerNorm(cfg.width)
        self.head = nn.Linear(cfg.width, len(ITOS), bias=False)
        nn.init.normal_(self.head.weight, std=0.02)

    def forward(self, ids):
        x = self.tok(ids) + self.pos(torch.arange(ids.shape[1]))
        return self.head(self.norm(self.blocks(x)))


# ---------------------------------------------------------------- task


def draw_prompts(n):
    """n random prompts as ids, and the answers as strings."""
    pairs = [(random.choice(COUNTS), random.choice(LETTERS)) for _ in range(n)]
    ids = torch.tensor([[STOI[c], STOI[ch], STOI[">"]] for c, ch in pairs])
    return ids, [ch * int(c) for c, ch in pairs]


def decode(row):
    """Text before the end token, or None when the model never ended."""
    row = row.tolist()
    if END not in row:
        return None
    return "".join(ITOS[i] for i in row[: row.index(END)])


def check(text, answer):
    """Partial credit for matching places, over the longer of the two; 1.0 only for the exact answer."""
    if text is None:
        return 0.0
    hits = sum(a == b for a, b in zip(text, answer))
    return hits / max(len(text), len(answer))


def check_letters(text, answer):
    if text is None:
        return 0.0
    wrong = sum(ch not in answer for ch in text)
    return 1.0 - wrong / max(len(text), 1)


# ---------------------------------------------------------------- sampling and log-probs


@torch.no_grad()
def generate(model, prompts, cfg, greedy=False):
    ids = prompts
    ended = torch.zeros(len(prompts), dtype=torch.bool)
    for _ in range(cfg.max_new):
        logits = model(ids)[:, -1]
        if greedy:
            nxt = logits.argmax(-1)
        else:
            nxt = torch.multinomial(F.softmax(logits / cfg.temperature, dim=-1), 1).squeeze(1)
        nxt = torch.where(ended, torch.full_like(nxt, PAD), nxt)
        ended = ended | (nxt == END)
        ids = torch.cat([ids, nxt[:, None]], dim=1)
    return ids


def token_logprobs(model, ids, temperature):
    """Log-prob of ids[:, 1:] under the model, shape (batch, len - 1)."""
    logits = model(ids)[:, :-1] / temperature
    return torch.gather(logits.log_softmax(-1), 2, ids[:, 1:, None]).squeeze(2)


def answer_mask(ids):
    """1 on every sampled token up to and including the end token; prompt and padding are 0."""
    mask = torch.zeros(ids.shape)
    is_end = (ids[:, PROMPT_LEN:] == END).long()
    mask[:, PROMPT_LEN:] = (is_end.cumsum(1) - is_end == 0).float()
    return mask


# ---------------------------------------------------------------- training


def warm_start(model, cfg, rounds=25):
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    for _ in range(rounds):
        prompts, answers = draw_prompts(32)
        tails = [[STOI[c] for c in a] + [END] + [PAD] * (cfg.max_new - len(a) - 1) for a in answers]
        ids = torch.cat([prompts, torch.tensor(tails)], dim=1)
        mask = answer_mask(ids)[:, 1:]
        loss = -(token_logprobs(model, ids, 1.0) * mask).sum() / mask.sum()
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(f"supervised warm start: cross-entropy {loss.item():.3f}")


@torch.no_grad()
def exact_match(model, cfg):
    prompts = torch.tensor([[STOI[c], STOI[ch], STOI[">"]] for c in COUNTS for ch in LETTERS])
    answers = [ch * int(c) for c in COUNTS for ch in LETTERS]
    out = generate(model, prompts, cfg, greedy=True)[:, PROMPT_LEN:]
    return sum(decode(r) == a for r, a in zip(out, answers)) / len(answers)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--seed", type=int, default=0)
    ap.add_argument("--fault", default="", choices=["", *FAULTS])
    ap.add_argument("--variant", default="", choices=list(HEALTHY))
    ap.add_argument("--steps", type=int, default=Config.steps)
    args = ap.parse_args()

    torch.set_num_threads(1)
    random.seed(args.seed)
    np.random.seed(args.seed)
    torch.manual_seed(args.seed)

    cfg = Config(steps=args.steps)
    if args.variant == "single_pass":
        cfg.passes, cfg.minibatches = 1, 1
        cfg.steps = 2 * cfg.steps
        cfg.lr = 2e-3
    micro = 4 if args.variant == "accumulate" else 1

    policy = CharLM(cfg)
    if args.variant == "warm_start":
        warm_start(policy, cfg)

    reference = policy if args.fault == "reference_is_policy" else copy.deepcopy(policy).requires_grad_(False)
    score_temperature = 1.0 if args.fault == "temperature_missing" else cfg.temperature
    reward_fn = check_letters if args.fault == "lenient_checker" else check

    opt = torch.optim.AdamW(policy.parameters(), lr=cfg.lr, betas=(0.9, 0.95), weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.LambdaLR(opt, lambda k: max(0.0, 1.0 - k / cfg.steps))

    for step in range(1, cfg.steps + 1):
        prompts, answers = draw_prompts(cfg.prompts)
        prompts = prompts.repeat_interleave(cfg.group, dim=0)
        answers = [a for a in answers for _ in range(cfg.group)]

        ids = generate(policy, prompts, cfg)
        rewards = torch.tensor([reward_fn(decode(row[PROMPT_LEN:]), a) for row, a in zip(ids, answers)])

        if args.fault == "group_axis":
            folded = rewards.view(cfg.group, cfg.prompts)
            mean, std = folded.mean(0, keepdim=True), folded.std(0, keepdim=True)
        else:
            folded = rewards.view(cfg.prompts, cfg.group)
            mean, std = folded.mean(1, keepdim=True), folded.std(1, keepdim=True)
        advantages = ((folded - mean) / (std + 1e-4)).view(-1)

        full_mask = answer_mask(ids)
        mask = full_mask[:, :-1] if args.fault == "mask_shifted" else full_mask[:, 1:]
        with torch.no_grad():
            old_lp = token_logprobs(policy, ids, score_temperature)
            ref_lp = token_logprobs(reference, ids, score_temperature)

        shown_loss = shown_kl = clipped = 0.0
        n_updates = 0
        for _ in range(cfg.passes):
            for idx in torch.randperm(len(ids)).chunk(cfg.minibatches):
                opt.zero_grad()
                tokens = mask[idx].sum()
                for part in idx.chunk(micro):
                    lp = token_logprobs(policy, ids[part], score_temperature)
                    m = mask[part]
                    ratio = (lp - old_lp[part]).exp()
                    adv = advantages[part, None]
                    surrogate = torch.minimum(ratio * adv, ratio.clamp(1 - cfg.clip, 1 + cfg.clip) * adv)
                    delta = ref_lp[part] - lp
                    kl = delta.exp() - delta - 1
                    if args.fault == "kl_sign":
                        per_token = -surrogate - cfg.beta * kl
                    else:
                        per_token = -surrogate + cfg.beta * kl
                    # token mean over the whole minibatch, so micro-batches simply add up
                    loss = (per_token * m).sum() / tokens
                    loss.backward()
                    shown_loss += loss.item()
                    shown_kl += ((kl * m).sum() / tokens).item()
                    clipped += ((((ratio - 1).abs() > cfg.clip) * m).sum() / tokens).item()
                nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
                opt.step()
                n_updates += 1
                if args.fault == "schedule_per_minibatch":
                    schedule.step()
        if args.fault != "schedule_per_minibatch":
            schedule.step()

        if step == 1 or step % max(1, cfg.steps // 12) == 0:
            length = full_mask.sum(1).mean().item()
            print(
                f"step {step:4d}  reward {rewards.mean():.3f}  len {length:.2f}  loss {shown_loss / n_updates:+.4f}  "
                f"kl {shown_kl / n_updates:.3f}  clipfrac {clipped / n_updates:.3f}  lr {opt.param_groups[0]['lr']:.2e}"
            )

    assert math.isfinite(shown_loss)
    print(f"greedy exact match over all {len(COUNTS) * len(LETTERS)} prompts: {exact_match(policy, cfg):.2f}")


if __name__ == "__main__":
    main()
