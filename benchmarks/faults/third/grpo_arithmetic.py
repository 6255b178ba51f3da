"""GRPO on two-number sums: a small decoder gets a short supervised warm start, then learns from sampled answers."""

import argparse
import copy
import time
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F

FAULTS = {
    "mask_shift": ["language", "broken", "response mask cut at the wrong end: it lags the log-probs by one token"],
    "temperature": ["language", "broken", "answers are sampled at 0.7, log-probs are taken at temperature 1"],
    "group_order": ["returns", "broken", "prompts tiled, rewards viewed as if interleaved: groups mix prompts"],
    "micro_zero": ["weights", "broken", "gradients cleared before every micro-batch, only the last one counts"],
    "kl_sign": ["signs", "broken", "the KL to the reference is rewarded instead of penalised"],
    "substring": ["goal", "not proven", "reward tests 'answer in truth', so an empty answer scores in full"],
}
HEALTHY = {
    "": "plain",
    "one_update": "a single update per rollout: ratio is exactly 1 and the shown loss is about 0",
    "no_std": "advantages are only centred, loss is divided by a constant length (Dr. GRPO)",
    "frozen_embed": "token and position embeddings are frozen on purpose after the warm start",
}

CHARS, EOS, PAD, VOCAB = "0123456789+=", 12, 13, 14


@dataclass
class GRPOConfig:
    steps: int = 200
    seed: int = 0
    prompts_per_step: int = 24
    group_size: int = 8
    inner_epochs: int = 2
    micro_batches: int = 4
    max_new: int = 3
    temperature: float = 0.7
    clip: float = 0.2
    beta: float = 0.02
    lr: float = 1e-3
    fault: str = ""
    variant: str = ""


class Block(nn.Module):
    def __init__(self, d, heads=4):
        super().__init__()
        self.heads, self.ln1, self.ln2 = heads, nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.out = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.mlp = nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d))

    def forward(self, x):
        n, t, d = x.shape
        q, k, v = self.qkv(self.ln1(x)).view(n, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(n, t, d))
        return x + self.mlp(self.ln2(x))


class TinyLM(nn.Module):
    def __init__(self, d=48, n_layers=2, max_len=16):
        super().__init__()
        self.tok, self.pos = nn.Embedding(VOCAB, d), nn.Embedding(max_len, d)
        self.blocks = nn.ModuleList(Block(d) for _ in range(n_layers))
        self.norm, self.head = nn.LayerNorm(d), nn.Linear(d, EOS + 1, bias=False)  # padding is never produced

    def forward(self, ids):
        x = self.tok(ids) + self.pos(torch.arange(ids.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


class SumTask:
    prompt_len = 6

    def __init__(self, cfg):
        self.cfg, self.gen = cfg, torch.Generator().manual_seed(cfg.seed + 1000)

    def sample(self, n):
        ab = torch.randint(0, 13, (n, 2), generator=self.gen).tolist()
        prompts = torch.tensor([[CHARS.index(c) for c in f"{a:02d}+{b:02d}="] for a, b in ab])
        return prompts, [str(a + b) for a, b in ab]

    def reward(self, ids, truth):
        ended = EOS in ids
        text = "".join(CHARS[i] if i < 12 else "_" for i in (ids[: ids.index(EOS)] if ended else ids))
        if self.cfg.fault == "substring":
            return 1.0 if ended and text in truth else 0.0
        partial = 0.2 * sum(x == y for x, y in zip(text, truth, strict=False)) / len(truth)
        return 1.0 if ended and text == truth else partial


class GRPOTrainer:
    def __init__(self, cfg):
        self.cfg, self.task = cfg, SumTask(cfg)
        torch.manual_seed(cfg.seed)
        self.policy = TinyLM()
        self.warm_start()
        self.ref = copy.deepcopy(self.policy).eval().requires_grad_(False)
        if cfg.variant == "frozen_embed":
            self.policy.tok.requires_grad_(False)
            self.policy.pos.requires_grad_(False)
        self.optimizer = torch.optim.AdamW([p for p in self.policy.parameters() if p.requires_grad], lr=cfg.lr)

    def warm_start(self):
        optimizer = torch.optim.AdamW(self.policy.parameters(), lr=2e-3)
        for _ in range(150):
            prompts, answers = self.task.sample(64)
            rows = [[CHARS.index(c) for c in s] + [EOS] + [PAD] * (2 - len(s)) for s in answers]
            ids = torch.cat([prompts, torch.tensor(rows)], dim=1)
            targets = ids[:, 1:].masked_fill(ids[:, 1:] == PAD, -100)
            targets[:, : self.task.prompt_len - 1] = -100
            loss = F.cross_entropy(self.policy(ids[:, :-1]).flatten(0, 1), targets.flatten(), ignore_index=-100)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    @torch.no_grad()
    def generate(self, ids):
        done = torch.zeros(len(ids), dtype=torch.bool)
        for _ in range(self.cfg.max_new):
            probs = F.softmax(self.policy(ids)[:, -1] / self.cfg.temperature, dim=-1)
            nxt = torch.multinomial(probs, 1).squeeze(1).masked_fill(done, PAD)
            done = done | (nxt == EOS)
            ids = torch.cat([ids, nxt[:, None]], dim=1)
        return ids

    def token_logps(self, model, ids):
        logits = model(ids[:, :-1])
        if self.cfg.fault != "temperature":
            logits = logits / self.cfg.temperature
        return logits.log_softmax(-1).gather(-1, ids[:, 1:, None].clamp(max=EOS)).squeeze(-1)

    def rollout(self):
        cfg = self.cfg
        prompts, truths = self.task.sample(cfg.prompts_per_step)
        if cfg.fault == "group_order":
            batch, truths = prompts.repeat(cfg.group_size, 1), truths * cfg.group_size
        else:
            batch = prompts.repeat_interleave(cfg.group_size, dim=0)
            truths = [t for t in truths for _ in range(cfg.group_size)]
        ids = self.generate(batch)
        answers = zip(ids[:, self.task.prompt_len :].tolist(), truths, strict=True)
        rewards = torch.tensor([self.task.reward(answer, truth) for answer, truth in answers])
        groups = rewards.view(-1, cfg.group_size)
        advantages = groups - groups.mean(dim=1, keepdim=True)
        if cfg.variant != "no_std":
            advantages = advantages / (groups.std(dim=1, keepdim=True) + 1e-4)
        response_mask = ids != PAD
        response_mask[:, : self.task.prompt_len] = False
        mask = response_mask[:, :-1] if cfg.fault == "mask_shift" else response_mask[:, 1:]
        with torch.no_grad():
            old, ref = self.token_logps(self.policy, ids), self.token_logps(self.ref, ids)
        return ids, mask.float(), advantages.flatten()[:, None], old, ref, rewards.mean().item()

    def update(self, ids, mask, advantages, old, ref):
        cfg = self.cfg
        denom = float(len(ids) * cfg.max_new) if cfg.variant == "no_std" else mask.sum()
        for _ in range(1 if cfg.variant == "one_update" else cfg.inner_epochs):
            shown = 0.0
            self.optimizer.zero_grad()
            for part in torch.randperm(len(ids)).chunk(cfg.micro_batches):
                if cfg.fault == "micro_zero":
                    self.optimizer.zero_grad()
                logps = self.token_logps(self.policy, ids[part])
                ratio = (logps - old[part]).exp()
                adv, delta = advantages[part], ref[part] - logps
                surrogate = torch.min(ratio * adv, ratio.clamp(1 - cfg.clip, 1 + cfg.clip) * adv)
                kl = delta.exp() - delta - 1
                penalty = -cfg.beta * kl if cfg.fault == "kl_sign" else cfg.beta * kl
                loss = ((penalty - surrogate) * mask[part]).sum() / denom
                loss.backward()
                shown += loss.item()
            nn.utils.clip_grad_norm_(self.policy.parameters(), 1.0)
            self.optimizer.step()
        return shown

    def train(self):
        history, shown_at = [], time.time()
        for step in range(1, self.cfg.steps + 1):
            *batch, reward = self.rollout()
            loss = self.update(*batch)
            history.append(reward)
            if time.time() - shown_at > 3:
                shown_at = time.time()
                print(f"step {step:4d}  reward {reward:.3f}  loss {loss:+.4f}", flush=True)
        n = max(1, len(history) // 10)
        print(f"final: first tenth {sum(history[:n]) / n:.3f}  last tenth {sum(history[-n:]) / n:.3f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=GRPOConfig.steps)
    parser.add_argument("--fault", default="", choices=["", *FAULTS])
    parser.add_argument("--variant", default="", choices=list(HEALTHY))
    GRPOTrainer(GRPOConfig(**vars(parser.parse_args()))).train()
