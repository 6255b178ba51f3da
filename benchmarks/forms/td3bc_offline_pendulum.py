"""TD3+BC on a fixed offline Pendulum data set that a noisy scripted swing-up controller collects first."""

import argparse
import copy

import gymnasium as gym
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

MAX_TORQUE = 2.0


def scripted_controller(obs):
    """Energy pumping far from the top, a PD law near it. Returns a torque."""
    cos, sin, vel = obs
    theta = np.arctan2(sin, cos)
    if abs(theta) < 0.4:
        return -(8.0 * theta + 2.0 * vel)
    energy = vel**2 / 6.0 + 5.0 * cos
    return 1.5 * vel * (5.0 - energy)


def collect(n, seed):
    rng = np.random.default_rng(seed)
    env = gym.make("Pendulum-v1")
    rows, returns, score = [], [], 0.0
    obs, _ = env.reset(seed=seed)
    while len(rows) < n:
        if rng.random() < 0.15:
            torque = rng.uniform(-MAX_TORQUE, MAX_TORQUE)
        else:
            torque = scripted_controller(obs) + rng.normal(0.0, 0.6)
        action = np.clip([torque / MAX_TORQUE], -1.0, 1.0).astype(np.float32)  # stored in [-1, 1]
        nxt, reward, terminated, truncated, _ = env.step(action * MAX_TORQUE)
        rows.append((obs, action, [reward], nxt, [float(terminated)]))
        score += float(reward)
        obs = nxt
        if terminated or truncated:
            returns.append(score)
            score = 0.0
            obs, _ = env.reset()
    env.close()
    print(f"collected {n} transitions, behaviour return {np.mean(returns):.1f}")
    columns = [torch.as_tensor(np.array(c), dtype=torch.float32) for c in zip(*rows)]
    return dict(zip(("obs", "act", "rew", "nxt", "term"), columns))


class Actor(nn.Module):
    def __init__(self, obs_dim, act_dim, width=64):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(obs_dim, width),
            nn.ReLU(),
            nn.Linear(width, width),
            nn.ReLU(),
            nn.Linear(width, act_dim),
            nn.Tanh(),
        )

    def forward(self, obs):
        return self.net(obs)


class Critic(nn.Module):
    def __init__(self, obs_dim, act_dim, width=64):
        super().__init__()

        def head():
            return nn.Sequential(
                nn.Linear(obs_dim + act_dim, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1)
            )

        self.first, self.second = head(), head()

    def forward(self, obs, act):
        x = torch.cat([obs, act], dim=-1)
        return self.first(x), self.second(x)

    def q1(self, obs, act):
        return self.first(torch.cat([obs, act], dim=-1))


def polyak(target, source, tau):
    with torch.no_grad():
        for t, s in zip(target.parameters(), source.parameters()):
            t.copy_(tau * s + (1.0 - tau) * t)


def evaluate(actor, mean, std, seed, episodes=4):
    env = gym.make("Pendulum-v1")
    total = 0.0
    for k in range(episodes):
        obs, _ = env.reset(seed=seed + k)
        over = False
        while not over:
            with torch.no_grad():
                x = (torch.as_tensor(obs, dtype=torch.float32) - mean) / std
                act = actor(x.unsqueeze(0))[0].numpy()
            obs, reward, terminated, truncated, _ = env.step(act * MAX_TORQUE)
            total += float(reward)
            over = terminated or truncated
    env.close()
    return total / episodes


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--updates", type=int, default=4500)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)

    gamma, tau, policy_noise, noise_clip, policy_delay, bc_alpha, batch = 0.99, 0.005, 0.2, 0.5, 2, 2.5, 128
    data = collect(10_000, args.seed)
    mean, std = data["obs"].mean(dim=0), data["obs"].std(dim=0) + 1e-3
    data["obs"] = (data["obs"] - mean) / std
    data["nxt"] = (data["nxt"] - mean) / std

    actor, critic = Actor(3, 1), Critic(3, 1)
    actor_target, critic_target = copy.deepcopy(actor), copy.deepcopy(critic)
    actor_opt = torch.optim.Adam(actor.parameters(), lr=1e-3)
    critic_opt = torch.optim.Adam(critic.parameters(), lr=1e-3)
    print(f"untrained policy return {evaluate(actor, mean, std, 400 + args.seed):.1f}")

    for it in range(1, args.updates + 1):
        idx = torch.randint(0, data["obs"].shape[0], (batch,))
        obs, act, rew, nxt, term = (data[k][idx] for k in ("obs", "act", "rew", "nxt", "term"))

        with torch.no_grad():
            noise = (torch.randn_like(act) * policy_noise).clamp(-noise_clip, noise_clip)
            next_act = (actor_target(nxt) + noise).clamp(-1.0, 1.0)
            t1, t2 = critic_target(nxt, next_act)
            y = rew + gamma * (1.0 - term) * torch.min(t1, t2)
        q1, q2 = critic(obs, act)
        critic_loss = F.mse_loss(q1, y) + F.mse_loss(q2, y)
        critic_opt.zero_grad()
        critic_loss.backward()
        critic_opt.step()

        if it % policy_delay == 0:
            pi = actor(obs)
            q = critic.q1(obs, pi)
            lam = bc_alpha / q.abs().mean().detach()
            actor_loss = -lam * q.mean() + F.mse_loss(pi, act)
            actor_opt.zero_grad()
            actor_loss.backward()  # also fills critic grads; critic_opt.zero_grad() clears them before use
            actor_opt.step()
            polyak(actor_target, actor, tau)
            polyak(critic_target, critic, tau)

        if it % 750 == 0:
            print(
                f"update {it:5d}  critic {critic_loss.item():8.3f}  actor {actor_loss.item():7.3f}"
                f"  eval return {evaluate(actor, mean, std, 400 + args.seed):8.1f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
