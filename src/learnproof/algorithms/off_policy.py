"""What DQN and SAC share: experience goes into a memory, and minibatches drawn from it make gradient steps in between.

An iteration takes short rollouts ("pieces") one after the other. Each is stored; once there is enough, each is followed
by `gradient_steps` gradient steps. An algorithm says what one gradient step is, and what is kept of one that is inspected.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..config import OffPolicySettings
from ..policies.actor import NetworkActor
from ..policies.flat import FlatParameters
from ..seeding import generator, generator_state, restore_generator
from .learner import Array, Inspect, InspectedStep, ModuleReport, Rollout, UpdateReport
from .replay import Replay, Transitions
from .returns import explained_variance
from .stepping import Stepper

MOST_DRAWN_BYTES = 16_000_000
"""Of observations that are drawn at once."""


@dataclass(frozen=True)
class TensorBatch:
    """Transitions as tensors, [B, ...]."""

    observation: Tensor
    action: Tensor
    reward: Tensor
    goes_on: Tensor
    """0 where the task ended, else 1."""
    next_observation: Tensor
    discount: Tensor
    weight: Tensor
    told: Tensor | None = None
    """What the target network says of the next observations, where it was asked for several batches at once."""


@dataclass(frozen=True)
class Step:
    """One gradient step, for people."""

    value: Tensor
    target: Tensor
    loss: Tensor
    entropy: Tensor
    grad_norm: float
    policy_loss: Tensor | None = None


@dataclass
class Iteration:
    """What is gathered while an iteration goes on."""

    steps: list[Step] = field(default_factory=list)
    inspected: list[InspectedStep] = field(default_factory=list)


class Target:
    """A network that follows another one: every `every` gradient steps by `tau` of the way."""

    def __init__(self, network: nn.Module, source: FlatParameters, tau: float, every: int = 1) -> None:
        self.network = network.requires_grad_(False)
        self.flat = FlatParameters(network)
        self.start = self.weights()
        self.source = source
        self.tau = tau
        self.every = every

    def due(self, steps: int) -> bool:
        return steps % self.every == 0

    def stands_still(self, steps: int) -> int:
        """How many gradient steps after number `steps` it serves as it is; it moves after the last of them."""
        return self.every - steps % self.every

    def move(self, steps: int) -> None:
        """After gradient step number `steps`."""
        if self.due(steps):
            with torch.no_grad():
                if self.tau == 1.0:
                    self.flat.vector.copy_(self.source.vector)
                else:
                    self.flat.vector.lerp_(self.source.vector, self.tau)

    def weights(self) -> Tensor:
        return self.flat.vector.detach().clone()

    def moved_since(self, before: Tensor, steps: int) -> Tensor:
        """[how far it went, how far its source is from where it stood, how far it is from where it should be, was it due]."""
        with torch.no_grad():
            went, way = self.flat.vector - before, self.source.vector - before
            wanted = way * (self.tau if self.due(steps) else 0.0)
            return torch.stack(
                [went.norm(), way.norm(), (went - wanted).norm(), went.new_tensor(float(self.due(steps)))]
            )

    def report(self, before: Tensor) -> ModuleReport:
        """As a module of its own, which no gradient reaches."""
        now = self.flat.vector.detach()
        return ModuleReport(
            weight_norm=float(now.norm()),
            weight_change=float((now - self.start).norm()),
            weight_step=float((now - before).norm()),
            grad_norm=0.0,
            learning_rate=0.0,
        )

    def tensors(self) -> dict[str, Array]:
        return {"start": self.start.cpu().numpy(), "target": self.flat.vector.detach().cpu().numpy()}

    def load(self, arrays: dict[str, Array]) -> None:
        with torch.no_grad():
            self.flat.vector.copy_(torch.from_numpy(np.ascontiguousarray(arrays["target"])))
            self.start.copy_(torch.from_numpy(np.ascontiguousarray(arrays["start"])))


class OffPolicyLearner(ABC):
    settings: OffPolicySettings
    target: Target
    kernel = ""

    def __init__(
        self, actor: NetworkActor, settings: OffPolicySettings, seed: int, budget: int, n_step: int = 1
    ) -> None:
        self.actor = actor
        self.settings = settings
        self.budget = budget
        """Environment steps of the whole run, which schedules of exploration are stretched over."""
        rows, actions = actor.observations, actor.actions
        self.replay = Replay(settings.replay_size, rows.size, actions.size, settings.gamma, n_step, rows.dtype)
        self.drawing = generator(seed, "replay")
        self.optimizer_steps = 0
        self.seen = 0
        """Environment steps taken so far."""
        self.learning_rate = settings.learning_rate

    # ------------------------------------------------------------------ what an algorithm says

    @property
    @abstractmethod
    def steppers(self) -> dict[str, Stepper]:
        """Everything that is trained, by the prefix of its modules in reports ("" for the first)."""

    @abstractmethod
    def gradient_step(self, batch: TensorBatch, index: Array) -> Step: ...

    @abstractmethod
    def inspected_step(self, batch: TensorBatch, index: Array) -> tuple[Step, dict[str, Tensor]]:
        """The same, with what is kept of it by role."""

    @abstractmethod
    def explore(self) -> None:
        """Set how the actor explores, from what was seen so far."""

    # ------------------------------------------------------------------ one iteration

    def learn(self, pieces: Iterator[Rollout], learning_rate: float, inspect: Inspect) -> UpdateReport | None:
        self.learning_rate = learning_rate
        for stepper in self.steppers.values():
            stepper.flat.check_aliasing()
        before = {name: stepper.weights() for name, stepper in self.steppers.items()}
        lagging = self.target.weights()
        done = Iteration()
        wanted: set[int] | None = None
        for piece in pieces:
            self.store(piece)
            if self.seen < self.settings.learning_starts or len(self.replay) < self.settings.minibatch_size:
                continue
            if wanted is None:
                wanted = self._spread(inspect.gradient_steps, piece.reward.shape[1])
            left = self.settings.gradient_steps
            while left:
                count = min(left, self.drawn_together())
                self.train_on(done, wanted, self.draw(count))
                left -= count
        return self._report(done, before, lagging, learning_rate) if done.steps else None

    def store(self, piece: Rollout) -> Array:
        rows = self.replay.add(piece)
        self.seen += piece.reward.size
        self.explore()
        return rows

    def drawn_together(self) -> int:
        """How many of the coming minibatches can be drawn at once: what they hold must not depend on the steps between them."""
        row_bytes = 2 * int(self.replay.observation[0].nbytes)
        affordable = max(1, MOST_DRAWN_BYTES // (row_bytes * self.settings.minibatch_size))
        return min(affordable, self.target.stands_still(self.optimizer_steps))

    def draw(self, batches: int = 1) -> Transitions:
        s = self.settings
        rows = self.replay.draw(batches * s.minibatch_size, self.drawing, s.replay_recent)
        return self.replay.take(rows, self.actor.normalizer)

    def train_on(self, done: Iteration, wanted: set[int], drawn: Transitions) -> None:
        """A gradient step on each minibatch of transitions that were drawn together."""
        for number, batch in enumerate(self._batches(drawn)):
            own = slice(number * self.settings.minibatch_size, (number + 1) * self.settings.minibatch_size)
            self.train(done, wanted, batch, drawn, own)

    def train(self, done: Iteration, wanted: set[int], batch: TensorBatch, together: Transitions, own: slice) -> None:
        """One gradient step on `batch`, which are the rows `own` of those that were drawn together."""
        if len(done.steps) not in wanted:
            done.steps.append(self.gradient_step(batch, together.index[own]))
            self.optimizer_steps += 1
            return
        drawn = together.rows(own)
        number = self.optimizer_steps
        weights = {name: stepper.weights() for name, stepper in self.steppers.items()}
        step, arrays = self.inspected_step(batch, drawn.index)
        self.optimizer_steps += 1
        parameters = {
            prefix + name: figures
            for prefix, stepper in self.steppers.items()
            for name, figures in stepper.parameter_figures(weights[prefix]).items()
        }
        known: dict[str, Array] = {
            "row": drawn.index,
            "observation": drawn.observation,
            "action": drawn.action,
            "reward": drawn.reward,
            "terminated": drawn.terminated,
            "discount": drawn.discount,
            "weight": drawn.weight,
            "steps": drawn.steps,
        }
        done.steps.append(step)
        done.inspected.append(
            InspectedStep(
                optimizer_step=number,
                epoch=0,
                minibatch=len(done.steps) - 1,
                learning_rate=self.learning_rate,
                arrays=known | {role: tensor.detach().cpu().numpy() for role, tensor in arrays.items()},
                parameters=parameters,
            )
        )

    def _spread(self, count: int, envs: int) -> set[int]:
        """`count` gradient steps of this iteration, evenly spaced, the first and the last among them."""
        expected = self.settings.pieces(envs) * self.settings.gradient_steps
        return set(np.linspace(0, expected - 1, min(count, expected)).round().astype(int).tolist()) if count else set()

    def _report(
        self, done: Iteration, before: dict[str, Tensor], lagging: Tensor, learning_rate: float
    ) -> UpdateReport:
        value = torch.cat([step.value for step in done.steps]).cpu().numpy()
        target = torch.cat([step.target for step in done.steps]).cpu().numpy()
        modules: dict[str, ModuleReport] = {}
        for name, stepper in self.steppers.items():
            modules |= stepper.report(before[name], learning_rate, name)
        trained = list(modules.values())
        modules["target"] = self.target.report(lagging)
        losses = float(torch.stack([step.loss for step in done.steps]).mean())
        policy = [step.policy_loss for step in done.steps if step.policy_loss is not None]
        policy_loss = float(torch.stack(policy).mean()) if policy else None
        norms = [step.grad_norm for step in done.steps]
        return UpdateReport(
            optimizer_steps=self.optimizer_steps,
            learning_rate=learning_rate,
            loss=[losses if policy_loss is None else losses + policy_loss],
            policy_loss=[] if policy_loss is None else [policy_loss],
            value_loss=[losses],
            entropy=[float(torch.stack([step.entropy for step in done.steps]).mean())],
            grad_norm=[sum(norms) / len(norms)],
            grad_norm_max=[max(norms)],
            approx_kl=[],
            clip_fraction=[],
            explained_variance=explained_variance(value, target),
            advantage_mean=float((target - value).mean()),
            advantage_std=float((target - value).std()),
            weight_change=sum(module.weight_change for module in trained),
            weight_step=sum(module.weight_step for module in trained),
            modules=modules,
            inspected=done.inspected,
        )

    def _batches(self, drawn: Transitions) -> Iterator[TensorBatch]:
        """Minibatches, of transitions that were drawn together."""
        whole = self.tensors_of(drawn)
        size = self.settings.minibatch_size
        if len(drawn.index) == size:
            yield whole
            return
        cut = {name: tensor.split(size) for name, tensor in vars(whole).items() if tensor is not None}
        for parts in zip(*cut.values(), strict=True):
            yield TensorBatch(**dict(zip(cut, parts, strict=True)))

    def tensors_of(self, drawn: Transitions) -> TensorBatch:
        return TensorBatch(
            observation=self._tensor(drawn.observation),
            action=self._tensor(drawn.action),
            reward=self._tensor(drawn.reward),
            goes_on=self._tensor(1 - drawn.terminated.astype(np.float32)),
            next_observation=self._tensor(drawn.next_observation),
            discount=self._tensor(drawn.discount),
            weight=self._tensor(drawn.weight),
        )

    def _tensor(self, array: Array) -> Tensor:
        return torch.from_numpy(array).to(self.actor.device)

    # ------------------------------------------------------------------ what others need to know of it

    def constants(self) -> dict[str, Any]:
        return self.settings.model_dump()

    def parameter_sizes(self) -> dict[str, int]:
        return {prefix + name: size for prefix, s in self.steppers.items() for name, size in s.sizes().items()}

    def state(self) -> dict[str, Any]:
        return {
            "optimizer_steps": self.optimizer_steps,
            "seen": self.seen,
            "steps": {name: stepper.steps for name, stepper in self.steppers.items()},
            "drawing": generator_state(self.drawing),
            "replay": self.replay.state(),
        }

    def tensors(self) -> dict[str, dict[str, Array]]:
        groups = {"replay": self.replay.tensors(), "target": self.target.tensors()}
        for prefix, stepper in self.steppers.items():
            groups[f"{prefix}weights".replace(".", "_")] = stepper.weight_tensors()
            groups[f"{prefix}optimizer".replace(".", "_")] = stepper.optimizer_tensors()
        return groups

    def load(self, state: dict[str, Any], tensors: dict[str, dict[str, Array]]) -> None:
        self.optimizer_steps = int(state["optimizer_steps"])
        self.seen = int(state["seen"])
        restore_generator(self.drawing, state["drawing"])
        self.replay.load(state["replay"], tensors["replay"])
        self.target.load(tensors["target"])
        for prefix, stepper in self.steppers.items():
            stepper.steps = int(state["steps"][prefix])
            name = prefix.replace(".", "_")
            stepper.load(tensors[f"{name}weights"], tensors[f"{name}optimizer"])
        self.explore()

    def episodes_begin_anew(self) -> None:
        self.replay.break_off()
