"""What PPO and REINFORCE share: a rollout becomes advantages and targets, and those become gradient steps.

Comes in: a Rollout [T, N]. Goes out: an UpdateReport. On the way: values of all states -> advantages and targets
(returns.py) -> `epochs` passes over shuffled minibatches, each one gradient step of the algorithm's own objective. An
algorithm gives its objective's derivative with respect to what the network said, and the figures that people read. Where the
network has a memory, minibatches are made of whole sequences (sequences.py); all else is as without.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..config import OnPolicySettings, OptimizerSettings
from ..policies.actor import NetworkActor
from ..policies.networks import ActorCritic
from ..seeding import generator, generator_state, restore_generator
from .curiosity import Curiosity
from .experience import Experience, normalised
from .learner import Array, Inspect, InspectedStep, Rollout, UpdateReport
from .returns import explained_variance, gae, value_targets
from .sequences import SequenceTable, remember
from .stepping import Stepper
from .surrogate import Asked, Figures, Said

ENCODED_AT_ONCE = 1024
"""Rows that an encoder reads in one go where no gradient is needed: what it makes of a whole rollout of images would be gigabytes."""


@dataclass(frozen=True)
class Step:
    """One gradient step: what the network said before it, the derivative with respect to that, and the gradient's norm
    before clipping."""

    said: Said
    derivative: Said
    norm: float


@dataclass(frozen=True)
class Epoch:
    figures: Figures
    grad_norm: float
    grad_norm_max: float


class OnPolicyLearner(ABC):
    """The network of its actor under one optimizer."""

    settings: OnPolicySettings
    stepper_type: type[Stepper] = Stepper
    kernel = ""
    curiosity: Curiosity | None = None
    """Pays for new states beside the rewards."""

    def __init__(
        self, actor: NetworkActor, settings: OnPolicySettings, optimizer: OptimizerSettings, seed: int
    ) -> None:
        self.actor = actor
        assert isinstance(actor.network, ActorCritic)
        self.network = actor.network
        self.settings = settings
        self.stepper = self.stepper_type(self.network, settings, optimizer)
        self.flat = self.stepper.flat
        self.shuffler = generator(seed, "minibatches")
        self.learning_rate = settings.learning_rate
        self.optimizer_steps = 0

    @abstractmethod
    def derivative(self, said: Said, batch: Experience) -> Said:
        """d loss / d (log-probability, entropy, value) of each row."""

    @abstractmethod
    def figures(self, said: Said, asked: Asked) -> Figures:
        """The loss and its parts, for people."""

    @property
    def never_enough(self) -> bool:
        """Whether nothing that is measured can end the epochs on a rollout early."""
        return True

    def enough(self, measured: Figures) -> bool:
        """Whether the epochs on this rollout should end here."""
        return False

    # ------------------------------------------------------------------ one update

    def learn(self, pieces: Iterator[Rollout], learning_rate: float, inspect: Inspect) -> UpdateReport:
        return self.update(next(pieces), learning_rate, inspect)

    def update(self, rollout: Rollout, learning_rate: float, inspect: Inspect) -> UpdateReport:
        self.flat.check_aliasing()
        self.learning_rate = learning_rate
        bonus = None
        if self.curiosity is not None:
            rollout, bonus = self.curiosity.paid(rollout)
        table = None
        if self.network.memory is None:
            value, last_value, final_value = self._values(rollout)
        else:
            told = remember(self.network, rollout, self._tensor)
            value, last_value, final_value = told.value, told.last_value, told.final_value
            table = SequenceTable(rollout, told, self.settings.sequence_length, self._tensor)
        advantage = self.advantages(rollout, value, last_value, final_value)
        target = value_targets(advantage, value, rollout.importance).astype(np.float32)
        experience = self._experience(rollout, value, advantage, target)
        before = self.stepper.weights()

        epochs, inspected = self._epochs(experience, inspect, table)

        valid = rollout.valid
        modules = self.stepper.report(before, learning_rate)
        figures = {name: [float(getattr(epoch.figures, name)) for epoch in epochs] for name in Figures._fields}
        return UpdateReport(
            **figures,
            grad_norm=[epoch.grad_norm for epoch in epochs],
            grad_norm_max=[epoch.grad_norm_max for epoch in epochs],
            optimizer_steps=self.optimizer_steps,
            learning_rate=learning_rate,
            explained_variance=explained_variance(value[valid], target[valid]),
            advantage_mean=float(advantage[valid].mean()),
            advantage_std=float(advantage[valid].std()),
            weight_change=sum(module.weight_change for module in modules.values()),
            weight_step=sum(module.weight_step for module in modules.values()),
            modules=modules,
            inspected=inspected,
            curiosity=None if bonus is None else float(bonus[valid].mean()),
            rollout=_rollout_roles(rollout, value, last_value, final_value, advantage, target, bonus)
            if inspect.gradient_steps
            else None,
            iteration=self._look_again(rollout, value, inspect.rows, table),
        )

    def advantages(self, rollout: Rollout, value: Array, last_value: Array, final_value: Array) -> Array:
        return gae(
            rollout.reward * rollout.reward_scale,
            value,
            last_value,
            rollout.terminated,
            rollout.truncated,
            final_value,
            self.settings.gamma,
            self.settings.gae_lambda,
            rollout.importance,
        ).astype(np.float32)

    def gradient_step(self, batch: Experience) -> Step:
        """One descent step. Gradients that are not finite are refused before they reach the weights."""
        outputs = self.network.keeping(batch.read)
        log_prob, entropy = self.network.head.log_prob_and_entropy(outputs.params, batch.action)
        said = Said(log_prob.detach(), entropy.detach(), outputs.value)
        wanted = self.derivative(said, batch)
        self.network.backward(outputs, log_prob, entropy, *wanted)
        norm = self.optimizer_step()
        self.optimizer_steps += 1
        return Step(said, wanted, norm)

    def optimizer_step(self) -> float:
        return self.stepper.step(self.learning_rate)

    # ------------------------------------------------------------------ its parts

    def _values(self, rollout: Rollout) -> tuple[Array, Array, Array]:
        """V of every state of the rollout [T, N], of where it stopped [N], and of what time limits hid [T, N]."""
        steps, envs, size = rollout.observation.shape
        with torch.inference_mode():
            rows = np.concatenate(
                [rollout.observation.reshape(-1, size), rollout.last_observation, rollout.final_observation]
            )
            at_once = len(rows) if self.network.encoder is None else ENCODED_AT_ONCE
            parts = [self.network.values(self._tensor(rows[i : i + at_once])) for i in range(0, len(rows), at_once)]
            values = torch.cat(parts).cpu().numpy()
        final = np.zeros(steps * envs, np.float32)
        final[rollout.final_rows] = values[(steps + 1) * envs :]
        return (
            values[: steps * envs].reshape(steps, envs),
            values[steps * envs : (steps + 1) * envs],
            final.reshape(steps, envs),
        )

    def _experience(self, rollout: Rollout, value: Array, advantage: Array, target: Array) -> Experience:
        rows = np.flatnonzero(rollout.valid.ravel())
        size, width = rollout.observation.shape[2], rollout.action.shape[2]
        return Experience(
            row=torch.from_numpy(rows),
            observation=self._tensor(rollout.observation.reshape(-1, size)[rows]),
            action=self._tensor(rollout.action.reshape(-1, width)[rows]),
            old_log_prob=self._tensor(rollout.log_prob.ravel()[rows]),
            value=self._tensor(value.ravel()[rows]),
            advantage=self._tensor(advantage.ravel()[rows]),
            target=self._tensor(target.ravel()[rows]),
            weight=None
            if rollout.importance is None
            else self._tensor(rollout.importance.ravel()[rows].astype(np.float32)),
        )

    def _epochs(
        self, experience: Experience, inspect: Inspect, table: SequenceTable | None
    ) -> tuple[list[Epoch], list[InspectedStep]]:
        s = self.settings
        per_epoch = (
            math.ceil(len(experience) / s.minibatch_size) if table is None else table.minibatches(s.minibatch_size)
        )
        wanted = spread(inspect.gradient_steps, s.epochs * per_epoch)
        epochs: list[Epoch] = []
        inspected: list[InspectedStep] = []
        for epoch in range(s.epochs):
            shuffled, batches = self._shuffled(experience, table)
            steps: list[Step] = []
            for minibatch, batch in enumerate(batches):
                if epoch * per_epoch + minibatch in wanted:
                    step, seen = self._inspected_step(batch, epoch, minibatch)
                    inspected.append(seen)
                else:
                    step = self.gradient_step(batch)
                steps.append(step)
            said = Said(*(torch.cat(parts) for parts in zip(*(step.said for step in steps), strict=True)))
            norms = [step.norm for step in steps]
            measured = self.figures(said, shuffled.asked)
            epochs.append(Epoch(measured, sum(norms) / len(norms), max(norms)))
            if self.enough(measured):
                break
        return epochs, inspected

    def _shuffled(self, experience: Experience, table: SequenceTable | None) -> tuple[Experience, Iterator[Experience]]:
        """All rows in a new order, and the same cut into minibatches; advantages normalised in each, where that is set."""
        size, normalise = self.settings.minibatch_size, self.settings.normalize_advantage
        if table is None:
            shuffled = experience.take(torch.from_numpy(self.shuffler.permutation(len(experience))))
            if normalise:
                shuffled.advantage = normalised(shuffled.advantage, size)
            return shuffled, (shuffled.stretch(i, i + size) for i in range(0, len(shuffled), size))
        parts = table.shuffled(self.shuffler, size)
        index = [part.index for part in parts]
        shuffled = experience.take(self._tensor(np.concatenate(index)))
        ends = np.cumsum([len(own) for own in index]).tolist()
        starts = [0, *ends[:-1]]
        if normalise:
            cut = (shuffled.advantage[a:b] for a, b in zip(starts, ends, strict=True))
            shuffled.advantage = torch.cat([normalised(own, len(own)) for own in cut])
        whole = zip(parts, starts, ends, strict=True)
        return shuffled, (replace(shuffled.stretch(a, b), sequences=part.sequences()) for part, a, b in whole)

    def _inspected_step(self, batch: Experience, epoch: int, minibatch: int) -> tuple[Step, InspectedStep]:
        before = self.stepper.weights()
        number = self.optimizer_steps
        step = self.gradient_step(batch)
        with torch.no_grad():
            log_prob_after, _, value_after = self.network(batch.read, batch.action)
        arrays = {
            "row": batch.row,
            "observation": batch.observation,
            "action": batch.action,
            "advantage": batch.advantage,
            "target": batch.target,
            "old_log_prob": batch.old_log_prob,
            "log_prob_before": step.said.log_prob,
            "log_prob_gradient": step.derivative.log_prob,
            "log_prob_after": log_prob_after,
            "value_before": step.said.value,
            "value_after": value_after,
        }
        if batch.weight is not None:
            arrays["weight"] = batch.weight
        return step, InspectedStep(
            optimizer_step=number,
            epoch=epoch,
            minibatch=minibatch,
            learning_rate=self.learning_rate,
            arrays={role: tensor.detach().cpu().numpy() for role, tensor in arrays.items()},
            parameters=self.stepper.parameter_figures(before),
        )

    def _look_again(
        self, rollout: Rollout, value: Array, count: int, table: SequenceTable | None
    ) -> dict[str, Array] | None:
        if not count:
            return None
        rows = spread_rows(rollout.valid, count)
        log_prob, value_after = self._said_now(rollout, rows, table)
        return {
            "row": rows,
            "old_log_prob": rollout.log_prob.ravel()[rows],
            "log_prob_after": log_prob,
            "value_before": value.ravel()[rows],
            "value_after": value_after,
        }

    def _said_now(self, rollout: Rollout, rows: Array, table: SequenceTable | None) -> tuple[Array, Array]:
        """Log-probabilities of what was done in these rows, and their values, by the weights as they are."""
        size, width = rollout.observation.shape[2], rollout.action.shape[2]
        with torch.inference_mode():
            log_prob, _, value = self.network(
                self._tensor(rollout.observation.reshape(-1, size)[rows]) if table is None else table.of_rows(rows),
                self._tensor(rollout.action.reshape(-1, width)[rows]),
            )
        return log_prob.cpu().numpy(), value.cpu().numpy()

    def _tensor(self, array: Array) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(array)).to(self.flat.vector.device)

    # ------------------------------------------------------------------ what others need to know of it

    def constants(self) -> dict[str, Any]:
        return self.settings.model_dump()

    def parameter_sizes(self) -> dict[str, int]:
        return self.stepper.sizes()

    def state(self) -> dict[str, Any]:
        curious = {} if self.curiosity is None else {"curiosity": self.curiosity.state()}
        return {"optimizer_steps": self.optimizer_steps, "shuffler": generator_state(self.shuffler), **curious}

    def tensors(self) -> dict[str, dict[str, Array]]:
        curious = {} if self.curiosity is None else {"curiosity": self.curiosity.tensors()}
        return {"weights": self.stepper.weight_tensors(), "optimizer": self.stepper.optimizer_tensors(), **curious}

    def load(self, state: dict[str, Any], tensors: dict[str, dict[str, Array]]) -> None:
        self.optimizer_steps = self.stepper.steps = int(state["optimizer_steps"])
        restore_generator(self.shuffler, state["shuffler"])
        self.stepper.load(tensors["weights"], tensors["optimizer"])
        if self.curiosity is not None:
            self.curiosity.load(state["curiosity"], tensors["curiosity"])

    def episodes_begin_anew(self) -> None:
        """A rollout never reaches over a checkpoint: nothing is to be done."""
        return


def spread(count: int, total: int) -> set[int]:
    """`count` of `total` gradient steps, evenly spaced, the first and the last among them."""
    return set(np.linspace(0, total - 1, min(count, total)).round().astype(int).tolist()) if count else set()


def spread_rows(valid: Array, count: int) -> Array:
    """`count` of the valid rows t * N + n, evenly spaced."""
    rows = np.flatnonzero(valid.ravel())
    chosen: Array = rows[np.unique(np.linspace(0, len(rows) - 1, min(count, len(rows))).astype(np.int64))]
    return chosen


def _rollout_roles(
    rollout: Rollout,
    value: Array,
    last_value: Array,
    final_value: Array,
    advantage: Array,
    target: Array,
    bonus: Array | None,
) -> dict[str, Array]:
    behaviour = rollout.behaviour_log_prob
    others = {} if behaviour is None else {"behaviour_log_prob": behaviour}
    others |= {} if bonus is None else {"bonus": bonus}
    return others | {
        "reward": rollout.reward,
        "reward_scale": np.array(rollout.reward_scale),
        "terminated": rollout.terminated,
        "truncated": rollout.truncated,
        "valid": rollout.valid,
        "value": value,
        "last_value": last_value,
        "final_value": final_value,
        "old_log_prob": rollout.log_prob,
        "advantage": advantage,
        "target": target,
    }
