# ruff: noqa: NPY002
"""
Actor-critic on CartPole (notebook export)

Two separate networks, a few whole episodes per update, everything happens in finish_batch().
"""

# In [1]:
import argparse
import copy
import time

import gymnasium as gym
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim

# In [2]:
FAULTS = {
    "value_opt_pasted": [
        "weights",
        "broken",
        "the value optimizer was pasted from the line above and holds the policy's parameters",
    ],
    "return_carried": [
        "returns",
        "broken",
        "the running return is set before the loop over episodes: it flows from one episode into the one before",
    ],
    "softmax_dim0": [
        "shapes",
        "broken",
        "softmax over dim 0: right for the single state when acting, over the batch when learning",
    ],
    "advantage_attached": [
        "signs",
        "broken",
        "the advantage in the policy loss is not detached: the value net is moved to make it large",
    ],
    "plateau_min": [
        "rates",
        "broken",
        "ReduceLROnPlateau is left at mode min and fed with the return: the rate is cut because the return rises",
    ],
    "speed_bonus": ["goal", "not proven", "shaping pays for the speed of the cart, more than standing upright pays"],
}
HEALTHY = {
    "": "plain: Monte-Carlo returns with a bootstrap at the time limit, separate optimizers, rate cut on a plateau",
    "value_epochs": "the value net makes eight Huber steps per batch, the policy one",
    "ema_eval": "a moving average of the policy's weights is kept aside and used only for the evaluation",
    "slow_policy_start": "the policy's rate climbs from zero over 25 updates, and rewards are scaled by 0.1",
}

# In [3]:
parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--steps", type=int, default=220_000)
parser.add_argument("--fault", type=str, default="", choices=["", *FAULTS])
parser.add_argument("--variant", type=str, default="", choices=list(HEALTHY))
args = parser.parse_args()

gamma = 0.98
episodes_per_update = 3
max_episode_len = 200
reward_scale = 0.1 if args.variant == "slow_policy_start" else 1.0
beta = 0.005  # entropy

torch.set_num_threads(1)
torch.manual_seed(args.seed)
np.random.seed(args.seed)


# In [4]:
class SpeedBonus(gym.Wrapper):
    def step(self, action):
        obs, reward, terminated, truncated, info = self.env.step(action)
        return obs, 0.1 * reward + 2.0 * abs(float(obs[1])), terminated, truncated, info


env = gym.make("CartPole-v1", max_episode_steps=max_episode_len)
if args.fault == "speed_bonus":
    env = SpeedBonus(env)


# In [5]:
class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.affine1 = nn.Linear(4, 64)
        self.affine2 = nn.Linear(64, 2)

    def forward(self, x):
        x = torch.tanh(self.affine1(x))
        return F.log_softmax(self.affine2(x), dim=0 if args.fault == "softmax_dim0" else -1)


class Value(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(4, 64)
        self.fc2 = nn.Linear(64, 64)
        self.out = nn.Linear(64, 1)

    def forward(self, x):
        x = F.relu(self.fc1(x))
        x = F.relu(self.fc2(x))
        return self.out(x).squeeze(-1)


policy_net = Policy()
value_net = Value()
policy_opt = optim.Adam(policy_net.parameters(), lr=1.2e-3)
if args.fault == "value_opt_pasted":
    value_opt = optim.Adam(policy_net.parameters(), lr=1.2e-3)
else:
    value_opt = optim.Adam(value_net.parameters(), lr=3e-3)

plateau = optim.lr_scheduler.ReduceLROnPlateau(
    policy_opt, mode="min" if args.fault == "plateau_min" else "max", factor=0.3, patience=40
)
average_net = copy.deepcopy(policy_net) if args.variant == "ema_eval" else None

# In [6]:
batch = []  # finished episodes: (states, actions, rewards, last_state or None)


def select_action(net, state):
    with torch.no_grad():
        probs = net(torch.from_numpy(state)).exp().numpy()
    return int(np.random.random() < probs[1])


def discounted(batch):
    all_returns = []
    R = 0.0
    for _states, _actions, rewards, last_state in reversed(batch):
        if args.fault != "return_carried":
            R = 0.0
            if last_state is not None:
                with torch.no_grad():
                    R = value_net(torch.from_numpy(last_state)).item()
        for r in rewards[::-1]:
            R = r * reward_scale + gamma * R
            all_returns.append(R)
    return torch.tensor(all_returns[::-1], dtype=torch.float32)


def finish_batch(n_update):
    states = torch.from_numpy(np.concatenate([ep[0] for ep in batch]))
    actions = torch.tensor([a for ep in batch for a in ep[1]])
    returns = discounted(batch)

    logps = policy_net(states)
    values = value_net(states)
    chosen = logps.gather(1, actions.unsqueeze(1)).squeeze(1)
    entropy = -(logps.exp() * logps).sum(1).mean()

    if args.fault == "advantage_attached":
        advantage = returns - values
    else:
        advantage = returns - values.detach()
    advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-6)

    policy_loss = -(chosen * advantage).mean() - beta * entropy
    value_loss = F.smooth_l1_loss(values, returns)

    policy_opt.zero_grad()
    value_opt.zero_grad()
    (policy_loss + value_loss).backward()
    nn.utils.clip_grad_norm_(policy_net.parameters(), 1.0)
    nn.utils.clip_grad_norm_(value_net.parameters(), 5.0)
    if args.variant == "slow_policy_start" and n_update < 25:
        policy_opt.param_groups[0]["lr"] = 1.2e-3 * n_update / 25
    policy_opt.step()
    value_opt.step()

    if args.variant == "value_epochs":
        for _ in range(7):
            value_opt.zero_grad()
            F.smooth_l1_loss(value_net(states), returns).backward()
            value_opt.step()
    if average_net is not None:
        with torch.no_grad():
            for slow, fast in zip(average_net.parameters(), policy_net.parameters(), strict=False):
                slow.mul_(0.95).add_(fast, alpha=0.05)
    batch.clear()
    return policy_loss.item(), value_loss.item()


# In [7]:
started = time.time()
episode_returns = []
n_steps, n_update = 0, 0
while n_steps < args.steps:
    state, _ = env.reset(seed=args.seed if n_steps == 0 else None)
    ep_states, ep_actions, ep_rewards = [], [], []
    while True:
        action = select_action(policy_net, state)
        next_state, reward, terminated, truncated, _ = env.step(action)
        ep_states.append(state)
        ep_actions.append(action)
        ep_rewards.append(float(reward))
        state = next_state
        n_steps += 1
        if terminated or truncated:
            break
    batch.append((np.stack(ep_states), ep_actions, ep_rewards, None if terminated else state))
    episode_returns.append(sum(ep_rewards))

    if len(batch) == episodes_per_update:
        pl, vl = finish_batch(n_update)
        n_update += 1
        recent = np.mean(episode_returns[-20:])
        if n_update > 25:
            plateau.step(recent)
        if n_update % 25 == 0:
            print(f"update {n_update}\tsteps {n_steps}\treturn {recent:.1f}\tpolicy {pl:.4f}\tvalue {vl:.4f}")

# In [8]:
if average_net is not None:
    scores = []
    for _ in range(5):
        state, _ = env.reset()
        total, over = 0.0, False
        while not over:
            state, reward, terminated, truncated, _ = env.step(select_action(average_net, state))
            total += float(reward)
            over = terminated or truncated
        scores.append(total)
    print(f"averaged weights: {np.mean(scores):.1f}")

k = max(1, len(episode_returns) // 10)
print(
    f"first tenth {np.mean(episode_returns[:k]):.2f}, last tenth {np.mean(episode_returns[-k:]):.2f}, "
    f"{len(episode_returns)} episodes, {time.time() - started:.1f} s"
)
