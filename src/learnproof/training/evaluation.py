"""Measuring an actor: one score for each seed, the same seeds for every actor that is compared.

    scores = Evaluator(source, metric="return").scores(actor, seeds, mode)

Every seed is one episode from a reset with that seed (of a whole team, where rows are agents). Evaluation uses environments and generators of its own, so that how
often one looks changes nothing in training.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv

from ..envs.agents import agent_rows, episodes_at_once
from ..envs.contract import check_finite
from ..envs.making import EnvironmentSource
from ..errors import EnvironmentFault, SettingsError
from ..policies.actor import Actor, Mode
from ..policies.spaces import ObservationLayout
from ..seeding import generator
from .rollout import autoreset_mode, episode_metrics

Array = np.ndarray[Any, Any]
MOST_INSTANCES = 64


class Evaluator:
    def __init__(self, source: EnvironmentSource, metric: str, max_episode_steps: int) -> None:
        self.source = source
        self.metric = metric
        self.max_episode_steps = max_episode_steps
        self._envs: dict[int, VectorEnv[Any, Any, Any]] = {}

    @property
    def available(self) -> bool:
        return self._env(1) is not None

    def scores(
        self,
        actor: Actor,
        seeds: Sequence[int],
        mode: Mode,
        on_progress: Callable[[int], None] | None = None,
    ) -> Array:
        """[len(seeds)] in the metric of the run, in the order of the seeds."""
        noise = generator(seeds[0] if seeds else 0, "evaluation actions", len(seeds))
        scores = np.empty(len(seeds))
        done = 0
        while done < len(seeds):
            env = self._env(min(MOST_INSTANCES, len(seeds)))
            assert env is not None
            at_once = episodes_at_once(env)
            chunk = list(seeds[done : done + at_once])
            padded = chunk + [chunk[-1]] * (at_once - len(chunk))
            scores[done : done + len(chunk)] = self._episodes(env, actor, padded, mode, noise)[: len(chunk)]
            done += len(chunk)
            if on_progress is not None:
                on_progress(done)
        return scores

    def _episodes(
        self, env: VectorEnv[Any, Any, Any], actor: Actor, seeds: list[int], mode: Mode, noise: np.random.Generator
    ) -> Array:
        same_step = autoreset_mode(env) is AutoresetMode.SAME_STEP
        disabled = autoreset_mode(env) is AutoresetMode.DISABLED
        layout = ObservationLayout(env.single_observation_space)
        observation, _ = env.reset(seed=seeds)  # type: ignore[arg-type]
        teams, at_once = agent_rows(env), episodes_at_once(env)
        rows_of_each = env.num_envs // at_once
        running = np.ones(at_once, bool)
        returns = np.zeros(at_once)
        scores = np.full(at_once, np.nan)
        memory: Array | None = None  # not emptied where an episode ends: only the first of each instance counts
        for step in range(self.max_episode_steps):
            acted = actor.act(observation, noise, mode, memory)
            memory = acted.memory
            observation, reward, terminated, truncated, infos = env.step(acted.action)
            check_finite(layout.flatten(observation), reward, step, self.source.name)
            earned = reward if teams is None else teams.team_reward
            returns += np.where(running, earned, 0.0)
            ended = terminated | truncated if teams is None else teams.team_ended
            for i in np.flatnonzero(ended & running):
                metrics = episode_metrics(infos.get("final_info", {}) if same_step else infos, int(i) * rows_of_each)
                scores[i] = self._score(float(returns[i]), metrics)
            running &= ~ended
            if not running.any():
                return scores
            if disabled and ended.any():
                observation, _ = env.reset(options={"reset_mask": ended})
        raise EnvironmentFault(
            f"An evaluation episode of {self.source.name} had not ended after {self.max_episode_steps} steps. Give the "
            "environment a time limit (max_episode_steps at registration), or raise evaluation.max_episode_steps."
        )

    def _score(self, episode_return: float, metrics: dict[str, float]) -> float:
        if self.metric == "return":
            return episode_return
        if self.metric not in metrics:
            raise SettingsError(
                f"{self.source.name} says that its metric is {self.metric!r}, but reported only {sorted(metrics)} at the "
                "end of an episode."
            )
        return metrics[self.metric]

    def _env(self, count: int) -> VectorEnv[Any, Any, Any] | None:
        if count not in self._envs:
            env = self.source.evaluation(count)
            if env is None:
                return None
            self._envs[count] = env
        return self._envs[count]

    def close(self) -> None:
        if self.source.ours:
            for env in self._envs.values():
                env.close()
        self._envs.clear()
