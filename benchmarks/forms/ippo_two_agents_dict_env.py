"""Independent PPO with parameter sharing: two agents cooperate in a small grid with its own dict API."""

import argparse
import random
from collections import deque

import numpy as np
import torch
from torch import nn, optim
from torch.distributions import Categorical

AGENTS = ("red", "blue")


class CoverGrid:
    """Two agents must stand on the two landmarks at the same time, one on each. Reward is shared."""

    MOVES = ((0, 0), (-1, 0), (1, 0), (0, -1), (0, 1))
    OBS_DIM, N_ACTIONS = 10, 5

    def __init__(self, rng, size=5, max_steps=25):
        self.rng, self.size, self.max_steps = rng, size, max_steps

    def _observe(self):
        n = self.size - 1
        out = {}
        for k, name in enumerate(AGENTS):
            me, other = self.pos[name], self.pos[AGENTS[1 - k]]
            row = [me[0] / n, me[1] / n, (other[0] - me[0]) / n, (other[1] - me[1]) / n]
            for lm in self.landmarks:
                row += [(lm[0] - me[0]) / n, (lm[1] - me[1]) / n]
            row += [1.0, 0.0] if k == 0 else [0.0, 1.0]
            out[name] = np.array(row, dtype=np.float32)
        return out

    def _covered(self):
        return sum(lm in self.pos.values() for lm in self.landmarks)

    def reset(self):
        cells = [(r, c) for r in range(self.size) for c in range(self.size)]
        red, blue, lm_a, lm_b = self.rng.sample(cells, 4)
        self.pos = {"red": red, "blue": blue}
        self.landmarks = (lm_a, lm_b)
        self.t = 0
        return self._observe()

    def step(self, actions):
        for name, a in actions.items():
            dr, dc = self.MOVES[a]
            r, c = self.pos[name]
            self.pos[name] = (min(max(r + dr, 0), self.size - 1), min(max(c + dc, 0), self.size - 1))
        self.t += 1
        covered = self._covered()
        solved = covered == 2
        team_reward = -0.1 * (2 - covered) + (1.0 if solved else 0.0)
        return {
            "obs": self._observe(),
            "reward": dict.fromkeys(AGENTS, team_reward),
            "terminated": solved,
            "truncated": (not solved) and self.t >= self.max_steps,
        }


class SharedNet(nn.Module):
    def __init__(self, obs_dim, n_actions, hidden=64):
        super().__init__()
        self.pi = nn.Sequential(
            nn.Linear(obs_dim, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh(), nn.Linear(hidden, n_actions)
        )
        self.v = nn.Sequential(
            nn.Linear(obs_dim, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh(), nn.Linear(hidden, 1)
        )

    def value(self, x):
        return self.v(x).squeeze(-1)


def stack_obs(obs_dicts):
    """List of per-environment dicts -> [n_envs * n_agents, obs_dim] in (env, agent) order."""
    return torch.from_numpy(np.stack([o[name] for o in obs_dicts for name in AGENTS]))


@torch.no_grad()
def collect(net, envs, current, horizon, stats):
    mem = {k: [] for k in ("obs", "next_obs", "act", "logp", "rew", "term", "end")}
    for _ in range(horizon):
        obs = stack_obs(current)
        dist = Categorical(logits=net.pi(obs))
        act = dist.sample()
        grid = act.view(len(envs), len(AGENTS)).tolist()
        successors, rew, term, end = [], [], [], []
        for i, env in enumerate(envs):
            result = env.step(dict(zip(AGENTS, grid[i])))
            successors.append(result["obs"])
            over = result["terminated"] or result["truncated"]
            for name in AGENTS:
                rew.append(result["reward"][name])
                term.append(float(result["terminated"]))
                end.append(float(over))
            stats["running"][i] += result["reward"]["red"]
            if over:
                stats["returns"].append(stats["running"][i])
                stats["solved"].append(float(result["terminated"]))
                stats["running"][i] = 0.0
                current[i] = env.reset()
            else:
                current[i] = result["obs"]
        mem["obs"].append(obs)
        mem["next_obs"].append(stack_obs(successors))  # before reset
        mem["act"].append(act)
        mem["logp"].append(dist.log_prob(act))
        mem["rew"].append(torch.tensor(rew))
        mem["term"].append(torch.tensor(term))
        mem["end"].append(torch.tensor(end))
    return {k: torch.stack(v) for k, v in mem.items()}


@torch.no_grad()
def add_advantages(net, mem, gamma=0.97, lam=0.95):
    values = net.value(mem["obs"])
    next_values = net.value(mem["next_obs"]) * (1.0 - mem["term"])
    deltas = mem["rew"] + gamma * next_values - values
    adv = torch.empty_like(deltas)
    carry = torch.zeros(deltas.shape[1])
    for t in range(deltas.shape[0] - 1, -1, -1):
        carry = deltas[t] + gamma * lam * (1.0 - mem["end"][t]) * carry
        adv[t] = carry
    mem["adv"], mem["ret"] = adv, adv + values


def ppo_update(net, opt, mem, epochs=4, minibatch=512, clip=0.2, ent=0.01):
    flat = {k: mem[k].flatten(0, 1) for k in ("obs", "act", "logp", "adv", "ret")}
    for _ in range(epochs):
        for idx in torch.randperm(flat["act"].shape[0]).split(minibatch):
            mb = {k: v[idx] for k, v in flat.items()}
            adv = (mb["adv"] - mb["adv"].mean()) / (mb["adv"].std() + 1e-8)
            dist = Categorical(logits=net.pi(mb["obs"]))
            ratio = (dist.log_prob(mb["act"]) - mb["logp"]).exp()
            pg1, pg2 = -adv * ratio, -adv * ratio.clamp(1 - clip, 1 + clip)
            v_loss = 0.5 * (net.value(mb["obs"]) - mb["ret"]).square().mean()
            loss = torch.max(pg1, pg2).mean() + 0.5 * v_loss - ent * dist.entropy().mean()
            opt.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), 0.5)
            opt.step()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--seed", type=int, default=0)
    ap.add_argument("--iterations", type=int, default=80)
    args = ap.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    n_envs = 8
    envs = [CoverGrid(random.Random(args.seed * 1000 + i)) for i in range(n_envs)]
    current = [env.reset() for env in envs]
    net = SharedNet(CoverGrid.OBS_DIM, CoverGrid.N_ACTIONS)
    opt = optim.Adam(net.parameters(), lr=1e-3)
    stats = {"running": [0.0] * n_envs, "returns": deque(maxlen=100), "solved": deque(maxlen=100)}
    for it in range(1, args.iterations + 1):
        mem = collect(net, envs, current, 128, stats)
        add_advantages(net, mem)
        ppo_update(net, opt, mem)
        if it % 8 == 0:
            print(
                f"iter {it:3d}  team return {np.mean(stats['returns']):6.3f}  solved {np.mean(stats['solved']):.2f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
