# GRPO for a very small letter model. Prompt "b3d2=" must be answered "bbbdd." and nothing else.
# First the model reads careless examples (counts often off by one), then it is rewarded for counting rightly.
import argparse
import copy
import itertools
import random
import time

import torch
import torch.nn as nn

FAULTS = {
    "stop_masked": [
        "language",
        "broken",
        "the mask leaves out the stop sign and keeps the filling after it, when it should be the other way round",
    ],
    "reference_untrained": [
        "language",
        "broken",
        "the reference is copied before the pretraining, so the KL term pulls towards random weights",
    ],
    "groups_crossed": [
        "shapes",
        "broken",
        "rewards are folded as (answers, prompts) though the answers to one prompt lie next to each other",
    ],
    "kinder_clip": [
        "signs",
        "broken",
        "after the minus was moved inside, the smaller of the two losses is still taken: clipping never holds back",
    ],
    "both_sides_live": [
        "weights",
        "broken",
        "the old log-probabilities come from the same forward pass and are not detached: the ratio has no gradient",
    ],
}
HEALTHY = {
    "": "plain: clipped ratio, three passes, group-relative advantages, KL to the pretrained model",
    "leave_one_out": "REINFORCE: one pass, baseline from the other answers of the group, no deviation, no clipping",
    "accumulated": "embedding frozen after pretraining, four micro-batches per step, warm-up of the rate from zero",
}

LETTERS, DIGITS = "abcd", "1234"
CHARS = "_.=" + LETTERS + DIGITS
PAD, STOP = 0, 1
CODE = {c: i for i, c in enumerate(CHARS)}
MAX_ANSWER = 11


def make_task(rng):
    first, second = rng.sample(LETTERS, 2)
    return first, rng.randint(1, 4), second, rng.randint(1, 4)


def prompt_ids(task):
    return [CODE[c] for c in f"{task[0]}{task[1]}{task[2]}{task[3]}="]


def careless_answer(task, rng):
    a, n, b, m = task
    n, m = (max(1, k + rng.choice((-1, 0, 0, 1))) for k in (n, m))
    text = a * n + b * m + "."
    return [CODE[c] for c in text.ljust(MAX_ANSWER, "_")]


def grade(task, ids):
    """1 for the exact answer; a little for the right letters with one right count"""
    text = "".join(CHARS[i] for i in ids)
    if "." not in text:
        return 0.0
    runs = [(c, len(list(g))) for c, g in itertools.groupby(text[: text.index(".")])]
    want = [(task[0], task[1]), (task[2], task[3])]
    if runs == want:
        return 1.0
    if [c for c, _ in runs] == [c for c, _ in want] and any(r == w for r, w in zip(runs, want, strict=True)):
        return 0.2
    return 0.0


class LetterModel(nn.Module):
    def __init__(self, dim=24, hidden=96):
        super().__init__()
        self.embed = nn.Embedding(len(CHARS), dim)
        self.gru = nn.GRU(dim, hidden, batch_first=True)
        self.head = nn.Linear(hidden, len(CHARS))

    def forward(self, ids, state=None):
        out, state = self.gru(self.embed(ids), state)
        return self.head(out), state

    def answer_logp(self, prompts, answers):
        """log-probability of every token of the answer, (B, MAX_ANSWER)"""
        logits, _ = self(torch.cat([prompts, answers[:, :-1]], dim=1))
        logits = logits[:, prompts.shape[1] - 1 :]
        return torch.log_softmax(logits, -1).gather(-1, answers.unsqueeze(-1)).squeeze(-1)

    @torch.no_grad()
    def write(self, prompts):
        logits, state = self(prompts)
        over = torch.zeros(len(prompts), dtype=torch.bool)
        tokens = []
        for _ in range(MAX_ANSWER):
            token = torch.multinomial(torch.softmax(logits[:, -1], -1), 1)
            token[over] = PAD
            over = over | (token.squeeze(1) == STOP)
            tokens.append(token)
            logits, state = self(token, state)
        return torch.cat(tokens, dim=1)


def real_tokens(answers):
    """1 up to and with the stop sign, 0 after it"""
    stops = (answers == STOP).long()
    return (stops.cumsum(1) - stops == 0).float()


def pretrain(model, rng, steps=450, batch=64):
    opt = torch.optim.Adam(model.parameters(), lr=4e-3)
    for i in range(steps):
        tasks = [make_task(rng) for _ in range(batch)]
        prompts = torch.tensor([prompt_ids(t) for t in tasks])
        answers = torch.tensor([careless_answer(t, rng) for t in tasks])
        mask = real_tokens(answers)
        loss = -(model.answer_logp(prompts, answers) * mask).sum() / mask.sum()
        opt.zero_grad()
        loss.backward()
        opt.step()
        if i % 150 == 0:
            print(f"pretraining {i:4d} loss {loss.item():.3f}")


class GRPO:
    def __init__(self, policy, reference, fault, variant, n_prompts=12, group=8, lr=8e-4, clip=0.2, beta=0.03):
        self.policy, self.reference, self.fault, self.variant = policy, reference, fault, variant
        self.n_prompts, self.group, self.lr, self.clip, self.beta = n_prompts, group, lr, clip, beta
        self.opt = torch.optim.Adam([p for p in policy.parameters() if p.requires_grad], lr=lr)
        self.iteration = 0

    def advantages(self, rewards):
        if self.fault == "groups_crossed":
            table = rewards.view(self.group, self.n_prompts)
            scaled = (table - table.mean(0, keepdim=True)) / (table.std(0, keepdim=True) + 1e-4)
            return scaled.view(-1)
        table = rewards.view(self.n_prompts, self.group)
        if self.variant == "leave_one_out":
            others = (table.sum(1, keepdim=True) - table) / (self.group - 1)
            return (table - others).view(-1) * 2.0
        return ((table - table.mean(1, keepdim=True)) / (table.std(1, keepdim=True) + 1e-4)).view(-1)

    @torch.no_grad()
    def rollout(self, rng):
        tasks = [make_task(rng) for _ in range(self.n_prompts)]
        prompts = torch.tensor([prompt_ids(t) for t in tasks]).repeat_interleave(self.group, dim=0)
        answers = self.policy.write(prompts)
        asked = [t for t in tasks for _ in range(self.group)]
        rewards = torch.tensor([grade(t, a) for t, a in zip(asked, answers.tolist(), strict=True)])
        mask = (answers != STOP).float() if self.fault == "stop_masked" else real_tokens(answers)
        return {
            "prompts": prompts,
            "answers": answers,
            "mask": mask,
            "adv": self.advantages(rewards),
            "old": self.policy.answer_logp(prompts, answers),
            "ref": self.reference.answer_logp(prompts, answers),
        }, rewards

    def loss(self, b):
        logp = self.policy.answer_logp(b["prompts"], b["answers"])
        adv, mask = b["adv"].unsqueeze(1), b["mask"]
        if self.variant == "leave_one_out":
            surrogate = -adv * logp
        else:
            old = logp if self.fault == "both_sides_live" else b["old"]
            ratio = torch.exp(logp - old)
            plain, clipped = -adv * ratio, -adv * ratio.clamp(1 - self.clip, 1 + self.clip)
            surrogate = torch.min(plain, clipped) if self.fault == "kinder_clip" else torch.max(plain, clipped)
        gap = b["ref"] - logp
        kl = gap.exp() - gap - 1
        return ((surrogate + self.beta * kl) * mask).sum() / mask.sum(), (kl.detach() * mask).sum() / mask.sum()

    def step(self, rng):
        self.iteration += 1
        data, rewards = self.rollout(rng)
        passes = 1 if self.variant == "leave_one_out" else 3
        batches = 1 if passes == 1 else 2
        micro = 4 if self.variant == "accumulated" else 1
        if self.variant == "accumulated":
            self.opt.param_groups[0]["lr"] = self.lr * min(1.0, (self.iteration - 1) / 20)
        for _ in range(passes):
            for rows in torch.randperm(len(rewards)).chunk(batches):
                self.opt.zero_grad()
                for part in rows.chunk(micro):
                    loss, kl = self.loss({k: v[part] for k, v in data.items()})
                    (loss / micro).backward()
                nn.utils.clip_grad_norm_(self.policy.parameters(), 1.0)
                self.opt.step()
        return rewards.mean().item(), kl.item()


def train(seed, steps, fault, variant):
    torch.manual_seed(seed)
    rng = random.Random(seed)
    policy = LetterModel()
    reference = copy.deepcopy(policy)
    pretrain(policy, rng)
    if fault != "reference_untrained":
        reference.load_state_dict(policy.state_dict())
    reference.eval().requires_grad_(False)
    if variant == "accumulated":
        policy.embed.requires_grad_(False)

    trainer = GRPO(policy, reference, fault, variant, group=16 if variant == "leave_one_out" else 8)
    history = []
    for i in range(steps):
        reward, kl = trainer.step(rng)
        history.append(reward)
        if i % 25 == 0:
            print(f"iteration {i:4d} reward {sum(history[-25:]) / len(history[-25:]):.3f} kl {kl:.4f}")
    return history


if __name__ == "__main__":
    cli = argparse.ArgumentParser()
    cli.add_argument("--seed", type=int, default=0)
    cli.add_argument("--steps", type=int, default=300)
    cli.add_argument("--fault", default="", choices=["", *FAULTS])
    cli.add_argument("--variant", default="", choices=list(HEALTHY))
    args = cli.parse_args()
    torch.set_num_threads(1)
    start = time.time()
    h = train(args.seed, args.steps, args.fault, args.variant)
    n = max(1, len(h) // 10)
    print(f"first tenth {sum(h[:n]) / n:.3f} last tenth {sum(h[-n:]) / n:.3f} ({time.time() - start:.1f} s)")
