"""The sections of the algorithms, one each; the chosen one is `settings.learning`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from .sections import Section


class LearningSettings(Section):
    """What every algorithm has."""

    learning_rate: float = Field(3e-4, ge=0, le=10)
    """Step size of the optimizer at the start of its schedule."""
    gamma: float = Field(0.99, ge=0, le=1)
    """Discount."""
    max_grad_norm: float = Field(0.5, gt=0)
    """Gradients are scaled down to this norm."""
    adam_epsilon: float = Field(1e-5, gt=0)
    """Adam's epsilon."""


class OnPolicySettings(LearningSettings):
    """What the algorithms have that learn from what the policy has just lived through."""

    n_steps: int = Field(2048, ge=1)
    """Steps of each environment in one rollout."""
    minibatch_size: int = Field(64, ge=2)
    """Transitions in one gradient step."""
    epochs: int = Field(10, ge=1)
    """Passes over each rollout."""
    sequence_length: int = Field(32, ge=1)
    """Steps through which a recurrent policy's memory is trained (policy.recurrent); a minibatch is made of whole such sequences."""
    gae_lambda: float = Field(0.95, ge=0, le=1)
    """Trace decay of generalised advantage estimation; 1 = plain returns less the baseline."""
    normalize_advantage: bool = True
    """Zero mean and unit deviation in each minibatch."""
    entropy_coefficient: float = Field(0.01, ge=0)
    """Weight of the entropy bonus."""
    value_coefficient: float = Field(0.5, ge=0)
    """Weight of the value loss."""


class PPOSettings(OnPolicySettings):
    """Proximal policy optimisation."""

    clip_range: float = Field(0.2, gt=0, lt=1)
    """How far the probability ratio may move before its gradient is cut."""
    clip_range_value: float | None = Field(None, gt=0)
    """The same for the value function; None = not clipped."""
    target_kl: float | None = Field(None, gt=0)
    """Stop the epochs of a rollout when approx_kl passes 1.5 times this; None = never."""


class REINFORCESettings(OnPolicySettings):
    """The score-function estimator with a learnt baseline."""

    n_steps: int = Field(512, ge=1)
    """Steps of each environment in one rollout; an episode that it cuts is completed by the baseline."""
    minibatch_size: int = Field(1_000_000, ge=2)
    """Transitions in one gradient step; more than a rollout has = all of them."""
    epochs: int = Field(1, ge=1, le=1)
    """One pass: the estimator holds for the policy that acted, and only for it."""
    learning_rate: float = Field(1e-3, ge=0, le=10)
    """Step size of the optimizer at the start of its schedule."""
    baseline_hidden: tuple[Annotated[int, Field(ge=1, le=65_536)], ...] = Field((256,), max_length=32)
    """Widths of the baseline network's hidden layers."""
    entropy_decay: float = Field(0.9995, gt=0, le=1)
    """What is left of the entropy coefficient after each finished episode."""
    entropy_floor: float = Field(0.001, ge=0)
    """The entropy coefficient does not fall below this (or below itself, where it starts lower)."""
    kl_coefficient: float = Field(0.0, ge=0)
    """Weight of the divergence from the reference policy, the untrained one; 0 = no reference."""


class OffPolicySettings(LearningSettings):
    """What the algorithms have that learn from a memory."""

    replay_size: int = Field(100_000, ge=1)
    """Transitions kept; the oldest make room."""
    replay_recent: int | None = Field(None, ge=1)
    """Sample only from this many newest transitions; None = from all that are kept."""
    learning_starts: int = Field(1_000, ge=0)
    """Environment steps of uniformly random actions before the first gradient step."""
    minibatch_size: int = Field(64, ge=2)
    """Transitions in one gradient step."""
    train_every: int = Field(4, ge=1)
    """Steps of each environment between two trainings."""
    gradient_steps: int = Field(1, ge=1)
    """Gradient steps of one training."""
    report_every: int = Field(256, ge=1)
    """Environment steps between two lines of evidence; evaluations and checkpoints fall on these."""

    def pieces(self, n_envs: int) -> int:
        """Short rollouts in one iteration, each of train_every steps of every environment."""
        return max(1, self.report_every // (self.train_every * n_envs))

    @model_validator(mode="after")
    def _fits(self) -> OffPolicySettings:
        if self.replay_size < self.minibatch_size:
            raise ValueError(
                f"a memory of {self.replay_size} cannot give a minibatch of {self.minibatch_size}: raise replay_size"
            )
        return self


class DQNSettings(OffPolicySettings):
    """Deep Q-learning."""

    max_grad_norm: float = Field(10.0, gt=0)
    """Gradients are scaled down to this norm."""
    double: bool = True
    """The trained network chooses the next action, the target network values it."""
    duelling: bool = False
    """Value and advantages on heads of their own."""
    n_step: int = Field(1, ge=1, le=1_000)
    """Rewards summed before the target network takes over."""
    target_every: int = Field(250, ge=1)
    """Gradient steps between two moves of the target network."""
    target_tau: float = Field(1.0, gt=0, le=1)
    """How far it then moves towards the trained one; 1 = a copy."""
    epsilon_start: float = Field(1.0, ge=0, le=1)
    """Share of random actions at first."""
    epsilon_end: float = Field(0.05, ge=0, le=1)
    """Share of random actions in the end."""
    epsilon_fraction: float = Field(0.2, gt=0, le=1)
    """Share of the step budget over which it falls."""
    prioritised: bool = False
    """Sample transitions by the size of their last error, and weigh them back."""
    priority_alpha: float = Field(0.6, ge=0, le=1)
    """How strongly errors decide (prioritised); 0 = not at all."""
    priority_beta: float = Field(0.4, ge=0, le=1)
    """How fully the weights undo it at first (prioritised); rises to 1 over the budget."""

    @model_validator(mode="after")
    def _one_way_to_sample(self) -> DQNSettings:
        if self.prioritised and self.replay_recent is not None:
            raise ValueError("prioritised and replay_recent cannot be combined: leave one of them out")
        return self


class SACSettings(OffPolicySettings):
    """Soft actor-critic, for continuous and for discrete actions."""

    replay_size: int = Field(300_000, ge=1)
    """Transitions kept; the oldest make room."""
    minibatch_size: int = Field(256, ge=2)
    """Transitions in one gradient step."""
    train_every: int = Field(1, ge=1)
    """Steps of each environment between two trainings."""
    max_grad_norm: float = Field(1e9, gt=0)
    """Gradients are scaled down to this norm."""
    target_tau: float = Field(0.005, gt=0, le=1)
    """How far the target critics move towards the trained ones after each gradient step."""
    temperature: float | Literal["tuned"] = "tuned"
    """Weight of the entropy: a number, or tuned so that the entropy meets target_entropy."""
    temperature_start: float = Field(1.0, gt=0)
    """Where a tuned temperature starts."""
    target_entropy: float | None = None
    """What a tuned temperature aims at; None = minus the number of action dimensions, or for discrete actions
    target_entropy_fraction of the uniform policy's."""
    target_entropy_fraction: float = Field(0.5, gt=0, lt=1)
    """For discrete actions, where target_entropy is None."""
