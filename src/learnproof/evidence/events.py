"""What can be said of a training run, as typed events: one JSON object a line in evidence.jsonl.

    {"event": "run_started", "version": 1, "producer": "learnproof", "algorithm": "ppo", ...}
    {"event": "episode", "step": 412, "env": 3, "return": 21.0, ...}
    {"event": "update", "index": 0, "step": 8192, ...}
    {"event": "inspection", "kind": "gradient_step", "file": "gradient_step-000000-0000000.safetensors", ...}

Nothing here depends on the clock, so that two equal runs write equal bytes. A number that is not finite is written as
the text "nan", "inf" or "-inf". The events refer to batches by file; a batch is a safetensors file in samples/ whose
tensors are named by role:

    observation  action  reward  reward_scale  terminated  truncated  valid      what the environment and the actor did
    old_log_prob  advantage  target                                            the constants that the loss was given
    log_prob_before  log_prob_after  value_before  value_after                  what the networks said, round the step
    value  final_value  last_value                                             what the returns were computed from
    behaviour_log_prob  weight                                                 where another policy acted: what it gave the
                                                                               action, and the action's weight in the loss
    row                                                                        index t * N + n into the rollout

Kinds of inspection, with [T, N] = steps x environments and [B] = samples of a minibatch:

    rollout        reward (raw), reward_scale [], terminated, truncated, valid, value, final_value (value of the true last
                   observation where an episode was cut by a time limit, else 0), last_value [N], old_log_prob,
                   advantage and target: all [T, N]. `valid` is False for the empty step that next-step autoreset inserts.
                   behaviour_log_prob [T, N] where another policy acted; old_log_prob is then the learning policy's.
    gradient_step  row, advantage (as the loss used it), target, old_log_prob, log_prob_before, log_prob_after,
                   value_before, value_after: all [B]; observation and action: [B, ...]
    iteration      the same rows before and after all gradient steps on one rollout: row, old_log_prob, log_prob_after,
                   value_before, value_after: all [B]

and of a watched run (evidence/watched.py has its events), one row per environment step or per row of a call:

    transitions    time, stream, copy, observation, next_observation, final_observation (identities, 0 = none), action,
                   reward, terminated, truncated, resets (True for a step that only brought the next episode's first
                   observation)
    calls          m<i>.time, m<i>.rows (identities), m<i>.output of each module called without a gradient;
                   log_prob.time, log_prob.value
"""

from __future__ import annotations

import dataclasses
import json
import math
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

EVIDENCE_VERSION = 1


@dataclass(frozen=True, kw_only=True)
class Event:
    """The base; `process` tells apart the processes of one job."""

    event: ClassVar[str] = ""
    process: int = 0

    def to_json(self) -> dict[str, Any]:
        body = {"event": self.event}
        for item in dataclasses.fields(self):
            body[item.name.rstrip("_")] = plain(getattr(self, item.name))
        return body

    def to_line(self) -> bytes:
        """The JSON of `to_json`, on one line. Nearly all numbers are finite, and the encoder says where one is not: only then are they
        looked at one by one."""
        body = {"event": self.event, **_columns(self)}
        try:
            text = ENCODER.encode(body)
        except ValueError:
            text = json.dumps(self.to_json(), separators=(",", ":"), allow_nan=False)
        return text.encode() + b"\n"


@dataclass(frozen=True, kw_only=True)
class RunStarted(Event):
    """The first line: who trains what, and the constants that the definitions of returns and losses need."""

    event: ClassVar[str] = "run_started"
    version: int = EVIDENCE_VERSION
    producer: str
    algorithm: str
    environment: str
    seed: int
    metric: str
    """What performance means here: "return", or a name in Episode.metrics."""
    higher_is_better: bool = True
    n_envs: int
    constants: dict[str, Any]
    """gamma, gae_lambda, clip_range, normalize_advantage, entropy_coefficient, ..."""
    parameters: dict[str, int]
    """Trainable tensors by name ("policy.0.weight") and how many numbers each has."""
    max_entropy: float | None = None
    """Entropy of the uniform policy, where the actions are discrete."""
    marked: Literal["declared", "inferred"] = "declared"


@dataclass(frozen=True, kw_only=True)
class Episode(Event):
    """A finished training episode, as the environment returned it (raw rewards)."""

    event: ClassVar[str] = "episode"
    step: int
    env: int
    return_: float
    length: int
    terminated: bool
    metrics: dict[str, float] = field(default_factory=dict)
    stream: int = 0
    """Which environment, where a script has several (EnvironmentSeen.index); `env` is the copy in it."""
    update: int | None = None
    """Optimizer steps before its end, where a watcher counted them."""
    own: bool | None = None
    """Of an episode that was given: whether the learning policy, or one near it, acted; None where nobody can tell."""


@dataclass(frozen=True, kw_only=True)
class EpisodesGiven(Event):
    """Finished episodes that somebody else collected, handed over for one update."""

    event: ClassVar[str] = "episodes_given"
    update: int
    """Index of the Update that they are for."""
    step: int
    """Transitions given so far, these included."""
    episodes: int
    transitions: int
    batch_size: int
    epochs: int
    corrected: bool
    """Whether they are learnt from with importance weights."""
    importance: dict[str, float] = field(default_factory=dict)
    """What the ratios pi / mu of their actions were like; empty where log-probabilities were not given."""


@dataclass(frozen=True, kw_only=True)
class ModuleChange(Event):
    """Weights and gradients of one module ("policy", "value") over one iteration; part of Update."""

    event: ClassVar[str] = "module_change"
    weight_norm: float
    weight_change: float
    """Sum over its parameters of the L2 distance from the starting weights."""
    weight_step: float
    """The same, from the weights at the previous update."""
    grad_norm: float
    """Mean over the gradient steps looked at."""
    learning_rate: float


@dataclass(frozen=True, kw_only=True)
class Update(Event):
    """One training iteration: every gradient step on one rollout. Lists have one entry per epoch."""

    event: ClassVar[str] = "update"
    index: int
    step: int
    optimizer_steps: int
    """Gradient steps so far, this iteration included."""
    optimizer: int = 0
    learning_rate: float
    loss: list[float]
    policy_loss: list[float]
    value_loss: list[float]
    entropy: list[float]
    grad_norm: list[float]
    """Mean norm before clipping."""
    grad_norm_max: list[float]
    approx_kl: list[float]
    clip_fraction: list[float]
    explained_variance: float
    advantage_mean: float
    advantage_std: float
    weight_change: float
    weight_step: float
    modules: dict[str, ModuleChange]
    curiosity: float | None = None
    """Mean bonus for new states, in the units of what is learnt from; None where none is paid."""


@dataclass(frozen=True, kw_only=True)
class Evaluation(Event):
    """Scores on the evaluation seeds, in the metric of the run."""

    event: ClassVar[str] = "evaluation"
    step: int
    deterministic: list[float]
    sampled: list[float]
    best: bool


@dataclass(frozen=True, kw_only=True)
class Inspection(Event):
    """A batch that was kept: what kind, when, in which file, and how its roles are known."""

    event: ClassVar[str] = "inspection"
    kind: Literal["rollout", "gradient_step", "iteration", "transitions", "calls"]
    update: int
    """Index of the Update it belongs to; of a watched run, the cycle."""
    optimizer_step: int
    """Gradient steps before it, over the whole run."""
    epoch: int = 0
    minibatch: int = 0
    learning_rate: float = 0.0
    file: str | None = None
    """Name in samples/; None where only statistics are kept."""
    sha256: str | None = None
    """Of the file's bytes, so that a batch changed afterwards is refused."""
    roles: list[str] = field(default_factory=list)
    marked: Literal["declared", "inferred"] = "declared"
    parameters: dict[str, list[float]] = field(default_factory=dict)
    """For a gradient step: parameter name -> [gradient norm, weight norm, norm of the step]."""
    modules: list[dict[str, Any]] = field(default_factory=list)
    """For the calls of a watched window: which module the arrays m<i>.* are of."""


@dataclass(frozen=True, kw_only=True)
class ChecklistLook(Event):
    """What the five classic rules said at this moment; None = not enough records yet."""

    event: ClassVar[str] = "checklist"
    step: int
    episodes: int
    weights_changing: bool | None
    gradients_flowing: bool | None
    entropy_decreasing: bool | None
    loss_improving: bool | None
    performance_improving: bool | None


@dataclass(frozen=True, kw_only=True)
class NotSeen(Event):
    """Something that a check would want and that could not be looked at, with the reason."""

    event: ClassVar[str] = "not_seen"
    what: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class EnvironmentRestarted(Event):
    """After a resume, an environment whose state cannot be saved began its episodes anew."""

    event: ClassVar[str] = "environment_restarted"
    step: int
    reason: str


@dataclass(frozen=True, kw_only=True)
class StageBegan(Event):
    """A stage of a curriculum: what is trained on from here. Returns of different stages are of different tasks."""

    event: ClassVar[str] = "stage_began"
    step: int
    stage: int
    """1 for the first."""
    stages: int | None
    """In all, the full task included; None where a function decides."""
    full: bool
    """The task itself."""
    kwargs: dict[str, Any] = field(default_factory=dict)
    difficulty: float | None = None
    reason: str


@dataclass(frozen=True, kw_only=True)
class Fault(Event):
    """Training met something that it refused: a value that is not finite, an environment out of contract."""

    event: ClassVar[str] = "fault"
    step: int
    kind: str
    """not_finite, environment, ..."""
    where: str
    summary: str


@dataclass(frozen=True, kw_only=True)
class RunStopped(Event):
    """The end of training and the rule that ended it."""

    event: ClassVar[str] = "run_stopped"
    step: int
    rule: str
    reason: str


def _columns(event: Event) -> dict[str, Any]:
    return {name.rstrip("_"): value for name, value in vars(event).items()}


def _nested(value: Any) -> dict[str, Any]:
    """Of an event inside of another one, what the encoder asks for."""
    if not isinstance(value, Event):
        raise TypeError(f"{type(value).__name__} has no place in the evidence")
    return {name: inner for name, inner in _columns(value).items() if name != "process"}


ENCODER = json.JSONEncoder(separators=(",", ":"), allow_nan=False, default=_nested)


def plain(value: Any) -> Any:
    """JSON of a value: numbers that are not finite as text, modules as nested objects."""
    if isinstance(value, float):
        return value if math.isfinite(value) else repr(value)
    if isinstance(value, Event):
        return {k: v for k, v in value.to_json().items() if k not in ("event", "process")}
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    return value


def revive(value: Any) -> Any:
    """The other way: the three texts become floats again."""
    if isinstance(value, str):
        return float(value) if value in ("nan", "inf", "-inf") else value
    if isinstance(value, dict):
        return {k: revive(v) for k, v in value.items()}
    if isinstance(value, list):
        return [revive(v) for v in value]
    return value
