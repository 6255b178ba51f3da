"""REINFORCE: one step along A grad log pi(a|s) on each rollout, with a learnt baseline.

    loss = -A log pi + value_coefficient (V - target)^2 - c H + kl_coefficient KL(pi, reference), each a mean over rows

c is the entropy coefficient, which decays with every finished episode down to its floor. The divergence is estimated on
the actions that the policy took: its gradient is (log pi - log reference) grad log pi. The reference is the untrained policy.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor

from ..config import OptimizerSettings, REINFORCESettings
from ..policies.actor import NetworkActor
from .experience import Experience
from .learner import Array, Inspect, Rollout, UpdateReport
from .on_policy import OnPolicyLearner
from .surrogate import Asked, Figures, Said


class REINFORCE(OnPolicyLearner):
    settings: REINFORCESettings

    def __init__(
        self, actor: NetworkActor, settings: REINFORCESettings, optimizer: OptimizerSettings, seed: int
    ) -> None:
        reference = copy.deepcopy(actor.network).requires_grad_(False) if settings.kl_coefficient else None
        super().__init__(actor, settings, optimizer, seed)
        self.reference = reference
        self.episodes = 0

    def update(self, rollout: Rollout, learning_rate: float, inspect: Inspect) -> UpdateReport:
        rows_ended = int(((rollout.terminated | rollout.truncated) & rollout.valid).sum())
        self.episodes += rows_ended if rollout.teams_ended is None else rollout.teams_ended
        return super().update(rollout, learning_rate, inspect)

    @property
    def entropy_coefficient(self) -> float:
        s = self.settings
        floor = min(s.entropy_floor, s.entropy_coefficient)
        return max(floor, s.entropy_coefficient * s.entropy_decay**self.episodes)

    def derivative(self, said: Said, batch: Experience) -> Said:
        rows = len(batch)
        pull = -batch.advantage
        if self.reference is not None:
            pull = pull + self.settings.kl_coefficient * (said.log_prob - self._reference_log_prob(batch))
        if batch.weight is not None:
            pull = pull * batch.weight
        return Said(
            pull / rows,
            torch.full_like(said.entropy, -self.entropy_coefficient / rows),
            (said.value - batch.target) * (2 * self.settings.value_coefficient / rows),
        )

    def figures(self, said: Said, asked: Asked) -> Figures:
        gained = asked.advantage * said.log_prob
        policy_loss = -(gained if asked.weight is None else asked.weight * gained).mean()
        value_loss = (said.value - asked.target).square().mean()
        entropy = said.entropy.mean()
        log_ratio = said.log_prob - asked.old_log_prob
        return Figures(
            loss=policy_loss + self.settings.value_coefficient * value_loss - self.entropy_coefficient * entropy,
            policy_loss=policy_loss,
            value_loss=value_loss,
            entropy=entropy,
            approx_kl=(log_ratio.exp() - 1 - log_ratio).mean(),
            clip_fraction=torch.zeros(()),
        )

    def _reference_log_prob(self, batch: Experience) -> Tensor:
        assert self.reference is not None
        with torch.no_grad():
            params = self.reference.policy_params(batch.observation)
            log_prob: Tensor = self.reference.head.log_prob_and_entropy(params, batch.action)[0]
        return log_prob

    # ------------------------------------------------------------------ over a kill

    def state(self) -> dict[str, Any]:
        return {**super().state(), "episodes": self.episodes}

    def load(self, state: dict[str, Any], tensors: dict[str, dict[str, Array]]) -> None:
        super().load(state, tensors)
        self.episodes = int(state["episodes"])
        if self.reference is not None:
            with torch.no_grad():
                for (_, piece), parameter in zip(
                    self.flat.named(self.stepper.start), self.reference.parameters(), strict=True
                ):
                    parameter.copy_(piece.view(parameter.shape))
