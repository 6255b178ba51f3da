"""The rules of task allocation as settings: every number, with its default, for version 0 and version 1.

Version 0 follows its specification to the letter; what that leaves open (ranges at reset, arrivals, updates of load and
success rate, the default matrix, the task types) is decided here. Version 1 repairs version 0; docs/environments.md
says how the two differ. Any field is an argument of the environment:

    gymnasium.make("learnproof/TaskAllocation-v0", n_agents=3, arrival_probability=0.5)
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar

import numpy as np
from pydantic import Field, model_validator

from ..rules import Rules

Array = np.ndarray[Any, Any]

ACTIONS_PER_AGENT = 3


class AllocationRules(Rules):
    """What both versions share."""

    title: ClassVar[str] = "Task allocation"

    n_agents: int = Field(5, ge=1, le=10_000)
    """Agents that share the queue."""
    max_tasks: int = Field(10, ge=1, le=100_000)
    """Slots of the queue. A task that finds it full is turned away, and counts as arrived."""
    episode_steps: int = Field(100, ge=1, le=1_000_000)
    """Steps of an episode; then it is truncated, never terminated."""
    task_types: int = Field(4, ge=2, le=64)
    """Kinds of task, each as likely: 0 research, 1 analysis, then others."""
    initial_tasks: int = Field(3, ge=0)
    """Tasks in the queue at reset (as many as it has slots, at most)."""
    accept_threshold: float = Field(0.5, ge=0, le=1)
    """An agent takes a task when its accept action exceeds this."""
    collaboration_threshold: float = Field(0.7, ge=0, le=1)
    """Two agents collaborate when the collaboration actions of both exceed this."""
    collaboration_growth: float = Field(1.01, ge=1, le=2)
    """Factor on a pair's entry of the collaboration matrix for each step that it collaborates."""
    capacity_min: float = Field(0.5, ge=0, le=1)
    capacity_max: float = Field(1.0, ge=0, le=1)
    """Capacity of an agent, uniform in this range at reset."""
    complexity_min: float = Field(0.2, gt=0, le=1)
    complexity_max: float = Field(1.0, gt=0, le=1)
    """Complexity of a task, uniform in this range."""
    success_rate_step: float = Field(0.02, ge=0, le=1)
    """How far one outcome moves an agent's success rate: towards 1 when in time, towards 0 when not."""

    @model_validator(mode="after")
    def _ranges_are_ordered(self) -> AllocationRules:
        for name in type(self).model_fields:
            if name.endswith("_min"):
                low, high = getattr(self, name), getattr(self, name.removesuffix("_min") + "_max")
                if low > high:
                    raise ValueError(f"{name} = {low} exceeds {name.removesuffix('_min')}_max = {high}")
        return self

    @property
    @abstractmethod
    def active_slots(self) -> int:
        """Tasks that can be active at one time; the array of active tasks has this many places, so none is lost."""

    @property
    @abstractmethod
    def agent_features(self) -> int:
        """Numbers that the observation has for each agent."""

    @property
    @abstractmethod
    def slot_features(self) -> int:
        """Numbers that the observation has for each slot of the queue."""

    @abstractmethod
    def slot_before(self, agent: int) -> int:
        """Position in the observation of the slot that an agent's accept action concerns."""

    @abstractmethod
    def slot_ahead(self, agent: int, steps: int) -> int:
        """Position in the observation of the slot that will concern an agent after so many steps, if nothing is taken;
        -1 where there is none."""

    @abstractmethod
    def observation_bounds(self) -> Array:
        """[D]: the largest value that each number of the observation can take; the least is 0."""

    @property
    def observation_size(self) -> int:
        return self.n_agents * self.agent_features + self.max_tasks * self.slot_features + self.n_agents**2

    @property
    def action_size(self) -> int:
        return self.n_agents * ACTIONS_PER_AGENT

    @property
    def action_heads(self) -> tuple[str, ...]:
        """accept and collaborate are thresholded, allocation is a share."""
        return ("bernoulli", "beta", "bernoulli") * self.n_agents


class RulesV0(AllocationRules):
    """Version 0, to the letter of its specification."""

    arrival_probability: float = Field(0.3, ge=0, le=1)
    """Chance that a task arrives at the end of a step."""
    success_rate_min: float = Field(0.5, ge=0, le=1)
    success_rate_max: float = Field(1.0, ge=0, le=1)
    """Success rate of an agent at reset, uniform in this range."""
    collaboration_score_min: float = Field(0.3, ge=0, le=1)
    collaboration_score_max: float = Field(0.9, ge=0, le=1)
    """Collaboration score of an agent, uniform in this range at reset; it never changes and is only observed."""
    expertise_probability: float = Field(0.75, ge=0, le=1)
    """Chance that an agent has an expertise of its own in a task type."""
    expertise_min: float = Field(0.2, ge=0, le=1)
    expertise_max: float = Field(1.0, ge=0, le=1)
    """Such an expertise, uniform in this range at reset."""
    expertise_default: float = Field(0.5, ge=0, le=1)
    """Expertise where an agent has none of its own."""
    priority_min: float = Field(0.1, ge=0, le=1)
    priority_max: float = Field(1.0, ge=0, le=1)
    """Priority of a task, uniform in this range."""
    deadline_min: int = Field(10, ge=1)
    deadline_max: int = Field(100, ge=1)
    """Deadline of a task: a whole step counted from the start of the episode, uniform in this range, whenever the task
    arrives. A late arrival may thus be overdue from the first."""
    matrix_default: float = Field(0.5, ge=0, le=1)
    """Entries of the collaboration matrix at reset; 1 on its diagonal."""
    matrix_ceiling: float = Field(1000.0, ge=1)
    """Largest entry: a pair would have to collaborate for 764 steps to meet it. It keeps very long episodes finite."""
    completion_reward: float = 10.0
    """Factor of the reward for a completion."""
    pair_reward: float = 0.5
    """Reward for each collaborating ordered pair and step."""
    queue_cost: float = 0.1
    """Cost of each queued task and step."""
    overdue_cost: float = 0.5
    """Cost of each overdue active task and step."""

    @property
    def active_slots(self) -> int:
        """An agent may hold any number of tasks: every task of the episode can be active, save the last arrival,
        which comes when no step is left to take it; and agents take at most one each in a step."""
        every_task = min(self.initial_tasks, self.max_tasks) + self.episode_steps - 1
        return max(1, min(every_task, self.n_agents * self.episode_steps))

    @property
    def action_heads(self) -> tuple[str, ...]:
        """All three as yes or no: under these rules allocation changes nothing but the load that is shown."""
        return ("bernoulli",) * self.action_size

    @property
    def agent_features(self) -> int:
        return 7

    @property
    def slot_features(self) -> int:
        return 5

    def slot_before(self, agent: int) -> int:
        return 0

    def slot_ahead(self, agent: int, steps: int) -> int:
        """The queue moves on by what is taken: these are the tasks behind its head."""
        return steps if steps < self.max_tasks else -1

    def observation_bounds(self) -> Array:
        agent = [1.0, 1.0, float(self.active_slots), 1.0, 1.0, 1.0, 1.0]
        slot = [1.0, 1.0, float(self.deadline_max), 1.0, 1.0]
        return np.array(
            agent * self.n_agents + slot * self.max_tasks + [self.matrix_ceiling] * self.n_agents**2, np.float32
        )


class RulesV1(AllocationRules):
    """Version 1, repaired."""

    max_tasks: int = Field(0, ge=0, le=100_000)
    """Places of the belt on which tasks wait; 0 = one for each agent, which is also the least. A task that finds it full
    takes the place of the one that has waited longest, which is lost."""
    task_types: int = Field(3, ge=2, le=64)
    """Kinds of task, each as likely: 0 research, 1 analysis, then others."""
    arrival_probability: float = Field(0.25, ge=0, le=1)
    """Chance, for each agent of the team, that a task arrives at the end of a step: arrivals scale with the team."""
    speciality_min: float = Field(0.8, ge=0, le=1)
    speciality_max: float = Field(1.0, ge=0, le=1)
    """Expertise of an agent in its speciality, uniform in this range at reset. Specialities are dealt at reset so that
    the types are covered as evenly as the number of agents allows."""
    expertise_min: float = Field(0.1, ge=0, le=1)
    expertise_max: float = Field(0.4, ge=0, le=1)
    """Expertise in any other type."""
    collaboration_score_min: float = Field(0.3, ge=0, le=1)
    collaboration_score_max: float = Field(0.9, ge=0, le=1)
    """Collaboration score of an agent, uniform in this range at reset: how much of its help arrives at a new partner."""
    slack_min: int = Field(4, ge=1)
    slack_max: int = Field(14, ge=1)
    """Steps from a task's arrival to its deadline: slack_max at priority 0, slack_min at priority 1."""
    work_steps: float = Field(6.5, gt=0)
    """Steps that a task of complexity 1 takes an agent with capacity 1, expertise 1 and full allocation."""
    allocation_exponent: float = Field(0.4, gt=0, le=1)
    """Diminishing returns: an agent's own work goes with allocation ** allocation_exponent."""
    completion_reward: float = 1.0
    """Reward for each task completed in time; there is no other."""

    @model_validator(mode="before")
    @classmethod
    def _a_place_for_each_agent(cls, values: Any) -> Any:
        if isinstance(values, dict) and not values.get("max_tasks"):
            values = {**values, "max_tasks": values.get("n_agents", cls.model_fields["n_agents"].default)}
        return values

    @model_validator(mode="after")
    def _every_agent_has_a_place_before_it(self) -> RulesV1:
        if self.max_tasks < self.n_agents:
            raise ValueError(f"max_tasks = {self.max_tasks} leaves some of {self.n_agents} agents without a place")
        return self

    @property
    def active_slots(self) -> int:
        """An agent holds one task at a time."""
        return self.n_agents

    @property
    def agent_features(self) -> int:
        return 8 + 2 * self.task_types

    @property
    def slot_features(self) -> int:
        return 4 + self.task_types

    def slot_before(self, agent: int) -> int:
        return agent

    def slot_ahead(self, agent: int, steps: int) -> int:
        """The belt brings what stands before the agents of lower numbers."""
        return (agent - steps) % self.max_tasks

    def observation_bounds(self) -> Array:
        return np.ones(self.observation_size, np.float32)
