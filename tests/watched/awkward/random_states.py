"""Dropout, batch normalisation and samples: generators and running statistics must end where they would have."""

import random

import gymnasium
import numpy as np
import torch
from little_env import Line
from little_training import problem, random_states, weights
from torch import nn

random.seed(1)
np.random.seed(2)  # noqa: NPY002
torch.manual_seed(3)
model = nn.Sequential(nn.Linear(4, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.3), nn.Linear(16, 2))
recurrent = nn.LSTM(4, 3, num_layers=2, dropout=0.2)
spectral = nn.utils.parametrizations.spectral_norm(nn.Linear(4, 1))
optimizer = torch.optim.Adam([*model.parameters(), *recurrent.parameters(), *spectral.parameters()], lr=0.01)
inputs, _ = problem()
env = gymnasium.wrappers.TimeLimit(Line(), 10)
env.reset(seed=4)
for update in range(10):
    model.train(update % 3 != 2)
    distribution = torch.distributions.Categorical(logits=model(inputs))
    actions = distribution.sample()
    normal = torch.distributions.Normal(spectral(inputs), 1.0)
    loss = -(distribution.log_prob(actions) * torch.randn(16)).mean() - 0.01 * distribution.entropy().mean()
    loss = loss + recurrent(inputs[None])[0].pow(2).mean() + normal.log_prob(normal.rsample()).mean()
    ended, cut = env.step(env.action_space.sample() if random.random() < 0 else int(actions[0]))[2:4]
    if ended or cut:
        env.reset()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(update, repr(loss.item()), actions.tolist())
print(random_states())
print(model[1].running_mean.tolist(), model[1].running_var.tolist(), model[1].num_batches_tracked.item())
print(weights(model), weights(recurrent), weights(spectral))
