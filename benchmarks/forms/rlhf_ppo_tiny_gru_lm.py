"""RLHF-like PPO for a tiny GRU language model.

Supervised pretraining -> frozen reference -> PPO with per-token KL reward, a terminal score, a value head,
GAE over response tokens, and advantages whitened over the unpadded tokens.
"""

import argparse
import copy
from dataclasses import dataclass, fields

import torch
import torch.nn as nn
import torch.nn.functional as F

PAD, BOS, EOS = 0, 1, 2
FIRST, N_LETTERS = 3, 10  # letters a..j are tokens 3..12
VOCAB = FIRST + N_LETTERS
VOWELS = torch.tensor([FIRST + "abcdefghij".index(ch) for ch in "aei"])
PROMPT_LEN, MAX_NEW = 3, 14  # prompt: BOS + two letters


class TinyLM(nn.Module):
    def __init__(self, emb=32, hidden=64):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, emb, padding_idx=PAD)
        self.rnn = nn.GRU(emb, hidden, batch_first=True)
        self.lm_head = nn.Linear(hidden, VOCAB)
        self.value_head = nn.Linear(hidden, 1)
        ban = torch.zeros(VOCAB)
        ban[[PAD, BOS]] = -1e9  # never produced
        self.register_buffer("ban", ban)

    def forward(self, tokens, state=None):
        h, state = self.rnn(self.embed(tokens), state)
        return self.lm_head(h) + self.ban, self.value_head(h).squeeze(-1), state


@dataclass
class Experience:
    tokens: torch.Tensor  # [B, PROMPT_LEN + MAX_NEW]
    mask: torch.Tensor  # [B, MAX_NEW] bool: response tokens up to and with EOS
    logp: torch.Tensor  # [B, MAX_NEW]
    values: torch.Tensor
    advantages: torch.Tensor
    returns: torch.Tensor

    def minibatches(self, size):
        for idx in torch.randperm(self.tokens.shape[0]).split(size):
            yield Experience(*(getattr(self, f.name)[idx] for f in fields(self)))


def sample_corpus(n):
    """Letter walks: each next letter is within one of the last; EOS ends with probability 1/8."""
    out = torch.full((n, PROMPT_LEN + MAX_NEW), PAD)
    out[:, 0] = BOS
    letter = torch.randint(N_LETTERS, (n,))
    alive = torch.ones(n, dtype=torch.bool)
    for t in range(1, PROMPT_LEN + MAX_NEW):
        if t >= PROMPT_LEN:
            stop = alive & ((torch.rand(n) < 0.125) | torch.full((n,), t == PROMPT_LEN + MAX_NEW - 1))
            out[stop, t] = EOS
            alive = alive & ~stop
        out[alive, t] = letter[alive] + FIRST
        letter = (letter + torch.randint(-1, 2, (n,))) % N_LETTERS
    return out


def pretrain(model, steps=350, batch=48):
    opt = torch.optim.Adam(model.parameters(), lr=4e-3)
    for step in range(1, steps + 1):
        tokens = sample_corpus(batch)
        logits, _, _ = model(tokens[:, :-1])
        targets = tokens[:, 1:]
        loss = F.cross_entropy(logits.reshape(-1, VOCAB), targets.reshape(-1), ignore_index=PAD)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 70 == 0:
            print(f"pretrain {step:4d}  nll {loss.item():.3f}", flush=True)


@torch.no_grad()
def generate(model, prompts):
    n = prompts.shape[0]
    tokens = torch.full((n, PROMPT_LEN + MAX_NEW), PAD)
    tokens[:, :PROMPT_LEN] = prompts
    mask = torch.zeros(n, MAX_NEW, dtype=torch.bool)
    alive = torch.ones(n, dtype=torch.bool)
    logits, _, state = model(prompts)
    for t in range(MAX_NEW):
        choice = torch.multinomial(torch.softmax(logits[:, -1], dim=-1), 1).squeeze(1)
        choice = torch.where(alive, choice, torch.full_like(choice, PAD))
        tokens[:, PROMPT_LEN + t] = choice
        mask[:, t] = alive
        alive = alive & (choice != EOS)
        if not alive.any():
            break
        logits, _, state = model(choice.unsqueeze(1), state)
    return tokens, mask


def response_stats(model, tokens, mask):
    """Log-probs of the response tokens, and the value of the state in which each was chosen."""
    logits, values, _ = model(tokens[:, :-1])
    logp_all = torch.log_softmax(logits[:, PROMPT_LEN - 1 :], dim=-1)
    logp = logp_all.gather(-1, tokens[:, PROMPT_LEN:].unsqueeze(-1)).squeeze(-1)
    return logp.masked_fill(~mask, 0.0), values[:, PROMPT_LEN - 1 :].masked_fill(~mask, 0.0)


def score(tokens):
    """The 'reward model': likes vowels, dislikes other letters and an answer without its EOS."""
    resp = tokens[:, PROMPT_LEN:]
    vowels = torch.isin(resp, VOWELS).sum(1).float()
    letters = (resp >= FIRST).sum(1).float()
    missing_eos = (~(resp == EOS).any(1)).float()
    return 0.25 * vowels - 0.1 * (letters - vowels) - missing_eos


def masked_mean(x, mask):
    return (x * mask).sum() / mask.sum()


def masked_whiten(x, mask):
    mean = masked_mean(x, mask)
    var = masked_mean((x - mean) ** 2, mask)
    return (x - mean) * torch.rsqrt(var + 1e-8) * mask


@torch.no_grad()
def make_experience(model, reference, batch, beta, gamma=1.0, lam=0.95):
    tokens, mask = generate(model, sample_corpus(batch)[:, :PROMPT_LEN])
    logp, values = response_stats(model, tokens, mask)
    ref_logp, _ = response_stats(reference, tokens, mask)
    kl = logp - ref_logp
    scores = score(tokens)
    rewards = -beta * kl
    last = mask.sum(1) - 1
    rewards[torch.arange(batch), last] += scores  # the score comes with the last real token
    m = mask.float()
    adv = torch.zeros_like(rewards)
    carry = torch.zeros(batch)
    for t in reversed(range(MAX_NEW)):
        more = m[:, t + 1] if t + 1 < MAX_NEW else torch.zeros(batch)
        next_value = values[:, t + 1] * more if t + 1 < MAX_NEW else torch.zeros(batch)
        delta = rewards[:, t] + gamma * next_value - values[:, t]
        carry = (delta + gamma * lam * more * carry) * m[:, t]
        adv[:, t] = carry
    returns = adv + values
    exp = Experience(tokens, mask, logp, values, masked_whiten(adv, m), returns)
    return exp, scores.mean().item(), (kl.sum(1)).mean().item(), m.sum(1).mean().item()


def ppo_step(model, opt, mb, clip=0.2, v_clip=0.4, vf_coef=0.25):
    logp, values = response_stats(model, mb.tokens, mb.mask)
    m = mb.mask.float()
    ratio = torch.exp(logp - mb.logp)
    pg = masked_mean(torch.max(-mb.advantages * ratio, -mb.advantages * ratio.clamp(1 - clip, 1 + clip)), m)
    clipped = mb.values + (values - mb.values).clamp(-v_clip, v_clip)
    vf = 0.5 * masked_mean(torch.max((values - mb.returns) ** 2, (clipped - mb.returns) ** 2), m)
    loss = pg + vf_coef * vf
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    opt.step()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)

    policy = TinyLM()
    pretrain(policy)
    reference = copy.deepcopy(policy).eval().requires_grad_(False)
    optimizer = torch.optim.Adam(policy.parameters(), lr=1e-3)
    for it in range(1, 101):
        exp, mean_score, mean_kl, mean_len = make_experience(policy, reference, batch=64, beta=0.1)
        for _ in range(3):
            for mb in exp.minibatches(32):
                ppo_step(policy, optimizer, mb)
        if it % 10 == 0:
            print(f"ppo {it:3d}  score {mean_score:6.3f}  kl {mean_kl:6.3f}  length {mean_len:.1f}", flush=True)
