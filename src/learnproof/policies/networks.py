"""Networks from flat rows to numbers: the MLP and the actor-critic built of it.

Each has its forward pass twice. `forward` is plain PyTorch and belongs to anybody's autograd. `keeping` and `backward`
are the same function with its derivative written out, for the loop that does this a hundred thousand times: products
go straight into the gradients that the parameters already have, where autograd would make new ones and add them up.
At minibatch 64 that is a quarter of a gradient step. tests/unit/policies/test_networks.py holds the two together.

Forward passes call the functional forms: at these sizes a module call costs as much as the product it wraps.
"""

from __future__ import annotations

import itertools
import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..config import PolicySettings
from .encoders import Encoded, Encoder
from .heads import Head
from .recurrent import GatedUnit, Sequences


class MLP(nn.Module):
    """Hidden layers with orthogonal weights; `out` = 0 leaves the last layer away (a trunk)."""

    def __init__(self, size: int, settings: PolicySettings, out: int, out_gain: float, noise: torch.Generator) -> None:
        super().__init__()
        widths = [size, *settings.hidden]
        gain = math.sqrt(2)
        self.layers = nn.ModuleList(linear(a, b, gain, noise) for a, b in itertools.pairwise(widths))
        self.norms = nn.ModuleList(nn.LayerNorm(w) for w in settings.hidden) if settings.layer_norm else None
        self.out = linear(widths[-1], out, out_gain, noise) if out else None
        self.width = out or widths[-1]
        self.uses_relu = settings.activation == "relu"
        self.activation = torch.relu if self.uses_relu else torch.tanh
        self.at_hand = [(layer.weight, layer.bias) for layer in self.layers if isinstance(layer, nn.Linear)]
        """The hidden layers' parameters: a module takes as long to find its own as a row takes to go through them."""

    def forward(self, x: Tensor) -> Tensor:
        for position, (weight, bias) in enumerate(self.at_hand):
            x = F.linear(x, weight, bias)
            if self.norms is not None:
                x = self.norms[position](x)
            x = self.activation(x)
        return x if self.out is None else F.linear(x, self.out.weight, self.out.bias)

    def keeping(self, x: Tensor) -> tuple[Tensor, list[Layer]]:
        """The same outputs without a graph, and what `backward` needs of each hidden layer."""
        kept = []
        for position, (weight, bias) in enumerate(self.at_hand):
            fed, normalised = x, None
            x = F.linear(fed, weight, bias)
            if self.norms is not None:
                norm = self.norms[position]
                before = x
                x, mean, inverse = torch.native_layer_norm(x, norm.normalized_shape, norm.weight, norm.bias, norm.eps)  # type: ignore[arg-type]
                normalised = (before, mean, inverse)
            x = self.activation(x)
            kept.append(Layer(fed, normalised, x))
        if self.out is None:
            return x, kept
        return F.linear(x, self.out.weight, self.out.bias), kept

    def backward(
        self, kept: list[Layer], gradient: Tensor, *, write: bool = True, to_input: bool = False
    ) -> Tensor | None:
        """From d loss / d output, d loss / d parameter, written over each parameter's `.grad`; and d loss / d input, if asked.

        `write` = False leaves the parameters' gradients alone: a critic that an actor climbs is not trained by it.
        """
        if self.out is not None:
            if write:
                write_gradients(self.out, kept[-1].activated, gradient)
            gradient = torch.mm(gradient, self.out.weight)
        derivative = _relu_backward if self.uses_relu else torch.ops.aten.tanh_backward.default
        for position in reversed(range(len(kept))):
            layer, own = self.layers[position], kept[position]
            assert isinstance(layer, nn.Linear)
            gradient = derivative(gradient, own.activated)
            if own.normalised is not None:
                assert self.norms is not None
                gradient = _norm_backward(self.norms[position], own.normalised, gradient, write)
            if write:
                write_gradients(layer, own.fed, gradient)
            if position or to_input:
                gradient = torch.mm(gradient, layer.weight)
        return gradient if to_input else None


@dataclass(frozen=True)
class Layer:
    """What one hidden layer was fed, what its normalisation saw (input, mean, 1/deviation), what it gave."""

    fed: Tensor
    normalised: tuple[Tensor, Tensor, Tensor] | None
    activated: Tensor


def write_gradients(layer: nn.Linear, fed: Tensor, gradient: Tensor) -> None:
    torch.mm(gradient.t(), fed, out=layer.weight.grad)
    torch.sum(gradient, 0, out=layer.bias.grad)


def _relu_backward(gradient: Tensor, activated: Tensor) -> Tensor:
    out: Tensor = torch.ops.aten.threshold_backward.default(gradient, activated, 0)
    return out


def _norm_backward(norm: nn.Module, seen: tuple[Tensor, Tensor, Tensor], gradient: Tensor, write: bool) -> Tensor:
    assert isinstance(norm, nn.LayerNorm)
    through, weight, bias = torch.ops.aten.native_layer_norm_backward(
        gradient, seen[0], norm.normalized_shape, seen[1], seen[2], norm.weight, norm.bias, [True, write, write]
    )
    if write:
        assert norm.weight.grad is not None
        assert norm.bias.grad is not None
        norm.weight.grad.copy_(weight)
        norm.bias.grad.copy_(bias)
    out: Tensor = through
    return out


def linear(size: int, out: int, gain: float, noise: torch.Generator) -> nn.Linear:
    layer = nn.utils.skip_init(nn.Linear, size, out)  # type: ignore[no-untyped-call]
    nn.init.orthogonal_(layer.weight, gain, generator=noise)
    nn.init.zeros_(layer.bias)
    assert isinstance(layer, nn.Linear)
    return layer


class PolicyNetwork(Encoded, ABC):
    """What an actor asks of its network: the parameters of its head's distribution."""

    head: Head

    def __init__(self, encoder: Encoder | None) -> None:
        super().__init__(encoder)
        self.memory: GatedUnit | None = None
        """Where there is one, an actor asks `recall` instead."""

    @abstractmethod
    def policy_params(self, observation: Tensor) -> Tensor: ...

    def recall(self, observation: Tensor, memory: Tensor) -> tuple[Tensor, Tensor]:
        """The same of a network with a memory; and what it remembers afterwards."""
        raise NotImplementedError(f"{type(self).__name__} has no memory")


class ActorCritic(PolicyNetwork):
    """Policy and value, on trunks of their own or on a shared one; encoder and memory, where there are any, are shared.

    With a memory, observations are `Sequences`, and what is said of them is said of their chosen rows.

    The last policy layer starts a hundred times smaller than the rest, so that the first policy is near uniform. With
    `policy_size` the policy reads only that many columns of a row, the first ones, and the value all: a central critic.
    """

    def __init__(
        self,
        size: int,
        head: Head,
        settings: PolicySettings,
        noise: torch.Generator,
        value_hidden: tuple[int, ...] | None = None,
        encoder: Encoder | None = None,
        policy_size: int | None = None,
    ) -> None:
        super().__init__(encoder)
        size = size if encoder is None else encoder.size
        if settings.recurrent:
            self.memory = GatedUnit(size, settings.memory_size, noise)
            size = self.memory.size
        self.policy_size = size if policy_size is None else policy_size
        self.central = self.policy_size < size
        if settings.shared_trunk:
            assert not self.central
            self.trunk: MLP | None = MLP(size, settings, 0, 1.0, noise)
            self.policy: nn.Module = linear(self.trunk.width, head.n_params, 0.01, noise)
            self.value: nn.Module = linear(self.trunk.width, 1, 1.0, noise)
        else:
            self.trunk = None
            self.policy = MLP(self.policy_size, settings, head.n_params, 0.01, noise)
            own = settings if value_hidden is None else settings.model_copy(update={"hidden": value_hidden})
            self.value = MLP(size, own, 1, 1.0, noise)
        self.head = head

    def forward(self, observation: Tensor | Sequences, action: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """log-probability [B] and entropy [B] of the policy, value [B]."""
        fed = self.read(observation)
        features = fed if self.trunk is None else self.trunk(fed)
        params = self.policy(self.seen_by_policy(features))
        log_prob, entropy = self.head.log_prob_and_entropy(params, action)
        return log_prob, entropy, self.value(features).squeeze(1)

    def seen_by_policy(self, features: Tensor) -> Tensor:
        return features[:, : self.policy_size] if self.central else features

    def keeping(self, observation: Tensor | Sequences) -> ActorCriticOutputs:
        """Policy parameters and values, cut off from the networks behind them until `backward`."""
        fed, graph = self.read_keeping(observation)
        with torch.no_grad():
            if self.trunk is None:
                assert isinstance(self.policy, MLP)
                assert isinstance(self.value, MLP)
                features = fed
                params, policy = self.policy.keeping(self.seen_by_policy(fed))
                value, critic = self.value.keeping(fed)
                kept: tuple[list[Layer], ...] = (policy, critic)
            else:
                assert isinstance(self.policy, nn.Linear)
                assert isinstance(self.value, nn.Linear)
                features, trunk = self.trunk.keeping(fed)
                params = F.linear(features, self.policy.weight, self.policy.bias)
                value = F.linear(features, self.value.weight, self.value.bias)
                kept = (trunk,)
        return ActorCriticOutputs(params.requires_grad_(), value.squeeze(1), features, kept, graph)

    def backward(
        self,
        outputs: ActorCriticOutputs,
        log_prob: Tensor,
        entropy: Tensor,
        to_log_prob: Tensor,
        to_entropy: Tensor,
        to_value: Tensor,
    ) -> None:
        """Write d loss / d parameter over every `.grad`, from d loss / d (log-probability, entropy, value) of each row.

        Autograd goes only through the head, from what it said of `outputs.params` back to them.
        """
        for parameter in self.head.parameters():
            assert parameter.grad is not None
            parameter.grad.zero_()
        torch.autograd.backward((log_prob, entropy), (to_log_prob, to_entropy))
        assert outputs.params.grad is not None
        to_policy, to_value = outputs.params.grad, to_value.unsqueeze(1)
        further = outputs.graph is not None
        with torch.no_grad():
            if self.trunk is None:
                assert isinstance(self.policy, MLP)
                assert isinstance(self.value, MLP)
                to_fed = self.policy.backward(outputs.kept[0], to_policy, to_input=further)
                by_value = self.value.backward(outputs.kept[1], to_value, to_input=further)
                if to_fed is not None and by_value is not None:
                    to_fed += by_value
            else:
                assert isinstance(self.policy, nn.Linear)
                assert isinstance(self.value, nn.Linear)
                write_gradients(self.policy, outputs.features, to_policy)
                write_gradients(self.value, outputs.features, to_value)
                merged = torch.mm(to_policy, self.policy.weight).addmm_(to_value, self.value.weight)
                to_fed = self.trunk.backward(outputs.kept[0], merged, to_input=further)
        if outputs.graph is not None:
            assert to_fed is not None
            self.write_reading(outputs.graph, to_fed)

    def policy_params(self, observation: Tensor | Sequences) -> Tensor:
        return self.policy_of(self.read(observation))

    def values(self, observation: Tensor | Sequences) -> Tensor:
        return self.values_of(self.read(observation))

    def recall(self, observation: Tensor, memory: Tensor) -> tuple[Tensor, Tensor]:
        fed, memory = self.look(observation, memory)
        return self.policy_of(fed), memory

    def look(self, observation: Tensor, memory: Tensor) -> tuple[Tensor, Tensor]:
        """One step of a network with a memory: what its towers are fed, and what it remembers afterwards."""
        assert self.memory is not None
        features = super().read(observation)
        memory = self.memory.step(features, memory)
        return torch.cat([features, memory], dim=1), memory

    def read(self, rows: Tensor | Sequences) -> Tensor:
        if self.memory is None:
            return super().read(rows)
        assert isinstance(rows, Sequences)
        length, count, size = rows.rows.shape
        features = super().read(rows.rows.reshape(length * count, size))
        remembered = self.memory.over(features.view(length, count, -1), rows.memory, rows.begins).flatten(0, 1)
        return torch.cat([features, remembered], dim=1).index_select(0, rows.chosen)

    def read_keeping(self, rows: Tensor | Sequences) -> tuple[Tensor, Tensor | None]:
        return super().read_keeping(rows) if self.memory is None else self.cut_off(rows)

    def reading_parameters(self) -> list[nn.Parameter]:
        return super().reading_parameters() + ([] if self.memory is None else list(self.memory.parameters()))

    def values_of(self, fed: Tensor) -> Tensor:
        out: Tensor = self.value(fed if self.trunk is None else self.trunk(fed)).squeeze(1)
        return out

    def policy_of(self, fed: Tensor) -> Tensor:
        out: Tensor = self.policy(self.seen_by_policy(fed if self.trunk is None else self.trunk(fed)))
        return out


@dataclass(frozen=True)
class ActorCriticOutputs:
    """`params` [B, P] is the leaf of a new graph, `value` [B] of none; the rest is for `ActorCritic.backward`. `graph` is where
    autograd takes over, in front of the towers; None where they read rows as they are."""

    params: Tensor
    value: Tensor
    features: Tensor
    kept: tuple[list[Layer], ...]
    graph: Tensor | None = None
