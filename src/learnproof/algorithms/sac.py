"""SAC: a policy that climbs its critics and keeps its entropy, critics that learn from a memory.

    target      = reward + discount * (min of both target critics - alpha log pi(a'|s')),   a' drawn from the policy now
    critic loss = mean (Q1 - target)^2 + mean (Q2 - target)^2, halved
    actor loss  = mean of alpha log pi(a|s) - min(Q1, Q2)(s, a),   a = tanh(mean + noise * deviation)
    alpha       moves so that the entropy meets its target

With discrete actions every expectation over a is a sum over all of them. Derivatives are written out; tests hold them to autograd.
"""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..config import OptimizerSettings, PolicySettings, SACSettings
from ..policies.actor import NetworkActor
from ..policies.encoders import make_encoder
from ..policies.networks import MLP, Layer
from ..policies.soft import (
    LOG_STD_HIGHEST,
    LOG_STD_LOWEST,
    SoftPolicy,
    SquashedGaussianHead,
    TwinCritic,
    squashed_log_prob,
)
from ..seeding import derive_seed, generator, generator_state, restore_generator
from .learner import Array
from .off_policy import OffPolicyLearner, Step, Target, TensorBatch
from .stepping import Stepper


class Temperature(nn.Module):
    def __init__(self, start: float) -> None:
        super().__init__()
        self.log = nn.Parameter(torch.tensor([math.log(start)]))


@dataclass(frozen=True)
class Drawn:
    """Actions drawn from the policy at some rows, and what is needed to go back through them."""

    params: Tensor
    kept: list[Layer]
    noise: Tensor
    u: Tensor
    unit: Tensor
    """In -1..1."""
    log_prob: Tensor
    graph: Tensor | None = None
    """Where autograd takes over, in front of the policy; None where it reads rows as they are."""


class SAC(OffPolicyLearner):
    settings: SACSettings

    def __init__(
        self,
        actor: NetworkActor,
        settings: SACSettings,
        optimizer: OptimizerSettings,
        policy: PolicySettings,
        seed: int,
        budget: int,
    ) -> None:
        super().__init__(actor, settings, seed, budget)
        assert isinstance(actor.network, SoftPolicy)
        self.network = actor.network
        self.head = actor.network.head
        noise = torch.Generator().manual_seed(derive_seed(seed, "first weights of critics"))
        device = next(self.network.parameters()).device
        encoder = make_encoder(actor.observations, policy.encoder, policy.activation, noise)
        self.critics = TwinCritic(actor.observations.size, self.head, policy, noise, encoder).to(device)
        slower = copy.deepcopy(self.critics)
        self.actor_stepper = Stepper(self.network, settings, optimizer)
        self.critic_stepper = Stepper(self.critics, settings, optimizer)
        self.target = Target(slower, self.critic_stepper.flat, settings.target_tau)
        self.slower = slower
        self.temperature = Temperature(self._first_temperature()).to(device)
        self.temperature_stepper = (
            Stepper(self.temperature, settings, OptimizerSettings()) if settings.temperature == "tuned" else None
        )
        self.reparameterisation = generator(seed, "reparameterisation")
        self.explore()

    def _first_temperature(self) -> float:
        s = self.settings
        return s.temperature_start if s.temperature == "tuned" else max(float(s.temperature), 1e-30)

    @property
    def steppers(self) -> dict[str, Stepper]:
        found = {"": self.actor_stepper, "critic.": self.critic_stepper}
        return found if self.temperature_stepper is None else {**found, "temperature.": self.temperature_stepper}

    @property
    def target_entropy(self) -> float:
        s = self.settings
        if s.target_entropy is not None:
            return s.target_entropy
        if self.head.max_entropy is not None:
            return s.target_entropy_fraction * self.head.max_entropy
        return -float(self.head.n_actions)

    def alpha(self) -> float:
        return float(self.temperature.log.detach().exp())

    def explore(self) -> None:
        if isinstance(self.head, SquashedGaussianHead):
            self.head.uniform.fill_(self.seen < self.settings.learning_starts)

    # ------------------------------------------------------------------ one gradient step

    def gradient_step(self, batch: TensorBatch, index: Array) -> Step:
        alpha = self.alpha()
        target = self.targets(batch, alpha)
        value, _, critic_loss, norm = self.critic_step(batch, target)
        log_prob, policy_loss = self.actor_step(batch, alpha)
        self.temperature_step(log_prob)
        self.move_target()
        return Step(value, target, critic_loss, -log_prob.mean(), norm, policy_loss)

    def targets(self, batch: TensorBatch, alpha: float) -> Tensor:
        return batch.reward + batch.discount * batch.goes_on * self.next_values(batch, alpha)

    def next_values(self, batch: TensorBatch, alpha: float) -> Tensor:
        """What the policy expects after each transition, its entropy included."""
        with torch.inference_mode():
            if self.critics.discrete:
                log_prob = torch.log_softmax(self.network.policy_params(batch.next_observation), dim=1)
                worth = torch.min(*self.slower.of(batch.next_observation))
                expected: Tensor = (log_prob.exp() * (worth - alpha * log_prob)).sum(1)
                return expected
            drawn = self.draw_actions(batch.next_observation)
            worth = torch.min(*self.slower.of(batch.next_observation, drawn.unit)).squeeze(1)
            value: Tensor = worth - alpha * drawn.log_prob
            return value

    def critic_step(self, batch: TensorBatch, target: Tensor) -> tuple[Tensor, Tensor, Tensor, float]:
        """Both critics towards the target; what they said, the loss, and the gradient's norm."""
        with torch.no_grad():
            read, graph = self.critics.read_keeping(batch.observation)
            rows, action = self._critic_rows(batch, read)
            said, losses, pulls = [], [], []
            for critic in (self.critics.first, self.critics.second):
                values, kept = critic.keeping(rows)
                value = values.gather(1, action).squeeze(1) if action is not None else values.squeeze(1)
                error = value - target
                wanted = (error * batch.weight / len(error)).unsqueeze(1)
                wanted = wanted if action is None else torch.zeros_like(values).scatter_(1, action, wanted)
                pulls.append(critic.backward(kept, wanted, to_input=graph is not None))
                said.append(value)
                losses.append(0.5 * (error.square() * batch.weight).mean())
        if graph is not None:
            first, second = pulls
            assert first is not None
            assert second is not None
            self.critics.write_reading(graph, (first + second)[:, : graph.shape[1]])
        norm = self.critic_stepper.step(self.learning_rate)
        return said[0], said[1], losses[0] + losses[1], norm

    def actor_step(self, batch: TensorBatch, alpha: float) -> tuple[Tensor, Tensor]:
        """The policy up its critics; log-probabilities before the step (their expectation, of discrete actions) and the loss."""
        with torch.no_grad():
            if self.critics.discrete:
                return self._discrete_actor_step(batch, alpha)
            assert isinstance(self.head, SquashedGaussianHead)
            drawn = self.draw_actions(batch.observation, keep=True)
            rows = torch.cat([self.critics.read(batch.observation), drawn.unit], 1)
            first, first_kept = self.critics.first.keeping(rows)
            second, second_kept = self.critics.second.keeping(rows)
            worth = torch.min(first, second).squeeze(1)
            count = len(worth)
            lower = (first <= second).float() / -count
            to_unit = self._to_action(self.critics.first, first_kept, lower)
            to_unit += self._to_action(self.critics.second, second_kept, -1 / count - lower)
            mean_and_deviation = squashed_derivative(drawn, to_unit, self.log_prob_weight(alpha) / count, self.head)
            self._write_policy(drawn.kept, mean_and_deviation, drawn.graph)
            self.actor_stepper.step(self.learning_rate)
            return drawn.log_prob, (alpha * drawn.log_prob - worth).mean()

    def log_prob_weight(self, alpha: float) -> float:
        """d (actor loss of one row) / d log pi."""
        return alpha

    def _discrete_actor_step(self, batch: TensorBatch, alpha: float) -> tuple[Tensor, Tensor]:
        read, graph = self.network.read_keeping(batch.observation)
        params, kept = self.network.policy.keeping(read)
        log_prob = torch.log_softmax(params, dim=1)
        chance = log_prob.exp()
        worth = torch.min(*self.critics.of(batch.observation))
        cost = self.log_prob_weight(alpha) * log_prob - worth
        expected = (chance * cost).sum(1, keepdim=True)
        self._write_policy(kept, chance * (cost - expected) / len(cost), graph)
        self.actor_stepper.step(self.learning_rate)
        return (chance * log_prob).sum(1), (chance * (alpha * log_prob - worth)).sum(1).mean()

    def _write_policy(self, kept: list[Layer], gradient: Tensor, graph: Tensor | None) -> None:
        to_read = self.network.policy.backward(kept, gradient, to_input=graph is not None)
        if graph is not None:
            assert to_read is not None
            self.network.write_reading(graph, to_read)

    def temperature_step(self, log_prob: Tensor) -> None:
        """d loss / d log alpha = -(log pi + target entropy), a mean over rows."""
        if self.temperature_stepper is None:
            return
        assert self.temperature.log.grad is not None
        self.temperature.log.grad.copy_(-(log_prob.mean() + self.target_entropy))
        self.temperature_stepper.step(self.learning_rate)

    def move_target(self) -> None:
        self.target.move(self.critic_stepper.steps)

    # ------------------------------------------------------------------ its parts

    def draw_actions(self, observation: Tensor, *, keep: bool = False, noise: Tensor | None = None) -> Drawn:
        assert isinstance(self.head, SquashedGaussianHead)
        kept: list[Layer] = []
        graph = None
        if keep:
            read, graph = self.network.read_keeping(observation)
            params, kept = self.network.policy.keeping(read)
        else:
            params = self.network.policy_params(observation)
        mean, log_std = self.head.split(params)
        if noise is None:
            drawn = self.reparameterisation.standard_normal(tuple(mean.shape), dtype=np.float32)
            noise = torch.from_numpy(drawn).to(mean.device)
        u = mean + log_std.exp() * noise
        return Drawn(params, kept, noise, u, torch.tanh(u), squashed_log_prob(u, noise, log_std), graph)

    def _critic_rows(self, batch: TensorBatch, read: Tensor) -> tuple[Tensor, Tensor | None]:
        if self.critics.discrete:
            return read, batch.action.long()
        assert isinstance(self.head, SquashedGaussianHead)
        return torch.cat([read, self.head.to_unit(batch.action)], 1), None

    def _to_action(self, critic: MLP, kept: list[Layer], gradient: Tensor) -> Tensor:
        through = critic.backward(kept, gradient, write=False, to_input=True)
        assert through is not None
        return through[:, -self.head.n_actions :]

    def inspected_step(self, batch: TensorBatch, index: Array) -> tuple[Step, dict[str, Tensor]]:
        """As gradient_step, one part after the other, looking in between."""
        alpha = self.alpha()
        lagging = self.target.weights()
        roles = self._what_follows(batch)
        target = self.targets(batch, alpha)
        value, second, critic_loss, norm = self.critic_step(batch, target)
        with torch.no_grad():
            rows, action = self._critic_rows(batch, self.critics.read(batch.observation))
            after = self.critics.first(rows)
            after = after.squeeze(1) if action is None else after.gather(1, action).squeeze(1)
        wanted = self._objective_gradients(batch)
        log_prob, policy_loss = self.actor_step(batch, alpha)
        got = self.actor_stepper.flat.gradient / self.actor_stepper.scale
        self.temperature_step(log_prob)
        self.move_target()
        roles |= {
            "value_before": value,
            "value_second": second,
            "value_after": after,
            "target": target,
            "temperature": value.new_tensor([alpha, self.alpha()]),
            "target_entropy": value.new_tensor([self.target_entropy]),
            "policy_log_prob": log_prob,
            "actor_pull": _explained(got, *wanted),
            "target_moved": self.target.moved_since(lagging, self.critic_stepper.steps),
        }
        return Step(value, target, critic_loss, -log_prob.mean(), norm, policy_loss), roles

    def _what_follows(self, batch: TensorBatch) -> dict[str, Tensor]:
        """What both target critics and the policy say of the next rows, with the very noise that the target will use."""
        state = generator_state(self.reparameterisation)
        with torch.no_grad():
            if self.critics.discrete:
                log_prob = torch.log_softmax(self.network.policy_params(batch.next_observation), dim=1)
                first, second = self.slower.of(batch.next_observation)
            else:
                drawn = self.draw_actions(batch.next_observation)
                first, second = self.slower.of(batch.next_observation, drawn.unit)
                log_prob = drawn.log_prob.unsqueeze(1)
        restore_generator(self.reparameterisation, state)
        return {"next_value": first, "next_value_second": second, "next_log_prob": log_prob}

    def _objective_gradients(self, batch: TensorBatch) -> tuple[Tensor, Tensor]:
        """By autograd, the gradients of the critics' value and of the entropy of the policy, with the noise that comes next."""
        state = generator_state(self.reparameterisation)
        if self.critics.discrete:
            log_prob = torch.log_softmax(self.network.policy_params(batch.observation), dim=1)
            chance = log_prob.exp()
            worth = (chance * torch.min(*self.critics.of(batch.observation)).detach()).sum(1).mean()
            entropy = -(chance * log_prob).sum(1).mean()
        else:
            drawn = self.draw_actions(batch.observation)
            worth = torch.min(*self.critics.of(batch.observation, drawn.unit)).mean()
            entropy = -drawn.log_prob.mean()
        restore_generator(self.reparameterisation, state)
        parameters = list(self.network.parameters())
        return tuple(  # type: ignore[return-value]
            torch.cat([g.flatten() for g in torch.autograd.grad(of, parameters, retain_graph=True)])
            for of in (worth, entropy)
        )

    # ------------------------------------------------------------------ over a kill

    def constants(self) -> dict[str, Any]:
        return {**super().constants(), "discrete": self.critics.discrete}

    def state(self) -> dict[str, Any]:
        return {**super().state(), "reparameterisation": generator_state(self.reparameterisation)}

    def load(self, state: dict[str, Any], tensors: dict[str, dict[str, Array]]) -> None:
        super().load(state, tensors)
        restore_generator(self.reparameterisation, state["reparameterisation"])


def squashed_derivative(drawn: Drawn, to_unit: Tensor, to_log_prob: float, head: SquashedGaussianHead) -> Tensor:
    """d loss / d (mean, log-deviation), from d loss / d action in -1..1 [B, A] and d loss / d log-probability (of every row).

    log pi = -noise^2/2 - log_std - log(1 - tanh(u)^2) + const, u = mean + noise * deviation, so d log pi / d u = 2 tanh(u).
    """
    to_u = to_unit * (1 - drawn.unit.square()) + to_log_prob * 2 * drawn.unit
    raw = drawn.params[:, head.n_actions :]
    free = (raw > LOG_STD_LOWEST) & (raw < LOG_STD_HIGHEST)
    deviation = raw.clamp(LOG_STD_LOWEST, LOG_STD_HIGHEST).exp()
    return torch.cat([to_u, (to_u * drawn.noise * deviation - to_log_prob) * free], 1)


def _explained(got: Tensor, of_value: Tensor, of_entropy: Tensor) -> Tensor:
    """[a, b, rest]: the gradient that came is a * (that of the value) + b * (that of the entropy) + a rest, as a share of it."""
    with torch.no_grad():
        both = torch.stack([of_value, of_entropy], dim=1).double()
        fitted = torch.linalg.lstsq(both, got.double().unsqueeze(1), driver="gelsd").solution
        rest = (got.double() - (both @ fitted).squeeze(1)).norm() / got.double().norm().clamp_min(1e-30)
        return torch.cat([fitted.flatten(), rest.unsqueeze(0)]).float()
