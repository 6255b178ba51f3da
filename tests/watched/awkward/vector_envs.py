"""A policy in vector environments: in this process, in forked ones."""

import gymnasium
import numpy as np
import torch
from little_env import Line
from little_training import random_states, weights
from torch import nn

STEPS = 24


def learn(envs):
    torch.manual_seed(0)
    policy = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 2))
    optimizer = torch.optim.Adam(policy.parameters(), lr=0.01)
    observations, _ = envs.reset(seed=5)
    for _ in range(3):
        log_probs, rewards = [], []
        for _ in range(STEPS):
            distribution = torch.distributions.Categorical(logits=policy(torch.as_tensor(observations)))
            actions = distribution.sample()
            observations, reward, ended, cut, info = envs.step(actions.numpy())
            log_probs.append(distribution.log_prob(actions))
            rewards.append(torch.as_tensor(reward))
        weight = torch.stack(rewards).flip(0).cumsum(0).flip(0).float()
        loss = -(torch.stack(log_probs) * (weight - weight.mean())).mean()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(policy.parameters(), 0.5)
        optimizer.step()
        print(repr(loss.item()), np.concatenate([ended, cut]).astype(int), sorted(info))
    envs.close()
    return weights(policy)


if __name__ == "__main__":
    print(learn(gymnasium.vector.SyncVectorEnv([lambda: Line() for _ in range(2)])))
    print(learn(gymnasium.vector.AsyncVectorEnv([lambda: Line() for _ in range(2)])))
    print(learn(gymnasium.vector.SyncVectorEnv([lambda: gymnasium.wrappers.TimeLimit(Line(), 5)] * 2)))
    print(random_states())
