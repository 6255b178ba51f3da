"""torch.jit.script, torch.jit.trace and torch.fx, while the loop around them trains."""

import warnings

import torch
from little_training import network, problem, random_states, train, weights
from torch import nn

warnings.simplefilter("ignore", DeprecationWarning)


class Gated(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = network()
        self.gate = nn.Parameter(torch.zeros(1))

    def forward(self, inputs):
        return self.inner(inputs) * self.gate.sigmoid()


inputs, _ = problem()
for make in (torch.jit.script, torch.fx.symbolic_trace, lambda model: torch.jit.trace(model, inputs)):
    model = Gated()
    made = make(model)
    print(type(made).__name__)
    print(made.code)
    print([node.kind() for node in made.graph.nodes()] if hasattr(made, "graph_for") else made.graph)
    print(repr(train(made, torch.optim.Adam(made.parameters()), updates=2)), weights(made))

model = network()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
print(repr(train(model, optimizer, updates=2)))
distribution = torch.jit.trace(
    lambda logits: torch.distributions.Categorical(logits=logits, validate_args=False).entropy(), torch.zeros(3, 2)
)
print(distribution.code)
print(random_states())
