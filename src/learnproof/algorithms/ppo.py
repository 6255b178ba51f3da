"""PPO: several epochs of clipped policy-gradient steps on each rollout, ratio = pi(a|s) / pi_old(a|s).

The objective and its derivative are in surrogate.py, the way from a rollout to gradient steps in on_policy.py.
"""

from __future__ import annotations

from ..config import OptimizerSettings, PPOSettings
from ..policies.actor import NetworkActor
from .experience import Experience
from .on_policy import OnPolicyLearner
from .surrogate import Asked, Figures, Said, derivative, figures


class PPO(OnPolicyLearner):
    settings: PPOSettings

    def __init__(self, actor: NetworkActor, settings: PPOSettings, optimizer: OptimizerSettings, seed: int) -> None:
        super().__init__(actor, settings, optimizer, seed)

    def derivative(self, said: Said, batch: Experience) -> Said:
        return derivative(said, batch.asked, self.settings)

    def figures(self, said: Said, asked: Asked) -> Figures:
        return figures(said, asked, self.settings)

    @property
    def never_enough(self) -> bool:
        return self.settings.target_kl is None

    def enough(self, measured: Figures) -> bool:
        limit = self.settings.target_kl
        return limit is not None and float(measured.approx_kl) > 1.5 * limit
