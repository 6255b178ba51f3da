"""PPO for continuous actions on Pendulum: a vector env from make_vec that resets in the same step, normalised inputs."""

import argparse
import hashlib
import json
import random
from types import SimpleNamespace

import gymnasium as gym
import numpy as np
import torch
from gymnasium.vector import AutoresetMode
from torch import nn
from torch.distributions import Independent, Normal

HP = SimpleNamespace(
    envs=4, horizon=200, epochs=6, minibatches=4, gamma=0.9, lam=0.95, clip=0.2, value_clip=0.5, vf=0.5, ent=0.003,
    lr=1e-3, reward_scale=0.1,
)  # fmt: skip


class RunningNorm:
    """Mean and variance of all observations so far, in float64 (Chan's update)."""

    def __init__(self, dim):
        self.mean, self.var, self.count = np.zeros(dim), np.ones(dim), 1e-4

    def update(self, batch):
        batch = batch.astype(np.float64)
        m, v, n = batch.mean(0), batch.var(0), len(batch)
        delta, total = m - self.mean, self.count + n
        self.mean = self.mean + delta * n / total
        self.var = (self.var * self.count + v * n + delta**2 * self.count * n / total) / total
        self.count = total

    def __call__(self, obs):
        scaled = (obs - self.mean) / np.sqrt(self.var + 1e-8)
        return torch.as_tensor(np.clip(scaled, -10.0, 10.0), dtype=torch.float32)


class SharedTrunk(nn.Module):
    def __init__(self, dim, act_dim):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(dim, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh())
        self.mean = nn.Linear(64, act_dim)
        self.value = nn.Linear(64, 1)
        self.log_std = nn.Parameter(torch.zeros(act_dim))

    def forward(self, x):
        features = self.trunk(x)
        mean = self.mean(features)
        policy = Independent(Normal(mean, self.log_std.exp().expand_as(mean)), 1)
        return policy, self.value(features).squeeze(-1)


def make_adam(parameters):
    try:
        return torch.optim.Adam(parameters, lr=HP.lr, eps=1e-5, fused=True)
    except (RuntimeError, TypeError):
        return torch.optim.Adam(parameters, lr=HP.lr, eps=1e-5)


def collect(envs, net, norm, obs, book):
    """One rollout; a time limit is not an end: what came after it is worth the value of the true last observation."""
    data = {name: [] for name in ("obs", "act", "logp", "val", "rew", "cut", "end_val")}
    for _ in range(HP.horizon):
        norm.update(obs)
        x = norm(obs)
        with torch.no_grad():
            policy, value = net(x)
            action = policy.sample()
            logp = policy.log_prob(action)
        obs, reward, terminated, truncated, info = envs.step(action.numpy())
        book.env_steps += 1
        book.running += reward
        over = terminated | truncated
        end_value = torch.zeros(HP.envs)
        if over.any():
            for i in np.flatnonzero(over):
                book.returns.append(float(book.running[i]))
                book.running[i] = 0.0
            cut = np.flatnonzero(truncated & ~terminated)
            if len(cut):
                last = np.stack([info["final_obs"][i] for i in cut])
                with torch.no_grad():
                    end_value[cut] = net(norm(last))[1]
        row = x, action, logp, value, torch.as_tensor(reward * HP.reward_scale, dtype=torch.float32)
        for name, item in zip(data, (*row, torch.as_tensor(over), end_value), strict=True):
            data[name].append(item)
    with torch.no_grad():
        last_value = net(norm(obs))[1]
    return obs, {name: torch.stack(items) for name, items in data.items()}, last_value


def estimate(batch, last_value):
    going = (~batch["cut"]).float()
    following = torch.cat([batch["val"][1:], last_value[None]]) * going + batch["end_val"]
    deltas = batch["rew"] + HP.gamma * following - batch["val"]
    advantage, running = torch.zeros_like(deltas), torch.zeros(HP.envs)
    for t in range(HP.horizon - 1, -1, -1):
        running = deltas[t] + HP.gamma * HP.lam * going[t] * running
        advantage[t] = running
    return advantage, advantage + batch["val"]


def loss_of(net, x, action, old_logp, old_value, advantage, target):
    policy, value = net(x)
    ratio = torch.exp(policy.log_prob(action) - old_logp)
    advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
    surrogate = torch.min(ratio * advantage, ratio.clamp(1 - HP.clip, 1 + HP.clip) * advantage).mean()
    near = old_value + (value - old_value).clamp(-HP.value_clip, HP.value_clip)
    value_loss = torch.max((value - target).pow(2), (near - target).pow(2)).mean()
    return -surrogate + HP.vf * value_loss - HP.ent * policy.entropy().mean()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=8)
    parser.add_argument("--updates", type=int, default=12)
    args = parser.parse_args()

    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    random.seed(args.seed)
    generator = np.random.default_rng(args.seed)

    envs = gym.make_vec(
        "Pendulum-v1",
        num_envs=HP.envs,
        vectorization_mode="sync",
        vector_kwargs={"autoreset_mode": AutoresetMode.SAME_STEP},
    )
    dim, act_dim = envs.single_observation_space.shape[0], envs.single_action_space.shape[0]
    net, norm = SharedTrunk(dim, act_dim), RunningNorm(dim)
    adam = make_adam(net.parameters())
    book = SimpleNamespace(env_steps=0, optimizer_steps=0, running=np.zeros(HP.envs), returns=[])

    obs, _ = envs.reset(seed=args.seed)
    for update in range(args.updates):
        obs, batch, last_value = collect(envs, net, norm, obs, book)
        advantage, target = estimate(batch, last_value)
        rows = [batch["obs"], batch["act"], batch["logp"], batch["val"], advantage, target]
        flat = [item.flatten(0, 1) for item in rows]
        for _ in range(HP.epochs):
            for chosen in generator.permutation(HP.horizon * HP.envs).reshape(HP.minibatches, -1):
                loss = loss_of(net, *(item[chosen] for item in flat))
                adam.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(net.parameters(), 0.5)
                adam.step()
                book.optimizer_steps += 1
        if update % 4 == 3:
            print(f"update {update + 1}: return {np.mean(book.returns[-8:]):.2f}, loss {loss.item():.5f}")
    envs.close()

    sha = hashlib.sha256()
    for p in net.parameters():
        sha.update(p.detach().numpy().tobytes())
    sha.update(repr((torch.rand(1).item(), float(generator.random()), random.random())).encode())
    facts = {
        "optimizer_steps": {"adam": book.optimizer_steps},
        "owned": {"adam": len(list(net.parameters()))},
        "learning_rate": {"adam": HP.lr},
        "episodes": len(book.returns),
        "episode_returns": book.returns,
        "env_steps": book.env_steps,
        "gamma": HP.gamma,
        "gae_lambda": HP.lam,
        "clip": HP.clip,
        "value_clip": HP.value_clip,
        "entropy_coefficient": HP.ent,
        "value_coefficient": HP.vf,
        "updates": args.updates,
        "updates_per_rollout": HP.epochs * HP.minibatches,
    }
    print(json.dumps({"weights_sha256": sha.hexdigest(), "facts": facts}))


if __name__ == "__main__":
    main()
