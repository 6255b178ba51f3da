"""REDQ-like SAC on Pendulum: the critic ensemble is a few batched parameter tensors driven by torch.baddbmm."""

import argparse
import math
from types import SimpleNamespace

import gymnasium as gym
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

N_CRITICS, SUBSET, UTD = 5, 2, 2
GAMMA, TAU, LR, BATCH = 0.98, 0.01, 1e-3, 128


class CriticEnsemble(nn.Module):
    """Q-values of all members at once: input (B, obs), (B, act) -> output (members, B)."""

    def __init__(self, members, n_in, width):
        super().__init__()
        sizes = [n_in, width, width, 1]
        self.weights, self.biases = nn.ParameterList(), nn.ParameterList()
        for fan_in, fan_out in zip(sizes[:-1], sizes[1:]):
            bound = 1.0 / math.sqrt(fan_in)
            self.weights.append(nn.Parameter(torch.empty(members, fan_in, fan_out).uniform_(-bound, bound)))
            self.biases.append(nn.Parameter(torch.empty(members, 1, fan_out).uniform_(-bound, bound)))
        self.members = members

    def forward(self, obs, act):
        x = torch.cat([obs, act], dim=1).unsqueeze(0).expand(self.members, -1, -1)
        last = len(self.weights) - 1
        for k, (w, b) in enumerate(zip(self.weights, self.biases)):
            x = torch.baddbmm(b, x, w)
            if k != last:
                x = F.relu(x)
        return x.squeeze(-1)


class SquashedGaussian(nn.Module):
    def __init__(self, obs_dim, act_dim, width):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(obs_dim, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())
        self.mu = nn.Linear(width, act_dim)
        self.log_std = nn.Linear(width, act_dim)

    def forward(self, obs):
        h = self.trunk(obs)
        return self.mu(h), self.log_std(h).clamp(-5.0, 2.0)

    def sample(self, obs):
        mu, log_std = self(obs)
        dist = torch.distributions.Normal(mu, log_std.exp())
        u = dist.rsample()
        # log |d tanh(u) / du| = 2 (log 2 - u - softplus(-2u))
        logp = dist.log_prob(u) - 2.0 * (math.log(2.0) - u - F.softplus(-2.0 * u))
        return torch.tanh(u), logp.sum(dim=1)


def build(obs_dim, act_dim, width=64):
    critic = CriticEnsemble(N_CRITICS, obs_dim + act_dim, width)
    target = CriticEnsemble(N_CRITICS, obs_dim + act_dim, width)
    target.load_state_dict(critic.state_dict())
    target.requires_grad_(False)
    actor = SquashedGaussian(obs_dim, act_dim, width)
    log_alpha = nn.Parameter(torch.tensor(math.log(0.2)))
    return SimpleNamespace(
        critic=critic,
        target=target,
        actor=actor,
        log_alpha=log_alpha,
        target_entropy=-float(act_dim),
        critic_opt=torch.optim.Adam(critic.parameters(), lr=LR),
        actor_opt=torch.optim.Adam(actor.parameters(), lr=LR),
        alpha_opt=torch.optim.Adam([log_alpha], lr=LR),
    )


def critic_step(ag, obs, act, rew, nxt, term):
    with torch.no_grad():
        next_act, next_logp = ag.actor.sample(nxt)
        chosen = torch.randperm(N_CRITICS)[:SUBSET]
        next_q = ag.target(nxt, next_act)[chosen].min(dim=0).values
        y = rew + GAMMA * (1.0 - term) * (next_q - ag.log_alpha.exp() * next_logp)
    q = ag.critic(obs, act)
    loss = (q - y.unsqueeze(0)).pow(2).mean(dim=1).sum()  # every member regresses on the same target
    ag.critic_opt.zero_grad()
    loss.backward()
    ag.critic_opt.step()
    with torch.no_grad():
        for slow, fast in zip(ag.target.parameters(), ag.critic.parameters()):
            slow.add_(fast - slow, alpha=TAU)
    return loss.item() / N_CRITICS


def actor_step(ag, obs):
    ag.critic.requires_grad_(False)
    act, logp = ag.actor.sample(obs)
    q = ag.critic(obs, act).mean(dim=0)  # REDQ: mean over the whole ensemble
    loss = (ag.log_alpha.exp().detach() * logp - q).mean()
    ag.actor_opt.zero_grad()
    loss.backward()
    ag.actor_opt.step()
    ag.critic.requires_grad_(True)

    alpha_loss = -(ag.log_alpha * (logp.detach() + ag.target_entropy)).mean()
    ag.alpha_opt.zero_grad()
    alpha_loss.backward()
    ag.alpha_opt.step()
    return loss.item()


def main(seed, total_steps, random_steps=500):
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    env = gym.make("Pendulum-v1")
    obs_dim, act_dim = env.observation_space.shape[0], env.action_space.shape[0]
    scale = float(env.action_space.high[0])
    ag = build(obs_dim, act_dim)
    D = SimpleNamespace(
        obs=torch.zeros(total_steps, obs_dim),
        act=torch.zeros(total_steps, act_dim),
        rew=torch.zeros(total_steps),
        nxt=torch.zeros(total_steps, obs_dim),
        term=torch.zeros(total_steps),
    )

    def minibatch(size):
        i = torch.from_numpy(rng.integers(0, size, size=BATCH))
        return D.obs[i], D.act[i], D.rew[i], D.nxt[i], D.term[i]

    obs, _ = env.reset(seed=seed)
    score, scores, c_loss, a_loss = 0.0, [], float("nan"), float("nan")
    for t in range(total_steps):
        if t < random_steps:
            act = rng.uniform(-1.0, 1.0, size=act_dim).astype(np.float32)
        else:
            with torch.no_grad():
                act = ag.actor.sample(torch.as_tensor(obs, dtype=torch.float32).unsqueeze(0))[0][0].numpy()
        nxt, rew, terminated, truncated, _ = env.step(scale * act)
        D.obs[t], D.act[t], D.nxt[t] = torch.as_tensor(obs), torch.as_tensor(act), torch.as_tensor(nxt)
        D.rew[t], D.term[t] = float(rew), float(terminated)  # the time limit is not a termination
        score += float(rew)
        obs = nxt
        if terminated or truncated:
            scores.append(score)
            print(
                f"step {t + 1:5d}  episode return {score:9.1f}  critic {c_loss:8.3f}  actor {a_loss:8.2f}"
                f"  alpha {ag.log_alpha.exp().item():.3f}",
                flush=True,
            )
            score = 0.0
            obs, _ = env.reset()
        if t >= random_steps:
            for _ in range(UTD):
                batch = minibatch(t + 1)
                c_loss = critic_step(ag, *batch)
            a_loss = actor_step(ag, batch[0])
    env.close()
    print(f"first three episodes {np.mean(scores[:3]):.1f}, last three {np.mean(scores[-3:]):.1f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=3600)
    a = parser.parse_args()
    main(a.seed, a.steps)
