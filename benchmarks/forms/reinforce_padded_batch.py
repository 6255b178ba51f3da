"""REINFORCE on a padded batch of whole episodes: soft landing with a limited tank.

Form: 64 episodes are flown in lockstep and kept as a (time, episode) rectangle with a mask; an episode that has
ended is padding from there on. Returns are a reversed cumulative sum over time, whitened over the valid steps only.
AdamW with weight decay, gradient-norm clipping and a cosine schedule to a tenth of the first learning rate.

Why it is right: gravity ends each episode on the ground, so there is no time limit to bootstrap over (the loop runs
until the last one is down). Padding has reward 0, hence the reversed sum is the undiscounted return-to-go of each
valid step, and the mask keeps padding out of the whitening, of the loss and of the entropy.
"""

import argparse

import numpy as np
import torch
from torch import nn

BATCH = 64
UPDATES = 320
THRUST, GRAVITY, DT = 2.5, 1.0, 0.15


def fresh_state(rng):
    """Columns: height, velocity, fuel."""
    height = rng.uniform(4.0, 6.0, BATCH)
    velocity = rng.uniform(-1.0, 0.5, BATCH)
    fuel = np.full(BATCH, 5.0)
    return np.stack((height, velocity, fuel), axis=1)


def advance(state, burn):
    height, velocity, fuel = state.T
    push = burn * (fuel > 0)
    velocity = velocity + DT * (THRUST * push - GRAVITY)
    height = height + DT * velocity
    fuel = np.maximum(fuel - DT * push, 0.0)
    landed = height <= 0.0
    reward = np.where(landed, -np.abs(velocity), 0.0) - 0.01 * push
    return np.stack((height, velocity, fuel), axis=1), reward, landed


def features(state):
    return torch.as_tensor(state * np.array([0.2, 0.3, 0.2]), dtype=torch.float32)


def fly(policy, rng):
    state = fresh_state(rng)
    alive = np.ones(BATCH, dtype=bool)
    obs, actions, rewards, mask = [], [], [], []
    while alive.any():
        x = features(state)
        with torch.no_grad():
            a = torch.bernoulli(torch.sigmoid(policy(x).squeeze(-1)))
        new_state, reward, landed = advance(state, a.numpy())
        obs.append(x)
        actions.append(a)
        rewards.append(torch.as_tensor(np.where(alive, reward, 0.0), dtype=torch.float32))
        mask.append(torch.as_tensor(alive.copy()))
        state = np.where(alive[:, None], new_state, state)
        alive = alive & ~landed
    touchdown = np.abs(state[:, 1])
    return torch.stack(obs), torch.stack(actions), torch.stack(rewards), torch.stack(mask), touchdown


def masked_mean(x, mask):
    return (x * mask).sum() / mask.sum()


def whiten(x, mask):
    centred = (x - masked_mean(x, mask)) * mask
    return centred / (masked_mean(centred**2, mask).sqrt() + 1e-6)


parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--seed", type=int, default=0)
options = parser.parse_args()

torch.manual_seed(options.seed)
torch.set_num_threads(1)
rng = np.random.default_rng(options.seed)

policy = nn.Sequential(nn.Linear(3, 48), nn.SiLU(), nn.Linear(48, 48), nn.SiLU(), nn.Linear(48, 1))
optimizer = torch.optim.AdamW(policy.parameters(), lr=5e-3, weight_decay=1e-3)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=UPDATES, eta_min=5e-4)
bernoulli_nll = nn.BCEWithLogitsLoss(reduction="none")

for update in range(1, UPDATES + 1):
    obs, actions, rewards, mask, touchdown = fly(policy, rng)
    valid = mask.float()
    returns = rewards.flip(0).cumsum(0).flip(0)
    weight = whiten(returns, valid)

    logits = policy(obs).squeeze(-1)
    log_prob = -bernoulli_nll(logits, actions)
    p = torch.sigmoid(logits)
    entropy = bernoulli_nll(logits, p)
    loss = -masked_mean(log_prob * weight, valid) - 0.003 * masked_mean(entropy, valid)

    optimizer.zero_grad()
    loss.backward()
    grad_norm = nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
    optimizer.step()
    scheduler.step()

    if update == 1 or update % 20 == 0:
        print(
            f"update {update:4d}  return {returns[0].mean():7.3f}  touchdown speed {touchdown.mean():.3f}  "
            f"length {valid.sum(0).mean():5.1f}/{len(mask)}  |g| {grad_norm:.3f}  lr {scheduler.get_last_lr()[0]:.1e}"
        )
