"""PPO and REINFORCE with their arithmetic in machine code.

The same learners: a rollout becomes advantages and targets, and those become gradient steps (algorithms/on_policy.py). Only what is done
with numbers is done elsewhere: values, advantages, and each pass over the minibatches, which is one call. Where a gradient step
is inspected, the pass stops before and after it. State, generators and what is reported are those of the base classes.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from ..algorithms.experience import Experience
from ..algorithms.learner import Array, Inspect, InspectedStep, Rollout
from ..algorithms.on_policy import Epoch, OnPolicyLearner, spread
from ..algorithms.ppo import PPO
from ..algorithms.reinforce import REINFORCE
from ..algorithms.sequences import SequenceTable
from ..algorithms.stepping import Stepper
from ..algorithms.surrogate import Figures
from .acting import ROWS_AT_ONCE, CompiledPolicy, said_of, values_of
from .adam import Moments, Stride, norms_of_parts
from .advantages import gae
from .descending import Pace, Rows, descend
from .network import make_room, make_told, network_arrays
from .objectives import APPROX_KL, CLIPPED, ENTROPY, POLICY_LOSS, VALUE_LOSS, Goal

EVERYTHING_COUNTS = np.empty(0, np.float32)
NOBODY_ELSE_ACTED = np.empty((0, 0))


@dataclass(frozen=True)
class Passes:
    """One or several passes over a rollout's rows, and what is added up in each."""

    rows: Rows
    goal: Goal
    moments: Moments
    orders: Array
    """[E, R]."""
    sums: Array
    """[E, 5] objectives.py."""
    norms: Array
    """[E, M] of each minibatch's gradient."""


class CompiledStepper(Stepper):
    def norms(self, *vectors: Tensor) -> list[Array]:
        ends = np.array([stretch.stop for stretch in self.flat.stretches])
        return [norms_of_parts(vector.numpy(), ends) for vector in vectors]


class CompiledOnPolicy(OnPolicyLearner):
    stepper_type = CompiledStepper
    kernel = "descending.descend"

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        self.net = network_arrays(self.flat, self.network)
        self.reading = make_room(self.net, ROWS_AT_ONCE)
        self.room, self.told = make_room(self.net, 1), make_told(self.net, 1)
        self.actor.compiled = CompiledPolicy(self.net)

    @abstractmethod
    def goal(self) -> Goal:
        """The loss that the settings, as they stand now, ask for."""

    # ------------------------------------------------------------------ its parts

    def _values(self, rollout: Rollout) -> tuple[Array, Array, Array]:
        steps, envs, size = rollout.observation.shape
        value = values_of(self.net, rollout.observation.reshape(-1, size), self.reading).reshape(steps, envs)
        last_value = values_of(self.net, rollout.last_observation, self.reading)
        final = np.zeros((steps, envs), np.float32)
        if len(rollout.final_rows):
            final.ravel()[rollout.final_rows] = values_of(self.net, rollout.final_observation, self.reading)
        return value, last_value, final

    def advantages(self, rollout: Rollout, value: Array, last_value: Array, final_value: Array) -> Array:
        importance = NOBODY_ELSE_ACTED if rollout.importance is None else rollout.importance
        advantage: Array = gae(
            rollout.reward, rollout.reward_scale, value, last_value, rollout.terminated, rollout.truncated, final_value,
            importance, self.settings.gamma, self.settings.gae_lambda,
        )  # fmt: skip
        return advantage.astype(np.float32)

    def _epochs(
        self, experience: Experience, inspect: Inspect, table: SequenceTable | None
    ) -> tuple[list[Epoch], list[InspectedStep]]:
        s = self.settings
        size = min(s.minibatch_size, len(experience))
        if len(self.told.value) != size:
            self.room, self.told = make_room(self.net, size), make_told(self.net, size)
        rows, goal = _rows(experience), self.goal()
        mean, square, count = self.stepper.moments()
        moments = Moments(mean.numpy(), square.numpy())
        per_epoch = math.ceil(len(experience) / size)
        wanted = spread(inspect.gradient_steps, s.epochs * per_epoch)
        epochs: list[Epoch] = []
        inspected: list[InspectedStep] = []
        together = s.epochs if self.never_enough else 1  # passes between which nobody looks
        for begun in range(0, s.epochs, together):
            orders = np.stack([self.shuffler.permutation(len(experience)) for _ in range(together)])
            now = Passes(rows, goal, moments, orders, np.zeros((together, 5)), np.empty((together, per_epoch)))
            offset, done = begun * per_epoch, 0
            for number in sorted(wanted):
                if 0 <= number - offset < together * per_epoch:
                    self._descend(now, done, number - offset)
                    inspected.append(self._inspected(now, experience, begun, number - offset))
                    done = number - offset + 1
            self._descend(now, done, together * per_epoch)
            for sums, norms in zip(now.sums / len(experience), now.norms, strict=True):
                epochs.append(Epoch(_figures(sums, goal), float(norms.mean()), float(norms.max())))
            if self.enough(epochs[-1].figures):
                break
        count.fill_(self.stepper.steps)
        return epochs, inspected

    def _descend(self, now: Passes, first: int, last: int) -> None:
        """Gradient steps on minibatches `first` to `last` - 1. Gradients that are not finite are refused before they reach the weights."""
        if first == last:
            return
        pace = Pace(
            len(self.told.value),
            self.settings.normalize_advantage,
            Stride(self.learning_rate, self.settings.adam_epsilon, self.settings.max_grad_norm),
            self.stepper.steps,
        )
        scale = descend(
            self.net,
            now.moments,
            now.rows,
            now.orders,
            first,
            last,
            now.goal,
            pace,
            self.room,
            self.told,
            now.sums,
            now.norms,
        )
        if math.isnan(scale):
            raise self.stepper.not_finite()
        self.stepper.scale = scale
        self.stepper.steps += last - first
        self.optimizer_steps += last - first

    def _said_now(self, rollout: Rollout, rows: Array, table: SequenceTable | None) -> tuple[Array, Array]:
        size, width = rollout.observation.shape[2], rollout.action.shape[2]
        observation, action = rollout.observation.reshape(-1, size)[rows], rollout.action.reshape(-1, width)[rows]
        return said_of(self.net, observation, action, self.reading)

    def _inspected(self, now: Passes, experience: Experience, begun: int, place: int) -> InspectedStep:
        """A gradient step by itself, looked at before and after; `begun` is the number of the first of these passes."""
        before, number = self.stepper.weights(), self.optimizer_steps
        self._descend(now, place, place + 1)
        rows, size = now.rows, len(self.told.value)
        epoch, minibatch = divmod(place, now.norms.shape[1])
        picked = now.orders[epoch, minibatch * size : (minibatch + 1) * size]
        told = {name: column[: len(picked)].copy() for name, column in self.told._asdict().items()}
        observation, action = rows.observation[picked], rows.action[picked]
        log_prob_after, value_after = said_of(self.net, observation, action, self.reading)
        arrays = {
            "row": experience.row.numpy()[picked],
            "observation": observation,
            "action": action,
            "advantage": told["advantage"],
            "target": rows.target[picked],
            "old_log_prob": rows.old_log_prob[picked],
            "log_prob_before": told["log_prob"],
            "log_prob_gradient": told["to_log_prob"],
            "log_prob_after": log_prob_after,
            "value_before": told["value"],
            "value_after": value_after,
        }
        if len(rows.weight):
            arrays["weight"] = rows.weight[picked]
        return InspectedStep(
            optimizer_step=number,
            epoch=begun + epoch,
            minibatch=minibatch,
            learning_rate=self.learning_rate,
            arrays=arrays,
            parameters=self.stepper.parameter_figures(before),
        )


class CompiledPPO(CompiledOnPolicy, PPO):
    def goal(self) -> Goal:
        s = self.settings
        held = math.inf if s.clip_range_value is None else s.clip_range_value
        return Goal(True, s.clip_range, held, s.value_coefficient, s.entropy_coefficient)


class CompiledREINFORCE(CompiledOnPolicy, REINFORCE):
    def goal(self) -> Goal:
        return Goal(False, 1.0, math.inf, self.settings.value_coefficient, self.entropy_coefficient)


def _rows(experience: Experience) -> Rows:
    e = experience
    return Rows(
        observation=e.observation.numpy(),
        action=e.action.numpy(),
        old_log_prob=e.old_log_prob.numpy(),
        value=e.value.numpy(),
        advantage=e.advantage.numpy(),
        target=e.target.numpy(),
        weight=EVERYTHING_COUNTS if e.weight is None else e.weight.numpy(),
    )


def _figures(means: Array, goal: Goal) -> Figures:
    policy_loss, value_loss, entropy = (float(means[place]) for place in (POLICY_LOSS, VALUE_LOSS, ENTROPY))
    return Figures(
        loss=policy_loss + goal.value_coefficient * value_loss - goal.entropy_coefficient * entropy,
        policy_loss=policy_loss,
        value_loss=value_loss,
        entropy=entropy,
        approx_kl=float(means[APPROX_KL]),
        clip_fraction=float(means[CLIPPED]),
    )
