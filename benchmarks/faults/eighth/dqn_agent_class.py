"""Deep Q-learning for CartPole, in the manner of the course notebooks: an Agent, a ReplayBuffer, a loop."""

import argparse
import random
import time
from collections import deque, namedtuple

import gymnasium as gym
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim

FAULTS = {
    "break_before_step": [
        "returns",
        "broken",
        "the episode loop breaks on done before the agent is told: no last transition ever enters the memory",
    ],
    "soft_update_reversed": [
        "targets",
        "broken",
        "local and target change places in the call of soft_update: the target stands still and pulls the local network",
    ],
    "local_judges_itself": [
        "targets",
        "broken",
        "the value of the next state is read from the local network; the target network is updated but never asked",
    ],
    "error_clamped": [
        "signs",
        "broken",
        "the TD error is clamped to -1..1 before it is squared: the largest errors have no gradient at all",
    ],
    "clip_after_step": [
        "weights",
        "broken",
        "the gradient norm is clipped after the optimizer has stepped: the clipped gradients are thrown away",
    ],
}
HEALTHY = {
    "": "plain: double Q-learning, soft updates of the target, Adam, gradient clipping",
    "hard_copies": "the target is copied whole every 300 learning steps, RMSprop, rewards divided by ten",
    "huber_dueling": "dueling heads on a common trunk, Huber loss, AMSGrad, and an average of the weights kept beside",
}

BUFFER_SIZE = 10_000
BATCH_SIZE = 64
GAMMA = 0.98
TAU = 0.01
LR = 1e-3
UPDATE_EVERY = 2
MAX_GRAD_NORM = 1.0
EPS_START, EPS_END, EPS_DECAY = 1.0, 0.02, 0.97


class QNetwork(nn.Module):
    """State in, one value for each action out."""

    def __init__(self, state_size, action_size, fc1_units=96, fc2_units=96):
        super().__init__()
        self.fc1 = nn.Linear(state_size, fc1_units)
        self.fc2 = nn.Linear(fc1_units, fc2_units)
        self.fc3 = nn.Linear(fc2_units, action_size)

    def forward(self, state):
        x = F.relu(self.fc1(state))
        x = F.relu(self.fc2(x))
        return self.fc3(x)


class DuelingQNetwork(QNetwork):
    """The same trunk with one head for the state and one for what an action adds to it."""

    def __init__(self, state_size, action_size):
        super().__init__(state_size, action_size)
        self.value = nn.Linear(self.fc3.in_features, 1)

    def forward(self, state):
        x = F.relu(self.fc2(F.relu(self.fc1(state))))
        gain = self.fc3(x)
        return self.value(x) + gain - gain.mean(dim=1, keepdim=True)


class ReplayBuffer:
    """A queue of experiences from which uniform samples are drawn."""

    def __init__(self, buffer_size, batch_size, seed):
        self.memory = deque(maxlen=buffer_size)
        self.batch_size = batch_size
        self.rng = random.Random(seed)
        self.experience = namedtuple("Experience", ["state", "action", "reward", "next_state", "done"])

    def add(self, *fields):
        self.memory.append(self.experience(*fields))

    def sample(self):
        picked = self.rng.sample(self.memory, k=self.batch_size)
        states = torch.from_numpy(np.vstack([e.state for e in picked])).float()
        actions = torch.from_numpy(np.vstack([e.action for e in picked])).long()
        rewards = torch.from_numpy(np.vstack([e.reward for e in picked])).float()
        next_states = torch.from_numpy(np.vstack([e.next_state for e in picked])).float()
        dones = torch.from_numpy(np.vstack([e.done for e in picked]).astype(np.uint8)).float()
        return states, actions, rewards, next_states, dones

    def __len__(self):
        return len(self.memory)


class Agent:
    """Acts in the environment and learns from what it remembers."""

    def __init__(self, state_size, action_size, seed, fault="", variant=""):
        self.action_size = action_size
        self.fault, self.variant = fault, variant
        self.rng = random.Random(seed + 1)

        network = DuelingQNetwork if variant == "huber_dueling" else QNetwork
        self.qnetwork_local = network(state_size, action_size)
        self.qnetwork_target = network(state_size, action_size)
        self.qnetwork_target.load_state_dict(self.qnetwork_local.state_dict())
        if variant == "hard_copies":
            self.optimizer = optim.RMSprop(self.qnetwork_local.parameters(), lr=LR / 2, alpha=0.95, eps=1e-3)
        else:
            self.optimizer = optim.Adam(self.qnetwork_local.parameters(), lr=LR, amsgrad=variant == "huber_dueling")
        self.average = {k: v.detach().clone() for k, v in self.qnetwork_local.state_dict().items()}

        self.memory = ReplayBuffer(BUFFER_SIZE, BATCH_SIZE, seed)
        self.reward_scale = 0.1 if variant == "hard_copies" else 1.0
        self.t_step = 0
        self.learn_step = 0
        self.last_loss = float("nan")

    def step(self, state, action, reward, next_state, done):
        self.memory.add(state, action, reward * self.reward_scale, next_state, done)
        self.t_step = (self.t_step + 1) % UPDATE_EVERY
        if self.t_step == 0 and len(self.memory) >= 4 * BATCH_SIZE:
            self.learn(self.memory.sample(), GAMMA)

    def act(self, state, eps=0.0):
        if self.rng.random() < eps:
            return self.rng.randrange(self.action_size)
        state = torch.from_numpy(state).float().unsqueeze(0)
        self.qnetwork_local.eval()
        with torch.no_grad():
            action_values = self.qnetwork_local(state)
        self.qnetwork_local.train()
        return int(np.argmax(action_values.numpy()))

    def learn(self, experiences, gamma):
        states, actions, rewards, next_states, dones = experiences

        with torch.no_grad():
            best = self.qnetwork_local(next_states).argmax(dim=1, keepdim=True)
            judge = self.qnetwork_local if self.fault == "local_judges_itself" else self.qnetwork_target
            q_targets_next = judge(next_states).gather(1, best)
            q_targets = rewards + gamma * q_targets_next * (1 - dones)
        q_expected = self.qnetwork_local(states).gather(1, actions)

        if self.variant == "huber_dueling":
            loss = F.smooth_l1_loss(q_expected, q_targets)
        elif self.fault == "error_clamped":
            loss = (q_targets - q_expected).clamp(-1.0, 1.0).pow(2).mean()
        else:
            loss = F.mse_loss(q_expected, q_targets)

        self.optimizer.zero_grad()
        loss.backward()
        if self.fault == "clip_after_step":
            self.optimizer.step()
            nn.utils.clip_grad_norm_(self.qnetwork_local.parameters(), MAX_GRAD_NORM)
        else:
            nn.utils.clip_grad_norm_(self.qnetwork_local.parameters(), MAX_GRAD_NORM)
            self.optimizer.step()
        self.learn_step += 1
        self.last_loss = loss.item()

        if self.variant == "hard_copies":
            if self.learn_step % 300 == 0:
                self.qnetwork_target.load_state_dict(self.qnetwork_local.state_dict())
        elif self.fault == "soft_update_reversed":
            self.soft_update(self.qnetwork_target, self.qnetwork_local, TAU)
        else:
            self.soft_update(self.qnetwork_local, self.qnetwork_target, TAU)
        if self.variant == "huber_dueling":
            for name, weight in self.qnetwork_local.state_dict().items():
                self.average[name].mul_(0.999).add_(weight, alpha=0.001)

    def soft_update(self, local_model, target_model, tau):
        """target = tau * local + (1 - tau) * target"""
        for target_param, local_param in zip(target_model.parameters(), local_model.parameters(), strict=True):
            target_param.data.copy_(tau * local_param.data + (1.0 - tau) * target_param.data)


def dqn(agent, env, seed, max_steps, fault):
    scores, scores_window = [], deque(maxlen=20)
    eps, total = EPS_START, 0
    state, _ = env.reset(seed=seed)
    while total < max_steps:
        score, done = 0.0, False
        while not done:
            action = agent.act(state, eps)
            next_state, reward, terminated, truncated, _ = env.step(action)
            done = terminated or truncated
            score += float(reward)
            total += 1
            if done and fault == "break_before_step":
                break
            agent.step(state, action, reward, next_state, terminated)
            state = next_state
        scores.append(score)
        scores_window.append(score)
        eps = max(EPS_END, EPS_DECAY * eps)
        if len(scores) % 20 == 0:
            mean = np.mean(scores_window)
            print(
                f"Episode {len(scores)}\tsteps {total}\tAverage {mean:.2f}\teps {eps:.2f}\tloss {agent.last_loss:.4f}"
            )
        state, _ = env.reset()
    return scores


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--fault", default="", choices=["", *FAULTS])
    parser.add_argument("--variant", default="", choices=list(HEALTHY))
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    started = time.time()
    world = gym.make("CartPole-v1", max_episode_steps=300)
    player = Agent(world.observation_space.shape[0], int(world.action_space.n), args.seed, args.fault, args.variant)
    history = dqn(player, world, args.seed, args.steps, args.fault)
    n = max(1, len(history) // 10)
    took = time.time() - started
    print(f"first tenth {np.mean(history[:n]):.1f} last tenth {np.mean(history[-n:]):.1f} ({took:.1f} s)")
