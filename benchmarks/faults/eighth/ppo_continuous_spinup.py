"""PPO with a path buffer and two optimizers: a skiff in a current has to be held over a mark."""

import argparse
import itertools
import math
import time

import gymnasium as gym
import numpy as np
import torch
import torch.nn as nn
from torch.distributions.normal import Normal

FAULTS = {
    "path_start_stuck": [
        "returns",
        "broken",
        "finish_path never moves the start of the path on, so each new path rewrites the ones before as one long path",
    ],
    "clipped_stored": [
        "shapes",
        "broken",
        "the buffer holds the thrust after clipping together with the log-probability of the thrust before it",
    ],
    "log_std_left_out": [
        "weights",
        "broken",
        "the policy optimizer is made from the parameters of the mean network: the log-deviation is in no optimizer",
    ],
    "ratio_upside_down": ["signs", "broken", "the ratio is old probability over new probability"],
    "stop_sticks": ["rates", "broken", "the flag of the early stop on KL is never taken back: the policy stands still"],
}
HEALTHY = {
    "": "plain: full-batch passes, early stop on KL, values bootstrapped at time limits and at the end of an epoch",
    "minibatches": "shuffled minibatches with early stop on KL, layer norm, Huber loss, RMSprop critic, clipping",
    "scaled": "running observation normalisation, rewards divided by a running deviation, rates warmed up from zero",
}


class Skiff(gym.Env):
    """Two thrusters against a steady current; every step costs its distance; far out the skiff is lost."""

    def __init__(self):
        self.observation_space = gym.spaces.Box(-np.inf, np.inf, (6,), np.float32)
        self.action_space = gym.spaces.Box(-1.0, 1.0, (2,), np.float32)

    def _obs(self):
        return np.array([*self.pos, *self.vel, *self.current], dtype=np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        angle, self.pos = self.np_random.uniform(0, 2 * math.pi), list(self.np_random.uniform(-1.5, 1.5, 2))
        self.vel, self.current = [0.0, 0.0], [math.cos(angle), math.sin(angle)]
        return self._obs(), {}

    def step(self, action):
        thrust = [max(-1.0, min(1.0, float(a))) for a in action]
        for i in (0, 1):
            self.vel[i] = 0.9 * self.vel[i] + 0.12 * thrust[i] + 0.03 * self.current[i]
            self.pos[i] += 0.15 * self.vel[i]
        away = math.hypot(*self.pos)
        lost = away > 4.0
        cost = 0.1 * away + 0.02 * (thrust[0] ** 2 + thrust[1] ** 2) + (8.0 if lost else 0.0)
        return self._obs(), -cost, lost, False, {}


def mlp(sizes, norm=False):
    layers = []
    for i, (a, b) in enumerate(itertools.pairwise(sizes)):
        layers.append(nn.Linear(a, b))
        if i < len(sizes) - 2:
            layers += [nn.LayerNorm(b), nn.Tanh()] if norm else [nn.Tanh()]
    return nn.Sequential(*layers)


class GaussianActor(nn.Module):
    def __init__(self, obs_dim, act_dim, norm):
        super().__init__()
        self.log_std = nn.Parameter(torch.full((act_dim,), -0.5))
        self.mu_net = mlp([obs_dim, 64, 64, act_dim], norm)

    def dist(self, obs):
        return Normal(self.mu_net(obs), self.log_std.exp())


class ActorCritic(nn.Module):
    def __init__(self, obs_dim, act_dim, norm=False):
        super().__init__()
        self.pi = GaussianActor(obs_dim, act_dim, norm)
        self.v = mlp([obs_dim, 64, 64, 1], norm)

    @torch.no_grad()
    def step(self, obs):
        dist = self.pi.dist(obs)
        act = dist.sample()
        return act.numpy(), self.v(obs).item(), dist.log_prob(act).sum(-1).item()


class PathBuffer:
    def __init__(self, obs_dim, act_dim, size, gamma, lam, fault):
        self.obs, self.act = np.zeros((size, obs_dim), np.float32), np.zeros((size, act_dim), np.float32)
        self.rew, self.val, self.logp, self.adv, self.ret = (np.zeros(size, np.float32) for _ in range(5))
        self.gamma, self.lam, self.fault = gamma, lam, fault
        self.ptr, self.path_start = 0, 0

    def store(self, obs, act, rew, val, logp):
        i = self.ptr
        self.obs[i], self.act[i], self.rew[i], self.val[i], self.logp[i] = obs, act, rew, val, logp
        self.ptr += 1

    def finish_path(self, last_val):
        next_val, adv = last_val, 0.0
        for t in range(self.ptr - 1, self.path_start - 1, -1):
            delta = self.rew[t] + self.gamma * next_val - self.val[t]
            adv = delta + self.gamma * self.lam * adv
            self.adv[t], self.ret[t], next_val = adv, adv + self.val[t], self.val[t]
        if self.fault != "path_start_stuck":
            self.path_start = self.ptr

    def get(self):
        self.ptr, self.path_start = 0, 0
        adv = (self.adv - self.adv.mean()) / (self.adv.std() + 1e-8)
        return [torch.from_numpy(x.copy()) for x in (self.obs, self.act, adv, self.ret, self.logp)]


class RunningScale:
    def __init__(self, shape=()):
        self.n, self.mean, self.m2 = 0, np.zeros(shape), np.zeros(shape)

    def push(self, x):
        self.n += 1
        gap = x - self.mean
        self.mean = self.mean + gap / self.n
        self.m2 = self.m2 + gap * (x - self.mean)

    @property
    def std(self):
        return np.sqrt(self.m2 / max(1, self.n - 1)) + 1e-4 if self.n > 5 else np.ones_like(self.m2)


class PPO:
    def __init__(self, ac, fault, variant, clip=0.2, target_kl=0.01, pi_iters=40, v_iters=40):
        self.ac, self.fault, self.variant, self.clip = ac, fault, variant, clip
        self.target_kl, self.pi_iters, self.v_iters = target_kl, pi_iters, v_iters
        policy = ac.pi.mu_net if fault == "log_std_left_out" else ac.pi
        self.pi_opt = torch.optim.Adam(policy.parameters(), lr=2e-3)
        critic_class = torch.optim.RMSprop if variant == "minibatches" else torch.optim.Adam
        self.v_opt = critic_class(ac.v.parameters(), lr=1e-3)
        self.v_loss = nn.SmoothL1Loss() if variant == "minibatches" else nn.MSELoss()
        self.stop, self.epoch = False, 0

    def pi_step(self, obs, act, adv, logp_old):
        logp = self.ac.pi.dist(obs).log_prob(act).sum(-1)
        ratio = torch.exp(logp_old - logp if self.fault == "ratio_upside_down" else logp - logp_old)
        loss = -torch.min(ratio * adv, ratio.clamp(1 - self.clip, 1 + self.clip) * adv).mean()
        kl = (logp_old - logp).mean().item()
        if kl > 1.5 * self.target_kl:
            self.stop = True
        else:
            self.take(self.pi_opt, loss, self.ac.pi)

    def take(self, opt, loss, module):
        opt.zero_grad()
        loss.backward()
        if self.variant == "minibatches":
            nn.utils.clip_grad_norm_(module.parameters(), 0.5)
        opt.step()

    def update(self, data):
        obs, act, adv, ret, logp_old = data
        self.epoch += 1
        if self.variant == "scaled":
            for opt in (self.pi_opt, self.v_opt):
                opt.param_groups[0]["lr"] = opt.defaults["lr"] * min(1.0, (self.epoch - 1) / 5)
        parts = 8 if self.variant == "minibatches" else 1
        if self.fault != "stop_sticks":
            self.stop = False
        done = 0
        for _ in range(self.pi_iters // parts):
            for rows in torch.randperm(len(obs)).chunk(parts):
                if not self.stop:
                    self.pi_step(obs[rows], act[rows], adv[rows], logp_old[rows])
                    done += 1
        for _ in range(self.v_iters // parts):
            for rows in torch.randperm(len(obs)).chunk(parts):
                v_loss = self.v_loss(self.ac.v(obs[rows]).squeeze(-1), ret[rows])
                self.take(self.v_opt, v_loss, self.ac.v)
        return done, v_loss.item()


def train(seed, steps, fault, variant, per_epoch=2000, gamma=0.97, lam=0.95):
    torch.manual_seed(seed)
    env = gym.wrappers.TimeLimit(Skiff(), max_episode_steps=80)
    ac = ActorCritic(6, 2, norm=variant == "minibatches")
    agent, buf = PPO(ac, fault, variant), PathBuffer(6, 2, per_epoch, gamma, lam, fault)
    obs_scale, gain_scale, gain, scores, score = RunningScale((6,)), RunningScale(), 0.0, [], 0.0

    def view(raw):
        if variant == "scaled":
            obs_scale.push(raw)
            raw = np.clip((raw - obs_scale.mean) / obs_scale.std, -5, 5)
        return torch.as_tensor(raw, dtype=torch.float32)

    obs = view(env.reset(seed=seed)[0])
    for epoch in range(steps // per_epoch):
        for t in range(per_epoch):
            act, val, logp = ac.step(obs)
            thrust = np.clip(act, -1.0, 1.0)
            raw, rew, terminated, truncated, _ = env.step(thrust)
            score += rew
            if variant == "scaled":
                gain = gamma * gain + rew
                gain_scale.push(gain)
                rew = rew / float(gain_scale.std)
            buf.store(obs, thrust if fault == "clipped_stored" else act, rew, val, logp)
            obs = view(raw)
            if terminated or truncated or t == per_epoch - 1:
                buf.finish_path(0.0 if terminated else ac.v(obs).item())
                if terminated or truncated:
                    scores.append(score)
                obs, score, gain = view(env.reset()[0]), 0.0, 0.0
        pi_steps, v_loss = agent.update(buf.get())
        if epoch % 3 == 0:
            print(f"epoch {epoch:3d} return {np.mean(scores[-20:]):7.2f} pi steps {pi_steps} v loss {v_loss:.4f}")
    return scores


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=50_000)
    parser.add_argument("--fault", default="", choices=["", *FAULTS])
    parser.add_argument("--variant", default="", choices=list(HEALTHY))
    args = parser.parse_args()
    torch.set_num_threads(1)
    t0 = time.time()
    result = train(args.seed, args.steps, args.fault, args.variant)
    k = max(1, len(result) // 10)
    print(f"first tenth {np.mean(result[:k]):.2f} last tenth {np.mean(result[-k:]):.2f} ({time.time() - t0:.1f} s)")
