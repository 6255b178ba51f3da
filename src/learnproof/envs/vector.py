"""The base of our batch-first environments: N instances in arrays, reset, stepped, saved and restored together.

A subclass knows the rules of one instance; this file knows everything that is the same for all of them:

    actions -> shape and values checked -> the subclass steps the rows -> episodes that ended are dealt with
                                            as the autoreset mode says -> Gymnasium's five results

Autoreset modes, with the forms of Gymnasium's own SyncVectorEnv:

    SAME_STEP   a finished instance begins anew inside the same step; infos["final_obs"] and infos["final_info"] hold
                what the episode ended with (the default: no step is wasted)
    NEXT_STEP   the step after the last one ignores its action, gives reward 0 and the first observation of a new episode
    DISABLED    nothing is reset; the caller resets with options={"reset_mask": bool [N]} before stepping on

`snapshot` gives the whole state as arrays; `restore` and the same actions then give the same bytes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium import Space
from gymnasium.spaces import Box, Discrete
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from ..errors import CheckpointMismatch, UsageError
from .kernel import kernel
from .random_streams import WORDS, seed_stream

Array = np.ndarray[Any, Any]

MODE_CODES = {AutoresetMode.SAME_STEP: 0, AutoresetMode.NEXT_STEP: 1, AutoresetMode.DISABLED: 2}


class BatchEnv(VectorEnv[Array, Array, Array], ABC):
    """N instances of one environment, stepped by a kernel of the subclass: observations [N, D], actions [N, A] or choices [N]."""

    metric: str = "return"
    """What performance means here: "return", or the name of a per-episode metric."""
    action_heads: tuple[str, ...] | None = None
    """For each flat action dimension, the distribution that fits it ("bernoulli" or "beta"), where the environment knows."""

    def __init__(
        self,
        num_envs: int,
        single_observation_space: Box,
        single_action_space: Box | Discrete,
        autoreset_mode: AutoresetMode | str = AutoresetMode.SAME_STEP,
    ) -> None:
        if num_envs < 1:
            raise UsageError(f"num_envs = {num_envs}: a batch holds at least one instance.")
        self.num_envs = num_envs
        self.autoreset_mode = _as_mode(autoreset_mode)
        self.metadata = {"render_modes": [], "autoreset_mode": self.autoreset_mode}
        self.single_observation_space: Space[Array] = single_observation_space
        self.single_action_space: Space[Any] = single_action_space
        self.observation_space: Space[Array] = batch_space(single_observation_space, num_envs)
        self.action_space: Space[Array] = batch_space(single_action_space, num_envs)
        self._action_shape: tuple[int, ...] = (num_envs, *(single_action_space.shape or ()))
        self._n_choices = int(single_action_space.n) if isinstance(single_action_space, Discrete) else 0

        self._streams = np.zeros((num_envs, WORDS), np.uint64)
        self._observation = np.zeros((num_envs, *single_observation_space.shape), np.float32)
        self._reward = np.zeros(num_envs, np.float64)
        self._terminated = np.zeros(num_envs, np.bool_)
        self._truncated = np.zeros(num_envs, np.bool_)
        self._finished = np.zeros(num_envs, np.bool_)
        self._all_rows = np.ones(num_envs, np.bool_)
        self._started = False

    # What a subclass says of its rules. `rows` is a mask of the instances concerned; all others stay untouched.

    @abstractmethod
    def _begin(self, rows: Array) -> None:
        """Start an episode in each of these rows, from the row's own random stream; write its observation."""

    @abstractmethod
    def _advance(self, rows: Array, actions: Array) -> int:
        """One step of each of these rows; write observation, reward, terminated and truncated.

        Gives how many of them have ended.
        """

    @abstractmethod
    def _state(self) -> dict[str, Array]:
        """The live arrays that hold the instances' state, besides the random streams and the observation."""

    @abstractmethod
    def _settings(self) -> dict[str, float]:
        """The rules as numbers, so that a snapshot is refused where others hold."""

    @abstractmethod
    def _faults(self, state: Mapping[str, Array]) -> str:
        """What makes this state impossible under the rules, or an empty text; kernels trust what passes."""

    @abstractmethod
    def _metrics(self, rows: Array) -> Mapping[str, Array]:
        """The metrics of the episodes that have just ended in these rows: name -> [N], 0 elsewhere."""

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Array, dict[str, Any]]:
        """Begin new episodes: everywhere, or where options["reset_mask"] says.

        A whole number seeds instance i with seed + i; a sequence seeds each by itself; None goes on with the streams
        as they are (on the first reset: from the operating system).
        """
        rows = self._rows_to_reset(options)
        for row, value in enumerate(self._seeds(seed)):
            if rows[row] and (value is not None or not self._started):
                self._streams[row] = seed_stream(value)
        self._begin(rows)
        self._finished[rows] = False
        self._started = True
        return self._observation.copy(), {}

    def step(self, actions: Array) -> tuple[Array, Array, Array, Array, dict[str, Any]]:
        actions = self._checked(actions)
        if self.autoreset_mode is AutoresetMode.NEXT_STEP and self._finished.any():
            n_ended = self._begin_finished_and_advance_the_rest(actions)
        else:
            n_ended = self._advance(self._all_rows, actions)
        infos = self._end_episodes() if n_ended else {}
        return self._observation.copy(), self._reward.copy(), self._terminated.copy(), self._truncated.copy(), infos

    def snapshot(self) -> dict[str, Array]:
        """The complete state, copied. `restore` in an environment made with the same arguments goes on from it."""
        if not self._started:
            raise UsageError("There is no state to save before the first reset(). Call reset(seed=...) first.")
        return {name: value.copy() for name, value in self._whole_state().items()}

    def restore(self, snapshot: Mapping[str, Array]) -> Array:
        """Go on from a snapshot; gives the current observation. A snapshot that does not fit changes nothing."""
        mine = self._whole_state()
        _require_same_form(mine, snapshot)
        self._require_same_settings(snapshot)
        if fault := self._faults(snapshot):
            raise CheckpointMismatch(f"The saved state of the environment cannot be: {fault}. Use another checkpoint.")
        for name, value in mine.items():
            value[...] = snapshot[name]
        self._started = True
        return self._observation.copy()

    @property
    def observation(self) -> Array:
        """What the last reset, step or restore returned, [N, D]."""
        return self._observation.copy()

    def _whole_state(self) -> dict[str, Array]:
        return {
            "autoreset_mode": np.array([MODE_CODES[self.autoreset_mode]], np.uint8),
            "settings": np.array(list(self._settings().values()), np.float64),
            "streams": self._streams,
            "observation": self._observation,
            "finished": self._finished,
            **self._state(),
        }

    def _require_same_settings(self, snapshot: Mapping[str, Array]) -> None:
        saved_mode = int(snapshot["autoreset_mode"][0])
        if saved_mode != MODE_CODES[self.autoreset_mode]:
            names = {code: mode.value for mode, code in MODE_CODES.items()}
            raise CheckpointMismatch(
                f"The snapshot was made with autoreset mode {names.get(saved_mode, saved_mode)!r}, this environment has "
                f"{self.autoreset_mode.value!r}. Make the environment with the mode of the snapshot."
            )
        differences = [
            f"{name} was {saved:g}, is {mine:g}"
            for (name, mine), saved in zip(self._settings().items(), snapshot["settings"].tolist(), strict=True)
            if saved != mine
        ]
        if differences:
            raise CheckpointMismatch(
                f"The snapshot was made under other rules: {'; '.join(differences)}. "
                "Make the environment with the arguments that the snapshot was made with."
            )

    def _rows_to_reset(self, options: dict[str, Any] | None) -> Array:
        mask = (options or {}).get("reset_mask")
        if mask is None:
            return self._all_rows
        if not isinstance(mask, np.ndarray) or mask.dtype != np.bool_ or mask.shape != (self.num_envs,):
            raise UsageError(
                f"options['reset_mask'] must be a bool array of shape ({self.num_envs},), got "
                f"{type(mask).__name__} of {getattr(mask, 'dtype', '?')} {getattr(mask, 'shape', '')}."
            )
        if not mask.any():
            raise UsageError("options['reset_mask'] is False everywhere: nothing would be reset. Leave the call out.")
        if not self._started and not mask.all():
            raise UsageError("The first reset() must cover every instance; use a partial reset_mask after it.")
        return mask

    def _seeds(self, seed: int | Sequence[int | None] | None) -> Sequence[int | None]:
        if seed is None:
            return [None] * self.num_envs
        if isinstance(seed, (int, np.integer)):
            return [int(seed) + row for row in range(self.num_envs)]
        if len(seed) != self.num_envs:
            raise UsageError(
                f"{len(seed)} seeds were given for {self.num_envs} instances; give one for each, or one int."
            )
        return seed

    def _checked(self, actions: Array) -> Array:
        if not self._started:
            raise UsageError("step() was called before the first reset(). Call reset(seed=...) first.")
        actions = self._checked_choices(actions) if self._n_choices else self._checked_numbers(actions)
        if self.autoreset_mode is AutoresetMode.DISABLED and self._finished.any():
            raise UsageError(
                f"The episodes of instances {np.flatnonzero(self._finished)[:10].tolist()} are over, and autoreset is "
                "disabled. Reset them first: reset(options={'reset_mask': terminated | truncated})."
            )
        return actions

    def _checked_numbers(self, actions: Array) -> Array:
        actions = np.ascontiguousarray(actions, np.float32)
        self._require_shape(actions)
        flat = first_not_finite(actions.reshape(-1))
        if flat >= 0:
            row, column = divmod(flat, actions.shape[1])
            raise UsageError(
                f"actions[{row}, {column}] = {actions[row, column]} is not a finite number. Most often the policy's "
                "weights have become NaN: look at the loss and the gradient norm of the last updates."
            )
        return actions

    def _checked_choices(self, actions: Array) -> Array:
        given = np.asarray(actions)
        self._require_shape(given)
        if given.dtype.kind not in "iu":
            raise UsageError(
                f"The actions are {given.dtype}; here they are whole numbers from 0 to {self._n_choices - 1}."
            )
        choices = np.ascontiguousarray(given, np.int64)
        row = first_outside(choices, self._n_choices)
        if row >= 0:
            raise UsageError(f"actions[{row}] = {choices[row]}, and there are only 0 to {self._n_choices - 1}.")
        return choices

    def _require_shape(self, actions: Array) -> None:
        if actions.shape != self._action_shape:
            raise UsageError(
                f"The actions have shape {actions.shape}, this environment takes {self._action_shape}: "
                "one row for each instance, flat."
            )

    def _end_episodes(self) -> dict[str, Any]:
        """Begin anew or mark as finished, as the mode says; gives the infos of the episodes that have ended."""
        ended = self._terminated | self._truncated
        metrics = _masked(self._metrics(ended), ended)
        if self.autoreset_mode is not AutoresetMode.SAME_STEP:
            self._finished[:] = ended
            return metrics
        final_observations = _rows_as_objects(self._observation, ended)
        self._begin(ended)
        return {
            "final_obs": final_observations,
            "_final_obs": ended.copy(),
            "final_info": metrics,
            "_final_info": ended.copy(),
        }

    def _begin_finished_and_advance_the_rest(self, actions: Array) -> int:
        beginning = self._finished.copy()
        self._begin(beginning)
        self._reward[beginning] = 0.0
        self._terminated[beginning] = False
        self._truncated[beginning] = False
        self._finished[:] = False
        return self._advance(~beginning, actions)


@kernel
def first_not_finite(values: Array) -> int:
    """Index of the first NaN or infinity, -1 where there is none."""
    for index in range(values.shape[0]):
        if not np.isfinite(values[index]):
            return index
    return -1


@kernel
def first_outside(choices: Array, count: int) -> int:
    """Index of the first choice that is not in 0..count - 1, -1 where there is none."""
    for index in range(choices.shape[0]):
        if choices[index] < 0 or choices[index] >= count:
            return index
    return -1


def _as_mode(mode: AutoresetMode | str) -> AutoresetMode:
    try:
        return mode if isinstance(mode, AutoresetMode) else AutoresetMode(mode)
    except ValueError:
        known = ", ".join(repr(known.value) for known in AutoresetMode)
        raise UsageError(f"There is no autoreset mode {mode!r}; known are {known}.") from None


def _masked(values: Mapping[str, Array], mask: Array) -> dict[str, Array]:
    """Gymnasium's form of infos: beside each array "name" the mask "_name" of the rows where it means something."""
    infos: dict[str, Array] = {}
    for name, value in values.items():
        infos[name], infos[f"_{name}"] = value, mask.copy()
    return infos


def _rows_as_objects(observation: Array, mask: Array) -> Array:
    """Gymnasium's form of final_obs: an object array, None where no episode ended."""
    rows = np.full(mask.shape[0], None, dtype=object)
    for row in np.flatnonzero(mask):
        rows[row] = observation[row].copy()
    return rows


def _require_same_form(mine: Mapping[str, Array], theirs: Mapping[str, Array]) -> None:
    differences = [f"{name} is missing" for name in mine.keys() - theirs.keys()]
    differences += [f"{name} is not known here" for name in theirs.keys() - mine.keys()]
    for name in mine.keys() & theirs.keys():
        here, there = mine[name], theirs[name]
        if here.shape != there.shape or here.dtype != there.dtype:
            differences.append(f"{name} is {there.dtype} {there.shape}, here {here.dtype} {here.shape}")
    if differences:
        raise CheckpointMismatch(
            f"The saved state is of another environment: {'; '.join(sorted(differences))}. Most often the number of "
            "instances or an argument of the environment has changed since; use those of the run that saved it."
        )
