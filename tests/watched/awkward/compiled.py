"""torch.compile, with a backend that counts graphs, with eager ones, and of functions that train."""

import torch
from little_training import network, problem, weights
from torch import nn

graphs = []


def counting(module, example_inputs):
    graphs.append(len(module.graph.nodes))
    return module.forward


def learn(model, forward, updates=3):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    inputs, targets = problem()
    for _ in range(updates):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(forward(inputs), targets)
        loss.backward()
        optimizer.step()
    return repr(loss.item())


model = network()
print("before", learn(model, model))
for backend in (counting, "eager", "aot_eager"):
    model = network()
    print(learn(model, torch.compile(model, backend=backend)), weights(model))
model = network()
model.compile(backend=counting)
print(learn(model, model), weights(model))


@torch.compile(backend=counting)
def loss_of(model, inputs, targets):
    return (model(inputs) - targets).pow(2).mean()


model = network()
optimizer = torch.optim.Adam(model.parameters())
for rows in (16, 16, 8):
    optimizer.zero_grad()
    loss_of(model, *problem(rows=rows)).backward()
    optimizer.step()
print(weights(model))
print(graphs, dict(torch._dynamo.utils.counters["graph_break"]))
