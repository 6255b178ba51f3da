"""GRPO for a tiny GRU language model: "7 + + + =" asks it to count on, "8 9 0", and a verifier gives the score."""

from __future__ import annotations

import argparse
import copy
import random
import time

import numpy as np
import torch
from torch import Tensor, nn

FAULTS = {
    "mask_one_late": [
        "language",
        "broken",
        "the completion mask is cut at the wrong end: the first token is never trained",
    ],
    "ref_is_policy": ["language", "broken", "the reference is the policy itself, not a copy: the KL cannot grow"],
    "temperature_lost": ["language", "broken", "sampled at a temperature that the trained log-probs do not know of"],
    "kl_rewarded": ["signs", "broken", "the KL to the reference is subtracted from the loss instead of added"],
    "group_axis": ["shapes", "broken", "scores are reshaped with groups and prompts swapped: baselines mix prompts"],
    "empty_passes": ["goal", "not proven", "the verifier zips to the shorter list: an empty answer always scores"],
}
HEALTHY = {
    "": "plain: group-standardised scores, two inner epochs, clipped ratio, k3 estimate of the KL",
    "rloo": "leave-one-out baseline without division by the deviation, one inner epoch, no clipping needed",
    "frozen_embedding": "the embedding is frozen on purpose after the supervised warm-up; no KL term at all",
    "micro_batches": "four micro-batches weighted by their tokens, one optimizer step; weight decay, rate warm-up",
}

PAD, EOS, EQ, PLUS, MINUS, VOCAB = 10, 11, 12, 13, 14, 15
PROMPT_LEN, ANSWER_LEN = 6, 5
NAMES = [*"0123456789", "_", ".", "=", "+", "-"]


class CountingTask:
    """Prompts are padded on the left; the answer has one digit per sign and then the end token."""

    def __init__(self, seed: int, empty_passes: bool = False) -> None:
        self.rng = random.Random(seed)
        self.empty_passes = empty_passes

    def sample(self) -> tuple[list[int], list[int]]:
        start, n, up = self.rng.randrange(10), self.rng.randint(1, 4), self.rng.random() < 0.5
        prompt = [start, *[PLUS if up else MINUS] * n, EQ]
        answer = [(start + (i if up else -i)) % 10 for i in range(1, n + 1)]
        return [PAD] * (PROMPT_LEN - len(prompt)) + prompt, answer

    def batch(self, n: int) -> tuple[Tensor, list[list[int]]]:
        prompts, answers = zip(*(self.sample() for _ in range(n)), strict=True)
        return torch.tensor(prompts), list(answers)

    def score(self, tokens: list[int], answer: list[int]) -> float:
        said = tokens[: tokens.index(EOS)] if EOS in tokens else tokens
        if self.empty_passes:
            return float(all(a == b for a, b in zip(said, answer, strict=False)))
        right = sum(a == b for a, b in zip(said, answer, strict=False)) / max(len(said), len(answer))
        return 0.5 * right + 0.5 * (said == answer)


class TinyLM(nn.Module):
    def __init__(self, dim: int = 64) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCAB, 24)
        self.rnn = nn.GRU(24, dim, batch_first=True)
        self.head = nn.Linear(dim, VOCAB)

    def forward(self, tokens: Tensor, hidden: Tensor | None = None) -> tuple[Tensor, Tensor]:
        out, hidden = self.rnn(self.embed(tokens), hidden)
        return self.head(out), hidden


def token_logps(model: TinyLM, tokens: Tensor, temperature: float) -> Tensor:
    """Log-prob of each token but the first, shape (batch, length - 1)."""
    logits, _ = model(tokens[:, :-1])
    return (logits / temperature).log_softmax(-1).gather(-1, tokens[:, 1:, None]).squeeze(-1)


@torch.no_grad()
def generate(model: TinyLM, prompts: Tensor, temperature: float) -> Tensor:
    tokens, hidden, last = [], None, prompts
    over = torch.zeros(len(prompts), dtype=torch.bool)
    for _ in range(ANSWER_LEN):
        logits, hidden = model(last, hidden)
        picked = torch.multinomial((logits[:, -1] / temperature).softmax(-1), 1).squeeze(1)
        picked = torch.where(over, PAD, picked)
        over = over | (picked == EOS)
        tokens.append(picked)
        last = picked[:, None]
    return torch.stack(tokens, 1)


def completion_mask(tokens: Tensor) -> Tensor:
    """1 on each generated token up to and with the end token; same shape as tokens."""
    answer = tokens[:, PROMPT_LEN:]
    ended_before = (answer == EOS).cumsum(1) - (answer == EOS).long()
    return torch.cat([torch.zeros(len(tokens), PROMPT_LEN), (ended_before == 0).float()], 1)


def supervised_warmup(model: TinyLM, task: CountingTask, updates: int = 150) -> None:
    """Demonstrations whose digits are wrong half of the time: the form is learnt, the counting only partly."""
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    for _ in range(updates):
        prompts, answers = task.batch(64)
        noisy = [[d if task.rng.random() < 0.5 else task.rng.randrange(10) for d in a] for a in answers]
        rows = [a + [EOS] + [PAD] * (ANSWER_LEN - 1 - len(a)) for a in noisy]
        tokens = torch.cat([prompts, torch.tensor(rows)], 1)
        mask = completion_mask(tokens)[:, 1:]
        loss = -(token_logps(model, tokens, 1.0) * mask).sum() / mask.sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


class Trainer:
    n_prompts, group, temperature, clip, beta, lr = 16, 8, 0.8, 0.2, 0.01, 1e-3

    def __init__(self, args: argparse.Namespace) -> None:
        self.fault, self.variant, self.total = args.fault, args.variant, args.steps
        self.task = CountingTask(args.seed, empty_passes=args.fault == "empty_passes")
        self.policy = TinyLM()
        supervised_warmup(self.policy, self.task)
        self.reference = self.policy
        if self.fault != "ref_is_policy":
            self.reference = copy.deepcopy(self.policy).requires_grad_(False)
        if self.variant == "frozen_embedding":
            self.policy.embed.requires_grad_(False)
            self.beta = 0.0
        self.epochs = 1 if self.variant == "rloo" else 2
        decay = 1e-2 if self.variant == "micro_batches" else 0.0
        trained = [p for p in self.policy.parameters() if p.requires_grad]
        self.optimizer = torch.optim.AdamW(trained, lr=self.lr, weight_decay=decay)
        self.iteration, self.history, self.exact = 0, [], []

    def advantages(self, scores: Tensor) -> Tensor:
        table = scores.view(self.n_prompts, self.group)
        if self.fault == "group_axis":
            table = scores.view(self.group, self.n_prompts).T
        if self.variant == "rloo":
            others = (table.sum(1, keepdim=True) - table) / (self.group - 1)
            return 2.0 * (table - others).reshape(-1)
        centred = table - table.mean(1, keepdim=True)
        scaled = centred / (table.std(1, keepdim=True) + 1e-2)
        return scaled.T.reshape(-1) if self.fault == "group_axis" else scaled.reshape(-1)

    def rollout(self) -> dict[str, Tensor]:
        prompts, answers = self.task.batch(self.n_prompts)
        prompts = prompts.repeat_interleave(self.group, 0)
        answers = [a for a in answers for _ in range(self.group)]
        completions = generate(self.policy, prompts, self.temperature)
        scores = [self.task.score(c, a) for c, a in zip(completions.tolist(), answers, strict=True)]
        self.history.append(float(np.mean(scores)))
        ok = [c[: len(a) + 1] == [*a, EOS] for c, a in zip(completions.tolist(), answers, strict=True)]
        self.exact.append(float(np.mean(ok)))
        tokens = torch.cat([prompts, completions], 1)
        mask = completion_mask(tokens)
        with torch.no_grad():
            old = token_logps(self.policy, tokens, self.temperature)
            ref = token_logps(self.reference, tokens, self.temperature)
        return {
            "tokens": tokens,
            "mask": mask[:, :-1] if self.fault == "mask_one_late" else mask[:, 1:],
            "old": old,
            "ref": ref,
            "adv": self.advantages(torch.tensor(scores)),
        }

    def loss(self, part: dict[str, Tensor], n_tokens: Tensor) -> tuple[Tensor, Tensor]:
        temperature = 1.0 if self.fault == "temperature_lost" else self.temperature
        new = token_logps(self.policy, part["tokens"], temperature)
        ratio = (new - part["old"]).exp()
        adv = part["adv"][:, None]
        surrogate = torch.min(ratio * adv, ratio.clamp(1 - self.clip, 1 + self.clip) * adv)
        if self.variant == "rloo":
            surrogate = new * adv
        kl = (part["ref"] - new).exp() - (part["ref"] - new) - 1
        if self.fault == "kl_rewarded":
            kl = -kl
        per_token = -surrogate + self.beta * kl
        return (per_token * part["mask"]).sum() / n_tokens, (kl * part["mask"]).sum() / n_tokens

    def update(self) -> dict[str, float]:
        data = self.rollout()
        n_parts = 4 if self.variant == "micro_batches" else 1
        if self.variant == "micro_batches":
            self.optimizer.param_groups[0]["lr"] = self.lr * min(1.0, 10 * (self.iteration + 1) / self.total)
        for _ in range(self.epochs):
            self.optimizer.zero_grad()
            total = kl_seen = 0.0
            for rows in torch.arange(len(data["adv"])).chunk(n_parts):
                loss, kl = self.loss({k: v[rows] for k, v in data.items()}, data["mask"].sum())
                loss.backward()
                total, kl_seen = total + loss.item(), kl_seen + kl.item()
            nn.utils.clip_grad_norm_(self.policy.parameters(), 1.0)
            self.optimizer.step()
        self.iteration += 1
        return {"loss": total, "kl": kl_seen}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=600, help="rollouts of 128 completions")
    parser.add_argument("--fault", default="", choices=["", *FAULTS])
    parser.add_argument("--variant", default="", choices=list(HEALTHY))
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    trainer, shown = Trainer(args), time.monotonic()
    while trainer.iteration < args.steps:
        logs = trainer.update()
        if time.monotonic() - shown > 3:
            shown = time.monotonic()
            prompt, _ = trainer.task.batch(1)
            said = generate(trainer.policy, prompt, trainer.temperature)
            print(
                f"{trainer.iteration:5d} score {np.mean(trainer.history[-30:]):.3f} exact "
                f"{np.mean(trainer.exact[-30:]):.3f} loss {logs['loss']:+.4f} kl {logs['kl']:.4f}   "
                + "".join(NAMES[t] for t in torch.cat([prompt, said], 1)[0].tolist()),
                flush=True,
            )
    n = max(1, len(trainer.history) // 10)
    print(f"first tenth {np.mean(trainer.history[:n]):.2f}, last tenth {np.mean(trainer.history[-n:]):.2f}")


if __name__ == "__main__":
    main()
