"""GSPO on a tiny causal transformer: one importance ratio per answer instead of one per token.

Task: the prompt holds five digits, the answer is the sorted set of those digits (no repeats) and <eos>, so answers have
between two and six tokens. A checker gives the share of positions that agree with the right answer.

The ratio of an answer is exp(mean over its tokens of (log pi_new - log pi_old)), i.e. the sequence ratio to the power of
1/length, and it is clipped as a whole. Every rollout is used for two optimizer steps; each step adds up the gradients of
four micro-batches of equal size, each loss divided by four, which is exactly the gradient of the whole minibatch because
GSPO weighs all answers equally. Gradients are cleared once per step, after the step. The old log-probs are those of the
policy that sampled (same temperature of 1), the mask covers the answer up to and including <eos>.
"""

import argparse
import random

import torch
import torch.nn as nn
import torch.nn.functional as F

DIGITS = 8
PAD, SEP, EOS = 8, 9, 10
VOCAB = 11
PROMPT_DIGITS = 5
PROMPT_LEN = PROMPT_DIGITS + 1
MAX_NEW = PROMPT_DIGITS + 1


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(dim)
        self.qkv = nn.Linear(dim, 3 * dim)
        self.out = nn.Linear(dim, dim)
        self.norm2 = nn.LayerNorm(dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, d))
        return x + self.mlp(self.norm2(x))


class TinyGPT(nn.Module):
    def __init__(self, dim=48, heads=4, layers=2):
        super().__init__()
        self.tok = nn.Embedding(VOCAB, dim)
        self.pos = nn.Embedding(PROMPT_LEN + MAX_NEW, dim)
        self.blocks = nn.ModuleList(Block(dim, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, VOCAB, bias=False)

    def forward(self, ids):
        x = self.tok(ids) + self.pos(torch.arange(ids.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def make_prompts(n):
    digits = torch.randint(DIGITS, (n, PROMPT_DIGITS))
    return torch.cat([digits, torch.full((n, 1), SEP)], dim=1)


def solve(prompt):
    return sorted(set(prompt[:PROMPT_DIGITS])) + [EOS]


def score(prompt, answer):
    """answer: token list, cut after the first <eos>."""
    want = solve(prompt)
    return sum(a == w for a, w in zip(answer, want, strict=False)) / max(len(want), len(answer))


def token_logprobs(model, ids):
    logp = F.log_softmax(model(ids[:, :-1])[:, PROMPT_LEN - 1 :], dim=-1)
    return logp.gather(-1, ids[:, PROMPT_LEN:].unsqueeze(-1)).squeeze(-1)


@torch.no_grad()
def generate(model, prompts, greedy=False):
    ids, done = prompts, torch.zeros(len(prompts), dtype=torch.bool)
    mask = []
    for _ in range(MAX_NEW):
        logits = model(ids)[:, -1]
        nxt = logits.argmax(-1) if greedy else torch.multinomial(logits.softmax(-1), 1).squeeze(-1)
        nxt = torch.where(done, PAD, nxt)
        mask.append(~done)
        ids = torch.cat([ids, nxt.unsqueeze(1)], dim=1)
        done = done | (nxt == EOS)
    return ids, torch.stack(mask, dim=1).float()


def rewards_of(ids, mask):
    lengths = mask.sum(1).long().tolist()
    rows = ids.tolist()
    return torch.tensor([score(r, r[PROMPT_LEN : PROMPT_LEN + n]) for r, n in zip(rows, lengths, strict=True)])


def evaluate(model, n=256):
    r = rewards_of(*generate(model, make_prompts(n), greedy=True))
    return r.mean().item(), (r == 1).float().mean().item()


def warm_up(model, steps, batch=64, lr=2e-3):
    opt = torch.optim.Adam(model.parameters(), lr=lr)
    for _ in range(steps):
        prompts = make_prompts(batch)
        answers = [solve(p) for p in prompts.tolist()]
        target = torch.tensor([a + [PAD] * (MAX_NEW - len(a)) for a in answers])
        logits = model(torch.cat([prompts, target], dim=1)[:, :-1])[:, PROMPT_LEN - 1 :]
        loss = F.cross_entropy(logits.reshape(-1, VOCAB), target.reshape(-1), ignore_index=PAD)
        opt.zero_grad()
        loss.backward()
        opt.step()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--iterations", type=int, default=80)
    parser.add_argument("--prompts", type=int, default=24)
    parser.add_argument("--group", type=int, default=8)
    parser.add_argument("--minibatches", type=int, default=2)
    parser.add_argument("--accumulate", type=int, default=4)
    parser.add_argument("--clip", type=float, default=0.1)
    parser.add_argument("--lr", type=float, default=1e-3)
    args = parser.parse_args()
    random.seed(args.seed)
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)

    model = TinyGPT()
    warm_up(model, steps=36)
    print("after warm-up: score %.3f exact %.3f" % evaluate(model))

    opt = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.0)
    total = args.prompts * args.group
    micro = total // (args.minibatches * args.accumulate)
    for it in range(1, args.iterations + 1):
        prompts = make_prompts(args.prompts).repeat_interleave(args.group, dim=0)
        ids, mask = generate(model, prompts)
        reward = rewards_of(ids, mask)
        grouped = reward.view(args.prompts, args.group)
        adv = (grouped - grouped.mean(1, keepdim=True)) / (grouped.std(1, keepdim=True) + 1e-4)
        adv = adv.reshape(-1)
        with torch.no_grad():
            old_logp = token_logprobs(model, ids)

        clipped = 0.0
        opt.zero_grad()
        for i, rows in enumerate(torch.randperm(total).split(micro)):
            m = mask[rows]
            diff = (token_logprobs(model, ids[rows]) - old_logp[rows]) * m
            ratio = torch.exp(diff.sum(1) / m.sum(1))
            a = adv[rows]
            surrogate = torch.min(ratio * a, ratio.clamp(1 - args.clip, 1 + args.clip) * a)
            loss = -surrogate.mean() / args.accumulate
            loss.backward()
            clipped += ((ratio - 1).abs() > args.clip).float().mean().item()
            if (i + 1) % args.accumulate == 0:
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                opt.step()
                opt.zero_grad()

        if it % 16 == 0:
            share = clipped / (args.minibatches * args.accumulate)
            print(f"iter {it:3d}  sampled score {reward.mean():.3f}  clipped {share:.3f}")

    print("final: score %.3f exact %.3f" % evaluate(model))


if __name__ == "__main__":
    main()
