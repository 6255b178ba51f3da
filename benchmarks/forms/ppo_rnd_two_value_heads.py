"""PPO + random network distillation on a sparse-reward maze: extrinsic and intrinsic value heads.

As in the RND paper, the extrinsic stream is episodic and the intrinsic stream is not: intrinsic returns
run on through resets, so their successor value is that of the observation acted on next.
"""

import argparse
from collections import deque

import gymnasium as gym
import numpy as np
import torch
import torch.nn as nn
from torch.distributions import Categorical


class Maze(gym.Env):
    """9x9, two walls with gaps at opposite ends; +1 at the far corner, nothing elsewhere."""

    N = 9
    MOVES = ((-1, 0), (1, 0), (0, -1), (0, 1))

    def __init__(self):
        n = self.N
        self.walls = {(r, 3) for r in range(n) if r != 6} | {(r, 6) for r in range(n) if r != 3}
        self.observation_space = gym.spaces.Box(0.0, 1.0, (2 * n,), np.float32)
        self.action_space = gym.spaces.Discrete(4)

    def _obs(self):
        x = np.zeros(2 * self.N, dtype=np.float32)
        x[self.pos[0]] = x[self.N + self.pos[1]] = 1.0
        return x

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.pos = (0, 0)
        return self._obs(), {}

    def step(self, action):
        r, c = (p + d for p, d in zip(self.pos, self.MOVES[int(action)]))
        if 0 <= r < self.N and 0 <= c < self.N and (r, c) not in self.walls:
            self.pos = (r, c)
        goal = self.pos == (self.N - 1, self.N - 1)
        return self._obs(), float(goal), goal, False, {}


class RunningMeanStd:
    def __init__(self, shape=()):
        self.mean, self.var, self.count = torch.zeros(shape), torch.ones(shape), 1e-4

    def update(self, x):
        bm, bv, bc = x.mean(0), x.var(0, unbiased=False), x.shape[0]
        delta, total = bm - self.mean, self.count + bc
        m2 = self.var * self.count + bv * bc + delta**2 * self.count * bc / total
        self.mean = self.mean + delta * bc / total
        self.var, self.count = m2 / total, total

    def normalise(self, x, clip=5.0):
        return ((x - self.mean) / torch.sqrt(self.var + 1e-8)).clamp(-clip, clip)


class Agent(nn.Module):
    def __init__(self, obs_dim, n_actions, hidden=64):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(obs_dim, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh())
        self.pi = nn.Linear(hidden, n_actions)
        self.v_ext = nn.Linear(hidden, 1)
        self.v_int = nn.Linear(hidden, 1)

    def forward(self, obs):
        z = self.trunk(obs)
        return Categorical(logits=self.pi(z)), self.v_ext(z).squeeze(-1), self.v_int(z).squeeze(-1)


class RND(nn.Module):
    def __init__(self, obs_dim, out=32, hidden=64):
        super().__init__()
        self.target = nn.Sequential(nn.Linear(obs_dim, hidden), nn.ReLU(), nn.Linear(hidden, out))
        self.predictor = nn.Sequential(
            nn.Linear(obs_dim, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, out)
        )
        for p in self.target.parameters():
            p.requires_grad_(False)

    def error(self, x):
        return (self.predictor(x) - self.target(x).detach()).pow(2).mean(-1)


def gae(rew, value, next_value, carry_on, gamma, lam):
    """next_value already holds zeros where nothing follows; carry_on cuts the recursion."""
    adv, acc = torch.zeros_like(rew), torch.zeros_like(rew[0])
    for t in reversed(range(rew.shape[0])):
        acc = rew[t] + gamma * next_value[t] - value[t] + gamma * lam * carry_on[t] * acc
        adv[t] = acc
    return adv


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--seed", type=int, default=0)
    ap.add_argument("--iterations", type=int, default=70)
    args = ap.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    np.random.seed(args.seed)

    N, T, lam, g_ext, g_int, clip, c_ext, c_int = 8, 128, 0.95, 0.99, 0.99, 0.2, 2.0, 1.0
    envs = [gym.wrappers.TimeLimit(Maze(), max_episode_steps=100) for _ in range(N)]
    cur = np.stack([e.reset(seed=args.seed + i)[0] for i, e in enumerate(envs)])
    dim = cur.shape[1]
    agent, rnd = Agent(dim, 4), RND(dim)
    opt = torch.optim.Adam(list(agent.parameters()) + list(rnd.predictor.parameters()), lr=1e-3)
    obs_rms, ret_rms, filtered = RunningMeanStd((dim,)), RunningMeanStd(), torch.zeros(N)
    reached, visited = deque(maxlen=50), set()

    probe, seen = Maze(), []  # random steps to start the observation statistics
    probe.reset(seed=args.seed)
    for k in range(500):
        o, _, te, _, _ = probe.step(np.random.randint(4))
        seen.append(o)
        if te or k % 100 == 99:
            probe.reset()
    obs_rms.update(torch.as_tensor(np.stack(seen)))

    for it in range(1, args.iterations + 1):
        rows = []
        for _ in range(T):
            obs = torch.as_tensor(cur)
            with torch.no_grad():
                dist, ve, vi = agent(obs)
                act = dist.sample()
                logp = dist.log_prob(act)
            nxt, upcoming = np.zeros_like(cur), np.zeros_like(cur)
            rew, term, end = torch.zeros(N), torch.zeros(N), torch.zeros(N)
            for i, env in enumerate(envs):
                o, r, te, tr, _ = env.step(act[i].item())
                nxt[i], rew[i], term[i], end[i] = o, r, float(te), float(te or tr)
                visited.add(env.unwrapped.pos)
                if te or tr:
                    reached.append(float(te))
                    o, _ = env.reset()
                upcoming[i] = o
            rows.append((obs, torch.as_tensor(nxt), act, logp, ve, vi, rew, term, end))
            cur = upcoming
        obs, nxt, act, logp, ve, vi, rew, term, end = (torch.stack(c) for c in zip(*rows))

        with torch.no_grad():
            _, ve_next, _ = agent(nxt)  # V_ext of the true successors
            _, _, vi_last = agent(torch.as_tensor(cur))
            novelty = rnd.error(obs_rms.normalise(nxt))  # [T, N]
            discounted = []
            for t in range(T):
                filtered = g_int * filtered + novelty[t]
                discounted.append(filtered)
            ret_rms.update(torch.cat(discounted))
            r_int = novelty / torch.sqrt(ret_rms.var + 1e-8)
            adv_e = gae(rew, ve, ve_next * (1.0 - term), 1.0 - end, g_ext, lam)
            adv_i = gae(r_int, vi, torch.cat([vi[1:], vi_last[None]]), torch.ones_like(end), g_int, lam)
            ret_e, ret_i = (adv_e + ve).flatten(), (adv_i + vi).flatten()
            adv = (c_ext * adv_e + c_int * adv_i).flatten()
            adv = (adv - adv.mean()) / (adv.std() + 1e-8)
            obs_rms.update(nxt.flatten(0, 1))
            rnd_in = obs_rms.normalise(nxt.flatten(0, 1))
        b_obs, b_act, b_logp = obs.flatten(0, 1), act.flatten(), logp.flatten()
        for _ in range(4):
            for idx in torch.randperm(N * T).split(256):
                dist, ve_new, vi_new = agent(b_obs[idx])
                ratio = (dist.log_prob(b_act[idx]) - b_logp[idx]).exp()
                pg = -torch.min(ratio * adv[idx], ratio.clamp(1 - clip, 1 + clip) * adv[idx]).mean()
                vf = 0.5 * ((ve_new - ret_e[idx]).pow(2) + (vi_new - ret_i[idx]).pow(2)).mean()
                keep = (torch.rand(len(idx)) < 0.25).float()  # predictor learns on a subset
                distill = (rnd.error(rnd_in[idx]) * keep).sum() / keep.sum().clamp(min=1.0)
                loss = pg + 0.5 * vf - 0.01 * dist.entropy().mean() + distill
                opt.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(opt.param_groups[0]["params"], 0.5)
                opt.step()
        if it % 5 == 0:
            print(
                f"iter {it:3d}  goal rate {np.mean(reached):.2f}  cells visited {len(visited):3d}  "
                f"novelty {novelty.mean().item():.4f}  r_int {r_int.mean().item():.3f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
