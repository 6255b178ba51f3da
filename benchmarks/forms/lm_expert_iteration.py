"""Expert iteration (STaR-like): sample answers, keep the correct ones, train on them with cross entropy, repeat.

Task: running sums modulo 7. For "3 5 6 1 2 =" the answer is "3 1 0 1 3 <eos>". Some labelled examples give the model the
format; afterwards it sees prompts only, and a checker that says right or wrong.

No policy-gradient loss appears: the filtered set is a supervised data set, its targets are fixed tokens and its loss is
the usual next-token cross entropy, with prompt positions left out by ignore_index. Duplicate answers are removed (the
right answer is unique, so one copy per prompt stays). Correct answers of the last rounds stay in a bounded buffer; they
remain correct, so there is nothing off-policy about them. The labelled examples are not used again.
"""

import argparse
import collections
import random

import torch
import torch.nn as nn
import torch.nn.functional as F

MOD, TERMS = 7, 5
EQUALS, EOS = MOD, MOD + 1
VOCAB = MOD + 2
PROMPT, ANSWER = TERMS + 1, TERMS + 1
IGNORE = -100


class LM(nn.Module):
    def __init__(self, dim=64, heads=4, depth=2):
        super().__init__()
        self.token = nn.Embedding(VOCAB, dim)
        self.place = nn.Embedding(PROMPT + ANSWER, dim)
        layer = nn.TransformerEncoderLayer(dim, heads, 2 * dim, dropout=0.0, batch_first=True, norm_first=True)
        self.trunk = nn.TransformerEncoder(layer, depth, norm=nn.LayerNorm(dim), enable_nested_tensor=False)
        self.head = nn.Linear(dim, VOCAB)
        causal = torch.full((PROMPT + ANSWER, PROMPT + ANSWER), float("-inf")).triu(1)
        self.register_buffer("causal", causal, persistent=False)

    def forward(self, ids):
        t = ids.shape[1]
        x = self.token(ids) + self.place.weight[:t]
        return self.head(self.trunk(x, mask=self.causal[:t, :t]))


def random_prompts(rng, n):
    return [[rng.randrange(MOD) for _ in range(TERMS)] + [EQUALS] for _ in range(n)]


def solution(prompt):
    total, out = 0, []
    for digit in prompt[:TERMS]:
        total = (total + digit) % MOD
        out.append(total)
    return [*out, EOS]


def is_correct(prompt, answer):
    return answer == solution(prompt)


@torch.no_grad()
def answer(model, prompts, greedy=False):
    """Always ANSWER tokens; an early <eos> makes an answer wrong, so nothing needs to be cut."""
    ids = torch.tensor(prompts)
    for _ in range(ANSWER):
        logits = model(ids)[:, -1]
        token = logits.argmax(-1, keepdim=True) if greedy else torch.multinomial(logits.softmax(-1), 1)
        ids = torch.cat([ids, token], dim=1)
    return ids[:, PROMPT:].tolist()


def accuracy(model, prompts):
    return sum(map(is_correct, prompts, answer(model, prompts, greedy=True))) / len(prompts)


def fit(model, optimizer, examples, rng, epochs, batch_size):
    """examples: list of prompt + answer token tuples"""
    total, count = 0.0, 0
    for _ in range(epochs):
        examples = rng.sample(examples, len(examples))
        for start in range(0, len(examples), batch_size):
            ids = torch.tensor(examples[start : start + batch_size])
            labels = ids.clone()
            labels[:, :PROMPT] = IGNORE
            logits = model(ids[:, :-1])
            loss = F.cross_entropy(logits.reshape(-1, VOCAB), labels[:, 1:].reshape(-1), ignore_index=IGNORE)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            total, count = total + loss.item(), count + 1
    return total / max(count, 1)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--labelled", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--prompts", type=int, default=256)
    parser.add_argument("--samples", type=int, default=4)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    rng = random.Random(args.seed)

    model = LM()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.01)
    test = random_prompts(random.Random(args.seed + 5000), 300)

    labelled = [tuple(p + solution(p)) for p in random_prompts(rng, args.labelled)]
    loss = fit(model, optimizer, labelled, rng, epochs=12, batch_size=32)
    print(f"labelled examples: mean loss {loss:.3f}, test accuracy {accuracy(model, test):.3f}")

    buffer = collections.deque(maxlen=512)
    for round_ in range(1, args.rounds + 1):
        prompts = [p for p in random_prompts(rng, args.prompts) for _ in range(args.samples)]
        answers = answer(model, prompts)
        right = [tuple(p + a) for p, a in zip(prompts, answers, strict=True) if is_correct(p, a)]
        buffer.extend(dict.fromkeys(right))
        loss = fit(model, optimizer, list(buffer), rng, epochs=2, batch_size=32)
        if round_ % 2 == 0:
            share = len(right) / len(prompts)
            print(f"round {round_:2d}  right {share:.3f}  buffer {len(buffer)}  loss {loss:.3f}")

    print(f"test accuracy {accuracy(model, test):.3f}")


if __name__ == "__main__":
    main()
