"""REINFORCE leave-one-out for a tiny causal transformer that must answer a list of words with more of the same kind."""

import argparse
import copy
import random
import time

import torch
import torch.nn.functional as F
from torch import nn

FAULTS = {
    "zero_per_micro": ["weights", "broken", "gradients are cleared in each micro-batch: only the last one is applied"],
    "no_temperature": [
        "language",
        "broken",
        "sampled at temperature 0.6, but the loss's log-probs are at temperature 1",
    ],
    "end_left_out": ["language", "broken", "the answer mask stops before the end token: ending is never taught"],
    "shallow_reference": ["language", "broken", "the reference is a shallow copy and so is the policy itself: KL is 0"],
    "sorted_batch": ["returns", "broken", "answers are sorted by length for the update, their advantages are not"],
    "scores_prompt": ["goal", "not proven", "the rule reads the prompt, not the answer: all answers earn the same"],
}
HEALTHY = {
    "": "plain",
    "warm_start": "policy and reference are first fitted to random word lists by cross-entropy",
    "tied": "the output layer shares its weights with the embedding",
    "moving_reference": "the reference is moved to the policy every 100 updates on purpose",
}
ANIMALS = ["cat", "dog", "cow", "hen", "fox", "owl"]
TOOLS = ["saw", "axe", "nut", "pin", "jig", "rod"]
FOODS = ["pie", "ham", "fig", "jam", "egg", "oat"]
KINDS = [ANIMALS, TOOLS, FOODS]
VOCAB = ["<pad>", "<end>", "<more>", *ANIMALS, *TOOLS, *FOODS]
PAD, END, MORE = 0, 1, 2
TOKEN = {word: i for i, word in enumerate(VOCAB)}
MAX_NEW, WANTED, TEMPERATURE, BETA, PER_PROMPT, PROMPTS, MICRO = 7, 3, 0.6, 0.02, 4, 16, 2


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))

    def forward(self, x, allowed):
        b, t, d = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=allowed)
        x = x + self.out(mixed.transpose(1, 2).reshape(b, t, d))
        return x + self.mlp(self.norm2(x))


class WordModel(nn.Module):
    def __init__(self, dim=48, heads=4, depth=2, longest=16, tied=False):
        super().__init__()
        self.embed, self.place = nn.Embedding(len(VOCAB), dim), nn.Embedding(longest, dim)
        nn.init.normal_(self.embed.weight, std=0.3)
        nn.init.normal_(self.place.weight, std=0.3)
        self.blocks = nn.ModuleList(Block(dim, heads) for _ in range(depth))
        self.norm, self.head = nn.LayerNorm(dim), nn.Linear(dim, len(VOCAB), bias=False)
        nn.init.normal_(self.head.weight, std=0.02)
        if tied:
            self.head.weight = self.embed.weight

    def forward(self, tokens, real):
        """Prompts are padded on the left; `real` is True where a token counts."""
        t = tokens.shape[1]
        causal = torch.ones(t, t, dtype=torch.bool).tril()
        allowed = (causal & real[:, None, :]) | torch.eye(t, dtype=torch.bool)
        places = (real.long().cumsum(1) - 1).clamp(min=0)
        x = self.embed(tokens) + self.place(places)
        for block in self.blocks:
            x = block(x, allowed[:, None])
        logits = self.head(self.norm(x))
        return logits.index_fill(-1, torch.tensor([PAD, MORE]), -1e4)


def make_prompts(n, rng):
    prompts = [rng.sample(rng.choice(KINDS), rng.randint(1, 5)) for _ in range(n)]
    longest = max(len(p) for p in prompts) + 1
    rows = [[PAD] * (longest - len(p) - 1) + [TOKEN[w] for w in p] + [MORE] for p in prompts]
    return torch.tensor(rows)


def score(row, width, fault):
    """Three different words of the prompt's kind, then stop."""
    prompt = [VOCAB[t] for t in row[:width] if t > MORE]
    answer = row[:width] if fault == "scores_prompt" else row[width:]
    words = [VOCAB[t] for t in answer if t > MORE]
    kind = next(k for k in KINDS if prompt[0] in k)
    good = len({w for w in words if w in kind})
    wrong = sum(w not in kind for w in words)
    repeated = len(words) - len(set(words))
    value = min(good, WANTED) / WANTED - 0.15 * wrong - 0.1 * repeated
    return max(0.0, value) * (1.0 if END in answer else 0.6)


@torch.no_grad()
def sample(model, prompt_tokens):
    tokens, ended = prompt_tokens, torch.zeros(len(prompt_tokens), dtype=torch.bool)
    real, mask = prompt_tokens != PAD, torch.zeros(len(prompt_tokens), 0, dtype=torch.bool)
    for _ in range(MAX_NEW):
        logits = model(tokens, real)[:, -1] / TEMPERATURE
        new = torch.multinomial(logits.softmax(-1), 1).squeeze(1).masked_fill(ended, PAD)
        mask = torch.cat([mask, ~ended[:, None]], dim=1)
        real = torch.cat([real, ~ended[:, None]], dim=1)
        tokens = torch.cat([tokens, new[:, None]], dim=1)
        ended = ended | (new == END)
        if ended.all():
            break
    return tokens, real, mask


def answer_log_probs(model, tokens, real, length, temperature):
    logits = model(tokens, real)[:, -length - 1 : -1] / temperature
    return logits.log_softmax(-1).gather(-1, tokens[:, -length:, None]).squeeze(-1)


def warm_up(model, rng, updates=60):
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    for _ in range(updates):
        rows = [[TOKEN[w] for w in rng.sample(VOCAB[3:], rng.randint(1, 6))] + [END] for _ in range(32)]
        tokens = torch.tensor([[MORE, *row, *[PAD] * (7 - len(row))] for row in rows])
        logits = model(tokens[:, :-1], tokens[:, :-1] != PAD)
        opt.zero_grad()
        F.cross_entropy(logits.transpose(1, 2), tokens[:, 1:], ignore_index=PAD).backward()
        opt.step()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=350, help="updates, each of 16 prompts with 4 answers")
    parser.add_argument("--fault", choices=["", *FAULTS], default="")
    parser.add_argument("--variant", choices=list(HEALTHY), default="")
    args = parser.parse_args()
    fault = args.fault
    torch.manual_seed(args.seed)
    rng = random.Random(args.seed)
    policy = WordModel(tied=args.variant == "tied")
    if args.variant == "warm_start":
        warm_up(policy, rng)
    reference = copy.copy(policy) if fault == "shallow_reference" else copy.deepcopy(policy)
    reference.eval()
    opt = torch.optim.Adam(policy.parameters(), lr=1e-3)
    rewards_seen, shown = [], time.time()
    for step in range(args.steps):
        prompt_tokens = make_prompts(PROMPTS, rng)
        tokens, real, mask = sample(policy, prompt_tokens.repeat_interleave(PER_PROMPT, 0))
        length = mask.shape[1]
        rewards = torch.tensor([score(row, tokens.shape[1] - length, fault) for row in tokens.tolist()])
        rewards = rewards.view(PROMPTS, PER_PROMPT)
        others = (rewards.sum(1, keepdim=True) - rewards) / (PER_PROMPT - 1)
        advantages = (rewards - others).view(-1)
        if fault == "end_left_out":
            mask = mask & (tokens[:, -length:] != END)
        order = mask.sum(1).argsort(stable=True)  # similar lengths share a micro-batch
        tokens, real, mask = tokens[order], real[order], mask[order]
        if fault != "sorted_batch":
            advantages = advantages[order]
        temperature = 1.0 if fault == "no_temperature" else TEMPERATURE
        opt.zero_grad()
        total_kl = 0.0
        for part in torch.arange(len(tokens)).chunk(MICRO):
            if fault == "zero_per_micro":
                opt.zero_grad()
            logp = answer_log_probs(policy, tokens[part], real[part], length, temperature)
            with torch.no_grad():
                ref_logp = answer_log_probs(reference, tokens[part], real[part], length, temperature)
            gap = ref_logp - logp
            kl = ((gap.exp() - gap - 1) * mask[part]).sum(1)
            reinforce = -advantages[part] * (logp * mask[part]).sum(1)
            ((reinforce + BETA * kl).mean() / MICRO).backward()
            total_kl += kl.mean().item() / MICRO
        norm = nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
        opt.step()
        if args.variant == "moving_reference" and (step + 1) % 100 == 0:
            reference.load_state_dict(policy.state_dict())
        rewards_seen.append(rewards.mean().item())
        if time.time() - shown > 2.0 or step == 0:
            shown = time.time()
            print(
                f"update {step} reward {sum(rewards_seen[-20:]) / len(rewards_seen[-20:]):.3f} kl {total_kl:.3f} "
                f"grad {float(norm):.2f} words {mask.sum(1).float().mean():.1f}",
                flush=True,
            )
    tenth = max(1, len(rewards_seen) // 10)
    first, last = sum(rewards_seen[:tenth]) / tenth, sum(rewards_seen[-tenth:]) / tenth
    print(f"mean reward: first tenth {first:.3f}, last tenth {last:.3f}")


if __name__ == "__main__":
    main()
