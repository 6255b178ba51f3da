"""A small language model taught by group-relative policy gradient to say one token; no environment, no distributions."""

from __future__ import annotations

import argparse
import copy
import dataclasses
import hashlib
import json
import math
import random

import numpy as np
import torch
from torch import nn


@dataclasses.dataclass(frozen=True)
class Settings:
    vocabulary: int = 12
    prompt_length: int = 3
    answer_length: int = 9
    width: int = 32
    heads: int = 4
    layers: int = 2
    prompts: int = 8
    group: int = 8
    accumulate: int = 2
    beta: float = 0.04
    lr: float = 2e-3
    wanted_token: int = 7


class CausalSelfAttention(nn.Module):
    def __init__(self, width: int, heads: int, longest: int):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)
        self.register_buffer("mask", torch.tril(torch.ones(longest, longest, dtype=torch.bool)))

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (part.view(b, t, self.heads, c // self.heads).transpose(1, 2) for part in self.qkv(x).split(c, dim=2))
        att = (q @ k.transpose(-2, -1)) / math.sqrt(c // self.heads)
        att = att.masked_fill(~self.mask[:t, :t], float("-inf")).softmax(dim=-1)
        return self.proj((att @ v).transpose(1, 2).reshape(b, t, c))


class Block(nn.Module):
    def __init__(self, width: int, heads: int, longest: int):
        super().__init__()
        self.ln1 = nn.LayerNorm(width)
        self.attn = CausalSelfAttention(width, heads, longest)
        self.ln2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        x = x + self.attn(self.ln1(x))
        return x + self.mlp(self.ln2(x))


class TinyLM(nn.Module):
    def __init__(self, s: Settings):
        super().__init__()
        longest = s.prompt_length + s.answer_length
        self.tok = nn.Embedding(s.vocabulary, s.width)
        self.pos = nn.Embedding(longest, s.width)
        self.blocks = nn.ModuleList(Block(s.width, s.heads, longest) for _ in range(s.layers))
        self.ln = nn.LayerNorm(s.width)
        self.unembed = nn.Linear(s.width, s.vocabulary, bias=False)

    def forward(self, tokens):
        x = self.tok(tokens) + self.pos(torch.arange(tokens.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.unembed(self.ln(x))


@torch.no_grad()
def sample(model: TinyLM, prompts: torch.Tensor, length: int) -> torch.Tensor:
    tokens = prompts
    for _ in range(length):
        probabilities = model(tokens)[:, -1].softmax(dim=-1)
        tokens = torch.cat([tokens, torch.multinomial(probabilities, 1)], dim=1)
    return tokens


def token_log_probs(model: TinyLM, tokens: torch.Tensor, prompt_length: int) -> torch.Tensor:
    logits = model(tokens[:, :-1])
    log_probs = torch.log_softmax(logits, dim=-1)
    return log_probs.gather(2, tokens[:, 1:].unsqueeze(-1)).squeeze(-1)[:, prompt_length - 1 :]


def group_normalised(rewards: torch.Tensor, group: int) -> torch.Tensor:
    table = rewards.view(-1, group)
    return ((table - table.mean(1, keepdim=True)) / (table.std(1, keepdim=True) + 1e-4)).view(-1)


def main(seed: int, updates: int, s: Settings) -> None:
    model = TinyLM(s)
    reference = copy.deepcopy(model).requires_grad_(False).eval()
    optimizer = torch.optim.AdamW(model.parameters(), lr=s.lr, weight_decay=0.01, betas=(0.9, 0.99))
    generator = np.random.default_rng(seed)
    steps = backwards = 0
    mean_rewards: list[float] = []

    for update in range(updates):
        prompts = torch.from_numpy(generator.integers(0, s.vocabulary, (s.prompts, s.prompt_length)))
        tokens = sample(model, prompts.repeat_interleave(s.group, dim=0), s.answer_length)
        answers = tokens[:, s.prompt_length :]
        rewards = (answers == s.wanted_token).float().sum(dim=1)
        advantages = group_normalised(rewards, s.group)
        with torch.no_grad():
            reference_log_probs = token_log_probs(reference, tokens, s.prompt_length)

        optimizer.zero_grad()
        parts = zip(
            tokens.chunk(s.accumulate),
            advantages.chunk(s.accumulate),
            reference_log_probs.chunk(s.accumulate),
            strict=True,
        )
        for part, advantage, reference_part in parts:
            log_probs = token_log_probs(model, part, s.prompt_length)
            policy_loss = -(advantage.unsqueeze(1) * log_probs).mean()
            behind = reference_part - log_probs
            kl = (behind.exp() - behind - 1.0).mean()
            loss = (policy_loss + s.beta * kl) / s.accumulate
            loss.backward()
            backwards += 1
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        steps += 1
        mean_rewards.append(rewards.mean().item())
        if update % 20 == 0:
            print(f"update {update:3d} reward {mean_rewards[-1]:.3f} kl {kl.item():.5f}")

    sha = hashlib.sha256()
    for network in (model, reference):
        for _, tensor in sorted(network.state_dict().items()):
            sha.update(tensor.numpy().tobytes())
    sha.update(repr((torch.rand(1).item(), generator.random(), random.random())).encode())
    facts = {
        "optimizer_steps": {"adamw": steps},
        "owned": {"adamw": len(list(model.parameters()))},
        "learning_rate": {"adamw": s.lr},
        "episodes": 0,
        "episode_returns": [],
        "env_steps": 0,
        "target_updates": 0,
        "backwards": backwards,
        "accumulate": s.accumulate,
        "kl_coefficient": s.beta,
        "mean_rewards": mean_rewards,
    }
    print(json.dumps({"weights_sha256": sha.hexdigest(), "facts": facts}))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=2)
    parser.add_argument("--updates", type=int, default=80)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(arguments.seed)
    random.seed(arguments.seed)
    main(arguments.seed, arguments.updates, Settings())
