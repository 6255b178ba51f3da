"""TD3 on a small 2-D reaching task (a damped point mass that has to get to a random goal).

Everything that can be tuned lives in CONFIG; the classes below only read from it.

    python td3_reach.py --seed 3 --steps 6000
"""

import argparse
import copy
import random

import gymnasium as gym
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

FAULTS = {
    "q2_copy_paste": ["weights", "broken", "the loss of the second critic is written with q1, so q2 is never trained"],
    "blend_swapped": [
        "targets",
        "broken",
        "source and destination of the soft update are swapped: the online nets are pulled to the frozen targets",
    ],
    "frozen_target_actor": [
        "targets",
        "broken",
        "only the critic's target is blended, the target actor stays at its initial weights",
    ],
    "obs_rolled_early": [
        "returns",
        "broken",
        "obs = next_obs is done before the transition is stored, so obs and next_obs are the same",
    ],
    "stored_before_noise": [
        "goal",
        "broken",
        "the replay holds the actor's output, not the noisy action that was executed",
    ],
    "stale_actor_grads": [
        "signs",
        "broken",
        "critic gradients are cleared after its step only, so those of the actor loss leak into the next critic step",
    ],
    "shuffled_fields": [
        "returns",
        "broken",
        "every field of the replay is drawn with its own random indices, so transitions are torn apart",
    ],
    "hover_pay": [
        "goal",
        "not proven",
        "reward is 1 - distance and the goal ends the episode, so hovering beside the goal pays best",
    ],
}
HEALTHY = {
    "": "plain",
    "hard_sync": "targets are copied whole every 250 updates instead of being blended",
    "frozen_first": "the first layer of the actor is a fixed random projection, on purpose",
    "warmup": "learning rates rise linearly from 0 over the first 1000 updates",
    "ema": "a moving average of the actor is kept beside it and used for the final evaluation",
}

CONFIG = {
    "env": {"max_steps": 50, "radius": 0.12, "force": 0.04, "damping": 0.7},
    "actor": {"hidden": 64, "lr": 1e-3},
    "critic": {"hidden": 96, "lr": 1e-3},
    "replay": {"capacity": 50_000, "batch": 128},
    "td3": {"gamma": 0.97, "tau": 0.01, "delay": 2, "target_noise": 0.2, "noise_clip": 0.5},
    "explore": {"random_steps": 800, "sigma": 0.25},
}


class ReachEnv(gym.Env):
    """Point mass in the unit box. Observation: position, velocity, offset to the goal."""

    def __init__(self, radius, force, damping, hover_pay=False):
        self.radius, self.force, self.damping, self.hover_pay = radius, force, damping, hover_pay
        self.observation_space = gym.spaces.Box(-4.0, 4.0, (6,), np.float32)
        self.action_space = gym.spaces.Box(-2.0, 2.0, (2,), np.float32)

    def _obs(self):
        return np.concatenate([self.pos, self.vel * 5.0, self.goal - self.pos]).astype(np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.vel = np.zeros(2)
        self.pos = self.np_random.uniform(-0.9, 0.9, 2)
        self.goal = self.np_random.uniform(-0.9, 0.9, 2)
        while np.linalg.norm(self.goal - self.pos) < 0.5:
            self.goal = self.np_random.uniform(-0.9, 0.9, 2)
        return self._obs(), {}

    def step(self, action):
        force = np.clip(action, -2.0, 2.0)
        self.vel = self.damping * self.vel + self.force * force
        moved = self.pos + self.vel
        self.pos = np.clip(moved, -1.0, 1.0)
        self.vel[moved != self.pos] = 0.0  # walls are sticky
        dist = float(np.linalg.norm(self.goal - self.pos))
        reached = dist < self.radius
        reward = -dist + (2.0 if reached else 0.0)
        if self.hover_pay:
            reward = 1.0 - dist
        return self._obs(), reward, reached, False, {"is_success": reached}


class Actor(nn.Module):
    def __init__(self, obs_dim, act_dim, limit, hidden):
        super().__init__()
        self.limit = limit
        self.net = nn.Sequential(
            nn.Linear(obs_dim, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, act_dim)
        )

    def forward(self, obs):
        return self.limit * torch.tanh(self.net(obs))


class Critic(nn.Module):
    """Both Q functions in one module, as in the TD3 paper's code."""

    def __init__(self, obs_dim, act_dim, hidden):
        super().__init__()

        def tower():
            return nn.Sequential(
                nn.Linear(obs_dim + act_dim, hidden),
                nn.ReLU(),
                nn.Linear(hidden, hidden),
                nn.ReLU(),
                nn.Linear(hidden, 1),
            )

        self.first, self.second = tower(), tower()

    def forward(self, obs, act):
        x = torch.cat([obs, act], dim=-1)
        return self.first(x), self.second(x)

    def q1(self, obs, act):
        return self.first(torch.cat([obs, act], dim=-1))


class Replay:
    def __init__(self, capacity, obs_dim, act_dim, rng, torn=False):
        widths = {"obs": obs_dim, "act": act_dim, "rew": 1, "next_obs": obs_dim, "terminal": 1}
        self.store = {k: np.zeros((capacity, w), np.float32) for k, w in widths.items()}
        self.capacity, self.rng, self.torn = capacity, rng, torn
        self.head, self.size = 0, 0

    def add(self, **fields):
        for key, value in fields.items():
            self.store[key][self.head] = value
        self.head = (self.head + 1) % self.capacity
        self.size = min(self.size + 1, self.capacity)

    def sample(self, n):
        if self.torn:
            return {k: torch.as_tensor(v[self.rng.integers(0, self.size, n)]) for k, v in self.store.items()}
        rows = self.rng.integers(0, self.size, n)
        return {k: torch.as_tensor(v[rows]) for k, v in self.store.items()}


def blend(source, destination, tau):
    """destination <- (1 - tau) * destination + tau * source"""
    with torch.no_grad():
        for s, d in zip(source.parameters(), destination.parameters(), strict=True):
            d.lerp_(s, tau)


class TD3:
    def __init__(self, cfg, obs_dim, act_dim, limit, fault, variant):
        self.cfg, self.limit, self.fault, self.variant = cfg["td3"], limit, fault, variant
        self.actor = Actor(obs_dim, act_dim, limit, cfg["actor"]["hidden"])
        self.critic = Critic(obs_dim, act_dim, cfg["critic"]["hidden"])
        if variant == "frozen_first":
            self.actor.net[0].requires_grad_(False)
        self.actor_target = copy.deepcopy(self.actor).requires_grad_(False)
        self.critic_target = copy.deepcopy(self.critic).requires_grad_(False)
        self.actor_avg = copy.deepcopy(self.actor).requires_grad_(False) if variant == "ema" else None
        trainable = [p for p in self.actor.parameters() if p.requires_grad]
        self.actor_opt = torch.optim.Adam(trainable, lr=cfg["actor"]["lr"])
        self.critic_opt = torch.optim.Adam(self.critic.parameters(), lr=cfg["critic"]["lr"])
        ramp = 1000 if variant == "warmup" else 0  # in critic updates; the actor has fewer of them
        self.critic_lr = torch.optim.lr_scheduler.LambdaLR(
            self.critic_opt, lambda k: min(1.0, k / ramp) if ramp else 1.0
        )
        self.actor_lr = torch.optim.lr_scheduler.LambdaLR(
            self.actor_opt, lambda k: min(1.0, k * self.cfg["delay"] / ramp) if ramp else 1.0
        )
        self.updates = 0

    @torch.no_grad()
    def act(self, obs, sigma, rng):
        mean = self.actor(torch.as_tensor(obs).unsqueeze(0))[0].numpy()
        noisy = mean + rng.normal(0.0, sigma * self.limit, mean.shape)
        return np.clip(noisy, -self.limit, self.limit).astype(np.float32), mean

    def update(self, batch):
        c = self.cfg
        self.updates += 1
        with torch.no_grad():
            jitter = torch.randn_like(batch["act"]) * c["target_noise"]
            jitter = jitter.clamp(-c["noise_clip"], c["noise_clip"]) * self.limit
            next_act = (self.actor_target(batch["next_obs"]) + jitter).clamp(-self.limit, self.limit)
            next_q = torch.min(*self.critic_target(batch["next_obs"], next_act))
            goal = batch["rew"] + c["gamma"] * (1.0 - batch["terminal"]) * next_q

        q1, q2 = self.critic(batch["obs"], batch["act"])
        if self.fault == "q2_copy_paste":
            critic_loss = F.mse_loss(q1, goal) + F.mse_loss(q1, goal)
        else:
            critic_loss = F.mse_loss(q1, goal) + F.mse_loss(q2, goal)
        if self.fault != "stale_actor_grads":
            self.critic_opt.zero_grad()
        critic_loss.backward()
        self.critic_opt.step()
        self.critic_lr.step()
        if self.fault == "stale_actor_grads":
            self.critic_opt.zero_grad()

        if self.updates % c["delay"] == 0:
            actor_loss = -self.critic.q1(batch["obs"], self.actor(batch["obs"])).mean()
            self.actor_opt.zero_grad()
            actor_loss.backward()
            self.actor_opt.step()
            self.actor_lr.step()
            self.refresh_targets()
            if self.actor_avg is not None:
                blend(self.actor, self.actor_avg, 0.005)
        return float(critic_loss.detach())

    def refresh_targets(self):
        tau = self.cfg["tau"]
        if self.variant == "hard_sync":
            if self.updates % 250 == 0:
                self.critic_target.load_state_dict(self.critic.state_dict())
                self.actor_target.load_state_dict(self.actor.state_dict())
            return
        if self.fault == "blend_swapped":
            blend(self.critic_target, self.critic, tau)
            blend(self.actor_target, self.actor, tau)
            return
        blend(self.critic, self.critic_target, tau)
        if self.fault != "frozen_target_actor":
            blend(self.actor, self.actor_target, tau)


def make_env(cfg, fault):
    e = cfg["env"]
    env = ReachEnv(e["radius"], e["force"], e["damping"], hover_pay=fault == "hover_pay")
    return gym.wrappers.TimeLimit(env, e["max_steps"])


def evaluate(policy, cfg, fault, seed, episodes=10):
    env, total = make_env(cfg, fault), 0.0
    for k in range(episodes):
        obs, _ = env.reset(seed=seed + k)
        over = False
        while not over:
            with torch.no_grad():
                action = policy(torch.as_tensor(obs).unsqueeze(0))[0].numpy()
            obs, reward, terminated, truncated, _ = env.step(action)
            total += reward
            over = terminated or truncated
    return total / episodes


def run(cfg, seed, steps, fault="", variant=""):
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002
    torch.manual_seed(seed)
    torch.set_num_threads(1)
    rng = np.random.default_rng(seed)
    env = make_env(cfg, fault)
    env.action_space.seed(seed)
    obs_dim, act_dim = env.observation_space.shape[0], env.action_space.shape[0]
    agent = TD3(cfg, obs_dim, act_dim, float(env.action_space.high[0]), fault, variant)
    replay = Replay(cfg["replay"]["capacity"], obs_dim, act_dim, rng, torn=fault == "shuffled_fields")

    obs, _ = env.reset(seed=seed)
    episode_return, history, loss = 0.0, [], 0.0
    for step in range(1, steps + 1):
        if step <= cfg["explore"]["random_steps"]:
            action = mean = env.action_space.sample()
        else:
            action, mean = agent.act(obs, cfg["explore"]["sigma"], rng)
        next_obs, reward, terminated, truncated, _ = env.step(action)
        episode_return += reward
        if fault == "obs_rolled_early":
            obs = next_obs
        kept = mean if fault == "stored_before_noise" else action
        replay.add(obs=obs, act=kept, rew=reward, next_obs=next_obs, terminal=float(terminated))
        obs = next_obs
        if terminated or truncated:
            history.append(episode_return)
            episode_return = 0.0
            obs, _ = env.reset()
        if step > cfg["explore"]["random_steps"]:
            loss = agent.update(replay.sample(cfg["replay"]["batch"]))
        if step % 1000 == 0:
            print(
                f"[{step:6d}] episodes {len(history):4d}  return(20) {np.mean(history[-20:]):8.2f}  critic {loss:.4f}"
            )

    fifth = max(1, len(history) // 5)
    print(f"return: first fifth {np.mean(history[:fifth]):.2f}, last fifth {np.mean(history[-fifth:]):.2f}")
    final = agent.actor_avg if agent.actor_avg is not None else agent.actor
    print(f"evaluation: {evaluate(final, cfg, fault, seed + 1000):.2f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=6000)
    parser.add_argument("--fault", default="", choices=["", *FAULTS])
    parser.add_argument("--variant", default="", choices=list(HEALTHY))
    options = parser.parse_args()
    run(CONFIG, options.seed, options.steps, options.fault, options.variant)
