"""Synchronous advantage actor-critic with n-step returns on CartPole, a shared trunk and a list of environments.

The graph is kept through the rollout, so a single backward pass serves policy, value and entropy.
"""
# ruff: noqa: E402

FAULTS = {
    "trunk_left_out": ["weights", "broken", "only the two heads are given to the optimizer, the trunk never moves"],
    "wrong_last_state": [
        "returns",
        "broken",
        "the n-step return is bootstrapped from the last acted state, not the next",
    ],
    "done_shift": ["returns", "broken", "the return is cut with the done flags of the step before"],
    "n_by_n": ["shapes", "broken", "values (N,1) meet returns (N,), so the value loss is taken over an (N,N) table"],
    "entropy_sign": ["signs", "broken", "the entropy bonus is added to the loss, so randomness is punished"],
    "adv_attached": ["signs", "broken", "the advantage is not detached, so the policy loss trains the value head"],
    "best_by_reference": [
        "rates",
        "broken",
        "the best weights are kept as live references, restoring them does nothing",
    ],
}
HEALTHY = {
    "": "plain: A2C with Adam, 8 environments and 8-step returns",
    "accumulate": "gradients of two rollouts are averaged before each optimizer step",
    "frozen_projection": "the first trunk layer is a wide random projection that is frozen on purpose",
    "rmsprop_warmup": "RMSprop whose learning rate climbs from zero over the first 300 updates",
}

import argparse
import copy
import random

import gymnasium as gym
import numpy as np
import torch
from torch import nn
from torch.distributions import Categorical

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--fault", default="")
parser.add_argument("--variant", default="")
parser.add_argument("--steps", type=int, default=100_000, help="environment frames over all environments")
args = parser.parse_args()
if args.fault not in FAULTS and args.fault:
    parser.error(f"unknown fault {args.fault}")
if args.variant not in HEALTHY:
    parser.error(f"unknown variant {args.variant}")

N_ENVS = 8
N_STEPS = 8
GAMMA = 0.97
VALUE_WEIGHT = 0.5
ENTROPY_WEIGHT = 0.01
MAX_NORM = 0.5
EPISODE_LIMIT = 250

torch.set_num_threads(1)
random.seed(args.seed)
torch.manual_seed(args.seed)


class TwoHeads(nn.Module):
    def __init__(self, n_obs, n_act, wide=False):
        super().__init__()
        first = 256 if wide else 64
        self.trunk = nn.Sequential(nn.Linear(n_obs, first), nn.Tanh(), nn.Linear(first, 64), nn.Tanh())
        self.pi = nn.Linear(64, n_act)
        self.v = nn.Linear(64, 1)
        nn.init.orthogonal_(self.pi.weight, 0.01)
        nn.init.zeros_(self.pi.bias)
        if wide:
            self.trunk[0].requires_grad_(False)

    def forward(self, x):
        h = self.trunk(x)
        return self.pi(h), self.v(h)


def as_batch(observations):
    return torch.as_tensor(np.stack(observations), dtype=torch.float32)


envs = [gym.make("CartPole-v1", max_episode_steps=EPISODE_LIMIT) for _ in range(N_ENVS)]
net = TwoHeads(4, 2, wide=args.variant == "frozen_projection")

if args.fault == "trunk_left_out":
    weights = [*net.pi.parameters(), *net.v.parameters()]
else:
    weights = [p for p in net.parameters() if p.requires_grad]
if args.variant == "rmsprop_warmup":
    optimizer = torch.optim.RMSprop(weights, lr=3e-3, alpha=0.99, eps=1e-5)
    warmup = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda k: min(1.0, k / 300))
else:
    optimizer = torch.optim.Adam(weights, lr=3e-3, eps=1e-5)
    warmup = None

rollouts_per_step = 2 if args.variant == "accumulate" else 1
obs = [env.reset(seed=100 * args.seed + i)[0] for i, env in enumerate(envs)]
running = [0.0] * N_ENVS
finished = []
best_score, best_weights = -float("inf"), None
mask_before = torch.ones(N_ENVS)
n_updates = args.steps // (N_ENVS * N_STEPS)

for update in range(1, n_updates + 1):
    logps, entropies, values, rewards, masks = [], [], [], [], []

    for _ in range(N_STEPS):
        acted_on = as_batch(obs)
        logits, value = net(acted_on)
        dist = Categorical(logits=logits)
        action = dist.sample()

        reward = torch.zeros(N_ENVS)
        mask = torch.ones(N_ENVS)
        for i, (env, a) in enumerate(zip(envs, action.tolist(), strict=True)):
            nxt, r, terminated, truncated, _ = env.step(a)
            running[i] += r
            reward[i] = r
            if truncated and not terminated:
                # the clock is not the pole falling: keep what the cut state was worth
                with torch.no_grad():
                    reward[i] += GAMMA * net(as_batch([nxt]))[1].item()
            if terminated or truncated:
                mask[i] = 0.0
                finished.append(running[i])
                running[i] = 0.0
                nxt, _ = env.reset()
            obs[i] = nxt

        logps.append(dist.log_prob(action))
        entropies.append(dist.entropy())
        values.append(value)
        rewards.append(reward)
        masks.append(mask_before if args.fault == "done_shift" else mask)
        mask_before = mask

    with torch.no_grad():
        ahead = net(acted_on if args.fault == "wrong_last_state" else as_batch(obs))[1].squeeze(-1)
    returns = []
    for r, m in zip(reversed(rewards), reversed(masks), strict=True):
        ahead = r + GAMMA * m * ahead
        returns.insert(0, ahead)

    returns = torch.cat(returns)
    values = torch.cat(values)
    advantage = returns - values.squeeze(-1)
    weight = advantage if args.fault == "adv_attached" else advantage.detach()
    policy_loss = -(torch.cat(logps) * weight).mean()
    value_loss = (returns - (values if args.fault == "n_by_n" else values.squeeze(-1))).pow(2).mean()
    entropy = torch.cat(entropies).mean()
    bonus = -ENTROPY_WEIGHT * entropy if args.fault == "entropy_sign" else ENTROPY_WEIGHT * entropy
    loss = policy_loss + VALUE_WEIGHT * value_loss - bonus

    (loss / rollouts_per_step).backward()
    if update % rollouts_per_step == 0:
        nn.utils.clip_grad_norm_(weights, MAX_NORM)
        optimizer.step()
        optimizer.zero_grad()
        if warmup is not None:
            warmup.step()

    if update % 50 == 0 and len(finished) >= 20:
        score = float(np.mean(finished[-20:]))
        if score > best_score:
            best_score = score
            best_weights = net.state_dict() if args.fault == "best_by_reference" else copy.deepcopy(net.state_dict())
    if update % 125 == 0:
        print(
            f"update {update:5d}  frames {update * N_ENVS * N_STEPS:7d}  return {np.mean(finished[-20:]):6.1f}"
            f"  value {value_loss.item():8.3f}  entropy {entropy.item():.3f}",
            flush=True,
        )

if best_weights is not None:
    net.load_state_dict(best_weights)
judge = gym.make("CartPole-v1", max_episode_steps=EPISODE_LIMIT)
scores = []
for k in range(5):
    state, _ = judge.reset(seed=10_000 + k)
    total, over = 0.0, False
    while not over:
        with torch.no_grad():
            state, r, terminated, truncated, _ = judge.step(net(as_batch([state]))[0].argmax().item())
        total += r
        over = terminated or truncated
    scores.append(total)
print(f"best training block {best_score:.1f}, greedy return with the best weights {np.mean(scores):.1f}")
