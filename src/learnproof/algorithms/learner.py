"""Learner: what improves an actor from a batch of experience, and what it reports of each update.

    report = learner.learn(pieces, learning_rate, inspect)

`pieces` are rollouts, collected as the learner takes them: one for those that learn from a whole rollout at a time, many
short ones for those that put them into a memory and train in between. A learner owns its networks, critics, targets and optimizers, saves and loads its whole state as arrays, and knows
nothing of evidence, environments or the clock: it returns what it measured, and the loop in `training` writes it down.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from ..policies.actor import NetworkActor

Array = np.ndarray[Any, Any]
Shapes = dict[str, tuple[tuple[int, ...], np.dtype[Any]]]


@dataclass
class Rollout:
    """What was lived through, [T, N] = steps x environments."""

    observation: Array
    """[T, N, D] flattened, float32 or bytes (policies/spaces.py); normalised, unless it was collected for a memory, which normalises what it gives."""
    action: Array
    """[T, N, A] float32, raw (policies/spaces.py)."""
    log_prob: Array
    reward: Array
    """As the environment gave it."""
    reward_scale: float
    terminated: Array
    truncated: Array
    valid: Array
    """False for the empty step that next-step autoreset inserts after an episode's end; such a step teaches nothing."""
    last_observation: Array
    """[N, D]: where the rollout stopped."""
    final_rows: Array
    """[K] indices t * N + n of the steps whose episode was cut by a time limit."""
    final_observation: Array
    """[K, D]: what would have been seen next there."""
    memory: Array | None = None
    """[N, H]: what a recurrent policy remembered before the first step; None = nothing, or it has no memory."""
    importance: Array | None = None
    """[T, N]: where another policy acted, min(1, pi / mu) of each action (returns.py); else None. `log_prob` is then what the
    learning policy gives the action before its update."""
    behaviour_log_prob: Array | None = None
    """[T, N]: what the policy that acted gave it, where that was another one."""
    teams_ended: int | None = None
    """Episodes that ended in it, where rows are the agents of teams; else each row's end is one."""


@dataclass
class Inspect:
    """What the loop wants looked at closely in this update; an empty request costs nothing."""

    gradient_steps: int = 0
    """How many gradient steps, spread evenly, the first one always among them."""
    rows: int = 0
    """How many rows of a rollout have their log-probabilities and values measured again after the update."""


@dataclass(frozen=True)
class InspectedStep:
    """One gradient step, seen from both sides; the roles are those of evidence/events.py."""

    optimizer_step: int
    epoch: int
    minibatch: int
    learning_rate: float
    arrays: dict[str, Array]
    parameters: dict[str, list[float]]


@dataclass(frozen=True)
class ModuleReport:
    weight_norm: float
    weight_change: float
    weight_step: float
    grad_norm: float
    learning_rate: float


@dataclass(frozen=True)
class UpdateReport:
    """Everything measured in one update. Lists have one entry per epoch, and none where a figure does not apply."""

    optimizer_steps: int
    learning_rate: float
    loss: list[float]
    policy_loss: list[float]
    value_loss: list[float]
    entropy: list[float]
    grad_norm: list[float]
    grad_norm_max: list[float]
    approx_kl: list[float]
    clip_fraction: list[float]
    explained_variance: float
    advantage_mean: float
    advantage_std: float
    """Of the advantages; of the temporal-difference errors where there are none."""
    weight_change: float
    weight_step: float
    modules: dict[str, ModuleReport]
    curiosity: float | None = None
    """Mean bonus for new states, where one is paid."""
    inspected: list[InspectedStep] = field(default_factory=list)
    rollout: dict[str, Array] | None = None
    """The rollout's own arrays by role, where the update was inspected."""
    iteration: dict[str, Array] | None = None
    """The rows of Inspect.rows before and after, by role."""


class Learner(Protocol):
    actor: NetworkActor

    optimizer_steps: int
    """Gradient steps taken so far."""
    kernel: str
    """The machine code that its gradient steps are ("module.name"), empty where they are torch's."""

    def learn(self, pieces: Iterator[Rollout], learning_rate: float, inspect: Inspect) -> UpdateReport | None:
        """One iteration; None where it only gathered experience and took no gradient step."""
        ...

    def constants(self) -> dict[str, Any]:
        """What the definitions of its returns and losses need, for whoever checks them."""
        ...

    def parameter_sizes(self) -> dict[str, int]: ...

    def state(self) -> dict[str, Any]:
        """Counters and generators, as JSON."""
        ...

    def tensors(self) -> dict[str, dict[str, Array]]:
        """Arrays by group: {"weights": {...}, "optimizer": {...}}, always of the same names, shapes and dtypes."""
        ...

    def load(self, state: dict[str, Any], tensors: dict[str, dict[str, Array]]) -> None: ...

    def episodes_begin_anew(self) -> None:
        """Every instance begins a new episode: after a resume without its state, or in a new stage of a curriculum."""
        ...
