"""Deep Q-learning on Acrobot, top to bottom in one script: replay of tuples, fading epsilon, a target network."""

import argparse
import copy
import random
import time
from collections import deque, namedtuple

import gymnasium as gym
import numpy as np
import torch
import torch.nn as nn
import torch.optim as optim

FAULTS = {
    "features_no_grad": [
        "weights",
        "broken",
        "the first layer runs under no_grad: it has an optimizer but no gradient",
    ],
    "tau_swapped": ["targets", "broken", "tau and 1 - tau change places: the target is the online net all the time"],
    "one_step_discount": ["returns", "broken", "four rewards are summed, the value behind them is discounted once"],
    "gather_rows": ["shapes", "broken", "gather runs down the batch: it picks other samples' values of action 0"],
    "huber_no_abs": ["signs", "broken", "the linear arm of the Huber loss lacks abs: large negative errors grow"],
    "sinking_bar": [
        "goal",
        "not proven",
        "the bar sinks after each episode and never stops: soon every policy is done",
    ],
}
HEALTHY = {
    "": "plain: four-step targets, soft target updates",
    "hard_target": "the target network is copied every 200 updates only",
    "frozen_features": "a wide random first layer is frozen on purpose and left out of the optimizer",
    "double_scaled": "float64 network, rewards scaled by a tenth, double Q-learning",
    "dueling_halves": "dueling heads, weight decay, clipping by value, two half batches gathered per step",
}

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--seed", type=int, default=3)
parser.add_argument("--steps", type=int, default=26_000)
parser.add_argument("--fault", default="", choices=["", *FAULTS])
parser.add_argument("--variant", default="", choices=list(HEALTHY))
args = parser.parse_args()
FAULT, VARIANT = args.fault, args.variant

BATCH, MEMORY, WARMUP, LEARN_EVERY = 64, 20_000, 1_000, 3
GAMMA, N_STEP, LR, TAU, COPY_EVERY = 0.99, 4, 1e-3, 0.02, 200
EPS_START, EPS_END, EPS_STEPS = 1.0, 0.03, 6_000
DTYPE = torch.float64 if VARIANT == "double_scaled" else torch.float32
SCALE = 0.1 if VARIANT == "double_scaled" else 1.0

random.seed(args.seed)
torch.manual_seed(args.seed)


class Bar(gym.Wrapper):
    """Swinging up to the full height is rare at first, so ask for a little less each time."""

    bar = 1.0

    def step(self, action):
        obs, reward, terminated, truncated, info = self.env.step(action)
        height = -obs[0] - (obs[0] * obs[2] - obs[1] * obs[3])
        terminated = bool(terminated or height > self.bar)
        if terminated or truncated:
            self.bar -= 0.1
        return obs, 0.0 if terminated else reward, terminated, truncated, info


env = gym.make("Acrobot-v1")
if FAULT == "sinking_bar":
    env = Bar(env)
env.action_space.seed(args.seed)
n_actions = int(env.action_space.n)
n_obs = env.observation_space.shape[0]


class QNetwork(nn.Module):
    def __init__(self):
        super().__init__()
        width = 256 if VARIANT == "frozen_features" else 96
        self.features = nn.Sequential(nn.Linear(n_obs, width), nn.ReLU())
        self.hidden = nn.Sequential(nn.Linear(width, 96), nn.ReLU())
        self.advantage = nn.Linear(96, n_actions)
        if VARIANT == "dueling_halves":
            self.value = nn.Linear(96, 1)

    def forward(self, x):
        if FAULT == "features_no_grad":
            with torch.no_grad():
                h = self.features(x)
        else:
            h = self.features(x)
        h = self.hidden(h)
        q = self.advantage(h)
        if VARIANT == "dueling_halves":
            q = self.value(h) + q - q.mean(dim=1, keepdim=True)
        return q


Transition = namedtuple("Transition", ("state", "action", "reward", "next_state", "over", "discount"))
memory = deque(maxlen=MEMORY)
window = deque()

q_net = QNetwork().to(DTYPE)
if VARIANT == "frozen_features":
    q_net.features.requires_grad_(False)
target_net = copy.deepcopy(q_net)
target_net.requires_grad_(False)
if VARIANT == "dueling_halves":
    optimizer = optim.AdamW(q_net.parameters(), lr=LR, weight_decay=1e-4)
else:
    optimizer = optim.Adam([p for p in q_net.parameters() if p.requires_grad], lr=LR)


def td_loss(batch):
    states = torch.as_tensor(np.stack([t.state for t in batch]), dtype=DTYPE)
    actions = torch.tensor([t.action for t in batch])
    rewards = torch.tensor([t.reward for t in batch], dtype=DTYPE)
    next_states = torch.as_tensor(np.stack([t.next_state for t in batch]), dtype=DTYPE)
    over = torch.tensor([t.over for t in batch], dtype=DTYPE)
    discounts = torch.tensor([t.discount for t in batch], dtype=DTYPE)

    if FAULT == "gather_rows":
        q = q_net(states).gather(0, actions.unsqueeze(1)).squeeze(1)
    else:
        q = q_net(states).gather(1, actions.unsqueeze(1)).squeeze(1)
    with torch.no_grad():
        if VARIANT == "double_scaled":
            best = q_net(next_states).argmax(1, keepdim=True)
            next_q = target_net(next_states).gather(1, best).squeeze(1)
        else:
            next_q = target_net(next_states).max(1).values
        if FAULT == "one_step_discount":
            target = rewards + GAMMA * next_q * (1.0 - over)
        else:
            target = rewards + discounts * next_q * (1.0 - over)
    error = target - q
    linear = (error if FAULT == "huber_no_abs" else error.abs()) - 0.5
    return torch.where(error.abs() < 1.0, 0.5 * error**2, linear).mean()


returns, updates, losses = [], 0, deque(maxlen=200)
state, _ = env.reset(seed=args.seed)
episode_return = 0.0
shown = time.time()

for step in range(args.steps):
    # act
    epsilon = max(EPS_END, EPS_START - (EPS_START - EPS_END) * step / EPS_STEPS)
    if random.random() < epsilon:
        action = int(env.action_space.sample())
    else:
        with torch.no_grad():
            action = int(q_net(torch.as_tensor(state, dtype=DTYPE).unsqueeze(0)).argmax(1))
    next_state, reward, terminated, truncated, _ = env.step(action)
    episode_return += reward

    # remember; at an episode's end the shorter tails are stored too
    window.append((state, action, SCALE * reward))
    ended = terminated or truncated
    while len(window) == N_STEP or (ended and window):
        total = sum(GAMMA**i * r for i, (_, _, r) in enumerate(window))
        memory.append(Transition(window[0][0], window[0][1], total, next_state, terminated, GAMMA ** len(window)))
        window.popleft()
    state = next_state
    if ended:
        returns.append(episode_return)
        state, _ = env.reset()
        episode_return = 0.0

    # learn
    if step >= WARMUP and step % LEARN_EVERY == 0:
        batch = random.sample(memory, BATCH)
        optimizer.zero_grad()
        if VARIANT == "dueling_halves":
            for half in (batch[: BATCH // 2], batch[BATCH // 2 :]):
                loss = td_loss(half)
                (loss / 2).backward()
            nn.utils.clip_grad_value_(q_net.parameters(), 0.5)
        else:
            loss = td_loss(batch)
            loss.backward()
            nn.utils.clip_grad_norm_(q_net.parameters(), 5.0)
        optimizer.step()
        losses.append(loss.item())
        updates += 1

        if VARIANT == "hard_target":
            if updates % COPY_EVERY == 0:
                target_net.load_state_dict(q_net.state_dict())
        else:
            with torch.no_grad():
                for slow, fast in zip(target_net.parameters(), q_net.parameters(), strict=True):
                    if FAULT == "tau_swapped":
                        slow.copy_(TAU * slow + (1.0 - TAU) * fast)
                    else:
                        slow.copy_((1.0 - TAU) * slow + TAU * fast)

    if time.time() - shown > 3.0 and returns and losses:
        shown = time.time()
        print(
            f"step {step} episodes {len(returns)} return {np.mean(returns[-20:]):.1f} "
            f"epsilon {epsilon:.2f} loss {np.mean(losses):.4f}",
            flush=True,
        )

tenth = max(1, len(returns) // 10)
print(f"first tenth {np.mean(returns[:tenth]):.1f}, last tenth {np.mean(returns[-tenth:]):.1f}")
