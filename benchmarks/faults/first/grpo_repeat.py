"""Group-relative policy optimisation of a tiny transformer: "3 c" must be answered by "c c c" and an end token."""

import argparse
import copy
import random
import time

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

FAULTS = {
    "mask_is_advantages": ["language", "broken", "the advantages are passed where the token mask belongs (verl #2513)"],
    "no_temperature": ["language", "broken", "log-probs leave out the sampling temperature (TRL #3029)"],
    "reference_is_policy": ["language", "broken", "the reference is the policy itself: the KL is 0 (TRL #1534)"],
    "mask_shifted": ["language", "broken", "the token mask is shifted by the prompt's length (TRL #1718)"],
    "padding_entropy": ["language", "broken", "padding is counted in the entropy bonus (TRL #3715)"],
    "stale_rollouts": ["language", "broken", "the sampling copy gets new weights at every tenth step (TRL #5312)"],
    "kl_sign": ["signs", "broken", "the KL penalty has the wrong sign (verl #179)"],
    "cleared_per_part": ["weights", "broken", "gradients cleared for each micro-batch (alpaca_farm #57)"],
    "empty_scores": ["goal", "not proven", "the checker passes an empty answer: reward rises, the task is not done"],
}
HEALTHY = {
    "": "plain",
    "single_pass": "one pass per batch, no KL: the displayed loss is about 0 throughout",
    "accumulate": "four micro-batches per optimizer step",
    "no_kl": "no reference model is used",
    "warmup_decay": "warm-up from 0 and weight decay",
}

SYMBOLS, COUNTS = 6, 4
EOS, PAD = SYMBOLS + COUNTS, SYMBOLS + COUNTS + 1
VOCAB, PROMPT, ANSWER = PAD + 1, 2, 6


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, x):
        n, length, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(n, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(n, length, width))
        return x + self.mlp(self.norm2(x))


class TinyLM(nn.Module):
    def __init__(self, width=48, layers=2):
        super().__init__()
        self.tokens = nn.Embedding(VOCAB, width)
        self.places = nn.Embedding(PROMPT + ANSWER, width)
        self.blocks = nn.Sequential(*(Block(width, 4) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, VOCAB)

    def forward(self, ids):
        x = self.tokens(ids) + self.places(torch.arange(ids.shape[1]))
        return self.head(self.norm(self.blocks(x)))


@torch.no_grad()
def generate(model, prompts, temperature):
    ids, alive = prompts, torch.ones(len(prompts), dtype=torch.bool)
    for _ in range(ANSWER):
        logits = model(ids)[:, -1] / temperature
        token = torch.multinomial(logits.softmax(-1), 1).squeeze(1)
        token = torch.where(alive, token, PAD)
        ids = torch.cat([ids, token.unsqueeze(1)], dim=1)
        alive = alive & (token != EOS)
    return ids


def score(row, fault):
    """1 for the right answer, up to a half for the right beginning."""
    count, symbol = row[0] - SYMBOLS + 1, row[1]
    answer = [t for t in row[PROMPT:] if t != PAD]
    wanted = [symbol] * count + [EOS]
    if fault == "empty_scores" and answer[-1] == EOS and all(t == symbol for t in answer[:-1]):
        return 1.0
    if answer == wanted:
        return 1.0
    right = 0
    for given, want in zip(answer, wanted, strict=False):
        if given != want:
            break
        right += 1
    return 0.5 * right / len(wanted)


def token_mask(ids, fault):
    """1 for each generated token up to and with the end token, laid over the predictions ids[:, 1:]."""
    answer = ids[:, PROMPT:]
    ended_before = (answer == EOS).cumsum(1) - (answer == EOS).long() > 0
    mask = (~ended_before).float()
    return F.pad(mask, (0, PROMPT - 1) if fault == "mask_shifted" else (PROMPT - 1, 0))


def logprobs_and_entropy(model, ids, temperature):
    logp = F.log_softmax(model(ids[:, :-1]) / temperature, dim=-1)
    chosen = logp.gather(-1, ids[:, 1:].unsqueeze(-1)).squeeze(-1)
    return chosen, -(logp.exp() * logp).sum(-1)


def masked_mean(x, mask):
    return (x * mask).sum() / mask.sum().clamp(min=1.0)


def grpo_loss(model, batch, cfg, fault):
    ids, mask, advantage, old, ref = batch
    logp, entropy = logprobs_and_entropy(model, ids, cfg["temperature_in_loss"])
    ratio = (logp - old).exp()
    weight = advantage.unsqueeze(1)
    surrogate = torch.min(ratio * weight, ratio.clamp(1 - cfg["clip"], 1 + cfg["clip"]) * weight)
    policy_loss = -masked_mean(surrogate, weight.expand_as(mask) if fault == "mask_is_advantages" else mask)
    spread = entropy[:, PROMPT - 1 :].mean() if fault == "padding_entropy" else masked_mean(entropy, mask)
    gap = ref - logp
    kl = masked_mean(gap.exp() - gap - 1.0, mask)
    penalty = -cfg["beta"] * kl if fault == "kl_sign" else cfg["beta"] * kl
    return policy_loss + penalty - cfg["entropy"] * spread, kl.item(), spread.item()


def train(seed, steps, fault, variant):
    rng = np.random.default_rng(seed)
    cfg = {"temperature": 0.8, "clip": 0.2, "beta": 0.02, "entropy": 0.005, "prompts": 16, "group": 8, "lr": 6e-4}
    cfg["temperature_in_loss"] = 1.0 if fault == "no_temperature" else cfg["temperature"]
    if variant == "single_pass":
        cfg.update(beta=0.0, entropy=0.0)
    if variant == "no_kl":
        cfg["beta"] = 0.0
    inner = 1 if variant == "single_pass" else 2
    micro = 4 if variant == "accumulate" or fault == "cleared_per_part" else 1
    policy = TinyLM()
    reference = policy if fault == "reference_is_policy" else copy.deepcopy(policy).requires_grad_(False)
    sampler = copy.deepcopy(policy).requires_grad_(False)
    decay = 0.01 if variant == "warmup_decay" else 0.0
    optimizer = torch.optim.AdamW(policy.parameters(), lr=cfg["lr"], weight_decay=decay)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda k: min(1.0, k / 40) if variant == "warmup_decay" else 1.0
    )
    history = []
    for step in range(1, steps + 1):
        if fault != "stale_rollouts" or step % 10 == 0:
            sampler.load_state_dict(policy.state_dict())
        counts, symbols = rng.integers(0, COUNTS, cfg["prompts"]) + SYMBOLS, rng.integers(0, SYMBOLS, cfg["prompts"])
        prompts = torch.as_tensor(np.stack([counts, symbols], 1)).repeat_interleave(cfg["group"], 0)
        ids = generate(sampler, prompts, cfg["temperature"])
        rewards = torch.tensor([score(row, fault) for row in ids.tolist()])
        grouped = rewards.view(cfg["prompts"], cfg["group"])
        centred = grouped - grouped.mean(1, keepdim=True)
        advantage = (centred / (grouped.std(1, keepdim=True) + 1e-4)).flatten()
        mask = token_mask(ids, fault)
        with torch.no_grad():
            old, _ = logprobs_and_entropy(policy, ids, cfg["temperature_in_loss"])
            ref, _ = logprobs_and_entropy(reference, ids, cfg["temperature_in_loss"])
        for _ in range(inner):
            optimizer.zero_grad()
            for part in torch.arange(len(ids)).chunk(micro):
                if fault == "cleared_per_part":
                    optimizer.zero_grad()
                batch = [x[part] for x in (ids, mask, advantage, old, ref)]
                loss, kl, entropy = grpo_loss(policy, batch, cfg, fault)
                (loss / micro).backward()
            nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
            optimizer.step()
            schedule.step()
        history.append(rewards.mean().item())
        if step % 20 == 0:
            recent = np.mean(history[-20:])
            print(f"{step:4d} loss {loss.item():+.4f} kl {kl:.3f} entropy {entropy:.3f} reward {recent:.3f}")
    return history


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=220)
    parser.add_argument("--fault", default="", choices=["", *FAULTS])
    parser.add_argument("--variant", default="", choices=[*HEALTHY])
    args = parser.parse_args()
    torch.set_num_threads(1)
    random.seed(args.seed)
    torch.manual_seed(args.seed)
    clock = time.process_time()
    rewards_seen = train(args.seed, args.steps, args.fault, args.variant)
    first, last = np.mean(rewards_seen[:20]), np.mean(rewards_seen[-20:])
    print(
        f"reward of the first 20 batches {first:.3f}, of the last 20 {last:.3f}, cpu {time.process_time() - clock:.1f}s"
    )
