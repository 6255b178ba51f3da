"""DQN: values of actions, trained towards r + discount * value of what follows, which a slower network tells.

    target = reward + discount * Q_target(s', a*)     a* = argmax Q(s', .) if double, else argmax Q_target(s', .)
    loss   = mean of weight * huber(Q(s, a) - target)

`reward` sums n_step rewards, `discount` is gamma to their number and 0 after the task's end. The derivative is written out: of
a huber loss it is the error cut off at 1, the pull, and the loss itself is pull * (error - pull / 2).
"""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from ..config import DQNSettings, OptimizerSettings
from ..policies.actor import NetworkActor
from ..policies.greedy import EpsilonGreedyHead, QNetwork
from .learner import Array, Rollout
from .off_policy import OffPolicyLearner, Step, Target, TensorBatch
from .replay import Priorities, Transitions
from .stepping import Stepper


class DQN(OffPolicyLearner):
    settings: DQNSettings

    def __init__(
        self, actor: NetworkActor, settings: DQNSettings, optimizer: OptimizerSettings, seed: int, budget: int
    ) -> None:
        super().__init__(actor, settings, seed, budget, settings.n_step)
        assert isinstance(actor.network, QNetwork)
        self.network = actor.network
        slower = copy.deepcopy(self.network)
        self.stepper = Stepper(self.network, settings, optimizer)
        self.target = Target(slower, self.stepper.flat, settings.target_tau, settings.target_every)
        self.slower = slower
        self.priorities = Priorities(settings.replay_size, settings.priority_alpha) if settings.prioritised else None
        self.explore()

    @property
    def steppers(self) -> dict[str, Stepper]:
        return {"": self.stepper}

    def explore(self) -> None:
        s = self.settings
        progress = min(1.0, self.seen / (self.budget * s.epsilon_fraction))
        epsilon = s.epsilon_start + (s.epsilon_end - s.epsilon_start) * progress
        assert isinstance(self.network.head, EpsilonGreedyHead)
        self.network.head.epsilon.fill_(1.0 if self.seen < s.learning_starts else epsilon)
        self.entropy = self.network.head.entropy()

    # ------------------------------------------------------------------ one gradient step

    def gradient_step(self, batch: TensorBatch, index: Array) -> Step:
        target = self.targets(batch)
        outputs = self.network.keeping(batch.observation)
        action = batch.action.long()
        value = outputs.values.gather(1, action).squeeze(1)
        error = value - target
        pull = error.clamp(-1, 1)
        wanted = pull * batch.weight / len(error)
        self.network.backward(outputs, torch.zeros_like(outputs.values).scatter_(1, action, wanted.unsqueeze(1)))
        norm = self.optimizer_step()
        self.move_target()
        if self.priorities is not None:
            self.priorities.learnt(index, error.cpu().numpy())
        loss = torch.dot(pull * (error - 0.5 * pull), batch.weight) / len(error)
        return Step(value, target, loss, self.entropy, norm)

    def targets(self, batch: TensorBatch) -> Tensor:
        return batch.reward + batch.discount * batch.goes_on * self.next_values(batch)

    def next_values(self, batch: TensorBatch) -> Tensor:
        """What the best action after each transition is worth."""
        with torch.inference_mode():
            told = self.slower(batch.next_observation) if batch.told is None else batch.told
            chooser = self.network(batch.next_observation) if self.settings.double else told
            value: Tensor = told.gather(1, chooser.argmax(1, keepdim=True)).squeeze(1)
        return value

    def move_target(self) -> None:
        self.target.move(self.stepper.steps)

    def optimizer_step(self) -> float:
        return self.stepper.step(self.learning_rate)

    def inspected_step(self, batch: TensorBatch, index: Array) -> tuple[Step, dict[str, Tensor]]:
        with torch.no_grad():
            next_target = self.slower(batch.next_observation)
            next_online = self.network(batch.next_observation)
        lagging = self.target.weights()
        step = self.gradient_step(batch, index)
        with torch.no_grad():
            after = self.network(batch.observation).gather(1, batch.action.long()).squeeze(1)
        roles = {
            "value_before": step.value,
            "value_after": after,
            "target": step.target,
            "next_value": next_target,
            "next_value_online": next_online,
            "target_moved": self.target.moved_since(lagging, self.stepper.steps),
        }
        return step, roles

    # ------------------------------------------------------------------ the memory

    def store(self, piece: Rollout) -> Array:
        rows = super().store(piece)
        if self.priorities is not None:
            self.priorities.added(rows)
        return rows

    def tensors_of(self, drawn: Transitions) -> TensorBatch:
        batch = super().tensors_of(drawn)
        with torch.inference_mode():
            return replace(batch, told=self.slower(batch.next_observation))

    def drawn_together(self) -> int:
        return super().drawn_together() if self.priorities is None else 1  # each step changes them

    def draw(self, batches: int = 1) -> Transitions:
        if self.priorities is None:
            return super().draw(batches)
        s = self.settings
        beta = s.priority_beta + (1 - s.priority_beta) * min(1.0, self.seen / self.budget)
        rows, weight = self.priorities.draw(s.minibatch_size, len(self.replay), beta, self.drawing)
        return self.replay.take(rows, self.actor.normalizer, weight)

    # ------------------------------------------------------------------ over a kill

    def state(self) -> dict[str, Any]:
        own = {} if self.priorities is None else {"priorities": self.priorities.state()}
        return {**super().state(), **own}

    def tensors(self) -> dict[str, dict[str, Array]]:
        own = {} if self.priorities is None else {"priorities": self.priorities.tensors()}
        return {**super().tensors(), **own}

    def load(self, state: dict[str, Any], tensors: dict[str, dict[str, Array]]) -> None:
        super().load(state, tensors)
        if self.priorities is not None:
            self.priorities.load(state["priorities"], tensors["priorities"])
