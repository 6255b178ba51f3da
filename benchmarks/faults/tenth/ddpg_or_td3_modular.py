"""TD3 on Pendulum-v1 in small pieces: actor, critics, memory, noise, agent, loop.

The pendulum is cut off after 100 steps; that is a time limit and not an end, so next values are kept there.
"""

# ruff: noqa: B905, E402, NPY002
FAULTS = {
    "twin_is_same": ["signs", "broken", "the minimum in the target is taken over the first critic twice"],
    "target_shallow_copy": [
        "targets",
        "broken",
        "target critics are made with copy.copy, so they hold the very parameters of the online critics",
    ],
    "row_across_episodes": [
        "returns",
        "broken",
        "the row of an episode's last step holds the observation after the reset as its next observation",
    ],
    "stale_critic_grads": [
        "signs",
        "broken",
        "critic gradients are cleared after the critic step only, so what the actor loss leaves in them is applied",
    ],
    "second_critic_forgotten": [
        "weights",
        "broken",
        "the critic optimizer is given the first critic's parameters only, so the second never trains",
    ],
    "best_not_copied": [
        "rates",
        "broken",
        "the best actor is kept as a live state_dict, so restoring it at the end changes nothing",
    ],
    "myopic": ["goal", "not proven", "the discount is zero, so the agent only minds the cost of this instant"],
}
HEALTHY = {
    "": "plain: TD3 with Polyak targets, delayed policy updates and Gaussian exploration",
    "hard_sync": "targets are copied whole every 150 updates in place of Polyak averaging",
    "ou_noise": "exploration noise is a correlated (Ornstein-Uhlenbeck) process, reset with each episode",
    "ema_eval": "evaluation uses a moving average of the actor's weights kept beside the actor",
}

import argparse
import copy
import random
from collections import deque, namedtuple

import gymnasium as gym
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

Row = namedtuple("Row", "obs action reward next_obs terminal")


# --- networks -----------------------------------------------------------------------------------------------


class Actor(nn.Module):
    def __init__(self, obs_dim, act_dim, bound, hidden=64):
        super().__init__()
        self.bound = bound
        self.body = nn.Sequential(nn.Linear(obs_dim, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU())
        self.mu = nn.Linear(hidden, act_dim)
        nn.init.uniform_(self.mu.weight, -3e-3, 3e-3)

    def forward(self, obs):
        return self.bound * torch.tanh(self.mu(self.body(obs)))


class Critic(nn.Module):
    def __init__(self, obs_dim, act_dim, hidden=64):
        super().__init__()
        self.l1 = nn.Linear(obs_dim + act_dim, hidden)
        self.l2 = nn.Linear(hidden, hidden)
        self.l3 = nn.Linear(hidden, 1)

    def forward(self, obs, action):
        h = F.relu(self.l1(torch.cat((obs, action), dim=1)))
        return self.l3(F.relu(self.l2(h))).squeeze(1)


def polyak(net, target, tau):
    with torch.no_grad():
        for p, q in zip(net.parameters(), target.parameters()):
            q.lerp_(p, tau)


# --- memory and noise ---------------------------------------------------------------------------------------


class Memory:
    def __init__(self, size):
        self.rows = deque(maxlen=size)

    def __len__(self):
        return len(self.rows)

    def add(self, *fields):
        self.rows.append(Row(*fields))

    def sample(self, n):
        picked = Row(*zip(*random.sample(self.rows, n)))
        return Row(*(torch.as_tensor(np.array(col, dtype=np.float32)) for col in picked))


class WhiteNoise:
    def __init__(self, dim, scale):
        self.dim, self.scale = dim, scale

    def reset(self):
        pass

    def __call__(self):
        return np.random.normal(0.0, self.scale, self.dim)


class OUNoise(WhiteNoise):
    theta, dt = 0.15, 1.0

    def __init__(self, dim, scale):
        super().__init__(dim, scale)
        self.reset()

    def reset(self):
        self.x = np.zeros(self.dim)

    def __call__(self):
        self.x = self.x - self.theta * self.x * self.dt + 0.5 * self.scale * np.random.normal(size=self.dim)
        return self.x


# --- agent --------------------------------------------------------------------------------------------------


class TD3:
    tau = 0.01
    delay = 2
    smooth, smooth_limit = 0.2, 0.5

    def __init__(self, obs_dim, act_dim, bound, fault, variant):
        self.fault, self.variant = fault, variant
        self.bound = bound
        self.gamma = 0.0 if fault == "myopic" else 0.97

        self.actor = Actor(obs_dim, act_dim, bound)
        self.q1 = Critic(obs_dim, act_dim)
        self.q2 = Critic(obs_dim, act_dim)
        clone = copy.copy if fault == "target_shallow_copy" else copy.deepcopy
        self.actor_target = copy.deepcopy(self.actor)
        self.q1_target = clone(self.q1)
        self.q2_target = clone(self.q2)
        self.actor_ema = copy.deepcopy(self.actor)

        critic_params = list(self.q1.parameters())
        if fault != "second_critic_forgotten":
            critic_params += list(self.q2.parameters())
        self.actor_opt = torch.optim.Adam(self.actor.parameters(), lr=1e-3)
        self.critic_opt = torch.optim.Adam(critic_params, lr=1e-3)
        self.updates = 0

    @torch.no_grad()
    def act(self, obs):
        return self.actor(torch.as_tensor(obs)[None])[0].numpy()

    @property
    def eval_net(self):
        return self.actor_ema if self.variant == "ema_eval" else self.actor

    @torch.no_grad()
    def act_eval(self, obs):
        return self.eval_net(torch.as_tensor(obs)[None])[0].numpy()

    @torch.no_grad()
    def td_target(self, batch):
        jitter = (torch.randn_like(batch.action) * self.smooth).clamp(-self.smooth_limit, self.smooth_limit)
        a = (self.actor_target(batch.next_obs) + jitter * self.bound).clamp(-self.bound, self.bound)
        first = self.q1_target(batch.next_obs, a)
        second = (self.q1_target if self.fault == "twin_is_same" else self.q2_target)(batch.next_obs, a)
        return batch.reward + self.gamma * (1.0 - batch.terminal) * torch.min(first, second)

    def learn(self, batch):
        self.updates += 1
        y = self.td_target(batch)
        critic_loss = F.mse_loss(self.q1(batch.obs, batch.action), y) + F.mse_loss(self.q2(batch.obs, batch.action), y)
        if self.fault == "stale_critic_grads":
            critic_loss.backward()
            self.critic_opt.step()
            self.critic_opt.zero_grad()
        else:
            self.critic_opt.zero_grad()
            critic_loss.backward()
            self.critic_opt.step()

        if self.updates % self.delay == 0:
            actor_loss = -self.q1(batch.obs, self.actor(batch.obs)).mean()
            self.actor_opt.zero_grad()
            actor_loss.backward()
            self.actor_opt.step()
            polyak(self.actor, self.actor_ema, 0.01)
            if self.variant != "hard_sync":
                self.sync(self.tau)
        if self.variant == "hard_sync" and self.updates % 150 == 0:
            self.sync(1.0)
        return critic_loss.item()

    def sync(self, tau):
        polyak(self.actor, self.actor_target, tau)
        polyak(self.q1, self.q1_target, tau)
        polyak(self.q2, self.q2_target, tau)


# --- loop ---------------------------------------------------------------------------------------------------


def evaluate(agent, env, episodes=4, seed=10_000):
    total = 0.0
    for k in range(episodes):
        obs, _ = env.reset(seed=seed + k)
        over = False
        while not over:
            obs, r, terminated, truncated, _ = env.step(agent.act_eval(obs))
            total += r
            over = terminated or truncated
    return total / episodes


def train(args):
    env = gym.make("Pendulum-v1", max_episode_steps=100)
    eval_env = gym.make("Pendulum-v1", max_episode_steps=100)
    env.action_space.seed(args.seed)
    bound = float(env.action_space.high[0])
    obs_dim, act_dim = env.observation_space.shape[0], env.action_space.shape[0]

    agent = TD3(obs_dim, act_dim, bound, args.fault, args.variant)
    memory = Memory(20_000)
    noise = (OUNoise if args.variant == "ou_noise" else WhiteNoise)(act_dim, 0.2 * bound)
    batch_size, random_steps = 64, 800

    best_score, best_weights = -np.inf, None
    returns, losses = deque(maxlen=10), deque(maxlen=500)
    obs, _ = env.reset(seed=args.seed)
    ep_return = 0.0
    for step in range(1, args.steps + 1):
        if step <= random_steps:
            action = env.action_space.sample()
        else:
            action = np.clip(agent.act(obs) + noise(), -bound, bound).astype(np.float32)
        next_obs, reward, terminated, truncated, _ = env.step(action)
        ep_return += reward

        if args.fault == "row_across_episodes":
            last_obs = obs
            if terminated or truncated:
                next_obs, _ = env.reset()
            memory.add(last_obs, action, 0.1 * reward, next_obs, terminated)
            obs = next_obs
        else:
            memory.add(obs, action, 0.1 * reward, next_obs, terminated)
            obs = env.reset()[0] if terminated or truncated else next_obs
        if terminated or truncated:
            returns.append(ep_return)
            ep_return = 0.0
            noise.reset()

        if step > random_steps:
            losses.append(agent.learn(memory.sample(batch_size)))

        if step % 600 == 0:
            score = evaluate(agent, eval_env)
            if score > best_score:
                best_score = score
                weights = agent.eval_net.state_dict()
                best_weights = weights if args.fault == "best_not_copied" else copy.deepcopy(weights)
            print(
                f"step {step:5d}  train return {np.mean(returns):8.1f}  eval {score:8.1f}  best {best_score:8.1f}  "
                f"critic loss {np.mean(losses) if losses else float('nan'):.4f}"
            )

    if best_weights is not None:
        agent.eval_net.load_state_dict(best_weights)
    print(f"final evaluation: {evaluate(agent, eval_env, episodes=10, seed=20_000):.1f}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--fault", default="", choices=["", *FAULTS])
    parser.add_argument("--variant", default="", choices=list(HEALTHY))
    parser.add_argument("--steps", type=int, default=5600)
    args = parser.parse_args()
    torch.set_num_threads(1)
    random.seed(args.seed)
    np.random.seed(args.seed)
    torch.manual_seed(args.seed)
    train(args)


if __name__ == "__main__":
    main()
