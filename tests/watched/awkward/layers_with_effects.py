"""Layers of torch's own that draw numbers, change their weights or change their input when they are called."""

import torch
from little_training import digest, network, problem, random_states, weights
from torch import nn

inputs, targets = problem()


def learn(model, given, updates=2):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
    for _ in range(updates):
        optimizer.zero_grad()
        (model(given).reshape(16, -1) - targets).pow(2).mean().backward()
        optimizer.step()
        print("  ", weights(model), digest(given), random_states()[2])


def section(name, model, given):
    print(name)
    torch.manual_seed(1)
    learn(model, given)


section("alpha dropout", nn.Sequential(*network()[:2], nn.AlphaDropout(0.2), nn.Linear(8, 1)), inputs.clone())
section(
    "feature alpha dropout", nn.Sequential(*network()[:2], nn.FeatureAlphaDropout(0.2), nn.Linear(8, 1)), inputs.clone()
)
torch.manual_seed(0)
places = torch.arange(16)
section("embedding with a norm", nn.Sequential(nn.Embedding(16, 8, max_norm=0.5), nn.Linear(8, 1)), places)
section("input changed in place", nn.Sequential(nn.LeakyReLU(0.5, inplace=True), nn.Linear(4, 1)), inputs.clone())
section("lazy", nn.Sequential(nn.LazyLinear(6), nn.Tanh(), nn.LazyLinear(1)), inputs.clone())
section("group norm", nn.Sequential(nn.Linear(4, 8), nn.GroupNorm(2, 8), nn.RReLU(), nn.Linear(8, 1)), inputs.clone())
section(
    "statistics of instances", nn.InstanceNorm1d(1, affine=True, track_running_stats=True), inputs[:, None, :].clone()
)
