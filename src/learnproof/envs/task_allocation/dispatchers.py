"""Hand-written policies: what a trained agent is compared with. A batch of observations in, a batch of actions out.

    constant             the same action for every agent at every step (version 0's rivals are constants)
    best_expert          version 1: who is the team's best expert for the task before it accepts it, works on it with all
                         its capacity, and collaborates
    best_expert_in_time  the same, and it leaves alone what it could not finish by the deadline on its own; it computes that
                         from the rules, which no learner is told

`dispatch` is the one to beat for each version.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .layout import observation_parts
from .rules import ACTIONS_PER_AGENT, AllocationRules, RulesV1

Array = np.ndarray[Any, Any]

CONSTANTS: dict[str, tuple[float, float, float]] = {
    "always accept, always collaborate": (1.0, 1.0, 1.0),
    "always accept, half allocation, always collaborate": (1.0, 0.5, 1.0),
    "always accept, never collaborate": (1.0, 1.0, 0.0),
    "never accept, always collaborate": (0.0, 0.0, 1.0),
    "never anything": (0.0, 0.0, 0.0),
}
"""accept, allocation, collaboration."""

NEARLY_BEST = 0.8
"""An agent counts as best expert within a fifth of the best: specialists of one type differ by no more."""


def dispatch(observation: Array, rules: AllocationRules) -> Array:
    """[N, D] -> [N, A]: always accept and collaborate under version 0, the best expert under version 1."""
    if isinstance(rules, RulesV1):
        return best_expert(observation, rules)
    return constant(observation, rules, *CONSTANTS["always accept, always collaborate"])


def constant(
    observation: Array, rules: AllocationRules, accept: float, allocation: float, collaboration: float
) -> Array:
    one_agent = np.array([accept, allocation, collaboration], np.float32)
    return np.tile(one_agent, (observation.shape[0], rules.n_agents))


def best_expert(observation: Array, rules: RulesV1) -> Array:
    return _act(_is_best_expert(observation, rules))


def best_expert_in_time(observation: Array, rules: RulesV1) -> Array:
    parts = observation_parts(observation, rules)
    before = parts.slots[:, : rules.n_agents]
    speed = parts.agents[:, :, 0] * parts.agents[:, :, -1] / rules.work_steps
    steps_left = before[:, :, 2] * rules.slack_max
    return _act(_is_best_expert(observation, rules) & (before[:, :, 0] <= speed * steps_left))


def _is_best_expert(observation: Array, rules: RulesV1) -> Array:
    """[N, n]: there is a task before the agent, and nobody in the team knows clearly more of it."""
    parts = observation_parts(observation, rules)
    before = parts.slots[:, : rules.n_agents]
    expertise = parts.agents[:, :, 5 : 5 + rules.task_types]
    best_by_type = expertise.max(axis=1)
    best = (before[:, :, 4:] * best_by_type[:, None, :]).sum(axis=2)
    mine: Array = parts.agents[:, :, -1]
    accepts: Array = (before[:, :, 3] > 0) & (mine >= NEARLY_BEST * best)
    return accepts


def _act(accepts: Array) -> Array:
    actions = np.ones((*accepts.shape, ACTIONS_PER_AGENT), np.float32)
    actions[:, :, 0] = accepts
    return actions.reshape(accepts.shape[0], -1)
