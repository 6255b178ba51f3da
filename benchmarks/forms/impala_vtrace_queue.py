"""IMPALA-like actor-critic: a stale actor fills a queue of rollouts, the learner corrects with V-trace."""

import argparse
import copy
from collections import deque
from typing import NamedTuple

import gymnasium as gym
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


class Rollout(NamedTuple):
    obs: torch.Tensor  # [T, B, obs_dim]
    next_obs: torch.Tensor  # [T, B, obs_dim]  true successor, taken before any reset
    actions: torch.Tensor  # [T, B]
    behaviour_logp: torch.Tensor  # [T, B]  log mu(a|s) of the stale actor
    rewards: torch.Tensor  # [T, B]
    terminated: torch.Tensor  # [T, B]  no bootstrap
    ended: torch.Tensor  # [T, B]  terminated or truncated: recursion is cut


class ActorCritic(nn.Module):
    def __init__(self, obs_dim, n_actions, hidden=64):
        super().__init__()
        self.pi = nn.Sequential(nn.Linear(obs_dim, hidden), nn.Tanh(), nn.Linear(hidden, n_actions))
        self.v = nn.Sequential(nn.Linear(obs_dim, hidden), nn.Tanh(), nn.Linear(hidden, 1))

    def value(self, obs):
        return self.v(obs).squeeze(-1)


class Actor:
    """Owns the environments and a periodically refreshed copy of the learner's weights."""

    def __init__(self, learner_net, n_envs, seed):
        self.envs = [gym.make("CartPole-v1") for _ in range(n_envs)]
        self.obs = np.stack([env.reset(seed=seed + i)[0] for i, env in enumerate(self.envs)])
        self.net = copy.deepcopy(learner_net)
        self.running = np.zeros(n_envs)
        self.finished = deque(maxlen=40)

    def sync(self, learner_net):
        self.net.load_state_dict(learner_net.state_dict())

    @torch.no_grad()
    def rollout(self, length):
        cols = {name: [] for name in Rollout._fields}
        for _ in range(length):
            obs = torch.as_tensor(self.obs, dtype=torch.float32)
            dist = torch.distributions.Categorical(logits=self.net.pi(obs))
            action = dist.sample()
            nxt = np.empty_like(self.obs)
            after_reset = np.empty_like(self.obs)
            rew = np.zeros(len(self.envs), dtype=np.float32)
            term = np.zeros(len(self.envs), dtype=np.float32)
            end = np.zeros(len(self.envs), dtype=np.float32)
            for i, env in enumerate(self.envs):
                o, r, te, tr, _ = env.step(int(action[i]))
                nxt[i], rew[i], term[i], end[i] = o, r, te, te or tr
                self.running[i] += r
                if te or tr:
                    self.finished.append(self.running[i])
                    self.running[i] = 0.0
                    o, _ = env.reset()
                after_reset[i] = o
            cols["obs"].append(obs)
            cols["next_obs"].append(torch.as_tensor(nxt, dtype=torch.float32))
            cols["actions"].append(action)
            cols["behaviour_logp"].append(dist.log_prob(action))
            cols["rewards"].append(torch.from_numpy(rew))
            cols["terminated"].append(torch.from_numpy(term))
            cols["ended"].append(torch.from_numpy(end))
            self.obs = after_reset
        return Rollout(**{k: torch.stack(v) for k, v in cols.items()})


@torch.no_grad()
def vtrace(values, next_values, log_rhos, roll, gamma, rho_bar=1.0, c_bar=1.0):
    """Returns value targets v_s and policy-gradient advantages (both constants)."""
    rhos = log_rhos.exp()
    clipped_rho = rhos.clamp(max=rho_bar)
    cs = rhos.clamp(max=c_bar)
    discount = gamma * (1.0 - roll.terminated)
    cont = 1.0 - roll.ended
    deltas = clipped_rho * (roll.rewards + discount * next_values - values)
    correction = torch.zeros_like(values)
    acc = torch.zeros_like(values[0])
    for t in reversed(range(values.shape[0])):
        acc = deltas[t] + gamma * cont[t] * cs[t] * acc
        correction[t] = acc
    vs = values + correction
    # v_{t+1}: the corrected target inside an episode, V(true next obs) at a cut or at the rollout's end
    vs_next = next_values.clone()
    vs_next[:-1] = torch.where(cont[:-1] > 0, vs[1:], next_values[:-1])
    pg_adv = clipped_rho * (roll.rewards + discount * vs_next - values)
    return vs, pg_adv


class Learner:
    def __init__(self, net, gamma=0.99, entropy_coef=0.01):
        self.net, self.gamma, self.entropy_coef = net, gamma, entropy_coef
        self.opt = torch.optim.Adam(
            [
                {"params": net.pi.parameters(), "lr": 1.5e-3},
                {"params": net.v.parameters(), "lr": 5e-3},
            ]
        )

    def update(self, roll):
        dist = torch.distributions.Categorical(logits=self.net.pi(roll.obs))
        logp = dist.log_prob(roll.actions)
        values = self.net.value(roll.obs)
        with torch.no_grad():
            next_values = self.net.value(roll.next_obs)
        log_rhos = (logp - roll.behaviour_logp).detach()
        vs, pg_adv = vtrace(values.detach(), next_values, log_rhos, roll, self.gamma)
        pg_loss = -(logp * pg_adv).mean()
        v_loss = 0.5 * F.mse_loss(values, vs)
        loss = pg_loss + v_loss - self.entropy_coef * dist.entropy().mean()
        self.opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.net.parameters(), 40.0)
        self.opt.step()
        return log_rhos.exp().mean().item()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--total-steps", type=int, default=90_000)
    args = p.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    np.random.seed(args.seed)

    n_envs, length, queue_depth, sync_every = 8, 16, 3, 2
    net = ActorCritic(4, 2)
    learner = Learner(net)
    actor = Actor(net, n_envs, args.seed)
    queue = deque()
    updates = 0
    for it in range(args.total_steps // (n_envs * length)):
        queue.append(actor.rollout(length))
        if len(queue) < queue_depth:
            continue
        mean_rho = learner.update(queue.popleft())  # oldest first: a few updates stale
        updates += 1
        if updates % sync_every == 0:
            actor.sync(net)
        if updates % 70 == 0:
            ret = np.mean(actor.finished) if actor.finished else float("nan")
            print(
                f"steps {(it + 1) * n_envs * length:6d}  updates {updates:4d}  "
                f"return {ret:6.1f}  mean rho {mean_rho:.3f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
