"""Soft actor-critic for Pendulum-v1, kept small: tanh Gaussian policy, two critics, tuned temperature."""

import argparse
import copy
import random
import time

import gymnasium as gym
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.distributions import Normal
from torch.optim import Adam

FAULTS = {
    "sample_cuts_graph": [
        "shapes",
        "broken",
        "the policy draws with sample() where rsample() is meant: no gradient of the critics comes through the action",
    ],
    "second_target_wrong_source": [
        "targets",
        "broken",
        "a copied line: the target of the second critic follows the first critic",
    ],
    "next_action_of_old_state": [
        "returns",
        "broken",
        "the action in the backup is drawn for the state, not for the next state, and judged at the next state",
    ],
    "target_entropy_positive": [
        "signs",
        "broken",
        "the minus in front of the target entropy is lost: more entropy is asked for than a bounded action can have",
    ],
    "alpha_never_reread": [
        "weights",
        "broken",
        "log_alpha is trained, but alpha is the number that was read from it in the constructor",
    ],
}
HEALTHY = {
    "": "plain: one update per step, soft targets, log_alpha in the temperature loss",
    "delayed": "policy and temperature wait for every second critic update and then make two steps; targets as late",
    "normed_warmup": "layer norm in the critics, rewards divided by ten, learning rates that climb from zero",
}

LOG_SIG_MAX, LOG_SIG_MIN = 2, -20
EPSILON = 1e-6


class ReplayMemory:
    def __init__(self, capacity, seed):
        self.rng = random.Random(seed)
        self.capacity, self.position = capacity, 0
        self.buffer = []

    def push(self, *transition):
        if len(self.buffer) < self.capacity:
            self.buffer.append(None)
        self.buffer[self.position] = transition
        self.position = (self.position + 1) % self.capacity

    def sample(self, batch_size):
        batch = self.rng.sample(self.buffer, batch_size)
        state, action, reward, next_state, mask = map(np.stack, zip(*batch, strict=True))
        return state, action, reward, next_state, mask

    def __len__(self):
        return len(self.buffer)


class QNetwork(nn.Module):
    def __init__(self, num_inputs, num_actions, hidden_dim, norm=False):
        super().__init__()
        self.linear1 = nn.Linear(num_inputs + num_actions, hidden_dim)
        self.linear2 = nn.Linear(hidden_dim, hidden_dim)
        self.linear3 = nn.Linear(hidden_dim, 1)
        self.norm = nn.LayerNorm(hidden_dim) if norm else nn.Identity()

    def forward(self, state, action):
        x = F.relu(self.linear1(torch.cat([state, action], 1)))
        x = F.relu(self.norm(self.linear2(x)))
        return self.linear3(x)


class GaussianPolicy(nn.Module):
    def __init__(self, num_inputs, action_space, hidden_dim, cut=False):
        super().__init__()
        num_actions = action_space.shape[0]
        self.linear1 = nn.Linear(num_inputs, hidden_dim)
        self.linear2 = nn.Linear(hidden_dim, hidden_dim)
        self.mean_linear = nn.Linear(hidden_dim, num_actions)
        self.log_std_linear = nn.Linear(hidden_dim, num_actions)
        self.register_buffer("action_scale", torch.tensor((action_space.high - action_space.low) / 2.0))
        self.register_buffer("action_bias", torch.tensor((action_space.high + action_space.low) / 2.0))
        self.cut = cut

    def forward(self, state):
        x = F.relu(self.linear1(state))
        x = F.relu(self.linear2(x))
        return self.mean_linear(x), torch.clamp(self.log_std_linear(x), min=LOG_SIG_MIN, max=LOG_SIG_MAX)

    def sample(self, state):
        mean, log_std = self(state)
        normal = Normal(mean, log_std.exp())
        x_t = normal.sample() if self.cut else normal.rsample()
        y_t = torch.tanh(x_t)
        log_prob = normal.log_prob(x_t) - torch.log(self.action_scale * (1 - y_t.pow(2)) + EPSILON)
        return y_t * self.action_scale + self.action_bias, log_prob.sum(1, keepdim=True)


def soft_update(target, source, tau):
    for target_param, param in zip(target.parameters(), source.parameters(), strict=True):
        target_param.data.copy_(target_param.data * (1.0 - tau) + param.data * tau)


class SAC:
    def __init__(self, num_inputs, action_space, args, hidden_dim=64, lr=1.5e-3, gamma=0.98, tau=0.01):
        self.fault, self.variant = args.fault, args.variant
        self.gamma, self.tau, self.lr = gamma, tau, lr
        num_actions, norm = action_space.shape[0], args.variant == "normed_warmup"
        self.critic1 = QNetwork(num_inputs, num_actions, hidden_dim, norm)
        self.critic2 = QNetwork(num_inputs, num_actions, hidden_dim, norm)
        self.critic1_target = copy.deepcopy(self.critic1)
        self.critic2_target = copy.deepcopy(self.critic2)
        self.critic_optim = Adam([*self.critic1.parameters(), *self.critic2.parameters()], lr=lr)
        self.policy = GaussianPolicy(num_inputs, action_space, hidden_dim, cut=args.fault == "sample_cuts_graph")
        self.policy_optim = Adam(self.policy.parameters(), lr=lr)

        sign = 1.0 if args.fault == "target_entropy_positive" else -1.0
        self.target_entropy = sign * float(np.prod(action_space.shape))
        self.log_alpha = torch.tensor([np.log(0.3)], dtype=torch.float32, requires_grad=True)
        self.alpha_optim = Adam([self.log_alpha], lr=lr)
        self.alpha = self.log_alpha.exp().item()

    @torch.no_grad()
    def select_action(self, state):
        action, _ = self.policy.sample(torch.from_numpy(state).unsqueeze(0))
        return action.numpy()[0]

    def warm_up(self, updates, length=500):
        for optimizer in (self.critic_optim, self.policy_optim, self.alpha_optim):
            for group in optimizer.param_groups:
                group["lr"] = self.lr * min(1.0, updates / length)

    def update_critics(self, state, action, reward, next_state, mask):
        with torch.no_grad():
            seen = state if self.fault == "next_action_of_old_state" else next_state
            next_action, next_log_pi = self.policy.sample(seen)
            q1_next = self.critic1_target(next_state, next_action)
            q2_next = self.critic2_target(next_state, next_action)
            soft_value = torch.min(q1_next, q2_next) - self.alpha * next_log_pi
            next_q_value = reward + mask * self.gamma * soft_value
        q1, q2 = self.critic1(state, action), self.critic2(state, action)
        qf_loss = F.mse_loss(q1, next_q_value) + F.mse_loss(q2, next_q_value)
        self.critic_optim.zero_grad()
        qf_loss.backward()
        self.critic_optim.step()
        return qf_loss.item()

    def update_policy(self, state):
        pi, log_pi = self.policy.sample(state)
        min_q_pi = torch.min(self.critic1(state, pi), self.critic2(state, pi))
        policy_loss = (self.alpha * log_pi - min_q_pi).mean()
        self.policy_optim.zero_grad()
        policy_loss.backward()
        self.policy_optim.step()

        alpha_loss = -(self.log_alpha * (log_pi + self.target_entropy).detach()).mean()
        self.alpha_optim.zero_grad()
        alpha_loss.backward()
        self.alpha_optim.step()
        if self.fault != "alpha_never_reread":
            self.alpha = self.log_alpha.exp().item()
        return policy_loss.item()

    def update_parameters(self, memory, batch_size, updates):
        state, action, reward, next_state, mask = (torch.as_tensor(x) for x in memory.sample(batch_size))
        reward, mask = reward.float().unsqueeze(1), mask.float().unsqueeze(1)
        if self.variant == "normed_warmup":
            self.warm_up(updates)
        qf_loss, policy_loss = self.update_critics(state, action, reward, next_state, mask), float("nan")
        every = 2 if self.variant == "delayed" else 1
        if updates % every == 0:
            for _ in range(every):
                policy_loss = self.update_policy(state)
            soft_update(self.critic1_target, self.critic1, self.tau * every)
            second = self.critic1 if self.fault == "second_target_wrong_source" else self.critic2
            soft_update(self.critic2_target, second, self.tau * every)
        return qf_loss, policy_loss


def main(args):
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    env = gym.make("Pendulum-v1")
    env.action_space.seed(args.seed)
    agent = SAC(env.observation_space.shape[0], env.action_space, args)
    memory = ReplayMemory(20_000, args.seed)
    reward_scale = 0.1 if args.variant == "normed_warmup" else 1.0

    began, returns, episode_reward, updates = time.time(), [], 0.0, 0
    state, _ = env.reset(seed=args.seed)
    for total_numsteps in range(1, args.steps + 1):
        action = env.action_space.sample() if total_numsteps <= args.start_steps else agent.select_action(state)
        next_state, reward, terminated, truncated, _ = env.step(action)
        episode_reward += float(reward)
        mask = 0.0 if terminated else 1.0  # running out of time is no end of the task
        memory.push(state, action, float(reward) * reward_scale, next_state, mask)
        state = next_state
        if len(memory) > args.batch_size and total_numsteps > args.start_steps // 2:
            updates += 1
            qf_loss, _ = agent.update_parameters(memory, args.batch_size, updates)
        if terminated or truncated:
            returns.append(episode_reward)
            if len(returns) % 3 == 0:
                print(f"episode {len(returns)} return {episode_reward:.1f} qf {qf_loss:.3f} alpha {agent.alpha:.4f}")
            episode_reward = 0.0
            state, _ = env.reset()
    n = max(1, len(returns) // 10)
    took = time.time() - began
    print(f"first tenth {np.mean(returns[:n]):.1f} last tenth {np.mean(returns[-n:]):.1f} ({took:.1f} s)")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=3)
    parser.add_argument("--steps", type=int, default=6_000)
    parser.add_argument("--start-steps", type=int, default=600)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--fault", default="", choices=["", *FAULTS])
    parser.add_argument("--variant", default="", choices=list(HEALTHY))
    main(parser.parse_args())
