"""DQN on CartPole-v1 built from closures, lists and tuples; there is not one class in it.

Form: ``make_replay``, ``make_learner`` and ``make_actor`` return functions that keep their state in enclosed
variables. The replay is proportional-prioritised, so the Huber loss is taken with reduction='none', multiplied by
importance weights and then averaged. One gradient step per 4 environment steps. The target network is a second
module into which a cloned state_dict of the online one is loaded now and then; the online network picks the action
(double DQN).

Why it is right: the bootstrap is cut by termination only (a time limit keeps it), the target is computed without
gradients by a network that lags, priorities are refreshed with the TD errors of the batch they belong to.
"""

import argparse
import random

import gymnasium as gym
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn


def make_replay(capacity, alpha, rng):
    rows = []
    priority = np.zeros(capacity)
    cursor = 0

    def add(*row):
        nonlocal cursor
        if len(rows) < capacity:
            rows.append(row)
        else:
            rows[cursor] = row
        priority[cursor] = priority.max() or 1.0
        cursor = (cursor + 1) % capacity

    def draw(k, beta):
        n = len(rows)
        cumulative = np.cumsum(priority[:n])
        picks = np.searchsorted(cumulative, rng.random(k) * cumulative[-1], side="right").clip(max=n - 1)
        weights = (n * priority[picks] / cumulative[-1]) ** -beta
        columns = zip(*(rows[i] for i in picks), strict=True)
        return picks, weights / weights.max(), tuple(columns)

    def refresh(picks, errors):
        priority[picks] = (np.abs(errors) + 1e-3) ** alpha

    return add, draw, refresh


def make_net():
    return nn.Sequential(nn.Linear(4, 96), nn.ReLU(), nn.Linear(96, 96), nn.ReLU(), nn.Linear(96, 2))


def make_learner(online, draw, refresh, *, lr, gamma, batch, sync_every):
    target = make_net().requires_grad_(False)
    optimizer = torch.optim.Adam(online.parameters(), lr=lr)
    count = 0

    def sync():
        snapshot = {name: tensor.detach().clone() for name, tensor in online.state_dict().items()}
        target.load_state_dict(snapshot)

    def bootstrap(rewards, nexts, terminals):
        with torch.no_grad():
            best = online(nexts).argmax(1, keepdim=True)
            return rewards + gamma * (1.0 - terminals) * target(nexts).gather(1, best).squeeze(1)

    def learn(beta):
        nonlocal count
        picks, weights, (s, a, r, s2, term) = draw(batch, beta)
        s, s2 = (torch.from_numpy(np.stack(x)) for x in (s, s2))
        r, term = (torch.tensor(x, dtype=torch.float32) for x in (r, term))
        q = online(s).gather(1, torch.tensor(a).unsqueeze(1)).squeeze(1)
        y = bootstrap(r, s2, term)
        per_sample = F.huber_loss(q, y, reduction="none", delta=1.0)
        loss = (per_sample * torch.as_tensor(weights, dtype=torch.float32)).mean()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_value_(online.parameters(), 10.0)
        optimizer.step()
        refresh(picks, (q.detach() - y).numpy())
        count += 1
        if count % sync_every == 0:
            sync()
        return loss.item()

    sync()
    return learn


def make_actor(online, n_actions, schedule):
    def greedy(obs):
        with torch.no_grad():
            return int(online(torch.from_numpy(obs)).argmax())

    def act(obs, step):
        return random.randrange(n_actions) if random.random() < schedule(step) else greedy(obs)

    return act, greedy


def main(seed, total=18_000, warmup=1_000):
    random.seed(seed)
    torch.manual_seed(seed)
    torch.set_num_threads(1)
    rng = np.random.default_rng(seed)

    env = gym.make("CartPole-v1")
    online = make_net()
    add, draw, refresh = make_replay(10_000, 0.5, rng)
    learn = make_learner(online, draw, refresh, lr=1e-3, gamma=0.98, batch=96, sync_every=100)
    act, greedy = make_actor(online, 2, lambda step: max(0.04, 1.0 - step / 4_000))

    def evaluate(episodes=5):
        test_env, scores = gym.make("CartPole-v1"), []
        for k in range(episodes):
            (o, _), over, score = test_env.reset(seed=10_000 + k), False, 0.0
            while not over:
                o, reward, terminated, truncated, _ = test_env.step(greedy(o))
                score, over = score + reward, terminated or truncated
            scores.append(score)
        return sum(scores) / episodes

    obs, _ = env.reset(seed=seed)
    episode, returns, losses = 0.0, [], []
    for step in range(1, total + 1):
        action = act(obs, step)
        nxt, reward, terminated, truncated, _ = env.step(action)
        add(obs, action, float(reward), nxt, float(terminated))
        episode += float(reward)
        obs = nxt
        if terminated or truncated:
            returns.append(episode)
            episode = 0.0
            obs, _ = env.reset()
        if step > warmup and step % 4 == 0:
            losses.append(learn(beta=0.4 + 0.6 * step / total))
        if step % 2_000 == 0:
            loss = sum(losses[-200:]) / len(losses[-200:])
            print(f"step {step:6d}  return(10) {np.mean(returns[-10:]):6.1f}  loss {loss:.4f}")
    print(f"greedy return over 5 episodes: {evaluate():.1f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="closure DQN")
    parser.add_argument("--seed", type=int, default=0)
    main(**vars(parser.parse_args()))
