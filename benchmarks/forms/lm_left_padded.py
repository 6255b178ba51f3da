"""REINFORCE with a leave-one-out baseline (RLOO) on left-padded prompts of different lengths.

Task: write two to five letters backwards, then <eos>. Prompts in a batch differ in length, so they are padded on the left
and every answer begins in the same column; answers end in different columns and are padded on the right.

Padding cannot be seen: an attention mask hides pad columns as keys (each position may always see itself, so that rows of
padding have a finite softmax), and position ids count real tokens only, so a prompt gives the same logits whatever its
padding; `check_padding` asserts that before training. Sampling runs at temperature 1.2 and the log-probs of the loss are
taken at the same temperature. There is one gradient step per batch, hence no importance ratio. The baseline of an answer
is the mean reward of the other answers to the same prompt, which does not depend on the answer itself.
"""

import argparse
import math

import torch
import torch.nn as nn
import torch.nn.functional as F

LETTERS = 8
PAD, BOS, ARROW, EOS = LETTERS, LETTERS + 1, LETTERS + 2, LETTERS + 3
VOCAB = LETTERS + 4
MIN_LEN, MAX_LEN = 2, 5
MAX_NEW = MAX_LEN + 1
CONTEXT = MAX_LEN + 2 + MAX_NEW
TEMPERATURE = 1.2


class Attention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(dim, 3 * dim, bias=False)
        self.proj = nn.Linear(dim, dim, bias=False)

    def forward(self, x, visible):
        b, t, d = x.shape
        q, k, v = (z.view(b, t, self.heads, -1).transpose(1, 2) for z in self.qkv(x).chunk(3, dim=-1))
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=visible)
        return self.proj(y.transpose(1, 2).reshape(b, t, d))


class DecoderLayer(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.attn_norm = nn.LayerNorm(dim)
        self.attn = Attention(dim, heads)
        self.mlp_norm = nn.LayerNorm(dim)
        self.up = nn.Linear(dim, 4 * dim)
        self.down = nn.Linear(4 * dim, dim)

    def forward(self, x, visible):
        x = x + self.attn(self.attn_norm(x), visible)
        return x + self.down(F.silu(self.up(self.mlp_norm(x))))


class CausalLM(nn.Module):
    def __init__(self, dim=48, heads=4, depth=2):
        super().__init__()
        self.wte = nn.Embedding(VOCAB, dim)
        self.wpe = nn.Embedding(CONTEXT, dim)
        self.layers = nn.ModuleList([DecoderLayer(dim, heads) for _ in range(depth)])
        self.norm = nn.LayerNorm(dim)
        self.lm_head = nn.Linear(dim, VOCAB, bias=False)

    def forward(self, input_ids, attention_mask):
        t = input_ids.shape[1]
        position_ids = (attention_mask.long().cumsum(1) - 1).clamp(min=0)
        causal = torch.ones(t, t, dtype=torch.bool).tril()
        visible = (causal & attention_mask.bool()[:, None, :]) | torch.eye(t, dtype=torch.bool)
        x = self.wte(input_ids) + self.wpe(position_ids)
        for layer in self.layers:
            x = layer(x, visible[:, None])
        return self.lm_head(self.norm(x))


def random_words(n):
    lengths = torch.randint(MIN_LEN, MAX_LEN + 1, (n,)).tolist()
    return [torch.randint(LETTERS, (k,)).tolist() for k in lengths]


def left_pad(words):
    rows = [[BOS, *w, ARROW] for w in words]
    width = max(map(len, rows))
    ids = torch.tensor([[PAD] * (width - len(r)) + r for r in rows])
    return ids, (ids != PAD).long()


def reward_fn(word, answer):
    want = word[::-1] + [EOS]
    hits = sum(a == w for a, w in zip(answer, want, strict=False))
    return 0.5 * (answer == want) + 0.5 * hits / max(len(want), len(answer))


@torch.no_grad()
def generate(model, ids, attention_mask, greedy=False):
    """Returns the extended ids and attention mask; the mask of the answer part is 1 up to and including <eos>."""
    unfinished = torch.ones(len(ids), dtype=torch.long)
    for _ in range(MAX_NEW):
        logits = model(ids, attention_mask)[:, -1]
        if greedy:
            token = logits.argmax(-1)
        else:
            token = torch.distributions.Categorical(logits=logits / TEMPERATURE).sample()
        token = token * unfinished + PAD * (1 - unfinished)
        ids = torch.cat([ids, token[:, None]], dim=1)
        attention_mask = torch.cat([attention_mask, unfinished[:, None]], dim=1)
        unfinished = unfinished * (token != EOS).long()
        if unfinished.max() == 0:
            break
    return ids, attention_mask


def answers_of(ids, mask, width):
    return [row[width : width + n] for row, n in zip(ids.tolist(), mask[:, width:].sum(1).tolist(), strict=True)]


def accuracy(model, words):
    ids, mask = left_pad(words)
    answers = answers_of(*generate(model, ids, mask, greedy=True), ids.shape[1])
    return sum(a == w[::-1] + [EOS] for a, w in zip(answers, words, strict=True)) / len(words)


@torch.no_grad()
def check_padding(model):
    ids = torch.tensor([[BOS, 1, 2, 3, ARROW]])
    wide = F.pad(ids, (3, 0), value=PAD)
    a = model(ids, torch.ones_like(ids))[:, -1]
    b = model(wide, (wide != PAD).long())[:, -1]
    assert torch.allclose(a, b, atol=1e-5), "padding changes the logits"


def supervised(model, steps, batch=64):
    opt = torch.optim.AdamW(model.parameters(), lr=2e-3)
    for _ in range(steps):
        words = random_words(batch)
        prompt, prompt_mask = left_pad(words)
        answer = torch.tensor([w[::-1] + [EOS] + [PAD] * (MAX_LEN - len(w)) for w in words])
        answer_mask = (answer != PAD).long()
        logits = model(torch.cat([prompt, answer], 1)[:, :-1], torch.cat([prompt_mask, answer_mask], 1)[:, :-1])
        logits = logits[:, prompt.shape[1] - 1 :]
        loss = F.cross_entropy(logits.flatten(0, 1), answer.flatten(), ignore_index=PAD)
        opt.zero_grad()
        loss.backward()
        opt.step()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=90)
    parser.add_argument("--words", type=int, default=48)
    parser.add_argument("--k", type=int, default=4, help="answers per prompt")
    parser.add_argument("--lr", type=float, default=1e-3)
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)

    model = CausalLM()
    check_padding(model)
    supervised(model, steps=55)
    held_out = random_words(256)
    print(f"after the supervised phase: exact {accuracy(model, held_out):.3f}")

    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, betas=(0.9, 0.98), weight_decay=0.01)
    for step in range(1, args.steps + 1):
        words = [w for w in random_words(args.words) for _ in range(args.k)]
        prompt, prompt_mask = left_pad(words)
        width = prompt.shape[1]
        ids, mask = generate(model, prompt, prompt_mask)
        answers = answers_of(ids, mask, width)
        reward = torch.tensor([reward_fn(w, a) for w, a in zip(words, answers, strict=True)])
        per_prompt = reward.view(args.words, args.k)
        others = (per_prompt.sum(1, keepdim=True) - per_prompt) / (args.k - 1)
        advantage = (per_prompt - others).flatten()

        logits = model(ids[:, :-1], mask[:, :-1])[:, width - 1 :] / TEMPERATURE
        logp = -F.cross_entropy(logits.transpose(1, 2), ids[:, width:], reduction="none")
        seq_logp = (logp * mask[:, width:]).sum(1)
        loss = -(advantage * seq_logp).mean()
        optimizer.zero_grad()
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        assert math.isfinite(norm)

        if step % 15 == 0:
            tokens = mask[:, width:].sum(1).float().mean()
            print(f"step {step:3d}  reward {reward.mean():.3f}  answer length {tokens:.2f}  grad norm {norm:.3f}")

    print(f"after RLOO: exact {accuracy(model, held_out):.3f}")


if __name__ == "__main__":
    main()
