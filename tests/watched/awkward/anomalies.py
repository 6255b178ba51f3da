"""Anomaly detection is on, and finds something: what torch prints then names the script's own lines."""

import torch
from little_training import problem
from torch import nn


class Fragile(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 1)
        self.calls = 0

    def forward(self, inputs):
        self.calls += 1
        values = self.layer(inputs)
        return (values * 0).sqrt() * 0 if self.calls == 3 else values


torch.manual_seed(0)
torch.autograd.set_detect_anomaly(True)
model = Fragile()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
inputs, targets = problem()
for update in range(5):
    optimizer.zero_grad()
    loss = (model(inputs) - targets).pow(2).mean()
    try:
        loss.backward()
    except RuntimeError as error:
        print(update, error)
    optimizer.step()
    print(update, repr(loss.item()), torch.is_anomaly_enabled())
print(model.layer.weight.tolist())
