"""Deep Q-learning on CartPole, after the well-known tutorial: replay memory, soft target updates, dueling head."""

import argparse
import math
import random
import time
from collections import deque, namedtuple
from itertools import count

import gymnasium as gym
import numpy as np
import torch
import torch.nn as nn
import torch.optim as optim

FAULTS = {
    "value_left_out": ["weights", "broken", "the dueling head's value stream is not among the optimizer's parameters"],
    "target_not_loaded": ["targets", "broken", "the mixed state dict is never loaded: the target stays as it began"],
    "target_alias": ["targets", "broken", "the target network is the policy network itself, under a second name"],
    "limit_is_final": ["returns", "broken", "an episode cut by the time limit is stored without a next state"],
    "decay_per_update": [
        "rates",
        "broken",
        "a decay meant per episode is stepped per optimisation: the rate dies early",
    ],
    "step_cost": [
        "goal",
        "not proven",
        "each step costs one, as in MountainCar: the pole is dropped as fast as possible",
    ],
}
HEALTHY = {
    "": "plain: Huber loss, AdamW with amsgrad, soft update at each step, rate decayed per episode",
    "hard_target": "the target is copied whole every 250 steps and the greedy action is chosen by the online net",
    "n_step": "three-step returns, gathered in a small window before they are pushed",
    "frozen_features": "the first layer is random and frozen on purpose, widened to 256",
}

Transition = namedtuple("Transition", ("state", "action", "next_state", "reward"))

BATCH_SIZE = 64
GAMMA = 0.99
EPS_START, EPS_END, EPS_DECAY = 0.9, 0.02, 800
TAU = 0.01
LR = 1e-3


class ReplayMemory:
    def __init__(self, capacity):
        self.memory = deque(maxlen=capacity)

    def push(self, *args):
        """Save a transition"""
        self.memory.append(Transition(*args))

    def sample(self, batch_size):
        return random.sample(self.memory, batch_size)

    def __len__(self):
        return len(self.memory)


class DQN(nn.Module):
    def __init__(self, n_observations, n_actions, width=96):
        super().__init__()
        self.layer1 = nn.Linear(n_observations, width)
        self.layer2 = nn.Linear(width, 96)
        self.advantage = nn.Linear(96, n_actions)
        self.value = nn.Linear(96, 1)

    def forward(self, x):
        x = torch.relu(self.layer1(x))
        x = torch.relu(self.layer2(x))
        advantage = self.advantage(x)
        return self.value(x) + advantage - advantage.mean(dim=-1, keepdim=True)


parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--steps", type=int, default=8_000)
parser.add_argument("--fault", default="", choices=["", *FAULTS])
parser.add_argument("--variant", default="", choices=list(HEALTHY))
args = parser.parse_args()

torch.set_num_threads(1)
random.seed(args.seed)
torch.manual_seed(args.seed)

env = gym.make("CartPole-v1", max_episode_steps=200)
if args.fault == "step_cost":
    env = gym.wrappers.TransformReward(env, lambda reward: -1.0)
n_actions = env.action_space.n
state, info = env.reset(seed=args.seed)
n_observations = len(state)

width = 256 if args.variant == "frozen_features" else 96
policy_net = DQN(n_observations, n_actions, width)
target_net = DQN(n_observations, n_actions, width)
target_net.load_state_dict(policy_net.state_dict())
if args.fault == "target_alias":
    target_net = policy_net
if args.variant == "frozen_features":
    policy_net.layer1.requires_grad_(False)
learned = [p for p in policy_net.parameters() if p.requires_grad]
if args.fault == "value_left_out":
    learned = [p for name, p in policy_net.named_parameters() if not name.startswith("value")]

optimizer = optim.AdamW(learned, lr=LR, amsgrad=True)
scheduler = optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.998)
memory = ReplayMemory(10000)
n_step = 3 if args.variant == "n_step" else 1
steps_done = 0
episode_returns = []


def select_action(state):
    eps_threshold = EPS_END + (EPS_START - EPS_END) * math.exp(-1.0 * steps_done / EPS_DECAY)
    if random.random() > eps_threshold:
        with torch.no_grad():
            return policy_net(state).max(1).indices.view(1, 1)
    return torch.tensor([[random.randrange(n_actions)]], dtype=torch.long)


def optimize_model():
    if len(memory) < 2 * BATCH_SIZE:
        return None
    transitions = memory.sample(BATCH_SIZE)
    batch = Transition(*zip(*transitions, strict=True))
    non_final_mask = torch.tensor([s is not None for s in batch.next_state], dtype=torch.bool)
    non_final_next_states = torch.cat([s for s in batch.next_state if s is not None])
    state_batch = torch.cat(batch.state)
    action_batch = torch.cat(batch.action)
    reward_batch = torch.cat(batch.reward)

    state_action_values = policy_net(state_batch).gather(1, action_batch)
    next_state_values = torch.zeros(BATCH_SIZE)
    with torch.no_grad():
        if args.variant == "hard_target":
            best = policy_net(non_final_next_states).argmax(1, keepdim=True)
            next_state_values[non_final_mask] = target_net(non_final_next_states).gather(1, best).squeeze(1)
        else:
            next_state_values[non_final_mask] = target_net(non_final_next_states).max(1).values
    expected_state_action_values = (next_state_values * GAMMA**n_step) + reward_batch

    loss = nn.SmoothL1Loss()(state_action_values, expected_state_action_values.unsqueeze(1))
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_value_(policy_net.parameters(), 100)
    optimizer.step()
    if args.fault == "decay_per_update":
        scheduler.step()
    return loss.item()


def update_target():
    target_net_state_dict = {k: v.clone() for k, v in target_net.state_dict().items()}
    policy_net_state_dict = policy_net.state_dict()
    if args.variant == "hard_target":
        if steps_done % 250 == 0:
            target_net.load_state_dict(policy_net_state_dict)
        return
    for key in policy_net_state_dict:
        target_net_state_dict[key] = policy_net_state_dict[key] * TAU + target_net_state_dict[key] * (1 - TAU)
    if args.fault != "target_not_loaded":
        target_net.load_state_dict(target_net_state_dict)


def push_window(window, last):
    """Push the oldest transition of the window with the discounted rewards of all of it."""
    reward = sum(GAMMA**i * r for i, (_, _, r) in enumerate(window))
    memory.push(window[0][0], window[0][1], last, torch.tensor([reward], dtype=torch.float32))


shown = time.time()
loss = None
while steps_done < args.steps:
    state, info = env.reset()
    state = torch.tensor(state, dtype=torch.float32).unsqueeze(0)
    window, total = deque(), 0.0
    for _t in count():
        action = select_action(state)
        observation, reward, terminated, truncated, _ = env.step(action.item())
        steps_done += 1
        total += float(reward)
        done = terminated or truncated
        next_state = torch.tensor(observation, dtype=torch.float32).unsqueeze(0)
        if terminated or (truncated and args.fault == "limit_is_final"):
            next_state = None

        window.append((state, action, float(reward)))
        if len(window) == n_step:
            push_window(window, next_state)
            window.popleft()
        while terminated and window:
            push_window(window, None)
            window.popleft()

        state = next_state
        loss = optimize_model()
        update_target()
        if done:
            episode_returns.append(total)
            if args.fault != "decay_per_update" and loss is not None:
                scheduler.step()
            break
    if time.time() - shown > 3:
        shown = time.time()
        print(
            f"episode {len(episode_returns)} step {steps_done}: return {np.mean(episode_returns[-10:]):.1f}, "
            f"loss {loss if loss is not None else float('nan'):.4f}, rate {scheduler.get_last_lr()[0]:.2e}",
            flush=True,
        )

n = max(1, len(episode_returns) // 10)
print(f"first tenth {np.mean(episode_returns[:n]):.2f}, last tenth {np.mean(episode_returns[-n:]):.2f}")
