"""DQN and SAC with their gradient steps in machine code, as many in one call as nobody looks between.

The memory, what is drawn from it and what is reported are those of the base classes (algorithms/off_policy.py). A step that is inspected
is torch's: its modules alias the same vectors, and Adam's moments are the same arrays.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Any

import numpy as np
import torch

from ..algorithms.dqn import DQN
from ..algorithms.learner import Array
from ..algorithms.off_policy import Iteration, OffPolicyLearner, Step
from ..algorithms.replay import Transitions
from ..algorithms.sac import SAC
from ..algorithms.stepping import Stepper
from ..policies.greedy import EpsilonGreedyHead
from ..policies.heads import CategoricalHead
from ..policies.soft import SquashedGaussianHead
from .acting_off_policy import CompiledChoices, CompiledGreedy, CompiledSquashed
from .adam import Moments, Stride
from .network import layer_table, starts_of
from .q_learning import Drawn, QNet, QRoom, QTold, descend_q
from .soft import descend_soft
from .soft_arrays import SoftMoments, SoftNet, SoftPace, SoftRoom, SoftTold
from .towers import room


class CompiledOffPolicy(OffPolicyLearner):
    def train_on(self, done: Iteration, wanted: set[int], drawn: Transitions) -> None:
        size = self.settings.minibatch_size
        count, number = len(drawn) // size, 0
        while number < count:
            if len(done.steps) in wanted:
                own = slice(number * size, (number + 1) * size)
                self.train(done, wanted, self.tensors_of(drawn.rows(own)), drawn, own)
                number += 1
                continue
            last = number + 1
            while last < count and len(done.steps) + last - number not in wanted:
                last += 1
            own = slice(number * size, last * size)
            done.steps += self.descend(drawn.rows(own), last - number)
            self.optimizer_steps += last - number
            number = last

    @abstractmethod
    def descend(self, drawn: Transitions, count: int) -> list[Step]:
        """A gradient step on each of the `count` minibatches that these transitions are."""

    def stride(self) -> Stride:
        return Stride(self.learning_rate, self.settings.adam_epsilon, self.settings.max_grad_norm)


class CompiledDQN(CompiledOffPolicy, DQN):
    kernel = "q_learning.descend_q"

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        network, flat = self.network, self.stepper.flat
        starts = starts_of(flat)
        out = network.advantage
        line = (starts[id(out.weight)], starts[id(out.bias)], out.out_features, out.in_features)
        layers = np.concatenate([layer_table(flat, network.trunk), np.array([line], np.int64)])
        self.net = QNet(
            vector=flat.vector.detach().numpy(),
            gradient=flat.gradient.numpy(),
            target=self.target.flat.vector.detach().numpy(),
            layers=layers,
            tanh=not network.trunk.uses_relu,
        )
        self.room = make_q_room(layers, self.settings.minibatch_size)
        assert isinstance(network.head, EpsilonGreedyHead)
        self.actor.compiled = CompiledGreedy(self.net, network.head)

    def descend(self, drawn: Transitions, count: int) -> list[Step]:
        size = self.settings.minibatch_size
        if len(self.room.work) != room(self.net.layers, size):
            self.room = make_q_room(self.net.layers, size)
        told = QTold(np.empty(len(drawn), np.float32), np.empty(len(drawn), np.float32))
        losses, norms = np.empty(count), np.empty(count)
        scale = descend_q(
            self.net, _moments(self.stepper), _drawn(drawn), size, 0, count, self.settings.double, self.stride(),
            self.stepper.steps, self.room, told, losses, norms,
        )  # fmt: skip
        _after(self.stepper, count, scale)
        self.move_target()
        if self.priorities is not None:
            self.priorities.learnt(drawn.index, told.value - told.target)
        values, targets = (torch.from_numpy(column).view(count, size) for column in told)
        measured = zip(values, targets, torch.from_numpy(losses), norms.tolist(), strict=True)
        return [Step(value, target, loss, self.entropy, norm) for value, target, loss, norm in measured]


class CompiledSAC(CompiledOffPolicy, SAC):
    kernel = "soft.descend_soft"

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        head = self.head
        actor, critics, temperature = self.actor_stepper.flat, self.critic_stepper.flat, self.temperature.log
        trained = self.temperature_stepper is not None
        gradient = temperature.grad if trained else torch.zeros(1)
        assert gradient is not None
        self.net = SoftNet(
            actor=actor.vector.detach().numpy(),
            actor_gradient=actor.gradient.numpy(),
            policy=layer_table(actor, self.network.policy),
            critics=critics.vector.detach().numpy(),
            critics_gradient=critics.gradient.numpy(),
            target=self.target.flat.vector.detach().numpy(),
            first=layer_table(critics, self.critics.first),
            second=layer_table(critics, self.critics.second),
            log_alpha=temperature.detach().numpy(),
            log_alpha_gradient=gradient.numpy(),
            tanh=not self.network.policy.uses_relu,
            discrete=self.critics.discrete,
            middle=head.middle.numpy() if isinstance(head, SquashedGaussianHead) else NO_BOUNDS,
            stretch=head.stretch.numpy() if isinstance(head, SquashedGaussianHead) else NO_BOUNDS,
        )
        self.room = make_soft_room(self.net, self.settings.minibatch_size)
        if isinstance(head, SquashedGaussianHead):
            self.actor.compiled = CompiledSquashed(self.net, head)
        else:
            assert isinstance(head, CategoricalHead)
            self.actor.compiled = CompiledChoices(self.net, head)

    def descend(self, drawn: Transitions, count: int) -> list[Step]:
        size = self.settings.minibatch_size
        if len(self.room.log_prob) != size:
            self.room = make_soft_room(self.net, size)
        shape = (count, 2, size, len(self.net.middle))  # of choices nothing is drawn
        noise = self.reparameterisation.standard_normal(shape, dtype=np.float32)
        told = SoftTold(*(np.empty(len(drawn), np.float32) for _ in range(2)), *(np.empty(count) for _ in range(4)))
        tuned = self.temperature_stepper
        moments = SoftMoments(
            _moments(self.actor_stepper),
            _moments(self.critic_stepper),
            NO_MOMENTS if tuned is None else _moments(tuned),
        )
        pace = SoftPace(
            size,
            self.stride(),
            tuned is not None,
            self.target_entropy,
            self.settings.target_tau,
            self.actor_stepper.steps,
        )
        scales = descend_soft(self.net, moments, _drawn(drawn), noise, 0, count, pace, self.room, told)
        for stepper, scale in zip((self.critic_stepper, self.actor_stepper), scales, strict=True):
            _after(stepper, count, scale)
        if tuned is not None:
            _after(tuned, count, 1.0)
        values, targets = (torch.from_numpy(column).view(count, size) for column in (told.value, told.target))
        figures = (torch.from_numpy(told.critic_loss), torch.from_numpy(told.entropy), told.norm.tolist())
        measured = zip(values, targets, *figures, torch.from_numpy(told.actor_loss), strict=True)
        return [Step(*parts) for parts in measured]


NO_BOUNDS = np.empty(0, np.float32)
NO_MOMENTS = Moments(np.zeros(1, np.float32), np.zeros(1, np.float32))


def make_q_room(layers: Array, rows: int, real: Any = np.float32) -> QRoom:
    return QRoom(*(np.empty(room(layers, rows), real) for _ in QRoom._fields))


def make_soft_room(net: SoftNet, rows: int) -> SoftRoom:
    real = net.actor.dtype
    actions, judged = len(net.middle), 0 if net.discrete else int(net.first[0, 3])

    def numbers(layers: Array) -> Array:
        return np.empty(room(layers, rows), real)

    return SoftRoom(
        policy=numbers(net.policy),
        policy_pulls=numbers(net.policy),
        first=numbers(net.first),
        first_pulls=numbers(net.first),
        second=numbers(net.second),
        second_pulls=numbers(net.second),
        judged=np.empty((rows, judged), real),
        to_judged=np.empty((rows, judged), real),
        to_other=np.empty((rows, judged), real),
        u=np.empty((rows, actions), real),
        unit=np.empty((rows, actions), real),
        log_prob=np.empty(rows, real),
    )


def _moments(stepper: Stepper) -> Moments:
    mean, square, _ = stepper.moments()
    return Moments(mean.numpy(), square.numpy())


def _after(stepper: Stepper, count: int, scale: float) -> None:
    """What torch's own step would have noted of `count` of them."""
    if math.isnan(scale):
        raise stepper.not_finite()
    stepper.scale = scale
    stepper.steps += count
    stepper.moments()[2].fill_(stepper.steps)


def _drawn(drawn: Transitions) -> Drawn:
    return Drawn(
        observation=drawn.observation,
        action=drawn.action,
        reward=drawn.reward,
        terminated=drawn.terminated,
        next_observation=drawn.next_observation,
        discount=drawn.discount,
        weight=drawn.weight,
    )
