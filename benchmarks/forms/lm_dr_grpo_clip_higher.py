"""Dr. GRPO with clip-higher and dynamic filtering, on a GRU language model.

Task: the prompt is six letters out of a, b, c; the answer counts them ("a 2 c 4 <eos>"; letters that do not occur are
left out, so answers have three to seven tokens). The reward is 1 for an exact answer and 0 otherwise.

Advantage: reward minus the mean of the group, not divided by a standard deviation. The token losses are summed and
divided by a constant (answers per minibatch x MAX_NEW), never by the answers' own lengths. Groups in which all rewards
are equal have advantage 0 throughout; they are dropped before the update. As the divisor is a constant, that changes
no gradient and only saves work; an iteration without any mixed group takes no step. Clipping is asymmetric: 1 - 0.2 below,
1 + 0.28 above. Old log-probs are recorded while sampling; each rollout serves two epochs of two minibatches.
"""

import argparse
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F

TOKENS = ["<pad>", "=", "<eos>", "a", "b", "c", "1", "2", "3", "4", "5", "6"]
PAD, EQ, EOS = 0, 1, 2
LETTER0, DIGIT0 = 3, 5  # the token of count n is DIGIT0 + n
N_LETTERS, N_PROMPT = 3, 6
MAX_NEW = 2 * N_LETTERS + 1


@dataclass
class Config:
    seed: int = 0
    iterations: int = 160
    prompts: int = 24
    group: int = 12
    epochs: int = 2
    minibatches: int = 2
    clip_low: float = 0.2
    clip_high: float = 0.28
    lr: float = 1.5e-3
    warmup_steps: int = 105


class GRULM(nn.Module):
    def __init__(self, embed=24, hidden=80):
        super().__init__()
        self.embed = nn.Embedding(len(TOKENS), embed, padding_idx=PAD)
        self.gru = nn.GRU(embed, hidden, batch_first=True)
        self.head = nn.Linear(hidden, len(TOKENS))

    def forward(self, ids, state=None):
        h, state = self.gru(self.embed(ids), state)
        return self.head(h), state


def sample_prompts(n):
    """Letters with a different mix in each prompt, so that absent letters are not rare."""
    mix = torch.distributions.Dirichlet(torch.ones(N_LETTERS)).sample((n,))
    letters = torch.multinomial(mix, N_PROMPT, replacement=True) + LETTER0
    return torch.cat([letters, torch.full((n, 1), EQ)], dim=1)


def reference_answer(prompt):
    out = []
    for letter in range(LETTER0, LETTER0 + N_LETTERS):
        count = prompt.count(letter)
        if count:
            out += [letter, DIGIT0 + count]
    return out + [EOS]


def targets_for(prompts):
    answers = [reference_answer(p) for p in prompts.tolist()]
    return torch.tensor([a + [PAD] * (MAX_NEW - len(a)) for a in answers])


@torch.no_grad()
def rollout(model, prompts, greedy=False):
    logits, state = model(prompts)
    logits = logits[:, -1]
    done = torch.zeros(len(prompts), dtype=torch.bool)
    tokens, logps, masks = [], [], []
    for _ in range(MAX_NEW):
        logp = logits.log_softmax(-1)
        token = logp.argmax(-1) if greedy else torch.multinomial(logp.exp(), 1).squeeze(1)
        token = torch.where(done, torch.full_like(token, PAD), token)
        tokens.append(token)
        logps.append(logp.gather(1, token[:, None]).squeeze(1))
        masks.append(~done)
        done = done | (token == EOS)
        logits, state = model(token[:, None], state)
        logits = logits[:, 0]
    return torch.stack(tokens, 1), torch.stack(logps, 1), torch.stack(masks, 1).float()


def verify(prompts, answers, mask):
    """1 where the answer, up to its <eos>, is the right one."""
    target = targets_for(prompts)
    same_tokens = ((answers == target) | (mask == 0)).all(1)
    same_length = mask.sum(1) == (target != PAD).sum(1)
    return (same_tokens & same_length).float()


def logprobs(model, prompts, answers):
    logits, _ = model(torch.cat([prompts, answers[:, :-1]], dim=1))
    logp = logits[:, prompts.shape[1] - 1 :].log_softmax(-1)
    return logp.gather(2, answers[:, :, None]).squeeze(2)


def greedy_accuracy(model, n=512):
    prompts = sample_prompts(n)
    answers, _, mask = rollout(model, prompts, greedy=True)
    return verify(prompts, answers, mask).mean().item()


def warmup(model, cfg):
    opt = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(cfg.warmup_steps):
        prompts = sample_prompts(64)
        target = targets_for(prompts)
        logits, _ = model(torch.cat([prompts, target[:, :-1]], dim=1))
        loss = F.cross_entropy(logits[:, N_PROMPT:].transpose(1, 2), target, ignore_index=PAD)
        opt.zero_grad()
        loss.backward()
        opt.step()


def train(cfg):
    torch.manual_seed(cfg.seed)
    model = GRULM()
    warmup(model, cfg)
    print(f"warm-up: greedy accuracy {greedy_accuracy(model):.3f}")

    opt = torch.optim.Adam(model.parameters(), lr=cfg.lr)
    decay = torch.optim.lr_scheduler.LambdaLR(opt, lambda k: max(0.05, 1 - k / cfg.iterations))
    divisor = MAX_NEW * cfg.prompts * cfg.group / cfg.minibatches
    for it in range(1, cfg.iterations + 1):
        prompts = sample_prompts(cfg.prompts).repeat_interleave(cfg.group, 0)
        answers, old_logp, mask = rollout(model, prompts)
        reward = verify(prompts, answers, mask)
        groups = reward.view(cfg.prompts, cfg.group)
        adv = (groups - groups.mean(1, keepdim=True)).flatten()
        mixed = groups.min(1).values != groups.max(1).values
        kept = mixed.repeat_interleave(cfg.group).nonzero().squeeze(1)

        if len(kept) > 0:
            for _ in range(cfg.epochs):
                order = kept[torch.randperm(len(kept))]
                for rows in order.chunk(cfg.minibatches):
                    ratio = (logprobs(model, prompts[rows], answers[rows]) - old_logp[rows]).exp()
                    a = adv[rows, None]
                    bounded = ratio.clamp(1 - cfg.clip_low, 1 + cfg.clip_high)
                    token_loss = -torch.min(ratio * a, bounded * a)
                    loss = (token_loss * mask[rows]).sum() / divisor
                    opt.zero_grad()
                    loss.backward()
                    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                    opt.step()
            decay.step()

        if it % 20 == 0 or it == cfg.iterations:
            print(f"iter {it:3d}  sampled accuracy {reward.mean():.3f}  mixed groups {int(mixed.sum())}/{cfg.prompts}")

    print(f"final: greedy accuracy {greedy_accuracy(model):.3f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=0)
    torch.set_num_threads(1)
    train(Config(seed=parser.parse_args().seed))
