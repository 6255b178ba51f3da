"""Synchronous A2C on CartPole: sixteen poles side by side, one network with two heads, short rollouts."""

import argparse
import copy
import time

import gymnasium as gym
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.distributions import Categorical

FAULTS = {
    "heads_rebuilt": [
        "weights",
        "broken",
        "the heads are given their orthogonal start after the optimizer was made: it moves two heads nobody uses",
    ],
    "mask_of_before": [
        "returns",
        "broken",
        "the return of step t is cut by the mask stored before step t, not by the one stored after it",
    ],
    "env_major": [
        "shapes",
        "broken",
        "returns are flattened one environment after the other, observations one time step after the other",
    ],
    "leaky_advantage": [
        "signs",
        "broken",
        "the advantage is not detached, so the policy loss lifts the value of every state it visits",
    ],
    "decay_compounds": [
        "rates",
        "broken",
        "the linear decay multiplies the rate of the last update, not the first one: it is nothing soon after the start",
    ],
}
HEALTHY = {
    "": "plain: RMSprop, linear decay, clipped gradients, scaled rewards, values bootstrapped at the time limit",
    "normed": "running normalisation of observations, layer norm in the trunk, and averaged weights kept for the end",
    "sliced": "each rollout goes through in four slices with gradients added up, AMSGrad, warm-up from zero, Huber",
}


class ActorCritic(nn.Module):
    def __init__(self, n_obs, n_act, hidden=64, norm=False):
        super().__init__()
        self.n_act, self.hidden = n_act, hidden
        layers = [nn.Linear(n_obs, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh()]
        if norm:
            layers.insert(1, nn.LayerNorm(hidden))
        self.trunk = nn.Sequential(*layers)
        self.pi = nn.Linear(hidden, n_act)
        self.v = nn.Linear(hidden, 1)

    def start_heads(self):
        self.pi, self.v = nn.Linear(self.hidden, self.n_act), nn.Linear(self.hidden, 1)
        for head, gain in ((self.pi, 0.3), (self.v, 1.0)):
            nn.init.orthogonal_(head.weight, gain)
            nn.init.zeros_(head.bias)

    def forward(self, obs):
        h = self.trunk(obs)
        return Categorical(logits=self.pi(h)), self.v(h).squeeze(-1)


class RunningNorm:
    def __init__(self, size):
        self.mean, self.var, self.count = np.zeros(size), np.ones(size), 1e-2

    def update(self, x):
        n, m, v = len(x), x.mean(0), x.var(0)
        delta, total = m - self.mean, self.count + n
        self.var = (self.var * self.count + v * n + delta**2 * self.count * n / total) / total
        self.mean, self.count = self.mean + delta * n / total, total

    def __call__(self, x):
        return np.clip((x - self.mean) / np.sqrt(self.var + 1e-8), -6, 6)


class Storage:
    """T rows of N environments; obs and masks have one row more, which begins the next rollout."""

    def __init__(self, horizon, n_envs, n_obs):
        self.horizon = horizon
        self.obs = torch.zeros(horizon + 1, n_envs, n_obs)
        self.masks = torch.ones(horizon + 1, n_envs)
        self.actions = torch.zeros(horizon, n_envs, dtype=torch.long)
        self.rewards = torch.zeros(horizon, n_envs)
        self.returns = torch.zeros(horizon, n_envs)

    def fill_returns(self, last_value, gamma, fault):
        running = last_value
        for t in reversed(range(self.horizon)):
            alive = self.masks[t] if fault == "mask_of_before" else self.masks[t + 1]
            running = self.rewards[t] + gamma * running * alive
            self.returns[t] = running

    def roll_over(self):
        self.obs[0].copy_(self.obs[-1])
        self.masks[0].copy_(self.masks[-1])


class Runner:
    def __init__(self, envs, net, storage, gamma, norm, seed, scale=0.1):
        self.envs, self.net, self.mem, self.gamma, self.norm, self.scale = envs, net, storage, gamma, norm, scale
        first = np.stack([e.reset(seed=seed * 100 + i)[0] for i, e in enumerate(envs)])
        self.mem.obs[0] = self.seen(first)
        self.scores, self.finished = np.zeros(len(envs)), []

    def seen(self, obs, learn=True):
        if self.norm is not None:
            if learn:
                self.norm.update(obs)
            obs = self.norm(obs)
        return torch.as_tensor(obs, dtype=torch.float32)

    @torch.no_grad()
    def collect(self):
        mem = self.mem
        for t in range(mem.horizon):
            dist, _ = self.net(mem.obs[t])
            action = dist.sample()
            mem.actions[t] = action
            rows = []
            for i, (env, a) in enumerate(zip(self.envs, action.tolist(), strict=True)):
                obs, reward, terminated, truncated, _ = env.step(a)
                self.scores[i] += reward
                gain = reward * self.scale
                if truncated and not terminated:  # the pole still stands: what it was worth is paid out here
                    gain += self.gamma * self.net(self.seen(obs[None], learn=False))[1].item()
                mem.rewards[t, i] = gain
                over = terminated or truncated
                mem.masks[t + 1, i] = 0.0 if over else 1.0
                if over:
                    self.finished.append(self.scores[i])
                    self.scores[i] = 0.0
                    obs, _ = env.reset()
                rows.append(obs)
            mem.obs[t + 1] = self.seen(np.stack(rows))
        return self.net(mem.obs[-1])[1]


class Learner:
    def __init__(self, net, n_updates, fault, variant, lr=1e-3):
        self.net, self.n_updates, self.fault, self.variant, self.lr = net, n_updates, fault, variant, lr
        if fault != "heads_rebuilt":
            net.start_heads()
        if variant == "sliced":
            self.opt = torch.optim.Adam(net.parameters(), lr=lr, amsgrad=True)
        else:
            self.opt = torch.optim.RMSprop(net.parameters(), lr=lr, alpha=0.99, eps=1e-5)
        if fault == "heads_rebuilt":
            net.start_heads()

    def set_rate(self, update):
        left = 1.0 - update / self.n_updates
        for group in self.opt.param_groups:
            if self.fault == "decay_compounds":
                group["lr"] = group["lr"] * left
            elif self.variant == "sliced":
                group["lr"] = self.lr * min(1.0, update / 100)
            else:
                group["lr"] = self.lr * left

    def update(self, mem, update):
        self.set_rate(update)
        obs = mem.obs[:-1].reshape(-1, mem.obs.shape[-1])
        actions = mem.actions.reshape(-1)
        returns = mem.returns.T.reshape(-1) if self.fault == "env_major" else mem.returns.reshape(-1)
        slices = 4 if self.variant == "sliced" else 1
        self.opt.zero_grad()
        for rows in torch.randperm(len(obs)).chunk(slices):
            dist, value = self.net(obs[rows])
            advantage = returns[rows] - value
            if self.fault != "leaky_advantage":
                advantage = advantage.detach()
            pi_loss = -(dist.log_prob(actions[rows]) * advantage).mean()
            v_loss = (F.smooth_l1_loss if slices > 1 else F.mse_loss)(value, returns[rows])
            entropy = dist.entropy().mean()
            loss = pi_loss + 0.5 * v_loss - 0.005 * entropy
            (loss / slices).backward()
        nn.utils.clip_grad_norm_(self.net.parameters(), 0.5)
        self.opt.step()
        return v_loss.item(), entropy.item()


def train(seed, steps, fault, variant, n_envs=16, horizon=8, gamma=0.98):
    torch.manual_seed(seed)
    np.random.seed(seed)  # noqa: NPY002
    envs = [gym.make("CartPole-v1") for _ in range(n_envs)]
    n_obs, n_act = envs[0].observation_space.shape[0], envs[0].action_space.n
    net = ActorCritic(n_obs, n_act, norm=variant == "normed")
    n_updates = steps // (n_envs * horizon)
    learner = Learner(net, n_updates, fault, variant)
    mem = Storage(horizon, n_envs, n_obs)
    runner = Runner(envs, net, mem, gamma, RunningNorm(n_obs) if variant == "normed" else None, seed)
    averaged = copy.deepcopy(net).requires_grad_(False) if variant == "normed" else None

    for update in range(n_updates):
        last_value = runner.collect()
        mem.fill_returns(last_value, gamma, fault)
        v_loss, entropy = learner.update(mem, update)
        mem.roll_over()
        if averaged is not None:
            for slow, fast in zip(averaged.parameters(), net.parameters(), strict=True):
                slow.lerp_(fast, 0.01)
        if (update + 1) % 150 == 0:
            recent = np.mean(runner.finished[-30:])
            print(f"update {update + 1:5d} return {recent:6.1f} value loss {v_loss:.3f} entropy {entropy:.3f}")
    if averaged is not None:
        runner.net, before = averaged, len(runner.finished)
        for _ in range(40):
            runner.collect()
            mem.roll_over()
        print(f"averaged weights: {np.mean(runner.finished[before:]):.1f}")
    return runner.finished


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=290_000)
    parser.add_argument("--fault", default="", choices=["", *FAULTS])
    parser.add_argument("--variant", default="", choices=list(HEALTHY))
    args = parser.parse_args()
    torch.set_num_threads(1)
    began = time.time()
    scores = train(args.seed, args.steps, args.fault, args.variant)
    print(f"first 50: {np.mean(scores[:50]):.1f}, last 50: {np.mean(scores[-50:]):.1f}, {time.time() - began:.1f} s")
