"""PPO with a Gaussian policy on Pendulum-v1.

Several pendulums are stepped by hand, observations are whitened with running statistics, the policy has one
log standard deviation for all states.  Episodes only ever end by the time limit, so they are bootstrapped.
"""

# ruff: noqa: B905, E402, NPY002
FAULTS = {
    "timeout_is_terminal": [
        "returns",
        "broken",
        "the 200-step time limit is treated as a terminal state and the value after it is dropped",
    ],
    "bootstrap_last_stored": [
        "returns",
        "broken",
        "the rollout is bootstrapped with the value of the last stored observation instead of the one after it",
    ],
    "entropy_sign": ["signs", "broken", "the entropy bonus is added to the loss, so entropy is pushed down"],
    "log_std_not_optimised": [
        "weights",
        "broken",
        "the log standard deviation is a parameter that no optimizer holds, so it never moves",
    ],
    "clipped_action_stored": [
        "shapes",
        "broken",
        "the clipped action is stored, but its old log-prob is that of the unclipped sample",
    ],
    "critic_left_unclipped": [
        "rates",
        "broken",
        "gradient clipping covers the actor alone although one norm over all parameters is meant",
    ],
    "reward_sign": ["goal", "not proven", "the reward scale is negative, so the agent learns to keep the pole low"],
}
HEALTHY = {
    "": "plain: PPO with GAE, hand-written observation normalisation and state-independent log std",
    "value_clip": "the value loss is clipped around the old predictions, as in the first PPO code",
    "stats_frozen": "observation statistics stop being updated after the tenth iteration",
    "kl_stop": "passes over a rollout are cut short when the policy has moved too far",
}

import argparse
import random
from collections import deque

import gymnasium as gym
import numpy as np
import torch
from torch import nn
from torch.distributions import Normal


class RunningNorm:
    """Whitens vectors with a running mean and variance (parallel variance formula)."""

    def __init__(self, dim, limit=10.0):
        self.mean = np.zeros(dim)
        self.var = np.ones(dim)
        self.n = 1e-4
        self.limit = limit
        self.frozen = False

    def update(self, batch):
        if self.frozen:
            return
        m, v, k = batch.mean(axis=0), batch.var(axis=0), len(batch)
        gap = m - self.mean
        total = self.n + k
        m2 = self.var * self.n + v * k + gap**2 * self.n * k / total
        self.mean = self.mean + gap * k / total
        self.var = m2 / total
        self.n = total

    def __call__(self, x):
        z = (x - self.mean) / np.sqrt(self.var + 1e-8)
        return np.clip(z, -self.limit, self.limit).astype(np.float32)


def mlp(sizes, last_gain):
    layers = []
    for i, (a, b) in enumerate(zip(sizes[:-1], sizes[1:])):
        final = i == len(sizes) - 2
        lin = nn.Linear(a, b)
        nn.init.orthogonal_(lin.weight, last_gain if final else 2**0.5)
        nn.init.zeros_(lin.bias)
        layers += [lin] if final else [lin, nn.Tanh()]
    return nn.Sequential(*layers)


class Trainer:
    n_envs = 16
    horizon = 64  # not a divisor of the 200-step episodes: rollouts end in mid-episode
    gamma = 0.92
    lam = 0.95
    clip = 0.2
    vf_coef = 0.5
    ent_coef = 0.005
    max_norm = 0.5
    epochs = 10
    batch = 256
    lr = 2e-3

    def __init__(self, args):
        self.args = args
        self.fault = args.fault
        self.envs = [gym.make("Pendulum-v1") for _ in range(self.n_envs)]
        self.obs_dim = self.envs[0].observation_space.shape[0]
        self.act_dim = self.envs[0].action_space.shape[0]
        self.max_torque = float(self.envs[0].action_space.high[0])
        self.reward_scale = -0.1 if self.fault == "reward_sign" else 0.1

        self.actor = mlp([self.obs_dim, 64, 64, self.act_dim], last_gain=0.01)
        self.critic = mlp([self.obs_dim, 64, 64, 1], last_gain=1.0)
        self.log_std = nn.Parameter(torch.full((self.act_dim,), -0.3))
        self.params = [*self.actor.parameters(), *self.critic.parameters()]
        if self.fault != "log_std_not_optimised":
            self.params.append(self.log_std)
        self.opt = torch.optim.Adam(self.params, lr=self.lr, eps=1e-5)

        self.norm = RunningNorm(self.obs_dim)
        self.raw_obs = np.stack([e.reset(seed=args.seed * 1000 + i)[0] for i, e in enumerate(self.envs)])
        self.norm.update(self.raw_obs)
        self.running = np.zeros(self.n_envs)
        self.finished = deque(maxlen=32)

        T, N = self.horizon, self.n_envs
        self.buf = {
            "obs": np.zeros((T, N, self.obs_dim), np.float32),
            "act": np.zeros((T, N, self.act_dim), np.float32),
            "logp": np.zeros((T, N), np.float32),
            "rew": np.zeros((T, N), np.float32),
            "val": np.zeros((T, N), np.float32),
            "cut": np.zeros((T, N), np.float32),  # 1 where an episode stops after this step, for any reason
            "after": np.zeros((T, N), np.float32),  # value of the state an episode was cut off in
        }

    def dist(self, obs):
        return Normal(self.actor(obs), self.log_std.exp())

    def value(self, obs):
        return self.critic(torch.as_tensor(obs)).squeeze(-1)

    @torch.no_grad()
    def collect(self):
        b = self.buf
        for t in range(self.horizon):
            obs = self.norm(self.raw_obs)
            pi = self.dist(torch.as_tensor(obs))
            action = pi.sample()
            b["logp"][t] = pi.log_prob(action).sum(-1).numpy()
            action = action.numpy()
            executed = np.clip(action, -1.0, 1.0)
            b["obs"][t] = obs
            b["act"][t] = executed if self.fault == "clipped_action_stored" else action
            b["val"][t] = self.value(obs).numpy()

            nxt = np.empty_like(self.raw_obs)
            for i, env in enumerate(self.envs):
                o, r, terminated, truncated, _ = env.step(self.max_torque * executed[i])
                self.running[i] += r
                b["rew"][t, i] = self.reward_scale * r
                b["cut"][t, i] = float(terminated or truncated)
                b["after"][t, i] = 0.0
                if terminated or truncated:
                    if truncated and not terminated and self.fault != "timeout_is_terminal":
                        b["after"][t, i] = self.value(self.norm(o)).item()
                    self.finished.append(self.running[i])
                    self.running[i] = 0.0
                    o, _ = env.reset()
                nxt[i] = o
            self.raw_obs = nxt
            self.norm.update(nxt)

    @torch.no_grad()
    def advantages(self):
        b = self.buf
        if self.fault == "bootstrap_last_stored":
            next_value = self.value(b["obs"][-1]).numpy()
        else:
            next_value = self.value(self.norm(self.raw_obs)).numpy()
        adv = np.zeros_like(b["rew"])
        carry = np.zeros(self.n_envs, np.float32)
        for t in reversed(range(self.horizon)):
            going = 1.0 - b["cut"][t]
            follow = going * next_value + b["after"][t]
            delta = b["rew"][t] + self.gamma * follow - b["val"][t]
            carry = delta + self.gamma * self.lam * going * carry
            adv[t] = carry
            next_value = b["val"][t]
        return adv, adv + b["val"]

    def value_loss(self, new, old, target):
        if self.args.variant != "value_clip":
            return 0.5 * (new - target).pow(2).mean()
        near = old + (new - old).clamp(-self.clip * 2, self.clip * 2)
        return 0.5 * torch.max((new - target).pow(2), (near - target).pow(2)).mean()

    def update(self, adv, ret):
        flat = {k: torch.from_numpy(v.reshape(-1, *v.shape[2:])) for k, v in self.buf.items()}
        adv, ret = torch.from_numpy(adv.reshape(-1)), torch.from_numpy(ret.reshape(-1))
        stats = []
        for _ in range(self.epochs):
            order = torch.randperm(len(adv))
            kls = []
            for idx in order.split(self.batch):
                pi = self.dist(flat["obs"][idx])
                logp = pi.log_prob(flat["act"][idx]).sum(-1)
                log_ratio = logp - flat["logp"][idx]
                ratio = log_ratio.exp()
                a = adv[idx]
                a = (a - a.mean()) / (a.std() + 1e-8)
                pg = torch.max(-a * ratio, -a * ratio.clamp(1 - self.clip, 1 + self.clip)).mean()
                vf = self.value_loss(self.value(flat["obs"][idx]), flat["val"][idx], ret[idx])
                ent = pi.entropy().sum(-1).mean()
                bonus = self.ent_coef * ent
                loss = pg + self.vf_coef * vf + (bonus if self.fault == "entropy_sign" else -bonus)

                self.opt.zero_grad(set_to_none=True)
                loss.backward()
                if self.fault == "critic_left_unclipped":
                    nn.utils.clip_grad_norm_([*self.actor.parameters(), self.log_std], self.max_norm)
                else:
                    nn.utils.clip_grad_norm_(self.params, self.max_norm)
                self.opt.step()

                kl = ((ratio - 1) - log_ratio).mean().item()
                kls.append(kl)
                stats.append((pg.item(), vf.item(), ent.item(), kl))
            if self.args.variant == "kl_stop" and np.mean(kls) > 0.02:
                break
        return np.mean(stats, axis=0)

    def fit(self, iterations):
        for it in range(1, iterations + 1):
            for g in self.opt.param_groups:
                g["lr"] = self.lr * (1.0 - 0.9 * (it - 1) / iterations)
            if self.args.variant == "stats_frozen" and it > 10:
                self.norm.frozen = True
            self.collect()
            adv, ret = self.advantages()
            pg, vf, ent, kl = self.update(adv, ret)
            if self.finished and (it % max(1, iterations // 12) == 0 or it == 4):
                print(
                    f"iter {it:3d} | steps {it * self.horizon * self.n_envs:6d} | return {np.mean(self.finished):8.1f} "
                    f"| pg {pg:+.4f} | vf {vf:.3f} | entropy {ent:+.3f} | kl {kl:.4f}"
                )
        print(f"mean return of the last {len(self.finished)} episodes: {np.mean(self.finished):.1f}")


def parse():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--fault", default="", choices=["", *FAULTS])
    p.add_argument("--variant", default="", choices=list(HEALTHY))
    p.add_argument("--steps", type=int, default=81_920, help="environment steps over all pendulums")
    return p.parse_args()


if __name__ == "__main__":
    args = parse()
    torch.set_num_threads(1)
    random.seed(args.seed)
    np.random.seed(args.seed)
    torch.manual_seed(args.seed)
    trainer = Trainer(args)
    trainer.fit(max(1, args.steps // (Trainer.horizon * Trainer.n_envs)))
