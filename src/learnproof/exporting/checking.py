"""Does the file act as the policy does? onnxruntime's answers beside the policy's own, on many observations.

Observations are those that the environment shows while the policy and chance play it, and random ones of its space, wider than
anything met. All numbers must agree to TOLERANCE of their size. A choice between discrete actions may differ only where the
policy itself is undecided by no more than that: such ties are counted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from torch import Tensor

from ..envs.agents import episodes_at_once
from ..errors import ExportFault
from ..policies.actor import NetworkActor, RandomActor
from ..policies.greedy import EpsilonGreedyHead
from ..policies.heads import BernoulliHead, CategoricalHead
from ..policies.spaces import Leaf
from ..seeding import episode_seeds, generator
from ..training.rollout import autoreset_mode
from .graph import MEMORY, Part, PolicyGraph, answers, behind_the_action

Array = np.ndarray[Any, Any]
Answer = Callable[[Mapping[str, Array]], list[Array]]
"""Inputs by name -> outputs in the order of the graph's."""
TOLERANCE = 1e-4
"""Share of the largest output. Rounding alone gives about 1e-6; a forgotten part of a policy gives 0.01 and more."""
WIDE = 1e6
"""A Box with bounds beyond this is treated as one without."""


@dataclass(frozen=True)
class Agreement:
    """How far the two answers are apart, over all observations."""

    observations: int
    largest_action_difference: float
    largest_difference: float
    """Over all outputs: actions, what they were chosen by, and values."""
    ties: int
    """Discrete choices that differ where the policy is undecided to rounding."""


def met_observations(env: VectorEnv[Any, Any, Any], actor: NetworkActor, seed: int, count: int) -> list[Any]:
    """Batches that the environment shows: odd steps are the policy's, even ones are chance's."""
    noise = generator(seed, "export", "actions")
    chance = RandomActor(env.single_action_space)
    observation, _ = env.reset(seed=episode_seeds(seed, "export command", episodes_at_once(env)))  # type: ignore[arg-type]
    batches = []
    for step in range(-(-count // env.num_envs)):
        batches.append(_copied(observation))
        player = actor if step % 2 else chance
        observation, _, terminated, truncated, _ = env.step(player.act(observation, noise, "sampled").action)
        ended = terminated | truncated
        if autoreset_mode(env) is AutoresetMode.DISABLED and ended.any():
            observation, _ = env.reset(options={"reset_mask": ended})
    return batches


def random_inputs(graph: PolicyGraph, met: Mapping[str, Array], seed: int, count: int) -> dict[str, Array]:
    """Anywhere in the bounds; where there are none, three times as far apart as what was met."""
    noise = generator(seed, "export", "random observations")
    return {
        name: _random(leaf, met[name], noise, count)
        for name, leaf in zip(graph.observation_names, graph.observations, strict=True)
    }


def with_memory(graph: PolicyGraph, inputs: dict[str, Array], seed: int) -> dict[str, Array]:
    """The same, and of a recurrent policy any memory: each of its numbers is between -1 and 1."""
    if not graph.memory_size:
        return inputs
    count = len(next(iter(inputs.values())))
    noise = generator(seed, "export", "memories", *inputs)
    return {**inputs, MEMORY: noise.uniform(-1, 1, (count, graph.memory_size)).astype(np.float32)}


def by_the_policy(actor: NetworkActor, graph: PolicyGraph, inputs: Mapping[str, Array]) -> list[Array]:
    """The same outputs from the actor itself, by the path that training and evaluation take, not from the graph."""
    observation = actor.observations.nest([inputs[name] for name in graph.observation_names])
    memory = inputs.get(MEMORY)
    acted = actor.act(observation, np.random.default_rng(0), "deterministic", memory)
    rows = torch.from_numpy(actor.read(observation))
    with torch.no_grad():
        params, remembered = answers(actor.network, rows, None if memory is None else torch.from_numpy(memory))
    behind = [*behind_the_action(graph.parts, params), *remembered]
    return [*actor.actions.parts(acted.action), *(tensor.detach().numpy() for _, tensor in behind)]


def compare(
    actor: NetworkActor, graph: PolicyGraph, answer: Answer, inputs: Mapping[str, Array], what: str
) -> Agreement:
    """Raises ExportFault where the two are not the same policy."""
    own, theirs = by_the_policy(actor, graph, inputs), answer(inputs)
    count = len(own[0])
    largest = largest_action = 0.0
    undecided = _undecided(graph, own)
    ties = 0
    for position, (name, ours, other) in enumerate(zip(graph.output_names, own, theirs, strict=True)):
        if ours.shape != other.shape or ours.dtype != other.dtype:
            raise ExportFault(
                f"The exported policy gives {name} as {other.dtype} {other.shape} on {what}, the policy as {ours.dtype} "
                f"{ours.shape}. No file was written."
            )
        apart = np.abs(ours.astype(np.float64) - other.astype(np.float64)).reshape(count, -1)
        if position < len(graph.actions):
            excused = undecided[:, graph.actions[position].start : graph.actions[position].stop] & (apart > 0)
            ties += int(excused.any(1).sum())
            apart[excused] = 0.0
        size = _size(ours)
        worst = float(apart.max(initial=0.0))
        if not worst <= TOLERANCE * size:
            row = int(apart.max(1).argmax())
            shown = {key: np.round(value[row], 4).tolist() for key, value in inputs.items()}
            raise ExportFault(
                f"The exported policy is not the policy: on {what}, {name} differs by {worst:.3g} ({_brief(other[row])} instead of "
                f"{_brief(ours[row])} for {str(shown)[:200]}), and {TOLERANCE * size:.1g} would be rounding. No file was written."
            )
        largest = max(largest, worst)
        if position < len(graph.actions):
            largest_action = max(largest_action, worst)
    return Agreement(count, largest_action, largest, ties)


def _undecided(graph: PolicyGraph, own: list[Array]) -> Array:
    """[count, columns of the action]: discrete choices that rounding could turn."""
    outputs = dict(zip(graph.output_names, own, strict=True))
    columns = graph.actions[-1].stop
    undecided = np.zeros((len(own[0]), columns), bool)
    for part in graph.parts:
        for name, margins in _margins(part, outputs):
            undecided[:, list(part.columns)] = margins <= TOLERANCE * _size(outputs[name])
    return undecided


def _margins(part: Part, outputs: Mapping[str, Array]) -> list[tuple[str, Array]]:
    """By how much each column's choice was made."""
    match part.head:
        case BernoulliHead():
            name = f"{part.name}.logit_of_high"
            return [(name, np.abs(outputs[name]))]
        case CategoricalHead() | EpsilonGreedyHead() as head:
            name = f"{part.name}.{'logits' if isinstance(head, CategoricalHead) else 'q_values'}"
            sizes = head.sizes if isinstance(head, CategoricalHead) else [head.n_params]
            gaps = [_gap(piece) for piece in torch.split(torch.from_numpy(outputs[name]), sizes, dim=1)]
            return [(name, np.stack(gaps, axis=1))]
    return []


def _size(values: Array) -> float:
    """Of an output's largest number; not less than 0.1, where the rounding of earlier layers is as large."""
    return max(0.1, float(np.abs(values.astype(np.float64)).max(initial=0.0)))


def _gap(values: Tensor) -> Array:
    if values.shape[1] == 1:
        return np.full(len(values), np.inf)
    best = values.topk(2, dim=1).values
    gap: Array = (best[:, 0] - best[:, 1]).numpy()
    return gap


def _random(leaf: Leaf, met: Array, noise: np.random.Generator, count: int) -> Array:
    space: gym.Space[Any] = leaf.space
    shape = (count, *(space.shape or ()))
    match space:
        case spaces.Box():
            low, high = space.low.astype(np.float64), space.high.astype(np.float64)
            bounded = (np.abs(low) < WIDE) & (np.abs(high) < WIDE)
            wide = met.mean(0) + 3 * np.maximum(met.std(0), 1e-3) * noise.standard_normal(shape)
            inside = np.where(bounded, low, 0) + noise.random(shape) * np.where(bounded, high - low, 0)
            values = np.clip(np.where(bounded, inside, wide), low, high)
            return values.astype(space.dtype)
        case spaces.Discrete():
            return noise.integers(int(space.start), int(space.start + space.n), shape).astype(space.dtype)
        case spaces.MultiDiscrete():
            return noise.integers(space.start, space.start + space.nvec, shape).astype(space.dtype)
        case _:
            return noise.integers(0, 2, shape).astype(space.dtype)


def _copied(observation: Any) -> Any:
    if isinstance(observation, dict):
        return {key: _copied(value) for key, value in observation.items()}
    if isinstance(observation, tuple):
        return tuple(_copied(value) for value in observation)
    return np.array(observation)


def _brief(value: Any) -> str:
    return str(np.round(np.asarray(value, np.float64), 4).tolist())[:80]
