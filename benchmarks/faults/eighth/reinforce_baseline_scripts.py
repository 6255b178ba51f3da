# Policy gradient with a learned baseline on CartPole: one network with two heads, lists of what
# was done in an episode, and finish_episode() when it is over.
import argparse
import time
from collections import namedtuple

import gymnasium as gym
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim
from torch.distributions import Categorical

FAULTS = {
    "new_head_after_optimizer": [
        "weights",
        "broken",
        "the value head is replaced by a freshly initialised one when the optimizer already holds the old one",
    ],
    "returns_run_forwards": [
        "returns",
        "broken",
        "the rewards are summed from the first to the last: each step is credited with its past",
    ],
    "advantage_keeps_graph": [
        "signs",
        "broken",
        "the advantage in the policy loss is not detached: the policy loss moves the value head as well",
    ],
    "softmax_then_logits": [
        "shapes",
        "broken",
        "the network ends in a softmax and its output is handed over as logits: the policy can never become sure",
    ],
    "fall_is_hidden": [
        "goal",
        "not proven",
        "a wrapper swallows the fall: every episode lasts to the time limit and pays the same for whatever is done",
    ],
}
HEALTHY = {
    "": "plain: an update after every episode, Huber loss for the value, bootstrapped when time runs out",
    "accumulate": "gradients of three episodes are added up, each a third, before the optimizer steps",
    "frozen_trunk": "the trunk first learns to predict the next observation and is frozen then; SGD with momentum",
}

parser = argparse.ArgumentParser(description="REINFORCE with a baseline")
parser.add_argument("--gamma", type=float, default=0.98)
parser.add_argument("--seed", type=int, default=543)
parser.add_argument("--steps", type=int, default=36_000)
parser.add_argument("--log-interval", type=int, default=25)
parser.add_argument("--fault", default="", choices=["", *FAULTS])
parser.add_argument("--variant", default="", choices=list(HEALTHY))
args = parser.parse_args()

TIME_LIMIT = 200
SavedAction = namedtuple("SavedAction", ["log_prob", "value", "entropy"])


class HiddenFall(gym.Wrapper):
    """Meant to keep the video running after the pole has come down."""

    def step(self, action):
        obs, _, _, truncated, info = self.env.step(action)
        return obs, 1.0, False, truncated, info


class Policy(nn.Module):
    def __init__(self, n_hidden=128):
        super().__init__()
        self.affine1 = nn.Linear(4, n_hidden)
        self.action_head = nn.Linear(n_hidden, 2)
        self.value_head = nn.Linear(n_hidden, 1)
        self.saved_actions = []
        self.rewards = []

    def features(self, x):
        return F.relu(self.affine1(x * x.new_tensor([1.0, 1.0, 5.0, 1.0])))

    def forward(self, x):
        x = self.features(x)
        return self.action_head(x), self.value_head(x).squeeze(-1)


def make_env():
    env = gym.make("CartPole-v1", max_episode_steps=TIME_LIMIT)
    if args.fault == "fall_is_hidden":
        env = gym.wrappers.TimeLimit(HiddenFall(gym.make("CartPole-v1", max_episode_steps=-1)), TIME_LIMIT)
    env.reset(seed=args.seed)
    env.action_space.seed(args.seed)
    return env


def pretrain_trunk(policy, env, n_steps=1500, rounds=600):
    """Random play; the trunk and a throw-away head learn how the observation changes."""
    before, after = [], []
    obs, _ = env.reset()
    for _ in range(n_steps):
        action = env.action_space.sample()
        nxt, _, terminated, truncated, _ = env.step(action)
        before.append(np.append(obs, action))
        after.append(nxt - obs)
        obs = env.reset()[0] if terminated or truncated else nxt
    before, after = torch.as_tensor(np.array(before)).float(), torch.as_tensor(np.array(after)).float()
    after = (after - after.mean(0)) / after.std(0)
    head = nn.Linear(policy.affine1.out_features + 1, 4)
    teacher = optim.Adam([*policy.affine1.parameters(), *head.parameters()], lr=2e-3)
    for _ in range(rounds):
        rows = torch.randint(n_steps, (128,))
        guess = head(torch.cat([policy.features(before[rows, :4]), before[rows, 4:]], 1))
        loss = F.mse_loss(guess, after[rows])
        teacher.zero_grad()
        loss.backward()
        teacher.step()
    for p in policy.affine1.parameters():
        p.requires_grad_(False)
        p.grad = None
    print(f"trunk pretrained, error {loss.item():.4f}")


def small_head(layer):
    """A head of the same form that starts close to zero."""
    fresh = nn.Linear(layer.in_features, layer.out_features)
    nn.init.normal_(fresh.weight, std=0.01)
    nn.init.zeros_(fresh.bias)
    return fresh


def build(env):
    policy = Policy()
    policy.action_head = small_head(policy.action_head)
    if args.fault != "new_head_after_optimizer":
        policy.value_head = small_head(policy.value_head)
    if args.variant == "frozen_trunk":
        pretrain_trunk(policy, env)
        trainable = [p for p in policy.parameters() if p.requires_grad]
        optimizer = optim.SGD(trainable, lr=0.1, momentum=0.9)
    else:
        optimizer = optim.Adam(policy.parameters(), lr=4e-3)
    if args.fault == "new_head_after_optimizer":
        policy.value_head = small_head(policy.value_head)
    return policy, optimizer


def select_action(policy, state):
    scores, state_value = policy(torch.from_numpy(state))
    if args.fault == "softmax_then_logits":
        scores = F.softmax(scores, dim=-1)
    m = Categorical(logits=scores)
    action = m.sample()
    policy.saved_actions.append(SavedAction(m.log_prob(action), state_value, m.entropy()))
    return action.item()


def discounted(rewards, last_value):
    """Sum of what is still to come, seen from each step; last_value stands for what lies behind the time limit."""
    running, returns = last_value, []
    if args.fault == "returns_run_forwards":
        for r in rewards:
            running = r + args.gamma * running
            returns.append(running)
        return torch.tensor(returns)
    for r in rewards[::-1]:
        running = r + args.gamma * running
        returns.insert(0, running)
    return torch.tensor(returns)


def episode_loss(policy, last_value):
    returns = discounted(policy.rewards, last_value) * (1 - args.gamma)  # the value head sees 0..1
    log_probs = torch.stack([s.log_prob for s in policy.saved_actions])
    values = torch.stack([s.value for s in policy.saved_actions])
    entropy = torch.stack([s.entropy for s in policy.saved_actions]).mean()

    advantage = returns - values
    if args.fault != "advantage_keeps_graph":
        advantage = advantage.detach()
    policy_loss = -(log_probs * advantage).mean()
    value_loss = F.smooth_l1_loss(values, returns)
    return policy_loss + 2.0 * value_loss - 0.002 * entropy


def finish_episode(policy, optimizer, last_value, i_episode):
    per_step = 3 if args.variant == "accumulate" else 1
    loss = episode_loss(policy, last_value) / per_step
    loss.backward()
    if i_episode % per_step == 0:
        nn.utils.clip_grad_norm_([p for p in policy.parameters() if p.requires_grad], 1.0)
        optimizer.step()
        optimizer.zero_grad()
    del policy.rewards[:]
    del policy.saved_actions[:]
    return loss.item()


def main():
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    env = make_env()
    policy, optimizer = build(env)
    began, history, total, running_reward = time.time(), [], 0, 20.0
    while total < args.steps:
        state, _ = env.reset()
        ep_reward, terminated, truncated = 0.0, False, False
        while not (terminated or truncated):
            action = select_action(policy, state)
            state, reward, terminated, truncated, _ = env.step(action)
            policy.rewards.append(float(reward))
            ep_reward += float(reward)
            total += 1
        with torch.no_grad():
            last_value = 0.0 if terminated else policy(torch.from_numpy(state))[1].item() / (1 - args.gamma)
        history.append(ep_reward)
        running_reward = 0.05 * ep_reward + 0.95 * running_reward
        loss = finish_episode(policy, optimizer, last_value, len(history))
        if len(history) % args.log_interval == 0:
            print(f"Episode {len(history)}\tLast {ep_reward:.1f}\tRunning {running_reward:.2f}\tLoss {loss:.4f}")
    n = max(1, len(history) // 10)
    took = time.time() - began
    print(f"first tenth {np.mean(history[:n]):.1f} last tenth {np.mean(history[-n:]):.1f} ({took:.1f} s)")


if __name__ == "__main__":
    main()
