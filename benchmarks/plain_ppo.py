"""PPO on CartPole-v1 as one plain loop of torch and Gymnasium, at the settings that CleanRL's ppo.py made usual: the peer of speed.py's
`ppo_plain`.

4 environments, 128 steps, 4 epochs of 4 minibatches, two towers of 64-64 tanh, learning rate 2.5e-4 falling to 0, clipped values.
"""

from __future__ import annotations

import time

import gymnasium as gym
import numpy as np
import torch
from torch import Tensor, nn
from torch.distributions import Categorical

ENVS, STEPS, EPOCHS, MINIBATCHES = 4, 128, 4, 4
RATE, GAMMA, LAMBDA, CLIP, ENTROPY, VALUE, LIMIT = 2.5e-4, 0.99, 0.95, 0.2, 0.01, 0.5, 0.5


def tower(out: int, gain: float) -> nn.Sequential:
    layers = [nn.Linear(4, 64), nn.Linear(64, 64), nn.Linear(64, out)]
    for layer, own in zip(layers, (2**0.5, 2**0.5, gain), strict=True):
        nn.init.orthogonal_(layer.weight, own)
        nn.init.zeros_(layer.bias)
    return nn.Sequential(layers[0], nn.Tanh(), layers[1], nn.Tanh(), layers[2])


def train(total_steps: int, seed: int) -> tuple[float, list[tuple[int, float]]]:
    """CPU seconds of the loop, and of all episodes the step at which they ended and their return."""
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    envs = gym.vector.SyncVectorEnv([lambda: gym.make("CartPole-v1") for _ in range(ENVS)])
    envs = gym.wrappers.vector.RecordEpisodeStatistics(envs)
    actor, critic = tower(2, 0.01), tower(1, 1.0)
    parameters = [*actor.parameters(), *critic.parameters()]
    optimizer = torch.optim.Adam(parameters, lr=RATE, eps=1e-5)
    shape = (STEPS, ENVS)
    seen = torch.zeros((*shape, 4))
    taken, log_probs, values, rewards, begun = (torch.zeros(shape) for _ in range(5))
    episodes: list[tuple[int, float]] = []
    began = time.process_time()
    observation, _ = envs.reset(seed=seed)
    state, fresh = torch.as_tensor(observation), torch.zeros(ENVS)
    updates = total_steps // (ENVS * STEPS)
    for update in range(updates):
        optimizer.param_groups[0]["lr"] = RATE * (1 - update / updates)
        for t in range(STEPS):
            seen[t], begun[t] = state, fresh
            with torch.no_grad():
                policy = Categorical(logits=actor(state))
                action = policy.sample()
                log_probs[t], values[t] = policy.log_prob(action), critic(state).flatten()
            taken[t] = action
            observation, reward, terminated, truncated, infos = envs.step(action.numpy())
            rewards[t] = torch.as_tensor(reward)
            state, fresh = torch.as_tensor(observation), torch.as_tensor(terminated | truncated).float()
            if "episode" in infos:
                step = ENVS * (STEPS * update + t + 1)
                episodes += [(step, return_) for return_ in infos["episode"]["r"][infos["_episode"]].tolist()]
        advantages = estimated(rewards, values, begun, fresh, critic(state).flatten().detach())
        learn(
            (actor, critic), optimizer, parameters, seen.flatten(0, 1), taken.flatten(), log_probs.flatten(),
            values.flatten(), advantages.flatten(), (advantages + values).flatten(),
        )  # fmt: skip
    return time.process_time() - began, episodes


def estimated(rewards: Tensor, values: Tensor, begun: Tensor, fresh: Tensor, last_value: Tensor) -> Tensor:
    advantages, carried = torch.zeros_like(rewards), torch.zeros(ENVS)
    for t in reversed(range(STEPS)):
        goes_on = 1 - (fresh if t == STEPS - 1 else begun[t + 1])
        following = last_value if t == STEPS - 1 else values[t + 1]
        carried = rewards[t] + GAMMA * following * goes_on - values[t] + GAMMA * LAMBDA * goes_on * carried
        advantages[t] = carried
    return advantages


def learn(
    towers: tuple[nn.Module, nn.Module],
    optimizer: torch.optim.Optimizer,
    parameters: list[nn.Parameter],
    seen: Tensor,
    taken: Tensor,
    old_log_probs: Tensor,
    old_values: Tensor,
    advantages: Tensor,
    targets: Tensor,
) -> None:
    actor, critic = towers
    for _ in range(EPOCHS):
        for rows in np.array_split(np.random.permutation(len(seen)), MINIBATCHES):  # noqa: NPY002 (as such loops do)
            policy, value = Categorical(logits=actor(seen[rows])), critic(seen[rows]).flatten()
            ratio = (policy.log_prob(taken[rows]) - old_log_probs[rows]).exp()
            weight = advantages[rows]
            weight = (weight - weight.mean()) / (weight.std() + 1e-8)
            policy_loss = torch.max(-weight * ratio, -weight * ratio.clamp(1 - CLIP, 1 + CLIP)).mean()
            held = old_values[rows] + (value - old_values[rows]).clamp(-CLIP, CLIP)
            value_loss = 0.5 * torch.max((value - targets[rows]) ** 2, (held - targets[rows]) ** 2).mean()
            loss = policy_loss - ENTROPY * policy.entropy().mean() + VALUE * value_loss
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(parameters, LIMIT)
            optimizer.step()
