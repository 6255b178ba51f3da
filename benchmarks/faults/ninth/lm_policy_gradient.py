"""GRPO on a toy causal transformer: given `<bos> 7 2 9 <sep>` it has to write `2 7 9 <eos>`.

A warm start on sloppy demonstrations teaches the format, then sampled answers are scored by a rule and reinforced in
groups, with a clipped ratio and a KL penalty to the frozen warm-started model.
"""

import argparse
import copy
import random
import time
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.optim.lr_scheduler import LambdaLR

FAULTS = {
    "raw_logits": [
        "language",
        "broken",
        "answers are sampled at a temperature, but the log-probs in the ratio come from undivided logits",
    ],
    "mask_with_logits": [
        "language",
        "broken",
        "the answer mask is sliced like the logits, one place early: the pad after <eos> is trained as if sampled",
    ],
    "same_reference": [
        "language",
        "broken",
        "the reference model is the policy object itself, so the KL penalty always measures nothing",
    ],
    "kl_minus": [
        "signs",
        "broken",
        "the KL term is subtracted from the loss, so the policy is paid for leaving the reference",
    ],
    "zero_grad_inside": [
        "weights",
        "broken",
        "gradients are cleared before every micro-batch, so that only the last one of each step counts",
    ],
    "schedule_per_update": [
        "rates",
        "broken",
        "the schedule is as long as the number of rollouts but is stepped at each optimizer step: zero at a quarter",
    ],
    "prefix_scores": [
        "goal",
        "not proven",
        "the scorer zips answer and solution and stops at the shorter one: an answer of one digit or none is right",
    ],
}
HEALTHY = {
    "": "GRPO: groups of 8, two passes over each rollout, clipped ratio, KL penalty, accumulation, warm-up from zero",
    "on_policy": "one step per rollout: ratio always 1 and shown loss about 0; averaged weights are kept for the end",
    "rloo": "REINFORCE with a leave-one-out baseline, the KL taken off the reward, advantages not divided by a std",
    "frozen_embeddings": "both embedding tables frozen on purpose after the warm start, AdamW with weight decay",
}

PAD = 10
BOS = 11
SEP = 12
EOS = 13
VOCAB = 14
LONGEST = 5
PROMPT_LEN = LONGEST + 2


@dataclass
class Config:
    prompts_per_rollout: int = 16
    group_size: int = 8
    max_new_tokens: int = LONGEST + 2
    temperature: float = 0.7
    rollouts: int = 160
    passes: int = 2
    minibatches: int = 2
    micro_batches: int = 2
    lr: float = 6e-4
    warmup: int = 8
    clip: float = 0.2
    beta: float = 0.03
    max_grad_norm: float = 1.0
    weight_decay: float = 0.0
    warm_start_steps: int = 300
    log_every: int = 10


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm_attn, self.norm_mlp = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 3 * width), nn.GELU(), nn.Linear(3 * width, width))

    def forward(self, x, visible):
        batch, length, width = x.shape
        qkv = self.qkv(self.norm_attn(x)).view(batch, length, 3, self.heads, width // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=visible)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.mlp(self.norm_mlp(x))


class TinyLM(nn.Module):
    def __init__(self, width=48, heads=4, layers=2, max_len=PROMPT_LEN + LONGEST + 2):
        super().__init__()
        self.tokens = nn.Embedding(VOCAB, width)
        self.positions = nn.Embedding(max_len, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.lm_head = nn.Linear(width, VOCAB, bias=False)

    def forward(self, input_ids, attention_mask):
        length = input_ids.shape[1]
        position_ids = (attention_mask.long().cumsum(-1) - 1).clamp(min=0)
        causal = torch.ones(length, length, dtype=torch.bool).tril()
        visible = causal & attention_mask[:, None, :] | torch.eye(length, dtype=torch.bool)
        x = self.tokens(input_ids) + self.positions(position_ids)
        for block in self.blocks:
            x = block(x, visible[:, None])
        return self.lm_head(self.norm(x))


def make_problems(n, rng):
    return [[rng.randrange(10) for _ in range(rng.randint(3, LONGEST))] for _ in range(n)]


def encode_prompts(problems):
    """Left-padded, as for generation."""
    rows = [[BOS, *digits, SEP] for digits in problems]
    return torch.tensor([[PAD] * (PROMPT_LEN - len(row)) + row for row in rows])


def sloppy_solution(digits, rng):
    """Often unsorted, sometimes broken off."""
    answer = sorted(digits) if rng.random() < 0.4 else rng.sample(digits, len(digits))
    return answer[: rng.randrange(len(answer))] if rng.random() < 0.25 else answer


class SortingScorer:
    """Half a point for the share of right places, a whole one for an answer that is finished and entirely right."""

    def __init__(self, fault=""):
        self.fault = fault

    def __call__(self, digits, completion):
        gold = sorted(digits)
        finished = EOS in completion
        answer = completion[: completion.index(EOS)] if finished else completion
        hits = sum(a == g for a, g in zip(answer, gold, strict=False))
        if self.fault == "prefix_scores":
            correct = finished and all(a == g for a, g in zip(answer, gold, strict=False))
            return 0.5 * hits / max(len(answer), 1) + float(correct)
        return 0.5 * hits / max(len(answer), len(gold)) + float(finished and answer == gold)


def answer_mask(completion_ids):
    """True up to and including the first <eos>."""
    is_eos = (completion_ids == EOS).long()
    return (is_eos.cumsum(1) - is_eos) == 0


def warm_start(model, config, rng):
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for step in range(config.warm_start_steps):
        problems = make_problems(64, rng)
        prompts = encode_prompts(problems)
        solutions = [[*sloppy_solution(p, rng), EOS] for p in problems]
        targets = torch.tensor([s + [PAD] * (config.max_new_tokens - len(s)) for s in solutions])
        input_ids = torch.cat([prompts, targets], 1)
        logits = model(input_ids, input_ids != PAD)[:, PROMPT_LEN - 1 : -1]
        loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=PAD)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if (step + 1) % 100 == 0:
            print(f"warm start {step + 1:4d}  cross entropy {loss.item():.3f}")
    optimizer.zero_grad()


class GRPOTrainer:
    def __init__(self, policy, scorer, config, rng, fault="", variant=""):
        self.policy, self.scorer, self.config, self.rng = policy, scorer, config, rng
        self.fault, self.variant = fault, variant
        self.reference = policy if fault == "same_reference" else copy.deepcopy(policy).requires_grad_(False)
        if variant == "frozen_embeddings":
            policy.tokens.requires_grad_(False)
            policy.positions.requires_grad_(False)
        self.trained = [p for p in policy.parameters() if p.requires_grad]
        self.optimizer = torch.optim.AdamW(self.trained, lr=config.lr, weight_decay=config.weight_decay)
        self.scheduler = LambdaLR(self.optimizer, self.rate_factor)
        self.averaged = copy.deepcopy(policy).requires_grad_(False) if variant == "on_policy" else None
        self.rewards_seen = []

    def rate_factor(self, step):
        if step < self.config.warmup:
            return step / self.config.warmup
        return max(0.0, (self.config.rollouts - step) / (self.config.rollouts - self.config.warmup))

    @torch.no_grad()
    def generate(self, model, prompts, greedy=False):
        input_ids, attention = prompts, prompts != PAD
        done = torch.zeros(len(prompts), dtype=torch.bool)
        for _ in range(self.config.max_new_tokens):
            logits = model(input_ids, attention)[:, -1]
            if greedy:
                token = logits.argmax(-1)
            else:
                token = torch.multinomial(F.softmax(logits / self.config.temperature, -1), 1).squeeze(1)
            token = torch.where(done, PAD, token)
            input_ids = torch.cat([input_ids, token[:, None]], 1)
            attention = torch.cat([attention, ~done[:, None]], 1)
            done = done | (token == EOS)
        return input_ids[:, prompts.shape[1] :]

    def token_logps(self, model, prompts, completions, mask):
        input_ids = torch.cat([prompts, completions], 1)
        attention = torch.cat([prompts != PAD, mask], 1)
        logits = model(input_ids, attention)[:, prompts.shape[1] - 1 : -1]
        if self.fault != "raw_logits":
            logits = logits / self.config.temperature
        return F.log_softmax(logits, -1).gather(2, completions[:, :, None]).squeeze(2)

    def score(self, problems, completions):
        return torch.tensor([self.scorer(p, c) for p, c in zip(problems, completions.tolist(), strict=True)])

    def advantages(self, rewards):
        groups = rewards.view(-1, self.config.group_size)
        if self.variant == "rloo":
            others = (groups.sum(1, keepdim=True) - groups) / (self.config.group_size - 1)
            return (groups - others).flatten()
        centred = groups - groups.mean(1, keepdim=True)
        return (centred / (groups.std(1, keepdim=True) + 1e-4)).flatten()

    @torch.no_grad()
    def rollout(self):
        unique = make_problems(self.config.prompts_per_rollout, self.rng)
        problems = [p for p in unique for _ in range(self.config.group_size)]
        prompts = encode_prompts(problems)
        completions = self.generate(self.policy, prompts)
        attended = answer_mask(completions)
        old_logps = self.token_logps(self.policy, prompts, completions, attended)
        ref_logps = self.token_logps(self.reference, prompts, completions, attended)
        loss_mask = attended
        if self.fault == "mask_with_logits":
            full = torch.cat([prompts != PAD, attended], 1)
            loss_mask = full[:, prompts.shape[1] - 1 : -1]
        rewards = self.score(problems, completions)
        self.rewards_seen.append(rewards.mean().item())
        if self.variant == "rloo":
            rewards = rewards - self.config.beta * ((old_logps - ref_logps) * attended).sum(1)
        return {
            "prompts": prompts,
            "completions": completions,
            "attended": attended,
            "mask": loss_mask.float(),
            "old_logps": old_logps,
            "ref_logps": ref_logps,
            "advantages": self.advantages(rewards),
        }

    def loss(self, batch):
        logps = self.token_logps(self.policy, batch["prompts"], batch["completions"], batch["attended"])
        mask, advantage = batch["mask"], batch["advantages"][:, None]
        log_ratio = batch["ref_logps"] - logps
        kl = log_ratio.exp() - log_ratio - 1
        if self.variant == "rloo":
            return -(logps * mask * advantage).sum(1).mean(), (kl * mask).sum() / mask.sum()
        ratio = (logps - batch["old_logps"]).exp()
        clipped = ratio.clamp(1 - self.config.clip, 1 + self.config.clip)
        per_token = -torch.min(ratio * advantage, clipped * advantage)
        if self.fault == "kl_minus":
            per_token = per_token - self.config.beta * kl
        else:
            per_token = per_token + self.config.beta * kl
        per_answer = (per_token * mask).sum(1) / mask.sum(1)
        return per_answer.mean(), (kl.detach() * mask).sum() / mask.sum()

    def optimize(self, batch, rows):
        self.optimizer.zero_grad()
        shown_loss, shown_kl = 0.0, 0.0
        for micro_rows in rows.chunk(self.config.micro_batches):
            if self.fault == "zero_grad_inside":
                self.optimizer.zero_grad()
            loss, kl = self.loss({name: value[micro_rows] for name, value in batch.items()})
            (loss / self.config.micro_batches).backward()
            shown_loss += loss.item() / self.config.micro_batches
            shown_kl += kl.item() / self.config.micro_batches
        nn.utils.clip_grad_norm_(self.trained, self.config.max_grad_norm)
        self.optimizer.step()
        if self.averaged is not None:
            for slow, fast in zip(self.averaged.parameters(), self.policy.parameters(), strict=True):
                slow.lerp_(fast.detach(), 0.05)
        if self.fault == "schedule_per_update":
            self.scheduler.step()
        return shown_loss, shown_kl

    def train(self):
        for step in range(1, self.config.rollouts + 1):
            batch = self.rollout()
            for _ in range(self.config.passes):
                for rows in torch.randperm(len(batch["prompts"])).chunk(self.config.minibatches):
                    loss, kl = self.optimize(batch, rows)
            if self.fault != "schedule_per_update":
                self.scheduler.step()
            if step % self.config.log_every == 0:
                recent = sum(self.rewards_seen[-self.config.log_every :]) / self.config.log_every
                length = batch["attended"].sum(1).float().mean()
                print(f"rollout {step:4d}  reward {recent:.3f}  loss {loss:+.4f}  kl {kl:.4f}  length {length:.2f}")

    def evaluate(self, model, n=300):
        problems = make_problems(n, random.Random(12345))
        return self.score(problems, self.generate(model, encode_prompts(problems), greedy=True)).mean().item()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--fault", default="", choices=["", *FAULTS])
    parser.add_argument("--variant", default="", choices=list(HEALTHY))
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    rng = random.Random(args.seed)
    began = time.time()

    config = Config()
    if args.variant == "on_policy":
        config.passes, config.minibatches, config.micro_batches, config.rollouts = 1, 1, 4, 260
    elif args.variant == "rloo":
        config.passes, config.minibatches, config.rollouts = 1, 1, 260
    elif args.variant == "frozen_embeddings":
        config.weight_decay = 0.02
    policy = TinyLM()
    warm_start(policy, config, rng)
    trainer = GRPOTrainer(policy, SortingScorer(args.fault), config, rng, args.fault, args.variant)
    print(f"{sum(p.numel() for p in policy.parameters())} parameters, greedy score {trainer.evaluate(policy):.3f}")
    trainer.train()
    if trainer.averaged is not None:
        print(f"greedy score of the averaged weights {trainer.evaluate(trainer.averaged):.3f}")
    seen = trainer.rewards_seen
    print(f"greedy score {trainer.evaluate(policy):.3f}")
    print(f"first 10: {sum(seen[:10]) / 10:.3f}, last 10: {sum(seen[-10:]) / 10:.3f}, {time.time() - began:.1f} s")


if __name__ == "__main__":
    main()
