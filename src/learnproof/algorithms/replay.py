"""A memory of transitions: a ring of fixed size, filled by rollouts and sampled in a few array operations.

    replay.add(rollout)
    index = replay.draw(64, generator)            # or by the size of their errors: Priorities.draw
    batch = replay.take(index)

Each row knows which row came after it in its environment, so that returns over n steps are put together when a batch is
taken: they end at the episode's end, or where the environment has got to, and then bootstrap after fewer steps. Rows
are as the environment gave them; the actor's normaliser and the scale of rewards are applied when a batch is taken, as they stand
then. Steps that only reset an environment are never stored.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import SettingsError
from ..policies.normalization import ObservationNormalizer
from .learner import Array, Rollout
from .sum_tree import SumTree

PRIORITY_FLOOR = 1e-6
FLOATS = np.dtype(np.float32)


@dataclass(frozen=True)
class Transitions:
    """A batch of B rows. `reward` is the discounted sum of `steps` of them."""

    index: Array
    observation: Array
    action: Array
    reward: Array
    terminated: Array
    """The task ended within these steps: nothing follows."""
    next_observation: Array
    discount: Array
    """What the value after these steps is multiplied by: gamma to the power of their number."""
    steps: Array
    weight: Array
    """What each row's error counts for; 1 unless rows were drawn by priority."""

    def __len__(self) -> int:
        return len(self.index)

    def rows(self, which: slice) -> Transitions:
        return Transitions(**{name: array[which] for name, array in vars(self).items()})


class Replay:
    def __init__(
        self,
        size: int,
        observation_size: int,
        action_size: int,
        gamma: float,
        n_step: int = 1,
        dtype: np.dtype[Any] = FLOATS,
    ) -> None:
        """`dtype` is that of observations: bytes are kept as bytes."""
        self.size = size
        self.gamma = gamma
        self.n_step = n_step
        self.observation = np.zeros((size, observation_size), dtype)
        self.next_observation = np.zeros((size, observation_size), dtype)
        self.action = np.zeros((size, action_size), np.float32)
        self.reward = np.zeros(size, np.float32)
        self.terminated = np.zeros(size, bool)
        self.following = np.full(size, -1, np.int64)
        """The row of the same environment's next step; -1 where it has not come yet or the episode ended."""
        self.newest: Array | None = None
        """[N] each environment's last row; -1 before its first and after an episode's end."""
        self.added = 0
        """Rows ever stored; the next one goes to `added % size`."""
        self.reward_scale = 1.0

    def __len__(self) -> int:
        return min(self.added, self.size)

    def add(self, rollout: Rollout) -> Array:
        """Store the valid steps of a rollout, oldest first; the rows where they went."""
        steps, envs = rollout.reward.shape
        if self.newest is None:
            if 2 * envs > self.size:
                raise SettingsError(
                    f"A memory of {self.size} transitions is too small for {envs} environments side by side: raise replay_size "
                    f"to {2 * envs} or more, or lower env.n_envs."
                )
            self.newest = np.full(envs, -1, np.int64)
        self.reward_scale = rollout.reward_scale
        following = np.concatenate([rollout.observation[1:], rollout.last_observation[None]])
        following.reshape(steps * envs, -1)[rollout.final_rows] = rollout.final_observation
        at_once = self.size // envs - 1  # so that no row is written twice, nor one that a new row follows
        stretches = [slice(start, start + at_once) for start in range(0, steps, at_once)]
        return np.concatenate([self._add_steps(rollout, stretch, following[stretch]) for stretch in stretches])

    def _add_steps(self, rollout: Rollout, steps: slice, following: Array) -> Array:
        assert self.newest is not None
        valid = rollout.valid[steps]
        rows = (self.added + np.arange(np.count_nonzero(valid))) % self.size
        self.added += len(rows)
        self.observation[rows] = rollout.observation[steps][valid]
        self.next_observation[rows] = following[valid]
        self.action[rows] = rollout.action[steps][valid]
        self.reward[rows] = rollout.reward[steps][valid]
        self.terminated[rows] = rollout.terminated[steps][valid]
        self.following[rows] = -1
        before, self.newest = self._linked(rollout.terminated[steps] | rollout.truncated[steps], valid, rows)
        known = before >= 0
        self.following[before[known]] = rows[known]
        return rows

    def _linked(self, ended: Array, valid: Array, rows: Array) -> tuple[Array, Array]:
        """Of each new row the one that it follows (-1 = none), and each environment's newest row after all of them."""
        assert self.newest is not None
        newest = np.empty((len(valid) + 1, valid.shape[1]), np.int64)
        newest[0] = self.newest
        newest[1:][valid] = rows
        newest[1:][ended & valid] = -1
        told = np.where(valid, np.arange(1, len(newest))[:, None], 0)  # an invalid step leaves things as they were
        newest[1:] = np.take_along_axis(newest, np.maximum.accumulate(told), 0)
        return newest[:-1][valid], newest[-1].copy()

    def draw(self, count: int, generator: np.random.Generator, recent: int | None = None) -> Array:
        """Uniform over what is kept, or over the `recent` newest rows; with replacement."""
        among = len(self) if recent is None else min(recent, len(self))
        age = generator.integers(0, among, count)
        rows: Array = (self.added - 1 - age) % self.size
        return rows

    def take(
        self, index: Array, normalizer: ObservationNormalizer | None = None, weight: Array | None = None
    ) -> Transitions:
        reward = self.reward[index].astype(np.float64)
        last = index
        discount = np.full(len(index), self.gamma)
        steps = np.ones(len(index), np.int64)
        for _ in range(self.n_step - 1):
            after = self.following[last]
            goes_on = after >= 0
            if not goes_on.any():
                break
            reward += np.where(goes_on, discount * self.reward[after], 0.0)
            discount = np.where(goes_on, discount * self.gamma, discount)
            steps += goes_on
            last = np.where(goes_on, after, last)
        observation, following = self.observation[index], self.next_observation[last]
        if normalizer is not None:
            observation, following = normalizer.apply(observation), normalizer.apply(following)
        return Transitions(
            index=index,
            observation=observation,
            action=self.action[index],
            reward=(reward * self.reward_scale).astype(np.float32),
            terminated=self.terminated[last],
            next_observation=following,
            discount=discount.astype(np.float32),
            steps=steps,
            weight=np.ones(len(index), np.float32) if weight is None else weight,
        )

    # ------------------------------------------------------------------ over a kill

    def state(self) -> dict[str, Any]:
        newest = None if self.newest is None else self.newest.tolist()
        return {"added": self.added, "newest": newest, "reward_scale": self.reward_scale}

    def tensors(self) -> dict[str, Array]:
        return {name: getattr(self, name) for name in _KEPT}

    def load(self, state: dict[str, Any], tensors: dict[str, Array]) -> None:
        self.added = int(state["added"])
        self.newest = None if state["newest"] is None else np.array(state["newest"], np.int64)
        self.reward_scale = float(state["reward_scale"])
        for name in _KEPT:
            getattr(self, name)[:] = tensors[name]

    def break_off(self) -> None:
        """Episodes were begun anew: what comes next does not follow what is stored."""
        if self.newest is not None:
            self.newest[:] = -1


_KEPT = ("observation", "next_observation", "action", "reward", "terminated", "following")


class Priorities:
    """Draws rows in proportion to |error|^alpha; new rows at the largest priority so far (Schaul et al. 2016)."""

    def __init__(self, size: int, alpha: float) -> None:
        self.tree = SumTree(size)
        self.alpha = alpha
        self.largest = 1.0

    def added(self, rows: Array) -> None:
        self.tree.put(rows, np.full(len(rows), self.largest))

    def draw(self, count: int, kept: int, beta: float, generator: np.random.Generator) -> tuple[Array, Array]:
        """One row from each of `count` equal stretches of the line; and the weights that undo the preference."""
        points = (np.arange(count) + generator.random(count)) * (self.tree.total / count)
        rows = self.tree.find(points)
        share = self.tree.leaves[rows] / self.tree.total
        weight = (kept * share) ** -beta
        return rows, (weight / weight.max()).astype(np.float32)

    def learnt(self, rows: Array, error: Array) -> None:
        priority = (np.abs(error).astype(np.float64) + PRIORITY_FLOOR) ** self.alpha
        self.largest = max(self.largest, float(priority.max()))
        self.tree.put(rows, priority)

    def state(self) -> dict[str, Any]:
        return {"largest": self.largest}

    def tensors(self) -> dict[str, Array]:
        return {"priority": self.tree.leaves.copy()}

    def load(self, state: dict[str, Any], tensors: dict[str, Array]) -> None:
        self.largest = float(state["largest"])
        self.tree.load(tensors["priority"])
