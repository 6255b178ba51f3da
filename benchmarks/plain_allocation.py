"""TaskAllocation-v0 as one would write it by hand for any library: a plain Gymnasium environment, one instance, pure Python.

The rules are those of learnproof/TaskAllocation-v0 with its default settings; a test holds both to the same mean return.
Peers are measured on this one, so that their training is not sped up by our kernels.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np

Array = np.ndarray[Any, Any]

TYPES = ("research", "analysis", "coding", "writing")


@dataclass
class Agent:
    capacity: float
    success_rate: float
    collaboration_score: float
    expertise: dict[str, float]
    load: float = 0.0
    completed: int = 0


@dataclass
class Task:
    type: str
    complexity: float
    priority: float
    deadline: int
    share: float = 0.0


class PlainTaskAllocation(gym.Env[Array, Array]):
    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012

    def __init__(self, n_agents: int = 5, max_tasks: int = 10, episode_steps: int = 100) -> None:
        self.n_agents, self.max_tasks, self.episode_steps = n_agents, max_tasks, episode_steps
        size = n_agents * 7 + max_tasks * 5 + n_agents * n_agents
        self.observation_space = gym.spaces.Box(0.0, np.inf, (size,), np.float32)
        self.action_space = gym.spaces.Box(0.0, 1.0, (n_agents * 3,), np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        super().reset(seed=seed)
        self.step_number = 0
        self.team = [self._new_agent() for _ in range(self.n_agents)]
        self.queue = deque(self._new_task() for _ in range(min(3, self.max_tasks)))
        self.active: list[tuple[Agent, Task]] = []
        self.matrix = np.full((self.n_agents, self.n_agents), 0.5)
        np.fill_diagonal(self.matrix, 1.0)
        return self._observe(), {}

    def step(self, action: Array) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        self.step_number += 1
        accept, allocation, collaboration = np.clip(action, 0.0, 1.0).reshape(self.n_agents, 3).T
        reward = self._assign(accept, allocation) + self._collaborate(collaboration) + self._work()
        reward -= 0.1 * len(self.queue)
        reward -= 0.5 * sum(task.deadline < self.step_number for _, task in self.active)
        if self.np_random.random() < 0.3 and len(self.queue) < self.max_tasks:
            self.queue.append(self._new_task())
        for agent in self.team:
            own = sum(task.share * task.complexity for owner, task in self.active if owner is agent)
            agent.load = min(1.0, own)
        return self._observe(), float(reward), False, self.step_number >= self.episode_steps, {}

    def _assign(self, accept: Array, allocation: Array) -> float:
        reward = 0.0
        for agent, wants, share in zip(self.team, accept, allocation, strict=True):
            if wants > 0.5 and self.queue:
                task = self.queue.popleft()
                task.share = float(share)
                self.active.append((agent, task))
                reward += agent.expertise[task.type] * task.priority
        return reward

    def _collaborate(self, collaboration: Array) -> float:
        reward = 0.0
        for i in range(self.n_agents):
            for j in range(self.n_agents):
                if i != j and collaboration[i] > 0.7 and collaboration[j] > 0.7:
                    self.matrix[i, j] *= 1.01
                    reward += 0.5
        return reward

    def _work(self) -> float:
        reward, unfinished = 0.0, []
        for agent, task in self.active:
            expertise = agent.expertise[task.type]
            if self.np_random.random() >= expertise * agent.capacity:
                unfinished.append((agent, task))
                continue
            time_bonus = max(0.0, 1.0 - self.step_number / task.deadline)
            reward += 10.0 * expertise * agent.success_rate * task.priority * (1.0 + time_bonus)
            in_time = float(self.step_number <= task.deadline)
            agent.completed += 1
            agent.success_rate += 0.02 * (in_time - agent.success_rate)
        self.active = unfinished
        return reward

    def _new_agent(self) -> Agent:
        random = self.np_random
        own = {kind: random.uniform(0.2, 1.0) if random.random() < 0.75 else 0.5 for kind in TYPES}
        return Agent(random.uniform(0.5, 1.0), random.uniform(0.5, 1.0), random.uniform(0.3, 0.9), own)

    def _new_task(self) -> Task:
        random = self.np_random
        return Task(
            type=TYPES[random.integers(len(TYPES))],
            complexity=random.uniform(0.2, 1.0),
            priority=random.uniform(0.1, 1.0),
            deadline=int(random.integers(10, 101)),
        )

    def _observe(self) -> Array:
        values: list[float] = []
        for agent in self.team:
            per_step = agent.completed / max(1, self.step_number)
            values += [agent.capacity, agent.load, per_step, agent.success_rate, agent.collaboration_score]
            values += [agent.expertise["research"], agent.expertise["analysis"]]
        for task in self.queue:
            values += [task.complexity, task.priority, task.deadline, 1.0, 0.0]
        values += [0.0] * (5 * (self.max_tasks - len(self.queue)))
        return np.array([*values, *self.matrix.flat], dtype=np.float32)
