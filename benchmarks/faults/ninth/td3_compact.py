"""TD3, compact: a boat in a plane drives to its berth against a current, with two thrusters and 30 strokes of time."""

import argparse
import copy
import time

import gymnasium as gym
import numpy as np
import torch
from torch import nn, optim

FAULTS = {
    "second_critic_idle": [
        "weights",
        "broken",
        "the critics' optimizer gets the parameters of the first critic only; the second stays as it was born",
    ],
    "shallow_copy": [
        "targets",
        "broken",
        "the targets are made with copy.copy, which shares the layers: they are always the online networks",
    ],
    "follows_itself": [
        "targets",
        "broken",
        "the actor's target is mixed with itself instead of the actor, so that it never leaves its start",
    ],
    "clock_is_death": [
        "returns",
        "broken",
        "episodes stopped by the time limit are stored as terminal, so their last state is worth nothing",
    ],
    "one_twin": [
        "signs",
        "broken",
        "both of the twin values come from the first critic, so that the minimum is of one critic with itself",
    ],
    "actor_leftovers": [
        "signs",
        "broken",
        "gradients are cleared after each step and not before, so the actor's pass leaks into the critics' next step",
    ],
    "centimetres": [
        "goal",
        "not proven",
        "the berth's size is given in centimetres in a world of metres: the boat has arrived wherever it is",
    ],
}
HEALTHY = {
    "": "plain: twin critics, delayed actor, smoothed targets, rewards that are never positive",
    "hard_copy": "the targets are copied whole, once in 200 updates, instead of a little each time",
    "warm_decay": "the rates climb from zero, AdamW with weight decay, Huber loss for the critics",
    "scaled": "layer norm in the critics, and sampled rewards divided by the deviation of those in memory",
}


class Berth(gym.Env):
    """Costs its distance and its effort per stroke until it arrives; arriving ends the episode, so does the clock."""

    def __init__(self, radius=0.25, limit=30):
        self.observation_space = gym.spaces.Box(-np.inf, np.inf, (6,), np.float32)
        self.action_space = gym.spaces.Box(-1.0, 1.0, (2,), np.float32)
        self.radius, self.limit = radius, limit

    def _view(self):
        return np.concatenate([self.place, self.speed, self.current]).astype(np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        angle, away = self.np_random.uniform(-np.pi, np.pi), self.np_random.uniform(1.0, 3.0)
        self.place = away * np.array([np.cos(angle), np.sin(angle)])
        self.speed = self.np_random.normal(0.0, 0.3, 2)
        self.current = self.np_random.uniform(-0.04, 0.04, 2)
        self.clock = 0
        return self._view(), {}

    def step(self, action):
        action = np.clip(action, -1.0, 1.0)
        self.speed = 0.85 * self.speed + 0.2 * action
        self.place = self.place + 0.12 * self.speed + self.current
        self.clock += 1
        away = float(np.linalg.norm(self.place))
        arrived = away < self.radius
        reward = 0.0 if arrived else -0.2 * away - 0.05 * float(action @ action)
        return self._view(), reward, arrived, self.clock >= self.limit, {}


class Memory:
    def __init__(self, size, n_obs, n_act):
        self.rows = np.zeros((size, 2 * n_obs + n_act + 2), dtype=np.float32)
        self.cuts = np.cumsum([n_obs, n_act, 1, n_obs])
        self.size, self.n = size, 0

    def add(self, obs, act, reward, next_obs, dead):
        self.rows[self.n % self.size] = np.concatenate([obs, act, [reward], next_obs, [dead]])
        self.n += 1

    def sample(self, count):
        rows = self.rows[np.random.randint(0, min(self.n, self.size), count)]  # noqa: NPY002
        return [torch.from_numpy(part) for part in np.split(rows, self.cuts, axis=1)]

    def reward_deviation(self):
        return float(self.rows[: min(self.n, self.size), self.cuts[1]].std()) + 1e-3


def mlp(n_in, n_out, width=64, norm=False):
    between = [nn.LayerNorm(width)] if norm else []
    return nn.Sequential(
        nn.Linear(n_in, width), *between, nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, n_out)
    )


class Actor(nn.Module):
    def __init__(self, n_obs, n_act):
        super().__init__()
        self.body = mlp(n_obs, n_act)

    def forward(self, obs):
        return self.body(obs).tanh()


class Twins(nn.Module):
    def __init__(self, n_obs, n_act, norm=False, same=False):
        super().__init__()
        self.q1, self.q2 = mlp(n_obs + n_act, 1, norm=norm), mlp(n_obs + n_act, 1, norm=norm)
        self.same = same

    def forward(self, obs, act):
        x = torch.cat([obs, act], dim=-1)
        if self.same:
            return self.q1(x), self.q1(x)
        return self.q1(x), self.q2(x)


class TD3:
    gamma, tau, delay, smooth, smooth_clip, lr = 0.97, 0.01, 2, 0.2, 0.4, 1e-3

    def __init__(self, n_obs, n_act, fault, variant):
        self.fault, self.variant = fault, variant
        self.actor = Actor(n_obs, n_act)
        self.critic = Twins(n_obs, n_act, norm=variant == "scaled", same=fault == "one_twin")
        clone = copy.copy if fault == "shallow_copy" else copy.deepcopy
        self.actor_target, self.critic_target = clone(self.actor), clone(self.critic)

        learnt = self.critic.q1 if fault == "second_critic_idle" else self.critic
        if variant == "warm_decay":
            self.actor_opt = optim.AdamW(self.actor.parameters(), lr=self.lr, weight_decay=1e-2)
            self.critic_opt = optim.AdamW(learnt.parameters(), lr=self.lr, weight_decay=1e-2)
            self.warmups = [
                optim.lr_scheduler.LambdaLR(self.actor_opt, lambda n: min(1.0, n / 250)),
                optim.lr_scheduler.LambdaLR(self.critic_opt, lambda n: min(1.0, n / 500)),
            ]
        else:
            self.actor_opt = optim.Adam(self.actor.parameters(), lr=self.lr)
            self.critic_opt = optim.Adam(learnt.parameters(), lr=self.lr)
            self.warmups = []
        self.distance = nn.HuberLoss() if variant == "warm_decay" else nn.MSELoss()
        self.updates = 0

    @torch.no_grad()
    def act(self, obs, noise=0.0):
        action = self.actor(torch.from_numpy(obs)).numpy()
        return np.clip(action + noise * np.random.randn(*action.shape), -1.0, 1.0)  # noqa: NPY002

    def descend(self, opt, loss):
        if self.fault != "actor_leftovers":
            opt.zero_grad()
        loss.backward()
        opt.step()
        if self.fault == "actor_leftovers":
            opt.zero_grad()

    def update(self, memory, batch=128):
        obs, act, reward, next_obs, dead = memory.sample(batch)
        if self.variant == "scaled":
            reward = reward / memory.reward_deviation()
        with torch.no_grad():
            jitter = (self.smooth * torch.randn_like(act)).clamp(-self.smooth_clip, self.smooth_clip)
            next_act = (self.actor_target(next_obs) + jitter).clamp(-1.0, 1.0)
            worth = torch.min(*self.critic_target(next_obs, next_act))
            target = reward + self.gamma * (1.0 - dead) * worth
        q1, q2 = self.critic(obs, act)
        critic_loss = self.distance(q1, target) + self.distance(q2, target)
        self.descend(self.critic_opt, critic_loss)
        self.updates += 1
        if self.warmups:
            self.warmups[1].step()

        if self.updates % self.delay == 0:
            actor_loss = -self.critic(obs, self.actor(obs))[0].mean()
            self.descend(self.actor_opt, actor_loss)
            if self.warmups:
                self.warmups[0].step()
            if self.variant != "hard_copy":
                self.follow(self.actor_target, self.actor_target if self.fault == "follows_itself" else self.actor)
                self.follow(self.critic_target, self.critic)
        if self.variant == "hard_copy" and self.updates % 200 == 0:
            self.actor_target.load_state_dict(self.actor.state_dict())
            self.critic_target.load_state_dict(self.critic.state_dict())
        return critic_loss.item()

    @torch.no_grad()
    def follow(self, slow, fast):
        for s, f in zip(slow.parameters(), fast.parameters(), strict=True):
            s.lerp_(f, self.tau)


def evaluate(agent, fault, episodes=20):
    env, total = make_env(fault), 0.0
    for k in range(episodes):
        obs, over = env.reset(seed=50_000 + k)[0], False
        while not over:
            obs, reward, terminated, truncated, _ = env.step(agent.act(obs))
            total, over = total + reward, terminated or truncated
    return total / episodes


def make_env(fault):
    return Berth(radius=25.0) if fault == "centimetres" else Berth()


def train(seed, fault, variant, steps=9_000, random_steps=1_000, noise=0.15):
    env = make_env(fault)
    n_obs, n_act = env.observation_space.shape[0], env.action_space.shape[0]
    agent, memory = TD3(n_obs, n_act, fault, variant), Memory(steps, n_obs, n_act)
    env.action_space.seed(seed)
    obs, _ = env.reset(seed=seed)
    history, score, arrivals, loss = [], 0.0, 0, 0.0
    for step in range(1, steps + 1):
        act = env.action_space.sample() if step <= random_steps else agent.act(obs, noise)
        next_obs, reward, terminated, truncated, _ = env.step(act)
        dead = (terminated or truncated) if fault == "clock_is_death" else terminated
        memory.add(obs, act, reward, next_obs, float(dead))
        score, obs = score + reward, next_obs
        if terminated or truncated:
            history.append(score)
            arrivals += terminated
            score = 0.0
            obs, _ = env.reset()
        if step > random_steps:
            loss = agent.update(memory)
        if step % 500 == 0:
            recent = np.mean(history[-20:])
            print(f"step {step:5d} return {recent:7.2f} critic loss {loss:.4f} arrived {arrivals}/{len(history)}")
    print(f"without noise: {evaluate(agent, fault):.2f}")
    return history


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--fault", default="", choices=["", *FAULTS])
    parser.add_argument("--variant", default="", choices=list(HEALTHY))
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    np.random.seed(args.seed)  # noqa: NPY002
    began = time.time()
    returns = train(args.seed, args.fault, args.variant)
    print(f"first 30: {np.mean(returns[:30]):.2f}, last 30: {np.mean(returns[-30:]):.2f}, {time.time() - began:.1f} s")
