# Direct preference optimisation on a tiny character model. Notebook style, top to bottom:
# 1. supervised pretraining  2. sample pairs and let a programmatic judge rank them  3. DPO against the
# frozen pretrained model.
import argparse
import copy
import random

import torch
import torch.nn as nn
import torch.nn.functional as F

# %% setup
ap = argparse.ArgumentParser()
ap.add_argument("--seed", type=int, default=0)
args = ap.parse_args()
torch.set_num_threads(1)
torch.manual_seed(args.seed)
random.seed(args.seed)

PAD, BOS, EOS = 0, 1, 2
CHARS = " abcdefghijklmnopqrstuvwxyz."
stoi = {ch: i + 3 for i, ch in enumerate(CHARS)}
itos = {i: ch for ch, i in stoi.items()}
VOCAB = len(CHARS) + 3

ANIMALS = ["cat", "dog", "pig", "cow", "hen", "fox"]
VERBS = ["sat", "ran", "hid", "sang", "slept"]
PLACES = ["in the barn", "on a rock", "by the pond", "near my door", "under a tree", "at the gate"]
PROMPT = 1 + len("the cat")  # BOS and seven characters
MAX_NEW = 24


def encode(text):
    return [stoi[ch] for ch in text]


def random_prompt():
    return [BOS] + encode("the " + random.choice(ANIMALS))


def random_sentence():
    """A full training row, padded on the right."""
    row = random_prompt() + encode(f" {random.choice(VERBS)} {random.choice(PLACES)}.") + [EOS]
    return row + [PAD] * (PROMPT + MAX_NEW - len(row))


# %% model
class CharGRU(nn.Module):
    def __init__(self, emb=24, hidden=64):
        super().__init__()
        self.emb = nn.Embedding(VOCAB, emb)
        self.gru = nn.GRU(emb, hidden, batch_first=True)
        self.head = nn.Linear(hidden, VOCAB)
        # PAD and BOS can never be produced, in training, sampling and scoring alike
        self.register_buffer("never", torch.tensor([-1e9, -1e9] + [0.0] * (VOCAB - 2)))

    def forward(self, ids, state=None):
        h, state = self.gru(self.emb(ids), state)
        return self.head(h) + self.never, state


policy = CharGRU()
print("parameters:", sum(p.numel() for p in policy.parameters()))

# %% supervised pretraining
opt = torch.optim.Adam(policy.parameters(), lr=5e-3)
for step in range(1, 401):
    ids = torch.tensor([random_sentence() for _ in range(32)])
    logits, _ = policy(ids[:, :-1])
    loss = F.cross_entropy(logits.transpose(1, 2), ids[:, 1:], ignore_index=PAD)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 80 == 0:
        print(f"sft {step:4d}  loss {loss.item():.3f}", flush=True)

reference = copy.deepcopy(policy)
reference.eval()
for p in reference.parameters():
    p.requires_grad_(False)


# %% sampling and judging
@torch.no_grad()
def sample(model, prompts):
    """Rows of prompt + response + padding."""
    n = prompts.shape[0]
    rows = torch.full((n, PROMPT + MAX_NEW), PAD)
    rows[:, :PROMPT] = prompts
    alive = torch.ones(n, dtype=torch.bool)
    logits, state = model(prompts)
    for t in range(PROMPT, PROMPT + MAX_NEW):
        nxt = torch.distributions.Categorical(logits=logits[:, -1]).sample()
        nxt[~alive] = PAD
        rows[:, t] = nxt
        alive &= nxt != EOS
        if not alive.any():
            break
        logits, state = model(nxt.unsqueeze(1), state)
    return rows


def judge(row):
    """More letters 'o' are better; an answer that is not closed properly is bad."""
    response = row[PROMPT:].tolist()
    if EOS not in response:
        return -5.0
    text = response[: response.index(EOS)]
    return float(sum(i == stoi["o"] for i in text))


def mean_judge(model, n=200):
    rows = sample(model, torch.tensor([random_prompt() for _ in range(n)]))
    return sum(judge(r) for r in rows) / n


def show(row):
    return "".join(itos.get(i, "") for i in row.tolist())


# %% preference data
chosen_rows, rejected_rows = [], []
while len(chosen_rows) < 1000:
    prompts = torch.tensor([random_prompt() for _ in range(200)])
    first, second = sample(reference, prompts), sample(reference, prompts)  # same prompts
    for a, b in zip(first, second):
        score_a, score_b = judge(a), judge(b)
        if score_a != score_b:  # ties say nothing
            chosen_rows.append(a if score_a > score_b else b)
            rejected_rows.append(b if score_a > score_b else a)
chosen, rejected = torch.stack(chosen_rows), torch.stack(rejected_rows)
n_test = 100
print(f"{len(chosen)} preference pairs; chosen e.g. {show(chosen[0])!r}, rejected {show(rejected[0])!r}")


# %% DPO
def response_logp(model, rows):
    """Sum of the log-probs of the response tokens (EOS included, padding not)."""
    logits, _ = model(rows[:, :-1])
    logp = torch.log_softmax(logits[:, PROMPT - 1 :], dim=-1)
    targets = rows[:, PROMPT:]
    token_logp = logp.gather(-1, targets.unsqueeze(-1)).squeeze(-1)
    return token_logp.masked_fill(targets == PAD, 0.0).sum(-1)


with torch.no_grad():
    ref_chosen, ref_rejected = response_logp(reference, chosen), response_logp(reference, rejected)

BETA = 0.2


def margins(idx):
    both = response_logp(policy, torch.cat([chosen[idx], rejected[idx]]))
    pi_chosen, pi_rejected = both.chunk(2)
    return BETA * ((pi_chosen - ref_chosen[idx]) - (pi_rejected - ref_rejected[idx]))


test_idx = torch.arange(n_test)
train_idx = torch.arange(n_test, len(chosen))
print(f"judge score before DPO: {mean_judge(policy):.3f}")

opt = torch.optim.Adam(policy.parameters(), lr=5e-4)
for epoch in range(1, 9):
    total, batches = 0.0, 0
    for pick in torch.randperm(len(train_idx)).split(64):
        loss = -F.logsigmoid(margins(train_idx[pick])).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        total, batches = total + loss.item(), batches + 1
    with torch.no_grad():
        accuracy = (margins(test_idx) > 0).float().mean().item()
    print(
        f"dpo epoch {epoch}  loss {total / batches:.4f}  held-out accuracy {accuracy:.2f}  "
        f"judge score {mean_judge(policy):.3f}",
        flush=True,
    )

print("after DPO:", show(sample(policy, torch.tensor([random_prompt()]))[0]))
