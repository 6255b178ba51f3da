"""EpisodeResult: a finished episode, whoever collected it; and the door at which those that do not fit are refused.

    EpisodeResult(observations, actions, rewards, log_probs, terminated=True)
    read = EpisodeReader(observations, actions, ...).read(episodes)       # rows of numbers, or EpisodeRefused

Every episode of a call is read before the first one is used, so that a refusal changes nothing. The error names the episode, the
step and the numbers, the likeliest cause, and what to do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

import numpy as np
from gymnasium import spaces

from ..errors import EpisodeRefused, UsageError
from ..policies.spaces import ActionLayout, Leaf, ObservationLayout

Array = np.ndarray[Any, Any]
OUT_OF_BOUNDS = 1e-5
"""Share of a Box's width by which an action may lie outside of it: float32 rounding."""


@dataclass(frozen=True)
class EpisodeResult:
    """One entry per step in each of the first four; a dict of arrays is taken for a Dict space too."""

    observations: Any
    """What was seen before each action."""
    actions: Any
    """What was done, in the form of the action space."""
    rewards: Any
    log_probs: Any = None
    """What the policy that acted gave each action. PPO needs them; DQN and SAC learn without."""
    _: KW_ONLY
    terminated: bool
    """The task came to its end. False = it was cut (a time limit, a collector that stopped) and would have gone on."""
    final_observation: Any = None
    """What was seen after the last action; needed unless the task terminated."""
    id: str = ""
    """The collector's own name for it, for messages."""
    env: int = 0
    """Which of several environments stepped side by side it is from; each one's first episode is left out of trends."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    """Other numbers of the whole episode: ROAS, completion rate ..."""


@dataclass(frozen=True)
class ReadEpisode:
    """The same as rows of numbers: [L, ...]."""

    observation: Array
    """[L, D] flattened, as it was given (policies/spaces.py)."""
    action: Array
    """[L, A] float32, raw (policies/spaces.py)."""
    reward: Array
    log_prob: Array | None
    terminated: bool
    final_observation: Array
    """[D]; zeros where the task terminated and none was given."""
    env: int
    metrics: dict[str, float]

    def __len__(self) -> int:
        return len(self.reward)


@dataclass(frozen=True)
class EpisodeReader:
    observations: ObservationLayout
    actions: ActionLayout
    needs_log_probs: bool
    within_bounds: bool
    """Whether an action outside of its Box cannot have been drawn."""
    metric: str

    def read(self, episodes: Sequence[EpisodeResult]) -> list[ReadEpisode]:
        if isinstance(episodes, EpisodeResult):
            raise UsageError("One episode was given where a list of them is taken: give [episode].")
        given = list(episodes)
        if not given:
            raise UsageError(
                "There are no episodes to train on: give the finished ones since the last call, at least one."
            )
        names: dict[str, int] = {}
        for index, episode in enumerate(given):
            if not isinstance(episode, EpisodeResult):
                raise EpisodeRefused(
                    index, "", f"it is a {type(episode).__name__}; give learnproof.EpisodeResult objects."
                )
            if episode.id and names.setdefault(episode.id, index) != index:
                raise EpisodeRefused(
                    index,
                    episode.id,
                    f"episode {names[episode.id]} of this call has the same id. Give each episode once.",
                )
        return [_Reading(self, index, episode).read() for index, episode in enumerate(given)]


@dataclass(frozen=True)
class _Reading:
    """One episode on its way through the door."""

    to: EpisodeReader
    index: int
    episode: EpisodeResult

    def read(self) -> ReadEpisode:
        episode = self.episode
        reward = self._numbers("rewards", episode.rewards).astype(np.float64)
        if reward.ndim != 1 or not len(reward):
            raise self._refused(
                f"rewards has shape {reward.shape}; wanted is one number per step, and at least one step. An episode without steps "
                "teaches nothing: leave it out."
            )
        self._finite("rewards", reward)
        if not isinstance(episode.terminated, (bool, np.bool_)):
            raise self._refused(
                f"terminated is {episode.terminated!r}; say True where the task came to its end, False where the episode was cut."
            )
        steps = len(reward)
        observation = self.to.observations.rows_of(
            [self._leaf("observations", leaf, episode.observations, steps) for leaf in self.to.observations.leaves]
        )
        action = self.to.actions.rows_of(
            [self._action_leaf(leaf, episode.actions, steps) for leaf in self.to.actions.leaves]
        )
        return ReadEpisode(
            observation=observation,
            action=action,
            reward=reward,
            log_prob=self._log_probs(steps),
            terminated=bool(episode.terminated),
            final_observation=self._final_observation(),
            env=int(episode.env),
            metrics=self._metrics(),
        )

    def _leaf(self, what: str, leaf: Leaf, given: Any, steps: int) -> Array:
        """One array [steps, ...] for a leaf of the space, its shape, range and numbers checked."""
        name = ".".join([what, *map(str, leaf.path)])
        try:
            if leaf.path and isinstance(given, Mapping):
                values = _inner(given, leaf.path)
            else:
                values = [_inner(single, leaf.path) for single in given] if leaf.path else given
        except (KeyError, IndexError, TypeError):
            raise self._refused(f"{name} is missing; the space has {leaf.space} there.") from None
        array = self._numbers(name, values)
        wanted = (steps, *(leaf.space.shape or ()))
        if array.shape == (*wanted, 1) and leaf.space.shape == ():
            array = array[..., 0]
        if array.shape[:1] != wanted[:1]:
            raise self._refused(
                f"{name} has {len(array) if array.ndim else 'no'} entries and rewards has {steps}. Every step has one of each; what was "
                "seen after the last step belongs into final_observation."
            )
        if array.shape != wanted:
            raise self._refused(
                f"{name} has shape {array.shape}, and the engine's space {leaf.space} wants {wanted}. Likeliest cause: the episode is of "
                "another environment, or the engine was made without its spaces: TrainingEngine(env.observation_space, env.action_space)."
            )
        self._finite(name, array)
        self._among(name, leaf, array)
        return array

    def _action_leaf(self, leaf: Leaf, given: Any, steps: int) -> Array:
        array = self._leaf("actions", leaf, given, steps)
        if isinstance(leaf.space, spaces.Box) and self.to.within_bounds:
            slack = OUT_OF_BOUNDS * np.maximum(1.0, np.nan_to_num(leaf.space.high - leaf.space.low, posinf=1.0))
            outside = (array < leaf.space.low - slack) | (array > leaf.space.high + slack)
            self._none_of(
                "actions",
                outside,
                array,
                f"outside of {leaf.space}",
                "Give the actions that the environment was given.",
            )
        return array

    def _among(self, name: str, leaf: Leaf, array: Array) -> None:
        """Values of the discrete kinds, and bytes, are whole numbers of their range."""
        low: int | Array
        count: int | Array
        match leaf.space:
            case spaces.Discrete():
                low, count = int(leaf.space.start), int(leaf.space.n)
            case spaces.MultiDiscrete():
                low, count = leaf.space.start, leaf.space.nvec
            case spaces.MultiBinary():
                low, count = 0, 2
            case spaces.Box() if leaf.space.dtype == np.uint8:
                low, count = 0, 256
            case _:
                return
        wrong = (array < low) | (array >= low + count) | (array != np.round(array))
        advice = "Likeliest cause: a count that begins at 1, another environment's actions, or images that were scaled already."
        self._none_of(name, wrong, array, f"not among those of {leaf.space}", advice)

    def _log_probs(self, steps: int) -> Array | None:
        if self.episode.log_probs is None:
            if not self.to.needs_log_probs:
                return None
            raise self._refused(
                "it has no log_probs, and PPO needs what the policy that acted gave each action, to know how far it can learn from "
                "another policy's episode. Keep log_prob of engine.act() or of your own policy; where they are lost, train with dqn "
                "or sac, which learn without."
            )
        log_prob = self._numbers("log_probs", self.episode.log_probs).astype(np.float64)
        if log_prob.shape != (steps,):
            raise self._refused(
                f"log_probs has shape {log_prob.shape}, and there are {steps} steps. Wanted is one number per step: sum over the dimensions "
                "of an action."
            )
        advice = "A policy gives an action that it has taken a finite log-probability; was the action changed after it was drawn?"
        self._none_of("log_probs", ~np.isfinite(log_prob), log_prob, "not a finite number", advice)
        if not any(isinstance(leaf.space, spaces.Box) for leaf in self.to.actions.leaves):
            advice = "Likeliest cause: probabilities were given; take their logarithm."
            self._none_of("log_probs", log_prob > 1e-6, log_prob, "above 0, which no discrete action has", advice)
        return log_prob

    def _final_observation(self) -> Array:
        given = self.episode.final_observation
        if given is None:
            if self.episode.terminated:
                return np.zeros(self.to.observations.size, self.to.observations.dtype)
            raise self._refused(
                "it was cut (terminated is False) and has no final_observation, so that what would have come next cannot be valued. Give "
                "the observation after the last action."
            )
        parts = [
            self._leaf("final_observation", leaf, [given] if leaf.path else np.asarray(given)[None], 1)
            for leaf in self.to.observations.leaves
        ]
        row: Array = self.to.observations.rows_of(parts)[0]
        return row

    def _metrics(self) -> dict[str, float]:
        metrics = {}
        for name, value in self.episode.metrics.items():
            if not isinstance(value, (int, float, np.number)) or not np.isfinite(value):
                raise self._refused(
                    f"its metric {name!r} is {value!r}, which is not a finite number. Leave it out, or correct it."
                )
            metrics[str(name)] = float(value)
        if self.to.metric not in ("return", *metrics):
            raise self._refused(
                f"its metrics are {sorted(metrics)}, and performance is judged by {self.to.metric!r}. Give it with each episode, or "
                "set metric to return."
            )
        return metrics

    # ------------------------------------------------------------------ what all of them ask

    def _numbers(self, name: str, given: Any) -> Array:
        try:
            array = np.asarray(given)
        except (ValueError, TypeError) as error:
            raise self._refused(
                f"{name} cannot be read as an array: {str(error).rstrip('.')}. Are all steps of one shape?"
            ) from None
        if array.dtype == object and any(value is None for value in array.flat):
            raise self._refused(f"{name} of step {next(i for i, v in enumerate(array.flat) if v is None)} is None.")
        if array.dtype != bool and not np.issubdtype(array.dtype, np.number):
            raise self._refused(f"{name} is of dtype {array.dtype}, which is not numbers. Are all steps of one shape?")
        return array

    def _finite(self, name: str, array: Array) -> None:
        with np.errstate(over="ignore"):
            bad = ~np.isfinite(array.astype(np.float32))
        advice = "Look at what made it: a division by 0, a missing value; the weights would not have survived it."
        self._none_of(name, bad, array, "not a number of float32", advice)

    def _none_of(self, name: str, wrong: Array, array: Array, what: str, advice: str) -> None:
        if not wrong.any():
            return
        place = np.unravel_index(int(np.argmax(wrong)), wrong.shape)
        where = f"step {place[0]}" + (f", number {', '.join(map(str, place[1:]))}" if len(place) > 1 else "")
        more = f" ({int(wrong.sum())} such in all)" if wrong.sum() > 1 else ""
        raise self._refused(f"{name} at {where} is {array[place]}, {what}{more}. {advice}")

    def _refused(self, reason: str) -> EpisodeRefused:
        return EpisodeRefused(self.index, self.episode.id, reason)


def _inner(value: Any, path: tuple[str | int, ...]) -> Any:
    for key in path:
        value = value[key]
    return value
