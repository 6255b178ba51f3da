"""RLOO fine-tuning of a very small decoder-only transformer.

The prompt is a handful of digits, the model has to write them down again in ascending order and stop:

    <pad> <bos> 7 2 5 <sep>   ->   2 5 7 <eos>

Every prompt is answered several times and the other answers of the same prompt are the baseline
("Back to Basics", Ahmadian et al. 2024).  A KL term ties the policy to a frozen reference.
"""

import argparse
import copy
import math
import random
import time
from collections import Counter
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

FAULTS = {
    "temp_missing": ["language", "broken", "sampled at temperature 1.25, log-probs of the loss at temperature 1"],
    "unshifted": [
        "language",
        "broken",
        "logits not shifted: each token is scored by the position that already sees it",
    ],
    "ref_alias": ["language", "broken", "the frozen reference is the policy object itself, KL is always zero"],
    "kl_sign": ["signs", "broken", "the KL term is subtracted from the loss, drifting away is rewarded"],
    "adv_order": ["returns", "broken", "advantages flattened in the other order than the samples"],
    "resize_after_opt": [
        "weights",
        "broken",
        "embedding resized after the optimizer was built, the new one never trains",
    ],
    "score_sees_padding": ["language", "broken", "padding is masked while sampling but attended to when scoring"],
    "clip_first": ["rates", "broken", "gradient clipping is called before backward and clips nothing"],
}
HEALTHY = {
    "": "plain",
    "sft": "a short supervised warm start (copying) precedes the RL phase, the reference is the warm model",
    "accumulate": "the batch is split in four micro-batches, gradients accumulated and scaled",
    "warmup": "the learning rate starts at 0 and warms up over the first 40 updates",
    "kl_in_reward": "the KL is subtracted from the reward instead of being a loss term",
}

PAD, BOS, EOS, SEP, DIGIT0 = 0, 1, 2, 3, 4
N_SYMBOLS = 14
MAX_DIGITS, N_NEW = 5, 8
N_PROMPT = MAX_DIGITS + 2


@dataclass
class Config:
    width: int = 48
    heads: int = 4
    layers: int = 2
    prompts: int = 16
    samples: int = 8
    lr: float = 1e-3
    temperature: float = 1.25
    kl_coef: float = 0.01
    max_norm: float = 1.0


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.ln1, self.ln2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x, allowed):
        b, t, c = x.shape
        q, k, v = (z.view(b, t, self.heads, -1).transpose(1, 2) for z in self.qkv(self.ln1(x)).chunk(3, dim=-1))
        att = (q @ k.transpose(-2, -1)) / math.sqrt(c // self.heads)
        att = att.masked_fill(~allowed[:, None], -1e9).softmax(dim=-1)
        x = x + self.proj((att @ v).transpose(1, 2).reshape(b, t, c))
        return x + self.mlp(self.ln2(x))


class TinyGPT(nn.Module):
    """Decoder-only transformer, input and output embeddings tied."""

    def __init__(self, cfg, vocab=N_SYMBOLS):
        super().__init__()
        self.embed = nn.Embedding(vocab, cfg.width)
        self.pos = nn.Embedding(N_PROMPT + N_NEW, cfg.width)
        nn.init.normal_(self.embed.weight, std=0.2)
        nn.init.normal_(self.pos.weight, std=0.1)
        self.blocks = nn.ModuleList(Block(cfg.width, cfg.heads) for _ in range(cfg.layers))
        self.ln = nn.LayerNorm(cfg.width)

    def resize_vocab(self, n):
        """Pad the vocabulary (to a multiple of 8), the old rows are kept."""
        old = self.embed
        self.embed = nn.Embedding(n, old.weight.shape[1])
        with torch.no_grad():
            self.embed.weight.normal_(std=0.2)
            self.embed.weight[: old.weight.shape[0]] = old.weight

    def forward(self, ids, hide_padding=True):
        t = ids.shape[1]
        real = ids != PAD
        positions = (real.cumsum(1) - 1).clamp(min=0)
        causal = torch.ones(t, t, dtype=torch.bool).tril()
        allowed = causal.expand(ids.shape[0], t, t)
        if hide_padding:
            allowed = (allowed & real[:, None, :]) | torch.eye(t, dtype=torch.bool)
        x = self.embed(ids) + self.pos(positions)
        for block in self.blocks:
            x = block(x, allowed)
        logits = self.ln(x) @ self.embed.weight.t()
        # these can never be an answer
        logits[..., [PAD, BOS, SEP]] = -1e9
        logits[..., N_SYMBOLS:] = -1e9
        return logits


def make_prompts(n):
    """n random prompts, padded on the left to the same length."""
    rows = torch.full((n, N_PROMPT), PAD)
    digits = []
    for i in range(n):
        d = random.sample(range(10), random.randint(2, MAX_DIGITS))
        row = torch.tensor([BOS, *[DIGIT0 + x for x in d], SEP])
        rows[i, N_PROMPT - len(row) :] = row
        digits.append(d)
    return rows, digits


@torch.no_grad()
def generate(model, prompts, temperature, greedy=False):
    """Returns the whole sequences and the mask of written tokens (up to and including <eos>)."""
    ids = prompts
    alive = torch.ones(len(prompts), dtype=torch.bool)
    mask = []
    for _ in range(N_NEW):
        logits = model(ids)[:, -1] / temperature
        nxt = logits.argmax(-1) if greedy else torch.multinomial(logits.softmax(-1), 1)[:, 0]
        nxt = torch.where(alive, nxt, torch.full_like(nxt, PAD))
        mask.append(alive.float())
        alive = alive & (nxt != EOS)
        ids = torch.cat([ids, nxt[:, None]], dim=1)
    return ids, torch.stack(mask, dim=1)


def score(digits, answer):
    """0.75 for the right digits (F1), 0.15 for their order, 0.1 for stopping."""
    ended = EOS in answer
    words = [t - DIGIT0 for t in (answer[: answer.index(EOS)] if ended else answer)]
    hits = sum((Counter(words) & Counter(digits)).values())
    f1 = 2 * hits / (len(words) + len(digits))
    pairs = list(pairwise(words))
    order = sum(a < b for a, b in pairs) / len(pairs) if pairs else 0.0
    return 0.75 * f1 + 0.15 * f1 * order + 0.1 * ended


def step_logprobs(model, ids, temperature, fault=""):
    """Log-probabilities over the vocabulary for every written token, and those of the written tokens."""
    logits = model(ids, hide_padding=fault != "score_sees_padding")
    if fault == "unshifted":
        logits = logits[:, N_PROMPT:]
    else:
        logits = logits[:, N_PROMPT - 1 : -1]
    logp = F.log_softmax(logits / (1.0 if fault == "temp_missing" else temperature), dim=-1)
    # the fill after <eos> is scored as <eos>; it is masked out by the caller anyway
    written = ids[:, N_PROMPT:]
    written = torch.where(written == PAD, torch.full_like(written, EOS), written)
    return logp, logp.gather(-1, written[..., None])[..., 0]


def supervised_warm_start(model, steps=80):
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    for _ in range(steps):
        prompts, digits = make_prompts(64)
        answers = torch.full((64, N_NEW), PAD)
        for i, d in enumerate(digits):
            answers[i, : len(d) + 1] = torch.tensor([DIGIT0 + x for x in d] + [EOS])
        logits = model(torch.cat([prompts, answers], dim=1))[:, N_PROMPT - 1 : -1]
        loss = F.cross_entropy(logits.reshape(-1, logits.shape[-1]), answers.reshape(-1), ignore_index=PAD)
        opt.zero_grad()
        loss.backward()
        opt.step()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=240, help="number of policy updates")
    parser.add_argument("--fault", default="")
    parser.add_argument("--variant", default="")
    args = parser.parse_args()
    cfg = Config()
    torch.set_num_threads(1)
    random.seed(args.seed)
    np.random.seed(args.seed)  # noqa: NPY002
    torch.manual_seed(args.seed)

    policy = TinyGPT(cfg)
    if args.fault == "resize_after_opt":
        opt = torch.optim.Adam(policy.parameters(), lr=cfg.lr)
        policy.resize_vocab(16)
    else:
        policy.resize_vocab(16)
        opt = torch.optim.Adam(policy.parameters(), lr=cfg.lr)
    if args.variant == "sft":
        supervised_warm_start(policy)
    reference = policy if args.fault == "ref_alias" else copy.deepcopy(policy).requires_grad_(False)
    warm = 40 if args.variant == "warmup" else 0
    sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda k: min(1.0, k / warm) if warm else 1.0)

    history, t0 = [], time.time()
    n = cfg.prompts * cfg.samples
    for update in range(args.steps):
        prompts, digits = make_prompts(cfg.prompts)
        ids, mask = generate(policy, prompts.repeat_interleave(cfg.samples, dim=0), cfg.temperature)
        answers = [
            [tok for tok, m in zip(row, keep, strict=True) if m]
            for row, keep in zip(ids[:, N_PROMPT:].tolist(), mask.tolist(), strict=True)
        ]
        raw = torch.tensor([score(digits[i // cfg.samples], answers[i]) for i in range(n)])
        history.append(raw.mean().item())

        rewards = raw
        if args.variant == "kl_in_reward":
            with torch.no_grad():
                drift = (
                    step_logprobs(policy, ids, cfg.temperature)[1] - step_logprobs(reference, ids, cfg.temperature)[1]
                )
            rewards = raw - cfg.kl_coef * (drift * mask).sum(1)
        group = rewards.view(cfg.prompts, cfg.samples)
        others = (group.sum(1, keepdim=True) - group) / (cfg.samples - 1)
        adv = group - others
        adv = adv.t().reshape(-1) if args.fault == "adv_order" else adv.reshape(-1)

        chunks = torch.arange(n).chunk(4 if args.variant == "accumulate" else 1)
        opt.zero_grad()
        kl_seen = 0.0
        for idx in chunks:
            logp, taken = step_logprobs(policy, ids[idx], cfg.temperature, args.fault)
            with torch.no_grad():
                ref_logp, _ = step_logprobs(reference, ids[idx], cfg.temperature, args.fault)
            kl = (logp.exp() * (logp - ref_logp)).sum(-1)
            kl = (kl * mask[idx]).sum(1).mean()
            pg = -(adv[idx] * (taken * mask[idx]).sum(1)).mean()
            if args.variant == "kl_in_reward":
                loss = pg
            elif args.fault == "kl_sign":
                loss = pg - cfg.kl_coef * kl
            else:
                loss = pg + cfg.kl_coef * kl
            kl_seen += kl.item() / len(chunks)
            if args.fault == "clip_first":
                nn.utils.clip_grad_norm_(policy.parameters(), cfg.max_norm)
            (loss / len(chunks)).backward()
        if args.fault != "clip_first":
            nn.utils.clip_grad_norm_(policy.parameters(), cfg.max_norm)
        opt.step()
        sched.step()

        if update % 40 == 0 or update == args.steps - 1:
            shown = "".join(str(t - DIGIT0) if t >= DIGIT0 else "." for t in answers[0])
            print(
                f"{update:4d} reward {np.mean(history[-20:]):.3f} kl {kl_seen:.3f} {digits[0]} -> {shown}", flush=True
            )

    prompts, digits = make_prompts(256)
    ids, _ = generate(policy, prompts, 1.0, greedy=True)
    final = np.mean(
        [score(d, [t for t in row if t != PAD]) for d, row in zip(digits, ids[:, N_PROMPT:].tolist(), strict=True)]
    )
    k = max(1, len(history) // 5)
    print(
        f"mean reward, first fifth {np.mean(history[:k]):.3f}, last fifth {np.mean(history[-k:]):.3f}, greedy {final:.3f}"
    )
    print(f"{time.time() - t0:.1f} s")


if __name__ == "__main__":
    main()
