"""Self-critical sequence training of an LSTM encoder-decoder.

Task: sort five digits. The reward of an answer is the share of positions that are right. Its baseline is the reward of
the model's own greedy answer to the same prompt, decoded without gradients; that is a constant given the prompt, so the
gradient stays unbiased, and answers better than greedy are pushed up, worse ones down. The mean advantage is mostly
below zero, since greedy decoding is usually better than sampling; this is how the method works.

Log-probs are kept with their graph while sampling (no second pass), and used for exactly one backward pass. Answers have
a fixed length, so no mask is needed. The cross-entropy warm-up uses its own optimizer.
"""

import argparse

import numpy as np
import torch
import torch.nn as nn
from torch.distributions import Categorical

DIGITS = 8
START = DIGITS
LENGTH = 5


class Seq2Seq(nn.Module):
    def __init__(self, embed=24, hidden=64):
        super().__init__()
        self.embedding = nn.Embedding(DIGITS + 1, embed)
        self.encoder = nn.LSTM(embed, hidden, batch_first=True)
        self.decoder = nn.LSTMCell(embed, hidden)
        self.output = nn.Linear(hidden, DIGITS)

    def encode(self, source):
        _, (h, c) = self.encoder(self.embedding(source))
        return h[0], c[0]

    def step(self, token, state):
        state = self.decoder(self.embedding(token), state)
        return self.output(state[0]), state

    def teacher_forced(self, source, target):
        state = self.encode(source)
        token = torch.full((len(source),), START)
        logits = []
        for t in range(LENGTH):
            out, state = self.step(token, state)
            logits.append(out)
            token = target[:, t]
        return torch.stack(logits, dim=1)

    def sample(self, source):
        state = self.encode(source)
        token = torch.full((len(source),), START)
        tokens, log_probs, entropies = [], [], []
        for _ in range(LENGTH):
            logits, state = self.step(token, state)
            dist = Categorical(logits=logits)
            token = dist.sample()
            tokens.append(token)
            log_probs.append(dist.log_prob(token))
            entropies.append(dist.entropy())
        return torch.stack(tokens, 1), torch.stack(log_probs, 1), torch.stack(entropies, 1)

    @torch.no_grad()
    def greedy(self, source):
        state = self.encode(source)
        token = torch.full((len(source),), START)
        tokens = []
        for _ in range(LENGTH):
            logits, state = self.step(token, state)
            token = logits.argmax(dim=-1)
            tokens.append(token)
        return torch.stack(tokens, 1)


def make_batch(rng, n):
    source = torch.from_numpy(rng.integers(0, DIGITS, size=(n, LENGTH)))
    return source, source.sort(dim=1).values


def reward(answer, target):
    return (answer == target).float().mean(dim=1)


def exact(model, source, target):
    return (model.greedy(source) == target).all(dim=1).float().mean().item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--xe-steps", type=int, default=35)
    parser.add_argument("--rl-steps", type=int, default=350)
    parser.add_argument("--batch", type=int, default=256)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    rng = np.random.default_rng(args.seed)

    model = Seq2Seq()
    test_source, test_target = make_batch(np.random.default_rng(args.seed + 777), 500)

    xe = nn.CrossEntropyLoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(args.xe_steps):
        source, target = make_batch(rng, 64)
        loss = xe(model.teacher_forced(source, target).flatten(0, 1), target.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"cross-entropy phase done: loss {loss.item():.3f}, exact {exact(model, test_source, test_target):.3f}")

    optimizer = torch.optim.Adam(model.parameters(), lr=1.5e-3)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.2, total_iters=args.rl_steps)
    for step in range(1, args.rl_steps + 1):
        source, target = make_batch(rng, args.batch)
        sampled, log_probs, entropies = model.sample(source)
        sampled_reward = reward(sampled, target)
        greedy_reward = reward(model.greedy(source), target)
        advantage = sampled_reward - greedy_reward
        loss = -(advantage * log_probs.sum(dim=1)).mean()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        schedule.step()
        if step % 70 == 0:
            print(
                f"step {step:4d}  sampled {sampled_reward.mean().item():.3f}  greedy {greedy_reward.mean().item():.3f}"
                f"  entropy {entropies.mean().item():.3f}"
            )

    print(f"self-critical phase done: exact {exact(model, test_source, test_target):.3f}")


if __name__ == "__main__":
    main()
