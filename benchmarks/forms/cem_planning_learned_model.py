"""Model-predictive control on Pendulum: cross-entropy-method planning in a learned model.

No policy or value network and no policy gradient: torch.optim trains the dynamics/reward model by regression only."""

import argparse

import gymnasium as gym
import torch
from torch import nn

HORIZON, POPULATION, ELITES, CEM_ITERS = 20, 128, 12, 3
TORQUE = 2.0


def make_model():
    return nn.Sequential(nn.Linear(4, 64), nn.SiLU(), nn.Linear(64, 64), nn.SiLU(), nn.Linear(64, 4))


def fit(model, optimizer, history, norm, grad_steps, batch=128):
    """Regress (observation change, reward) on (observation, action); refresh the normalisation first."""
    x = torch.stack([torch.cat([o, a]) for o, a, _, _ in history])
    y = torch.stack([torch.cat([n - o, r]) for o, _, r, n in history])
    norm["x_mean"], norm["x_std"] = x.mean(0), x.std(0) + 1e-6
    norm["y_mean"], norm["y_std"] = y.mean(0), y.std(0) + 1e-6
    x, y = (x - norm["x_mean"]) / norm["x_std"], (y - norm["y_mean"]) / norm["y_std"]
    total = 0.0
    for _ in range(grad_steps):
        i = torch.randint(0, len(history), (batch,))
        loss = nn.functional.mse_loss(model(x[i]), y[i])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item()
    return total / grad_steps


def predict(model, norm, obs, act):
    x = (torch.cat([obs, act], dim=1) - norm["x_mean"]) / norm["x_std"]
    y = model(x) * norm["y_std"] + norm["y_mean"]
    nxt = obs + y[:, :3]
    circle = nxt[:, :2] / nxt[:, :2].norm(dim=1, keepdim=True).clamp(min=1e-6)
    nxt = torch.cat([circle, nxt[:, 2:].clamp(-8.0, 8.0)], dim=1)
    return nxt, y[:, 3]


@torch.no_grad()
def plan(model, norm, obs, mean):
    """Return the refined mean action sequence (HORIZON, 1), actions in [-1, 1]."""
    std = torch.ones_like(mean)
    for _ in range(CEM_ITERS):
        noise = torch.randn(POPULATION, HORIZON, 1)
        plans = (mean + std * noise).clamp(-1.0, 1.0)
        state = obs.expand(POPULATION, 3)
        returns = torch.zeros(POPULATION)
        for h in range(HORIZON):
            state, reward = predict(model, norm, state, plans[:, h])
            returns += reward
        best = plans[returns.topk(ELITES).indices]
        mean, std = best.mean(dim=0), best.std(dim=0) + 0.02
    return mean


def shifted(mean):
    """Warm start for the next step: drop the executed action, append a zero."""
    return torch.cat([mean[1:], torch.zeros(1, 1)])


def run_episode(env, choose, seed=None):
    """Generator over (obs, action, reward, next_obs) tensors of one episode."""
    obs, _ = env.reset(seed=seed)
    obs = torch.as_tensor(obs, dtype=torch.float32)
    over = False
    while not over:
        action = choose(obs)
        nxt, reward, terminated, truncated, _ = env.step((TORQUE * action).numpy())
        nxt = torch.as_tensor(nxt, dtype=torch.float32)
        yield obs, action, torch.tensor([float(reward)]), nxt
        obs, over = nxt, terminated or truncated


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--random-episodes", type=int, default=3)
    parser.add_argument("--planned-episodes", type=int, default=7)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)

    env = gym.make("Pendulum-v1")
    model = make_model()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    history, norm = [], {}

    def random_action(_obs):
        return torch.rand(1) * 2.0 - 1.0

    for k in range(args.random_episodes):
        episode = list(run_episode(env, random_action, seed=args.seed if k == 0 else None))
        history.extend(episode)
        print(f"random episode {k}: return {sum(r.item() for _, _, r, _ in episode):9.1f}")
    loss = fit(model, optimizer, history, norm, grad_steps=1200)
    print(f"model loss on {len(history)} transitions: {loss:.4f}")

    for k in range(args.planned_episodes):
        mean = torch.zeros(HORIZON, 1)

        def planned_action(obs):
            nonlocal mean
            sequence = plan(model, norm, obs, mean)
            mean = shifted(sequence)
            return sequence[0].clone()

        episode = list(run_episode(env, planned_action))
        history.extend(episode)
        loss = fit(model, optimizer, history, norm, grad_steps=400)
        total = sum(r.item() for _, _, r, _ in episode)
        print(f"planned episode {k}: return {total:9.1f}  model loss {loss:.4f}", flush=True)
    env.close()


if __name__ == "__main__":
    main()
