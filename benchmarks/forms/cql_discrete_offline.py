"""Discrete conservative Q-learning on CartPole: fixed data from an epsilon-noisy rule, minibatches from a generator."""

import argparse
from collections.abc import Iterator

import gymnasium as gym
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


def behaviour_action(obs: np.ndarray, epsilon: float, rng: np.random.Generator) -> int:
    if rng.random() < epsilon:
        return int(rng.integers(2))
    return int(obs[2] + 0.4 * obs[3] + 0.05 * obs[1] > 0.0)


def build_dataset(size: int, seed: int) -> dict[str, torch.Tensor]:
    rng = np.random.default_rng(seed)
    env = gym.make("CartPole-v1")
    fields: dict[str, list] = {k: [] for k in ("obs", "action", "reward", "next_obs", "terminated")}
    episode_returns = []
    obs, _ = env.reset(seed=seed)
    epsilon, total = 0.3, 0.0
    while len(fields["obs"]) < size:
        action = behaviour_action(obs, epsilon, rng)
        next_obs, reward, terminated, truncated, _ = env.step(action)
        for key, value in zip(fields, (obs, action, reward, next_obs, float(terminated))):
            fields[key].append(value)
        total += float(reward)
        obs = next_obs
        if terminated or truncated:
            episode_returns.append(total)
            total = 0.0
            obs, _ = env.reset()
            epsilon = float(rng.choice([0.3, 0.6, 1.0]))  # from decent to fully random
    env.close()
    print(f"data: {size} transitions, {len(episode_returns)} episodes, behaviour return {np.mean(episode_returns):.1f}")
    dataset = {k: torch.as_tensor(np.array(v), dtype=torch.float32) for k, v in fields.items()}
    dataset["action"] = dataset["action"].long()
    return dataset


def minibatches(
    dataset: dict[str, torch.Tensor], size: int, generator: torch.Generator
) -> Iterator[dict[str, torch.Tensor]]:
    """Endless shuffled epochs over the data set."""
    n = dataset["obs"].shape[0]
    while True:
        order = torch.randperm(n, generator=generator)
        for start in range(0, n - size + 1, size):
            idx = order[start : start + size]
            yield {k: v[idx] for k, v in dataset.items()}


class CQL:
    def __init__(self, obs_dim: int, n_actions: int, cql_weight: float = 0.5, gamma: float = 0.99, lr: float = 1e-3):
        self.gamma, self.cql_weight = gamma, cql_weight
        self.q = self._network(obs_dim, n_actions)
        self.q_target = self._network(obs_dim, n_actions)
        self.q_target.load_state_dict(self.q.state_dict())
        self.q_target.eval()
        self.optimizer = torch.optim.Adam(self.q.parameters(), lr=lr)
        self.updates = 0

    @staticmethod
    def _network(obs_dim: int, n_actions: int) -> nn.Module:
        return nn.Sequential(
            nn.Linear(obs_dim, 64),
            nn.LayerNorm(64),
            nn.ReLU(),
            nn.Linear(64, 64),
            nn.ReLU(),
            nn.Linear(64, n_actions),
        )

    def greedy(self, obs: np.ndarray) -> int:
        with torch.inference_mode():
            return int(self.q(torch.as_tensor(obs, dtype=torch.float32)).argmax().item())

    def update(self, batch: dict[str, torch.Tensor]) -> dict[str, float]:
        q_all = self.q(batch["obs"])
        q_data = q_all.gather(1, batch["action"].unsqueeze(1)).squeeze(1)
        with torch.no_grad():
            best = self.q(batch["next_obs"]).argmax(dim=1, keepdim=True)
            next_q = self.q_target(batch["next_obs"]).gather(1, best).squeeze(1)
            target = batch["reward"] + self.gamma * (1.0 - batch["terminated"]) * next_q
        td_loss = F.smooth_l1_loss(q_data, target)
        # Push all actions down (softly), the data action up.
        gap = (torch.logsumexp(q_all, dim=1) - q_data).mean()
        loss = td_loss + self.cql_weight * gap
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.q.parameters(), 10.0)
        self.optimizer.step()
        self.updates += 1
        if self.updates % 100 == 0:
            self.q_target.load_state_dict(self.q.state_dict())
        return {"td": td_loss.item(), "gap": gap.item(), "q": q_data.mean().item()}


def evaluate(agent: CQL, seed: int, episodes: int = 5) -> float:
    env = gym.make("CartPole-v1")
    total = 0.0
    for k in range(episodes):
        obs, _ = env.reset(seed=seed + k)
        over = False
        while not over:
            obs, reward, terminated, truncated, _ = env.step(agent.greedy(obs))
            total += float(reward)
            over = terminated or truncated
    env.close()
    return total / episodes


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--updates", type=int, default=8000)
    parser.add_argument("--data", type=int, default=12000)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)

    dataset = build_dataset(args.data, args.seed)
    agent = CQL(obs_dim=4, n_actions=2)
    print(f"untrained greedy return {evaluate(agent, 800 + args.seed):.1f}")
    stream = minibatches(dataset, 64, torch.Generator().manual_seed(args.seed))
    for it in range(1, args.updates + 1):
        info = agent.update(next(stream))
        if it % 1000 == 0:
            print(
                f"update {it:5d}  td {info['td']:.4f}  gap {info['gap']:.4f}  q {info['q']:7.2f}"
                f"  greedy return {evaluate(agent, 800 + args.seed):6.1f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
