"""Events that only a watcher writes: what was found in a stranger's loop, by the names it was given there.

    module, optimizer, scheduler, environment      things, as they were met; `index` is how later events call them
    optimizer_step                                 a measured step: learning rates, figures per parameter
    reach, loss                                    a set of parameters; a loss that was read, with its terms
    follower, follower_moved, follower_storage     a network that follows another one, and how
    loaded                                         a module that was given its own tensors
    played                                         the script's policy once more, after its end
    *_totals, watched                              last words: counts over the whole run

The batch of a `loss` has tensors named by place (watching/keeping.py): c<i>.* for graded calls, n<i>.* for silent ones,
s<i>.* and p<i>.* for log-probabilities, k<i> for constants, t.* for transitions. All of it is inferred, none declared.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

from .events import Event


@dataclass(frozen=True, kw_only=True)
class ModuleSeen(Event):
    event: ClassVar[str] = "module"
    name: str
    kind: str
    parameters: list[list[Any]]
    """[name, shape, requires_grad] of each; at most 2,000."""
    numbers: int


@dataclass(frozen=True, kw_only=True)
class OptimizerSeen(Event):
    """Told again when its groups change."""

    event: ClassVar[str] = "optimizer"
    index: int
    kind: str
    place: str = ""
    """File and line that made it."""
    groups: list[dict[str, float]]
    owns: list[str]
    n_owned: int


@dataclass(frozen=True, kw_only=True)
class SchedulerSeen(Event):
    event: ClassVar[str] = "scheduler"
    kind: str
    optimizer: int


@dataclass(frozen=True, kw_only=True)
class PlateauTold(Event):
    """What a ReduceLROnPlateau was given, thinned."""

    event: ClassVar[str] = "plateau_told"
    optimizer: int
    mode: str
    """min or max: which way is better."""
    calls: int
    updates: list[int]
    """Optimizer steps before each number."""
    numbers: list[float]


@dataclass(frozen=True, kw_only=True)
class OptimizerStep(Event):
    """One measured step."""

    event: ClassVar[str] = "optimizer_step"
    update: int
    """Steps of all optimizers before it."""
    optimizer: int
    step: int
    """Steps of this one before it."""
    cycle: int
    env_steps: int
    learning_rates: list[float | None]
    backwards: int
    """Backward passes since this optimizer's last step."""
    cleared: int
    """Calls of its zero_grad since then."""
    without_gradient: list[str]
    inspected: bool
    unclipped: list[str] = field(default_factory=list)
    """Parameters with a gradient that clipping left out, where it took others of the same optimizer."""
    parameters: dict[str, tuple[float, float, float, float]]
    """name -> [gradient norm, weight norm, norm of the step, gradient . step]; the last three on a sample of its numbers."""
    distances: dict[str, float] = field(default_factory=dict)
    """name -> L2 distance from where it was at its first measured step; from a sample of its numbers where it is large."""
    grad_norm: float = 0.0
    step_sum: float = 0.0
    descent: float = 0.0
    """gradient . step over all parameters: below 0 where the step goes down the loss."""
    loss: float | None = None


@dataclass(frozen=True, kw_only=True)
class ClippingTotals(Event):
    """How often gradients were clipped between a backward pass and its step, and how often when the step was already over."""

    event: ClassVar[str] = "clipping_totals"
    in_time: int
    too_late: int
    nothing: int = 0
    """Calls that were given no parameters."""
    of_others: int = 0
    """Inspected steps before which only gradients of other weights were clipped, which their own step had used already."""
    looked_at: int = 0
    """Calls before inspected steps, after a backward pass."""
    barren: int = 0
    """Those of them in which no weight had a gradient."""


@dataclass(frozen=True, kw_only=True)
class OptimizerTotals(Event):
    event: ClassVar[str] = "optimizer_totals"
    optimizer: int
    steps: int
    without_backward: int
    rate_lowest: float | None
    rate_highest: float | None
    rate_changes: int
    cleared: int = 0
    """Calls of zero_grad since its last step."""
    holding: int = 0
    """Its parameters that hold a gradient at the end."""
    moved: bool = True
    """Whether its weights are others than when it was made; told of those that never stepped."""
    last_update: int | None = None
    """Steps that all optimizers had taken before its last one."""


@dataclass(frozen=True, kw_only=True)
class Reach(Event):
    """A set of parameters that some loss or term reaches."""

    event: ClassVar[str] = "reach"
    index: int
    parameters: list[str]
    n: int


@dataclass(frozen=True, kw_only=True)
class LossSeen(Event):
    """One backward pass, read before it ran."""

    event: ClassVar[str] = "loss"
    update: int
    cycle: int
    backward: int
    earlier: int = -1
    """Backward passes since the last step of any optimizer, before this one; -1 where it is not known."""
    env_steps: int
    place: str = ""
    """File and line that called backward."""
    sought: bool = False
    """Read between windows, because its batch holds the last step of an episode: what it holds is no fair share of the memory."""
    accumulates: bool
    """False for torch.autograd.grad, which leaves .grad alone."""
    shape: list[list[int]]
    value: float | None
    gradient_before: float
    """Norm of what the reached parameters already held: 0 where gradients had been cleared."""
    reach: int
    nodes: int
    truncated: bool
    compiled: bool
    broadcasts: list[dict[str, Any]]
    both_sides: list[str]
    clips: list[list[float | None]]
    softmax_over_rows: int = 0
    """Softmaxes of a matrix along its rows: over the batch, not over the actions."""
    added_without_gradient: int = 0
    """Additions to the objective, row by row, of what has no gradient (a number, or a whole term)."""
    means_squared: int = 0
    """Squares of mean errors, where means of squared ones are usual."""
    ratios_to_themselves: int = 0
    """exp(x - x) of one and the same x, whose gradients cancel."""
    softmax_twice: int = 0
    """Softmaxes whose input is a softmax's output."""
    terms: list[dict[str, Any]]
    """coefficient, reductions, shape, structure (names of nodes, breadth first), reach."""
    n_terms: int
    calls: list[dict[str, Any]] = field(default_factory=list)
    silent: list[dict[str, Any]] = field(default_factory=list)
    silent_log_probs: list[dict[str, Any]] = field(default_factory=list)
    log_probs: list[dict[str, Any]] = field(default_factory=list)
    constants: list[dict[str, Any]] = field(default_factory=list)
    entropies: list[dict[str, Any]] = field(default_factory=list)
    transitions_of: str | None = None
    """The array whose rows t.row counts."""
    file: str | None = None
    sha256: str | None = None
    roles: list[str] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class FollowerSeen(Event):
    """A network of the same form as a trained one that is not trained itself: target, snapshot, reference, average."""

    event: ClassVar[str] = "follower"
    index: int
    update: int
    name: str
    leader: str
    tensors: int
    shared: int
    """How many of them are the leader's own storage."""
    equal: bool
    follower: list[float]
    """Eight numbers of it, and the same of its leader."""
    leader_now: list[float]


@dataclass(frozen=True, kw_only=True)
class FollowerStorage(FollowerSeen):
    """Its tensors, or its leader's, were replaced by others."""

    event: ClassVar[str] = "follower_storage"


@dataclass(frozen=True, kw_only=True)
class FollowerMoved(Event):
    event: ClassVar[str] = "follower_moved"
    follower: int
    update: int
    before: list[float]
    after: list[float]
    leader_before: list[float]
    leader_after: list[float]


@dataclass(frozen=True, kw_only=True)
class FollowerTotals(Event):
    event: ClassVar[str] = "follower_totals"
    index: int
    steps: int
    moves: int
    last_move: int
    shared: int | None
    equal: bool
    statistics: list[bool] | None = None
    """Whether its running statistics moved, and its leader's."""
    asked: int = 0
    """How often its state_dict() was asked for."""
    looks: int = 0
    pulls: int = 0
    """Of so many looks before a step, those at which the leader had been moved since its last one, not by an optimizer."""


@dataclass(frozen=True, kw_only=True)
class Loaded(Event):
    """A module was loaded with its own tensors."""

    event: ClassVar[str] = "loaded"
    module: str
    tensors: int
    update: int


@dataclass(frozen=True, kw_only=True)
class CalledAs(Event):
    """What the script calls a target or a reference, where it makes a loss; told again when the name stands for another module."""

    event: ClassVar[str] = "called"
    name: str
    module: str


@dataclass(frozen=True, kw_only=True)
class EnvironmentSeen(Event):
    event: ClassVar[str] = "environment"
    index: int
    kind: str
    id: str | None
    copies: int
    vector: bool
    form: str
    autoreset: str | None
    observation_space: str
    action_space: str


@dataclass(frozen=True, kw_only=True)
class EnvironmentTotals(Event):
    event: ClassVar[str] = "environment_totals"
    index: int
    steps: int
    episodes: int
    hidden_limits: int = 0
    """Episodes that a time limit cut and that a wrapper calls ended."""
    ends_inside: int = 0
    """Episodes whose last step the innermost environment called an end of the task, where wrappers stand around it."""
    hidden_ends: int = 0
    """Those of them that a wrapper calls cut."""


@dataclass(frozen=True, kw_only=True)
class PlaceboTotals(Event):
    """Last words of a control run, in which learning was made impossible."""

    event: ClassVar[str] = "placebo"
    kind: str
    cuts: int
    """How often: steps undone, or batches in which outcomes changed places."""


@dataclass(frozen=True, kw_only=True)
class Played(Event):
    """Returns of the script's own network acting by a rule, with its first and its last weights, on the same seeds."""

    event: ClassVar[str] = "played"
    module: str
    rule: str
    steps: int
    seeds: list[int]
    untrained: list[float]
    trained: list[float]
    random: list[float]


@dataclass(frozen=True, kw_only=True)
class Watched(Event):
    """Counts over the whole run, and what went wrong with the watching itself."""

    event: ClassVar[str] = "watched"
    updates: int
    backwards: int
    cycles: int
    env_steps: int
    windows: int
    inspected: int
    dropped_events: int
    dropped_samples: int
    errors: dict[str, int]
    shut: dict[str, str]


WATCHED_EVENTS: tuple[type[Event], ...] = (
    ModuleSeen,
    OptimizerSeen,
    SchedulerSeen,
    PlateauTold,
    OptimizerStep,
    ClippingTotals,
    OptimizerTotals,
    Reach,
    LossSeen,
    FollowerSeen,
    FollowerStorage,
    FollowerMoved,
    FollowerTotals,
    Loaded,
    CalledAs,
    EnvironmentSeen,
    EnvironmentTotals,
    PlaceboTotals,
    Played,
    Watched,
)
