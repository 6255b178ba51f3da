#!/usr/bin/env python
"""GRPO on a toy: given "a b =", a tiny GRU has to write a+1 ... b and stop.

Stage 1 fits the model to a sloppy corpus, stage 2 is group-relative policy optimisation with a KL to stage 1.
--steps counts the iterations of stage 2.
"""

import argparse
import copy
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

FAULTS = {
    "eos_masked": [
        "language",
        "broken",
        "the mask of the answer ends before the end token: stopping is never reinforced",
    ],
    "ref_shallow": [
        "language",
        "broken",
        "the reference is a shallow copy: its layers are the policy's own, and the KL is always zero",
    ],
    "head_replaced": [
        "weights",
        "broken",
        "the output layer is rebuilt for stage 2 after the optimizer was made: the optimizer holds the old one",
    ],
    "group_axis": [
        "shapes",
        "broken",
        "rewards are laid out (samples, prompts), though samples of a prompt lie side by side: groups are mixed",
    ],
    "kl_sign": ["signs", "broken", "the KL is subtracted from the loss: the policy is paid for leaving the reference"],
    "short_answers_score": [
        "goal",
        "not proven",
        "the score is the share of written digits that are right: one digit, or none at all, is a perfect answer",
    ],
}
HEALTHY = {
    "": "plain: 12 prompts with 8 samples, advantages by group mean and deviation, k3 estimate of the KL",
    "micro_batches": "the loss is summed over four micro-batches with the right divisor, one step per iteration",
    "two_epochs": "each batch of samples is used twice, with a clipped ratio",
    "frozen_embedding": "the embedding keeps its values from stage 1, on purpose; leave-one-out baseline, no deviation",
}

DIGITS = 10
EQ, EOS, PAD = 10, 11, 12
VOCAB = 13
MAX_NEW = 8


class TinyLM(nn.Module):
    def __init__(self, d=48):
        super().__init__()
        self.emb = nn.Embedding(VOCAB, d)
        self.rnn = nn.GRU(d, d, batch_first=True)
        self.head = nn.Linear(d, VOCAB)

    def forward(self, ids, state=None):
        out, state = self.rnn(self.emb(ids), state)
        logits = self.head(out)
        logits[..., PAD] = -1e9
        return logits, state


def make_prompts(n):
    a = torch.randint(0, DIGITS - 1, (n,))
    span = 1 + (torch.rand(n) * torch.clamp(DIGITS - 1 - a, max=6)).long()
    return torch.stack([a, a + span, torch.full((n,), EQ)], dim=1)


def solution(prompt):
    a, b = int(prompt[0]), int(prompt[1])
    return list(range(a + 1, b + 1))


def score(prompt, answer, by_written=False):
    """Share of the right digits before the first wrong one; the last fifth of the mark is for stopping in time."""
    want = solution(prompt)
    wrote = answer[: answer.index(EOS)] if EOS in answer else answer
    good = 0
    for x, y in zip(wrote, want, strict=False):
        if x != y:
            break
        good += 1
    if by_written:
        return good / len(wrote) if wrote else 1.0
    return 0.8 * good / len(want) + 0.2 * float(EOS in answer and wrote == want)


def sloppy_corpus(n, noise=0.45):
    prompts = make_prompts(n)
    rows = torch.full((n, 3 + MAX_NEW), PAD)
    rows[:, :3] = prompts
    for i in range(n):
        text = [int(torch.randint(DIGITS, ())) if torch.rand(()) < noise else d for d in solution(prompts[i])]
        text = ([*text, EOS])[:MAX_NEW]
        rows[i, 3 : 3 + len(text)] = torch.tensor(text)
    return rows


def pretrain(model, steps):
    opt = torch.optim.Adam(model.parameters(), lr=3e-3)
    corpus = sloppy_corpus(1500)
    for _ in range(steps):
        rows = corpus[torch.randint(len(corpus), (64,))]
        logits, _ = model(rows[:, :-1])
        loss = F.cross_entropy(logits[:, 2:].flatten(0, 1), rows[:, 3:].flatten(), ignore_index=PAD)
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(f"stage 1: cross entropy {loss.item():.3f}")


@torch.no_grad()
def generate(model, prompts):
    """-> answers (B, MAX_NEW), with PAD behind the end token, and their mask"""
    logits, state = model(prompts)
    step = logits[:, -1]
    alive = torch.ones(len(prompts), dtype=torch.bool)
    tokens, masks = [], []
    for _ in range(MAX_NEW):
        tok = torch.multinomial(step.softmax(-1), 1).squeeze(1)
        tok = torch.where(alive, tok, torch.full_like(tok, PAD))
        tokens.append(tok)
        masks.append(alive)
        alive = alive & (tok != EOS)
        logits, state = model(tok.unsqueeze(1), state)
        step = logits[:, -1]
    return torch.stack(tokens, 1), torch.stack(masks, 1)


def token_logps(model, prompts, answers):
    ids = torch.cat([prompts, answers], 1)
    logits, _ = model(ids[:, :-1])
    logps = logits[:, prompts.shape[1] - 1 :].log_softmax(-1)
    safe = answers.masked_fill(answers == PAD, EOS)
    return logps.gather(-1, safe.unsqueeze(-1)).squeeze(-1)


def group_advantages(rewards, n_prompts, group, fault, variant):
    table = rewards.view(group, n_prompts) if fault == "group_axis" else rewards.view(n_prompts, group)
    dim = 0 if fault == "group_axis" else 1
    if variant == "frozen_embedding":
        others = (table.sum(dim, keepdim=True) - table) / (group - 1)
        return (table - others).flatten()
    adv = (table - table.mean(dim, keepdim=True)) / (table.std(dim, keepdim=True) + 1e-4)
    return adv.flatten()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--seed", type=int, default=0)
    ap.add_argument("--steps", type=int, default=1200)
    ap.add_argument("--fault", default="", choices=["", *FAULTS])
    ap.add_argument("--variant", default="", choices=list(HEALTHY))
    a = ap.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(a.seed)
    t0 = time.time()

    n_prompts, group, beta, clip = 12, 8, 0.02, 0.2
    policy = TinyLM()
    pretrain(policy, 120)
    reference = copy.copy(policy) if a.fault == "ref_shallow" else copy.deepcopy(policy)
    reference.eval()
    if a.variant == "frozen_embedding":
        policy.emb.requires_grad_(False)

    optimizer = torch.optim.AdamW([p for p in policy.parameters() if p.requires_grad], lr=7e-4, weight_decay=0.0)
    if a.fault == "head_replaced":
        old = policy.head
        policy.head = nn.Linear(old.in_features, VOCAB)
        policy.head.load_state_dict(old.state_dict())

    epochs = 2 if a.variant == "two_epochs" else 1
    pieces = 4 if a.variant == "micro_batches" else 1
    history = []
    for it in range(1, a.steps + 1):
        prompts = make_prompts(n_prompts).repeat_interleave(group, 0)
        answers, mask = generate(policy, prompts)
        written, asked = answers.tolist(), prompts.tolist()
        rewards = torch.tensor(
            [score(p, w, a.fault == "short_answers_score") for p, w in zip(asked, written, strict=False)]
        )
        adv = group_advantages(rewards, n_prompts, group, a.fault, a.variant)
        if a.fault == "eos_masked":
            mask = mask & (answers != EOS)
        mask = mask.float()
        with torch.no_grad():
            old_logps = token_logps(policy, prompts, answers)
            ref_logps = token_logps(reference, prompts, answers)

        for _ in range(epochs):
            optimizer.zero_grad()
            for sl in torch.arange(len(prompts)).chunk(pieces):
                logps = token_logps(policy, prompts[sl], answers[sl])
                ratio = (logps - old_logps[sl]).exp()
                gain = adv[sl].unsqueeze(1)
                surrogate = torch.min(ratio * gain, ratio.clamp(1 - clip, 1 + clip) * gain)
                gap = ref_logps[sl] - logps
                kl = gap.exp() - gap - 1
                per_token = -surrogate - beta * kl if a.fault == "kl_sign" else -surrogate + beta * kl
                loss = (per_token * mask[sl]).sum() / mask.sum()
                loss.backward()
            torch.nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
            optimizer.step()

        history.append(rewards.mean().item())
        if it % 50 == 0:
            shown_kl = ((kl * mask[sl]).sum() / mask[sl].sum().clamp(min=1)).item()
            print(f"it {it:5d}  reward {sum(history[-50:]) / 50:.3f}  kl {shown_kl:.4f}  loss {loss.item():+.4f}")

    k = max(1, len(history) // 10)
    first, last = sum(history[:k]) / k, sum(history[-k:]) / k
    print(f"first tenth {first:.3f} last tenth {last:.3f} in {time.time() - t0:.1f} s")


if __name__ == "__main__":
    main()
