"""Quantile-regression DQN on CartPole: closures instead of classes, a plain list of environments."""

import argparse
import copy

import gymnasium as gym
import numpy as np
import torch
from torch import nn


def make_replay(capacity, obs_dim, rng):
    store = {
        "obs": np.zeros((capacity, obs_dim), np.float32),
        "act": np.zeros(capacity, np.int64),
        "rew": np.zeros(capacity, np.float32),
        "nxt": np.zeros((capacity, obs_dim), np.float32),
        "term": np.zeros(capacity, np.float32),
    }
    count = 0

    def put(obs, act, rew, nxt, term):
        nonlocal count
        i = count % capacity
        store["obs"][i], store["act"][i], store["rew"][i] = obs, act, rew
        store["nxt"][i], store["term"][i] = nxt, term
        count += 1

    def draw(n):
        idx = rng.integers(0, min(count, capacity), size=n)
        return {k: torch.from_numpy(v[idx]) for k, v in store.items()}

    def size():
        return min(count, capacity)

    return put, draw, size


def make_learner(obs_dim, n_actions, n_quantiles=20, gamma=0.99, lr=1e-3, kappa=1.0):
    net = nn.Sequential(
        nn.Linear(obs_dim, 64),
        nn.ReLU(),
        nn.Linear(64, 64),
        nn.ReLU(),
        nn.Linear(64, n_actions * n_quantiles),
        nn.Unflatten(1, (n_actions, n_quantiles)),
    )
    target_net = copy.deepcopy(net).requires_grad_(False)
    optimizer = torch.optim.Adam(net.parameters(), lr=lr)
    taus = (torch.arange(n_quantiles, dtype=torch.float32) + 0.5) / n_quantiles

    def greedy(obs_batch):
        with torch.no_grad():
            x = torch.as_tensor(obs_batch, dtype=torch.float32)
            return net(x).mean(dim=2).argmax(dim=1).numpy()

    def quantile_huber(predicted, target):
        # predicted (B, N), target (B, M) -> pairwise errors (B, N, M)
        u = target.unsqueeze(1) - predicted.unsqueeze(2)
        abs_u = u.abs()
        huber = torch.where(abs_u <= kappa, 0.5 * u.pow(2), kappa * (abs_u - 0.5 * kappa))
        weight = (taus.view(1, -1, 1) - (u.detach() < 0).float()).abs()
        return (weight * huber / kappa).mean(dim=2).sum(dim=1).mean()

    def learn(batch):
        rows = torch.arange(batch["act"].shape[0])
        with torch.no_grad():
            next_quantiles = target_net(batch["nxt"])
            best = next_quantiles.mean(dim=2).argmax(dim=1)
            bootstrap = next_quantiles[rows, best]
            not_terminal = (1.0 - batch["term"]).unsqueeze(1)
            target = batch["rew"].unsqueeze(1) + gamma * not_terminal * bootstrap
        predicted = net(batch["obs"])[rows, batch["act"]]
        loss = quantile_huber(predicted, target)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 10.0)
        optimizer.step()
        return float(loss.detach())

    def sync():
        target_net.load_state_dict(net.state_dict())

    return greedy, learn, sync


def run(seed, rounds, n_envs=4):
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    envs = [gym.make("CartPole-v1") for _ in range(n_envs)]
    obs_dim = envs[0].observation_space.shape[0]
    n_actions = int(envs[0].action_space.n)
    put, draw, size = make_replay(14000, obs_dim, rng)
    greedy, learn, sync = make_learner(obs_dim, n_actions)

    current = [env.reset(seed=seed * 100 + i)[0] for i, env in enumerate(envs)]
    running = [0.0] * n_envs
    finished, loss, updates = [], float("nan"), 0
    for it in range(1, rounds + 1):
        epsilon = max(0.04, 1.0 - it / 900)
        actions = greedy(np.stack(current))
        explore = rng.random(n_envs) < epsilon
        actions = np.where(explore, rng.integers(0, n_actions, size=n_envs), actions)
        for i, env in enumerate(envs):
            nxt, rew, terminated, truncated, _ = env.step(int(actions[i]))
            put(current[i], actions[i], rew, nxt, float(terminated))
            running[i] += rew
            if terminated or truncated:
                finished.append(running[i])
                running[i] = 0.0
                nxt, _ = env.reset()
            current[i] = nxt
        if size() >= 500:
            for _ in range(2):
                loss = learn(draw(64))
                updates += 1
                if updates % 200 == 0:
                    sync()
        if it % 350 == 0:
            recent = np.mean(finished[-20:]) if finished else float("nan")
            print(f"env steps {it * n_envs:6d}  return(20) {recent:7.1f}  loss {loss:7.3f}", flush=True)

    test_env = gym.make("CartPole-v1")
    scores = []
    for k in range(5):
        obs, _ = test_env.reset(seed=9000 + seed + k)
        score, over = 0.0, False
        while not over:
            obs, rew, terminated, truncated, _ = test_env.step(int(greedy(obs[None])[0]))
            score += rew
            over = terminated or truncated
        scores.append(score)
    print("greedy evaluation:", scores)
    for env in envs + [test_env]:
        env.close()


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--seed", type=int, default=0)
    ap.add_argument("--rounds", type=int, default=3500)
    opts = ap.parse_args()
    run(opts.seed, opts.rounds)
