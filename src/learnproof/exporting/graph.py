"""A policy as one torch module: the environment's own observation in, the environment's own action out.

Everything that stands between the two is inside: flattening, one-hot coding, the normalisation of observations (in float64,
as in training), the network, the deterministic action, its bounds and types.

    inputs    observation, or observation.<key> for each part of a Dict or Tuple    [batch, ...] in the space's dtype
    outputs   action, or action.<key>                                               [batch, ...] in the space's dtype
              action.logits, action.mean, action.log_std, ...                       what the action was chosen by
              value                                                                 [batch], where the network has one

A recurrent policy has one more of each: `memory` [batch, numbers], zeros where an episode begins, and `next_memory`, which is the
`memory` of the next step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np
import torch
import torch.nn.functional as F
from gymnasium import spaces
from torch import Tensor, nn

from ..errors import UnsupportedSpace
from ..policies.actor import NetworkActor
from ..policies.greedy import EpsilonGreedyHead, QNetwork
from ..policies.heads import BernoulliHead, BetaHead, CategoricalHead, GaussianHead, Head, ProductHead
from ..policies.networks import ActorCritic, PolicyNetwork
from ..policies.normalization import CLIP, EPSILON
from ..policies.soft import SquashedGaussianHead
from ..policies.spaces import Leaf

MEMORY, NEXT_MEMORY = "memory", "next_memory"
DTYPES: dict[np.dtype[Any], torch.dtype] = {
    np.dtype(name): getattr(torch, name)
    for name in ("float16", "float32", "float64", "uint8", "int8", "int16", "int32", "int64", "bool")
}


@dataclass(frozen=True)
class Part:
    """One distribution of the policy: its head, the columns of the raw action that it decides, and its leaf's name."""

    head: Head
    columns: tuple[int, ...]
    name: str


class PolicyGraph(nn.Module):
    """Made from an actor on the CPU; `input_names` and `output_names` are in the order of what forward takes and gives."""

    mean: Tensor
    deviation: Tensor

    def __init__(self, actor: NetworkActor) -> None:
        super().__init__()
        self.network = actor.network
        self.observations = actor.observations.leaves
        self.actions = actor.actions.leaves
        self.observation_names = _names("observation", self.observations)
        self.memory_size = actor.memory_size
        self.input_names = [*self.observation_names, *([MEMORY] if self.memory_size else [])]
        self.action_names = _names("action", self.actions)
        self.parts = _parts(actor, self.action_names)
        for leaf in (*self.observations, *self.actions):
            _torch_type(leaf.space)
        if actor.normalizer is not None:
            moments = actor.normalizer.moments
            self.register_buffer("mean", torch.from_numpy(moments.mean))
            self.register_buffer("deviation", torch.from_numpy(np.sqrt(moments.variance + EPSILON)))
        self.normalizes = actor.normalizer is not None
        self.of_bytes = actor.observations.of_bytes
        self.output_names: list[str] = []
        with torch.no_grad():
            self(*self.examples(2))

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        observation = inputs[: len(self.observations)]
        pieces = [self._row_of(leaf, given) for leaf, given in zip(self.observations, observation, strict=True)]
        rows = pieces[0] if len(pieces) == 1 else torch.cat(pieces, dim=1)
        if self.normalizes:
            rows = ((rows.double() - self.mean) / self.deviation).clamp(-CLIP, CLIP).float()
        params, remembered = answers(self.network, rows, inputs[-1] if self.memory_size else None)
        raw = self.network.head.mode(params)
        named = [
            (name, _decode(leaf.space, raw[:, leaf.start : leaf.stop]))
            for name, leaf in zip(self.action_names, self.actions, strict=True)
        ]
        named += behind_the_action(self.parts, params)
        named += remembered
        self.output_names = [name for name, _ in named]
        return tuple(tensor for _, tensor in named)

    def _row_of(self, leaf: Leaf, given: Tensor) -> Tensor:
        return given.reshape(given.shape[0], -1) if self.of_bytes else _encode(leaf.space, given)

    def examples(self, count: int) -> list[Tensor]:
        """Inputs of the right shapes and types."""
        made = []
        for leaf in self.observations:
            start = np.asarray(getattr(leaf.space, "start", 0))
            own = np.zeros((count, *(leaf.space.shape or ())), leaf.space.dtype) + start.astype(leaf.space.dtype)
            made.append(torch.from_numpy(own))
        if self.memory_size:
            made.append(torch.zeros(count, self.memory_size))
        return made


def answers(network: PolicyNetwork, rows: Tensor, memory: Tensor | None) -> tuple[Tensor, list[tuple[str, Tensor]]]:
    """What the action is chosen by; and, where the network has them, the value of the state and what is remembered."""
    if memory is not None:
        assert isinstance(network, ActorCritic)
        fed, memory = network.look(rows, memory)
        return network.policy_of(fed), [("value", network.values_of(fed)), (NEXT_MEMORY, memory)]
    params = network.policy_params(rows)
    return params, [("value", network.values(rows))] if isinstance(network, (ActorCritic, QNetwork)) else []


def behind_the_action(parts: Sequence[Part], params: Tensor) -> list[tuple[str, Tensor]]:
    """What the action was chosen by."""
    named = []
    for part, own in zip(parts, torch.split(params, [part.head.n_params for part in parts], dim=1), strict=True):
        named += [(f"{part.name}.{name}", tensor) for name, tensor in describe(part.head, own)]
    return named


def describe(head: Head, params: Tensor) -> list[tuple[str, Tensor]]:
    """The parameters of a head's distribution under the names that textbooks give them."""
    match head:
        case CategoricalHead():
            return [("logits", params)]
        case BernoulliHead():
            return [("logit_of_high", params)]
        case GaussianHead():
            return [("mean", params), ("log_std", head.log_std.expand_as(params))]
        case BetaHead():
            shapes = 1 + F.softplus(params)
            return [("alpha", shapes[:, : head.n_actions]), ("beta", shapes[:, head.n_actions :])]
        case SquashedGaussianHead():
            mean, log_std = head.split(params)
            return [("mean_before_tanh", mean), ("log_std_before_tanh", log_std)]
        case EpsilonGreedyHead():
            return [("q_values", params)]
    raise UnsupportedSpace(f"A policy with a {type(head).__name__} cannot be exported.")


def _parts(actor: NetworkActor, names: Sequence[str]) -> list[Part]:
    head = actor.network.head
    pairs: list[tuple[Any, list[int]]] = (
        [(one, columns.tolist()) for one, columns in zip(head.heads, head.columns, strict=True)]
        if isinstance(head, ProductHead)
        else [(head, list(range(head.n_actions)))]
    )
    return [Part(one, tuple(columns), _owner(columns[0], actor.actions.leaves, names)) for one, columns in pairs]


def _owner(column: int, leaves: Sequence[Leaf], names: Sequence[str]) -> str:
    return next(name for leaf, name in zip(leaves, names, strict=True) if leaf.start <= column < leaf.stop)


def _names(root: str, leaves: Sequence[Leaf]) -> list[str]:
    names = [".".join([root, *(str(key) for key in leaf.path)]) for leaf in leaves]
    if len(set(names)) < len(names):
        twice = sorted({name for name in names if names.count(name) > 1})
        raise UnsupportedSpace(f"Two parts of the space would have one name in the file ({twice[0]}): rename a key.")
    return names


def _torch_type(space: gym.Space[Any]) -> torch.dtype:
    kind = DTYPES.get(np.dtype(space.dtype))
    if kind is None:
        raise UnsupportedSpace(
            f"{space} cannot be exported: numbers of the type {space.dtype} have no counterpart in torch and ONNX. Wrap the "
            f"environment so that its space has one of {', '.join(str(name) for name in DTYPES)}, and train again."
        )
    return kind


def _encode(space: gym.Space[Any], values: Tensor) -> Tensor:
    """The twin of policies/spaces.py, in torch."""
    count = values.shape[0]
    match space:
        case spaces.Box():
            flat = values.reshape(count, -1).float()
            return flat / 255 if space.dtype == np.uint8 else flat
        case spaces.Discrete():
            return _one_hot(values.reshape(count, 1), [int(space.start)], [int(space.n)])
        case spaces.MultiDiscrete():
            return _one_hot(values.reshape(count, -1), space.start.ravel().tolist(), space.nvec.ravel().tolist())
        case _:
            return values.reshape(count, -1).float()


def _one_hot(values: Tensor, starts: Sequence[int], sizes: Sequence[int]) -> Tensor:
    """Each column against the numbers that it may be: unlike F.one_hot, a comparison has a place in every runtime."""
    known = [torch.arange(start, start + size) for start, size in zip(starts, sizes, strict=True)]
    return torch.cat([(values[:, i : i + 1].long() == own).float() for i, own in enumerate(known)], dim=1)


def _decode(space: gym.Space[Any], raw: Tensor) -> Tensor:
    shape = (raw.shape[0], *(space.shape or ()))
    match space:
        case spaces.Box():
            low, high = (torch.from_numpy(np.broadcast_to(b, space.shape).copy()) for b in (space.low, space.high))
            return torch.minimum(torch.maximum(raw.reshape(shape).to(_torch_type(space)), low), high)
        case spaces.Discrete():
            return raw[:, 0].long() + int(space.start)
        case spaces.MultiDiscrete():
            return raw.long().reshape(shape) + torch.from_numpy(space.start.astype(np.int64))
        case _:
            return raw.reshape(shape).to(torch.int8)
