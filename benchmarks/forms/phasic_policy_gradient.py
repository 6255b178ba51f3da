"""Phasic policy gradient on CartPole, written with closures.

Policy phase: PPO on the policy net, regression on a separate value net.
Auxiliary phase: value regression through the policy net's auxiliary head, held to the old policy by KL.
"""

import argparse
from collections import deque

import gymnasium as gym
import numpy as np
import torch
import torch.nn as nn
from torch.distributions import Categorical, kl_divergence

GAMMA, LAM, CLIP, ENT = 0.99, 0.95, 0.2, 0.01
N_ENVS, HORIZON, MINIBATCH = 8, 128, 256
POLICY_ITERS, PHASES = 6, 9
POLICY_EPOCHS, AUX_EPOCHS, BETA_CLONE = 4, 3, 1.0
REWARD_SCALE = 0.05


class PolicyNet(nn.Module):
    def __init__(self, hidden=64):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(4, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh())
        self.action_head = nn.Linear(hidden, 2)
        self.aux_value_head = nn.Linear(hidden, 1)

    def dist(self, obs):
        return Categorical(logits=self.action_head(self.trunk(obs)))

    def dist_and_aux_value(self, obs):
        z = self.trunk(obs)
        return Categorical(logits=self.action_head(z)), self.aux_value_head(z).squeeze(-1)


def make_value_net(hidden=64):
    return nn.Sequential(
        nn.Linear(4, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh(), nn.Linear(hidden, 1), nn.Flatten(0)
    )


def make_collector(policy, value_net, seed):
    envs = [gym.wrappers.TransformReward(gym.make("CartPole-v1"), lambda r: REWARD_SCALE * r) for _ in range(N_ENVS)]
    state = {"obs": np.stack([e.reset(seed=seed + 77 * i)[0] for i, e in enumerate(envs)])}
    lengths, finished = np.zeros(N_ENVS, dtype=int), deque(maxlen=40)

    @torch.no_grad()
    def collect():
        steps = []
        for _ in range(HORIZON):
            obs = torch.as_tensor(state["obs"], dtype=torch.float32)
            dist = policy.dist(obs)
            act = dist.sample()
            nxt, cur = np.zeros_like(state["obs"]), np.zeros_like(state["obs"])
            rew, term, end = np.zeros(N_ENVS), np.zeros(N_ENVS), np.zeros(N_ENVS)
            for i, env in enumerate(envs):
                o, rew[i], te, tr, _ = env.step(int(act[i]))
                nxt[i] = o
                term[i], end[i] = te, te or tr
                lengths[i] += 1
                if te or tr:
                    finished.append(int(lengths[i]))
                    lengths[i] = 0
                    o, _ = env.reset()
                cur[i] = o
            state["obs"] = cur
            steps.append(
                (
                    obs,
                    torch.as_tensor(nxt, dtype=torch.float32),
                    act,
                    dist.log_prob(act),
                    *(torch.as_tensor(x, dtype=torch.float32) for x in (rew, term, end)),
                )
            )
        obs, nxt, act, logp, rew, term, end = (torch.stack(col) for col in zip(*steps))
        v = value_net(obs.flatten(0, 1)).view(HORIZON, N_ENVS)
        v_next = value_net(nxt.flatten(0, 1)).view(HORIZON, N_ENVS)
        adv, acc = torch.zeros_like(rew), torch.zeros(N_ENVS)
        for t in range(HORIZON - 1, -1, -1):
            delta = rew[t] + GAMMA * (1 - term[t]) * v_next[t] - v[t]
            acc = delta + GAMMA * LAM * (1 - end[t]) * acc
            adv[t] = acc
        return {
            "obs": obs.flatten(0, 1),
            "act": act.flatten(),
            "logp": logp.flatten(),
            "adv": adv.flatten(),
            "vtarg": (adv + v).flatten(),
        }

    return collect, finished


def make_policy_phase(policy, value_net, policy_opt, value_opt):
    def policy_phase(batch):
        adv = (batch["adv"] - batch["adv"].mean()) / (batch["adv"].std() + 1e-8)
        for _ in range(POLICY_EPOCHS):
            for idx in torch.randperm(len(adv)).split(MINIBATCH):
                dist = policy.dist(batch["obs"][idx])
                ratio = torch.exp(dist.log_prob(batch["act"][idx]) - batch["logp"][idx])
                clipped = torch.clamp(ratio, 1 - CLIP, 1 + CLIP)
                pi_loss = -torch.minimum(ratio * adv[idx], clipped * adv[idx]).mean()
                policy_opt.zero_grad()
                (pi_loss - ENT * dist.entropy().mean()).backward()
                nn.utils.clip_grad_norm_(policy.parameters(), 0.5)
                policy_opt.step()

                value_opt.zero_grad()
                v_loss = 0.5 * (value_net(batch["obs"][idx]) - batch["vtarg"][idx]).pow(2).mean()
                v_loss.backward()
                value_opt.step()

    return policy_phase


def make_aux_phase(policy, value_net, policy_opt, value_opt):
    def aux_phase(obs, vtarg):
        with torch.no_grad():  # the policy as it is when the phase begins
            old_logits = policy.dist(obs).logits
        kl_value = aux_value = 0.0
        for _ in range(AUX_EPOCHS):
            for idx in torch.randperm(len(obs)).split(MINIBATCH):
                dist, aux_v = policy.dist_and_aux_value(obs[idx])
                aux_loss = 0.5 * (aux_v - vtarg[idx]).pow(2).mean()
                clone = kl_divergence(Categorical(logits=old_logits[idx]), dist).mean()
                policy_opt.zero_grad()
                (aux_loss + BETA_CLONE * clone).backward()
                nn.utils.clip_grad_norm_(policy.parameters(), 0.5)
                policy_opt.step()

                value_opt.zero_grad()
                (0.5 * (value_net(obs[idx]) - vtarg[idx]).pow(2).mean()).backward()
                value_opt.step()
                kl_value, aux_value = clone.item(), aux_loss.item()
        return aux_value, kl_value

    return aux_phase


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=0)
    seed = parser.parse_args().seed
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    np.random.seed(seed)

    policy, value_net = PolicyNet(), make_value_net()
    policy_opt = torch.optim.Adam(policy.parameters(), lr=1e-3)
    value_opt = torch.optim.Adam(value_net.parameters(), lr=1e-3)
    collect, finished = make_collector(policy, value_net, seed)
    policy_phase = make_policy_phase(policy, value_net, policy_opt, value_opt)
    aux_phase = make_aux_phase(policy, value_net, policy_opt, value_opt)

    for phase in range(1, PHASES + 1):
        memory = []
        for _ in range(POLICY_ITERS):
            batch = collect()
            policy_phase(batch)
            memory.append(batch)
        aux_loss, kl = aux_phase(torch.cat([b["obs"] for b in memory]), torch.cat([b["vtarg"] for b in memory]))
        print(
            f"phase {phase:2d}  steps {phase * POLICY_ITERS * HORIZON * N_ENVS:6d}  "
            f"episode length {np.mean(finished):6.1f}  aux value loss {aux_loss:.4f}  clone kl {kl:.5f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
