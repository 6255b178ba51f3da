"""The policy of Q-learning: a network that values every action, and a head that mostly takes the best one.

A duelling network keeps the value of a state and the advantages of its actions apart: Q = V + A - mean(A).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from gymnasium import spaces
from torch import Tensor

from ..config import PolicySettings
from ..errors import UnsupportedSpace
from .encoders import Encoder
from .heads import Head
from .networks import MLP, Layer, PolicyNetwork, linear, write_gradients
from .spaces import ActionLayout


class EpsilonGreedyHead(Head):
    """With probability epsilon any action, else the one of the highest value. `params` are values [B, n]."""

    epsilon: Tensor

    def __init__(self, count: int, epsilon: float) -> None:
        super().__init__()
        self.n_params = count
        self.n_actions = 1
        self.max_entropy = math.log(count)
        self.register_buffer("epsilon", torch.tensor(epsilon, dtype=torch.float32))

    def log_prob_and_entropy(self, params: Tensor, actions: Tensor) -> tuple[Tensor, Tensor]:
        each = self.epsilon / self.n_params
        best = 1 - self.epsilon + each
        chosen = actions[:, 0].long() == params.argmax(1)
        return torch.where(chosen, best, each).clamp_min(1e-30).log(), self.entropy().expand(len(params))

    def entropy(self) -> Tensor:
        """The same whatever the values are."""
        each = self.epsilon / self.n_params
        best = 1 - self.epsilon + each
        return -(torch.xlogy(best, best) + (self.n_params - 1) * torch.xlogy(each, each))

    def sample(self, params: Tensor, generator: np.random.Generator) -> Tensor:
        chosen = params.argmax(1).cpu().numpy().astype(np.float32)
        explores = generator.random(len(chosen)) < float(self.epsilon)
        if explores.any():
            chosen[explores] = generator.integers(0, self.n_params, np.count_nonzero(explores))
        return torch.from_numpy(chosen[:, None]).to(params.device)

    def mode(self, params: Tensor) -> Tensor:
        return params.argmax(1, keepdim=True).to(torch.float32)


@dataclass(frozen=True)
class QOutputs:
    """The values of every action [B, n], and what `QNetwork.backward` needs."""

    values: Tensor
    features: Tensor
    kept: list[Layer]
    graph: Tensor | None = None
    """Where autograd takes over, in front of the trunk; None where it reads rows as they are."""


class QNetwork(PolicyNetwork):
    def __init__(
        self,
        size: int,
        head: EpsilonGreedyHead,
        settings: PolicySettings,
        duelling: bool,
        noise: torch.Generator,
        encoder: Encoder | None = None,
    ) -> None:
        super().__init__(encoder)
        self.trunk = MLP(size if encoder is None else encoder.size, settings, 0, 1.0, noise)
        self.advantage = linear(self.trunk.width, head.n_params, 1.0, noise)
        self.value = linear(self.trunk.width, 1, 1.0, noise) if duelling else None
        self.head = head

    def forward(self, observation: Tensor) -> Tensor:
        return self._values(self.trunk(self.read(observation)))

    def policy_params(self, observation: Tensor) -> Tensor:
        return self._values(self.trunk(self.read(observation)))

    def values(self, observation: Tensor) -> Tensor:
        """Of each state [B]: that of its best action."""
        return self.policy_params(observation).amax(1)

    def keeping(self, observation: Tensor) -> QOutputs:
        """The same values without a graph, until `backward`."""
        fed, graph = self.read_keeping(observation)
        with torch.no_grad():
            features, kept = self.trunk.keeping(fed)
            return QOutputs(self._values(features), features, kept, graph)

    def backward(self, outputs: QOutputs, gradient: Tensor) -> None:
        """From d loss / d values [B, n], d loss / d parameter, written over each `.grad`."""
        with torch.no_grad():
            to_advantage = gradient
            if self.value is not None:
                to_value = gradient.sum(1, keepdim=True)
                to_advantage = gradient - to_value / gradient.shape[1]
                write_gradients(self.value, outputs.features, to_value)
            write_gradients(self.advantage, outputs.features, to_advantage)
            to_features = torch.mm(to_advantage, self.advantage.weight)
            if self.value is not None:
                to_features.addmm_(to_value, self.value.weight)
            to_fed = self.trunk.backward(outputs.kept, to_features, to_input=outputs.graph is not None)
        if outputs.graph is not None:
            assert to_fed is not None
            self.write_reading(outputs.graph, to_fed)

    def _values(self, features: Tensor) -> Tensor:
        advantage = F.linear(features, self.advantage.weight, self.advantage.bias)
        if self.value is None:
            return advantage
        value = F.linear(features, self.value.weight, self.value.bias)
        return value + advantage - advantage.mean(1, keepdim=True)


def make_greedy_head(layout: ActionLayout, epsilon: float) -> EpsilonGreedyHead:
    if not isinstance(layout.space, spaces.Discrete):
        raise UnsupportedSpace(
            f"DQN values each of a number of actions (Discrete), and this is {layout.space}. Use ppo or sac."
        )
    return EpsilonGreedyHead(int(layout.space.n), epsilon)
