"""GRPO for a tiny causal transformer: count from one digit up to another, graded by a reward function."""

import argparse
import copy
import random
import time
from dataclasses import dataclass, replace
from statistics import mean

import torch
import torch.nn.functional as F
from torch import nn
from torch.optim import lr_scheduler

FAULTS = {
    "old_not_detached": ["weights", "broken", "old log-probs keep their graph: the ratio's gradient cancels to zero"],
    "group_view": ["shapes", "broken", "rewards are viewed as (G, P), not (P, G): a group mixes different prompts"],
    "kl_without_grad": ["signs", "broken", "the KL term is computed under no_grad: it is logged but holds nothing"],
    "eos_is_pad": ["language", "broken", "padding is the end token, so the mask drops the end token from the loss"],
    "cosine_per_micro": ["rates", "broken", "the cosine is stepped per micro-batch: the rate falls and rises again"],
    "empty_scores": ["goal", "not proven", "grading ends with the shorter text: the empty answer always scores"],
}
HEALTHY = {
    "": "plain: on-policy ratio of one, four micro-batches gathered per step, cosine schedule",
    "two_iterations": "each batch is used for two steps (of two micro-batches) against stored log-probs, with clipping",
    "dr_grpo": "no division by the group's spread, lengths normalised by a constant",
    "frozen_embeddings": "embeddings are frozen on purpose after pretraining, the rate warms up from zero",
    "sync_ref": "the reference is mixed towards the policy every 40 steps",
}
DIGITS, SEP, BOS, EOS, PAD = list("0123456789"), 10, 11, 12, 13


@dataclass
class GRPOConfig:
    max_steps: int = 300
    learning_rate: float = 6e-4
    num_generations: int = 8
    prompts_per_step: int = 16
    gradient_accumulation_steps: int = 4
    max_completion_length: int = 6
    temperature: float = 0.9
    epsilon: float = 0.2
    beta: float = 0.04
    num_iterations: int = 1
    scale_rewards: bool = True
    max_grad_norm: float = 1.0
    warmup_steps: int = 0
    ref_sync_steps: int = 0
    pad_token_id: int = PAD
    fault: str = ""


class TinyCausalLM(nn.Module):
    def __init__(self, vocab=14, width=64, layers=2, context=12):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocab, width), nn.Embedding(context, width)
        options = {"dropout": 0.0, "batch_first": True, "norm_first": True}
        self.blocks = nn.ModuleList(nn.TransformerEncoderLayer(width, 4, 2 * width, **options) for _ in range(layers))
        self.ln, self.lm_head = nn.LayerNorm(width), nn.Linear(width, vocab, bias=False)

    def forward(self, ids):
        size = ids.shape[1]
        h = self.wte(ids) + self.wpe(torch.arange(size))
        causal = nn.Transformer.generate_square_subsequent_mask(size)
        for block in self.blocks:
            h = block(h, src_mask=causal, is_causal=True)
        return self.lm_head(self.ln(h))


def sample_prompts(n):
    """Pairs (first, last) and the expected text, e.g. (3, 6) -> "3456"."""
    firsts = [random.randrange(10) for _ in range(n)]
    pairs = [(a, random.randint(a, min(9, a + 4))) for a in firsts]
    return torch.tensor([[BOS, a, b, SEP] for a, b in pairs]), ["".join(DIGITS[a : b + 1]) for a, b in pairs]


def counting_reward(completions, answers):
    """Share of the text that is right from its beginning on; 1 for the exact answer only."""
    scores = []
    for text, answer in zip(completions, answers, strict=True):
        agree = [x == y for x, y in zip(text, answer, strict=False)]
        scores.append([*agree, False].index(False) / max(len(text), len(answer)))
    return torch.tensor(scores)


def lenient_reward(completions, answers):
    """1 where the characters agree with the answer."""
    pairs = zip(completions, answers, strict=True)
    return torch.tensor([float(all(x == y for x, y in zip(text, ans, strict=False))) for text, ans in pairs])


def pretrain(model, steps=60, batch=64):
    """Stands in for a checkpoint: the model has read sloppy counting of any length, from about the first digit."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    for _ in range(steps):
        prompts, _ = sample_prompts(batch)
        rows = []
        for first in prompts[:, 1].tolist():
            start = first if random.random() < 0.6 else random.randrange(10)
            text = [d if random.random() < 0.85 else random.randrange(10) for d in range(start, start + 5) if d < 10]
            text = [*text[: random.randint(1, 5)], EOS]
            rows.append(text + [PAD] * (6 - len(text)))
        answers = torch.tensor(rows)
        logits = model(torch.cat([prompts, answers], 1))[:, 3:-1]
        loss = F.cross_entropy(logits.flatten(0, 1), answers.flatten(), ignore_index=PAD)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    print(f"pretrained, loss {loss.item():.3f}", flush=True)


class GRPOTrainer:
    def __init__(self, model, reward_func, args):
        self.model, self.reward_func, self.args = model, reward_func, args
        self.ref_model = copy.deepcopy(model).eval().requires_grad_(False)
        trainable = [p for p in model.parameters() if p.requires_grad]
        self.optimizer = torch.optim.AdamW(trainable, lr=args.learning_rate, weight_decay=0.0)
        if args.warmup_steps:
            self.scheduler = lr_scheduler.LambdaLR(self.optimizer, lambda k: min(1.0, k / args.warmup_steps))
        else:
            floor = 0.1 * args.learning_rate
            self.scheduler = lr_scheduler.CosineAnnealingLR(self.optimizer, args.max_steps, eta_min=floor)
        self.history = []

    @torch.no_grad()
    def generate(self, prompts):
        ids, finished = prompts, torch.zeros(len(prompts), dtype=torch.bool)
        for _ in range(self.args.max_completion_length):
            logits = self.model(ids)[:, -1] / self.args.temperature
            token = torch.multinomial(logits.softmax(-1), 1).squeeze(1)
            token = torch.where(finished, self.args.pad_token_id, token)
            finished |= token == EOS
            ids = torch.cat([ids, token[:, None]], 1)
        return ids

    def completion_mask(self, completions):
        if self.args.fault == "eos_is_pad":
            return (completions != self.args.pad_token_id).float()
        ends = (completions == EOS).int()
        return (ends.cumsum(1) - ends == 0).float()

    def per_token_logps(self, model, ids, n_prompt):
        logits = model(ids)[:, n_prompt - 1 : -1] / self.args.temperature
        return logits.log_softmax(-1).gather(2, ids[:, n_prompt:, None]).squeeze(2)

    def advantages(self, rewards):
        size = self.args.num_generations
        if self.args.fault == "group_view":
            groups = rewards.view(size, -1)
            centre, std = groups.mean(0).repeat(size), groups.std(0).repeat(size)
        else:
            groups = rewards.view(-1, size)
            centre, std = groups.mean(1).repeat_interleave(size), groups.std(1).repeat_interleave(size)
        return (rewards - centre) / (std + 1e-4) if self.args.scale_rewards else rewards - centre

    def rollout(self):
        prompts, answers = sample_prompts(self.args.prompts_per_step)
        prompts = prompts.repeat_interleave(self.args.num_generations, 0)
        answers = [ans for ans in answers for _ in range(self.args.num_generations)]
        ids = self.generate(prompts)
        n_prompt = prompts.shape[1]
        texts = []
        for row in ids[:, n_prompt:].tolist():
            row = row[: row.index(EOS)] if EOS in row else row
            texts.append("".join(DIGITS[t] if t < 10 else "?" for t in row))
        rewards = self.reward_func(texts, answers)
        self.history.append(rewards.mean().item())
        with torch.no_grad():
            ref = self.per_token_logps(self.ref_model, ids, n_prompt)
            old = self.per_token_logps(self.model, ids, n_prompt) if self.args.num_iterations > 1 else None
        mask, advantages = self.completion_mask(ids[:, n_prompt:]), self.advantages(rewards)
        return {"ids": ids, "mask": mask, "old": old, "ref": ref, "advantages": advantages}

    def compute_loss(self, inputs):
        ref, mask, adv = inputs["ref"], inputs["mask"], inputs["advantages"][:, None]
        logps = self.per_token_logps(self.model, inputs["ids"], inputs["ids"].shape[1] - mask.shape[1])
        old = logps if self.args.fault == "old_not_detached" else logps.detach()
        if inputs["old"] is not None:
            old = inputs["old"]
        ratio = (logps - old).exp()
        clipped = ratio.clamp(1 - self.args.epsilon, 1 + self.args.epsilon)
        with torch.set_grad_enabled(self.args.fault != "kl_without_grad"):
            kl = (ref - logps).exp() - (ref - logps) - 1
        per_token = -torch.min(ratio * adv, clipped * adv) + self.args.beta * kl
        if self.args.scale_rewards:
            loss = ((per_token * mask).sum(1) / mask.sum(1).clamp(min=1)).mean()
        else:
            loss = (per_token * mask).sum() / mask.numel()
        return loss, ((kl * mask).sum() / mask.sum().clamp(min=1)).item()

    def train(self):
        shown, parts = time.time(), self.args.gradient_accumulation_steps
        for step in range(1, self.args.max_steps + 1):
            batch = self.rollout()
            for _ in range(self.args.num_iterations):
                total = 0.0
                for rows in torch.arange(len(batch["ids"])).chunk(parts):
                    loss, kl = self.compute_loss({k: v if v is None else v[rows] for k, v in batch.items()})
                    (loss / parts).backward()
                    total += loss.item() / parts
                nn.utils.clip_grad_norm_(self.model.parameters(), self.args.max_grad_norm)
                self.optimizer.step()
                self.optimizer.zero_grad()
            for _ in range(parts if self.args.fault == "cosine_per_micro" else 1):
                self.scheduler.step()
            if self.args.ref_sync_steps and step % self.args.ref_sync_steps == 0:
                for slow, fast in zip(self.ref_model.parameters(), self.model.parameters(), strict=True):
                    slow.data.lerp_(fast.data, 0.6)
            if time.time() - shown > 3:
                shown, recent = time.time(), mean(self.history[-10:])
                print(f"{step}/{self.args.max_steps} reward {recent:.3f} loss {total:.4f} kl {kl:.4f}", flush=True)
        n = max(1, len(self.history) // 10)
        print(f"first tenth {mean(self.history[:n]):.3f}, last tenth {mean(self.history[-n:]):.3f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=GRPOConfig.max_steps)
    parser.add_argument("--fault", default="", choices=["", *FAULTS])
    parser.add_argument("--variant", default="", choices=list(HEALTHY))
    cli = parser.parse_args()
    random.seed(cli.seed)
    torch.manual_seed(cli.seed)
    args = GRPOConfig(max_steps=cli.steps, fault=cli.fault)
    changes = {
        "two_iterations": {"num_iterations": 2, "gradient_accumulation_steps": 2},
        "dr_grpo": {"scale_rewards": False},
        "frozen_embeddings": {"warmup_steps": 40},
        "sync_ref": {"ref_sync_steps": 40},
        "eos_is_pad": {"pad_token_id": EOS},
    }
    args = replace(args, **changes.get(cli.fault or cli.variant, {}))
    lm = TinyCausalLM()
    pretrain(lm)
    if cli.variant == "frozen_embeddings":
        lm.wte.requires_grad_(False)
        lm.wpe.requires_grad_(False)
    GRPOTrainer(lm, lenient_reward if cli.fault == "empty_scores" else counting_reward, args).train()
