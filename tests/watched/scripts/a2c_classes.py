"""A2C as classes: an actor and a critic with an optimizer each, n-step returns inside an episode loop."""

from __future__ import annotations

import argparse
import hashlib
import json
import random
from typing import NamedTuple

import gymnasium
import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributions import Categorical


class Actor(nn.Module):
    def __init__(self, n_inputs: int, n_actions: int, width: int = 64) -> None:
        super().__init__()
        self.hidden = nn.Linear(n_inputs, width)
        self.out = nn.Linear(width, n_actions)

    def forward(self, state: Tensor) -> Categorical:
        return Categorical(logits=self.out(F.relu(self.hidden(state))))


class Critic(nn.Module):
    def __init__(self, n_inputs: int, width: int = 64) -> None:
        super().__init__()
        self.first = nn.Linear(n_inputs, width)
        self.second = nn.Linear(width, width)
        self.out = nn.Linear(width, 1)

    def forward(self, state: Tensor) -> Tensor:
        x = F.relu(self.first(state))
        x = F.relu(self.second(x))
        return self.out(x).squeeze(-1)


class Experience(NamedTuple):
    state: np.ndarray
    action: int
    reward: float
    terminated: bool


class A2CAgent:
    def __init__(self, n_inputs: int, n_actions: int, gamma: float = 0.99, entropy_weight: float = 0.01) -> None:
        self.gamma = gamma
        self.entropy_weight = entropy_weight
        self.actor = Actor(n_inputs, n_actions)
        self.critic = Critic(n_inputs)
        self.actor_optimizer = torch.optim.RMSprop(self.actor.parameters(), lr=7e-4, alpha=0.99, eps=1e-5)
        self.critic_optimizer = torch.optim.Adam(self.critic.parameters(), lr=2e-3)
        self.actor_updates = 0
        self.critic_updates = 0

    @torch.no_grad()
    def act(self, state: np.ndarray) -> int:
        return int(self.actor(torch.as_tensor(state)).sample())

    def n_step_returns(self, segment: list[Experience], last_state: np.ndarray) -> Tensor:
        """Discounted sums up to the end of the segment, continued with the critic unless the episode terminated."""
        if segment[-1].terminated:
            running = 0.0
        else:
            with torch.no_grad():
                running = self.critic(torch.as_tensor(last_state)).item()
        returns = []
        for step in reversed(segment):
            running = step.reward + self.gamma * running
            returns.append(running)
        return torch.tensor(returns[::-1], dtype=torch.float32)

    def learn(self, segment: list[Experience], last_state: np.ndarray) -> None:
        states = torch.as_tensor(np.stack([step.state for step in segment]))
        actions = torch.tensor([step.action for step in segment])
        returns = self.n_step_returns(segment, last_state)

        values = self.critic(states)
        policy = self.actor(states)
        advantages = returns - values.detach()

        actor_loss = -(policy.log_prob(actions) * advantages).mean() - self.entropy_weight * policy.entropy().mean()
        self.actor_optimizer.zero_grad()
        actor_loss.backward()
        nn.utils.clip_grad_norm_(self.actor.parameters(), 0.5)
        self.actor_optimizer.step()
        self.actor_updates += 1

        critic_loss = F.mse_loss(values, returns)
        self.critic_optimizer.zero_grad()
        critic_loss.backward()
        self.critic_optimizer.step()
        self.critic_updates += 1


class Trainer:
    def __init__(self, seed: int, episodes: int, n_steps: int) -> None:
        self.seed = seed
        self.n_episodes = episodes
        self.n_steps = n_steps
        self.environment = gymnasium.make("CartPole-v1")
        self.agent = A2CAgent(self.environment.observation_space.shape[0], int(self.environment.action_space.n))
        self.env_steps = 0
        self.episode_returns: list[float] = []

    def play_and_learn(self, seed: int | None) -> float:
        state, _ = self.environment.reset(seed=seed)
        total, over, segment = 0.0, False, []
        while not over:
            action = self.agent.act(state)
            following, reward, terminated, truncated, _ = self.environment.step(action)
            self.env_steps += 1
            segment.append(Experience(state, action, float(reward), terminated))
            total += float(reward)
            over = terminated or truncated
            state = following
            if over or len(segment) == self.n_steps:
                self.agent.learn(segment, following)
                segment = []
        return total

    def run(self) -> None:
        for episode in range(self.n_episodes):
            self.episode_returns.append(self.play_and_learn(self.seed if episode == 0 else None))
            if (episode + 1) % 25 == 0:
                print(f"episode {episode + 1:4d}   mean of last 25: {np.mean(self.episode_returns[-25:]):7.2f}")


def fingerprint(agent: A2CAgent, generator: np.random.Generator) -> str:
    sha = hashlib.sha256()
    for network in (agent.actor, agent.critic):
        for name, weights in sorted(network.state_dict().items()):
            sha.update(name.encode())
            sha.update(weights.numpy().tobytes())
    sha.update(f"{torch.rand(1).item()!r} {generator.random()!r} {random.random()!r}".encode())
    return sha.hexdigest()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--episodes", type=int, default=160)
    parser.add_argument("--n-steps", type=int, default=20)
    options = parser.parse_args()

    torch.set_num_threads(1)
    torch.manual_seed(options.seed)
    random.seed(options.seed)
    generator = np.random.default_rng(options.seed)

    trainer = Trainer(options.seed, options.episodes, options.n_steps)
    trainer.run()
    agent = trainer.agent
    facts = {
        "optimizer_steps": {"actor": agent.actor_updates, "critic": agent.critic_updates},
        "owned": {"actor": len(list(agent.actor.parameters())), "critic": len(list(agent.critic.parameters()))},
        "learning_rate": {
            "actor": agent.actor_optimizer.param_groups[0]["lr"],
            "critic": agent.critic_optimizer.param_groups[0]["lr"],
        },
        "episodes": len(trainer.episode_returns),
        "episode_returns": trainer.episode_returns,
        "env_steps": trainer.env_steps,
        "gamma": agent.gamma,
        "n_steps": options.n_steps,
        "entropy_coefficient": agent.entropy_weight,
    }
    print(json.dumps({"weights_sha256": fingerprint(agent, generator), "facts": facts}))


if __name__ == "__main__":
    main()
