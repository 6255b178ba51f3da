"""Collecting experience: steps a vector environment with an actor and keeps episodes apart, whatever the autoreset mode.

Gymnasium knows three ways in which an ended instance starts anew, and each shows the last observation elsewhere:

    same step   step() returns the first observation of the next episode; the true last one is in infos["final_obs"]
    next step   step() returns the true last observation; the following step ignores its action and returns the reset
                (that empty step is marked invalid: it belongs to no episode)
    disabled    step() returns the true last observation; we reset the ended instances ourselves

Where rows are the agents of teams (envs/agents.py), steps and episodes are those of teams, and a row whose agent left before its team
is invalid until the team begins anew.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv

from ..algorithms.learner import Rollout
from ..envs.agents import agent_rows, episodes_at_once
from ..envs.contract import check_batch, check_finite
from ..errors import EnvironmentFault, LearnproofError
from ..policies.actor import NetworkActor
from ..policies.normalization import RewardScaler
from ..policies.spaces import ObservationLayout
from ..seeding import derive_seed, generator, generator_state, restore_generator

Array = np.ndarray[Any, Any]
STEPS_BETWEEN_NEWS = 256


@dataclass(frozen=True)
class FinishedEpisode:
    step: int
    """Environment steps of the whole run when it ended."""
    env: int
    """Instance, or team."""
    return_: float
    length: int
    terminated: bool
    metrics: dict[str, float] = field(default_factory=dict)


def autoreset_mode(env: VectorEnv[Any, Any, Any]) -> AutoresetMode:
    """The declared mode; an environment that declares none has Gymnasium's default, next step."""
    declared = env.metadata.get("autoreset_mode", AutoresetMode.NEXT_STEP)
    return declared if isinstance(declared, AutoresetMode) else AutoresetMode(declared)


class Collector:
    """Holds the training environment between updates. `state`/`tensors`/`load` carry it over a kill where it can be."""

    def __init__(
        self,
        env: VectorEnv[Any, Any, Any],
        name: str,
        actor: NetworkActor,
        reward_scaler: RewardScaler | None,
        seed: int,
        raw_rows: bool = False,
    ) -> None:
        self.env = env
        self.name = name
        self.actor = actor
        self.reward_scaler = reward_scaler
        self.raw_rows = raw_rows
        """For a memory: rows before normalisation, since it normalises what it gives, and no log-probabilities."""
        self.mode = autoreset_mode(env)
        self.seed = seed
        self.noise = generator(seed, "actions")
        self.steps = 0
        self.restarts = 0
        count = env.num_envs
        self.teams = agent_rows(env)
        self.at_once = episodes_at_once(env)
        """Episodes under way side by side: instances, or teams."""
        self.returns = np.zeros(self.at_once)
        self.lengths = np.zeros(self.at_once, np.int64)
        self.ended = np.zeros(count, bool)
        """Instances that ended at the last step and, in next-step mode, spend the coming one on their reset."""
        self._flat = np.empty((count, actor.observations.size), actor.observations.dtype)
        self.rows = self._flat if actor.normalizer is None else self._flat.astype(np.float32)
        self.memory = np.zeros((count, actor.memory_size), np.float32) if actor.memory_size else None
        """What a recurrent policy remembers of each instance's episode."""
        self.row_type = self._flat.dtype if raw_rows else self.rows.dtype

    @property
    def can_snapshot(self) -> bool:
        return callable(getattr(self.env, "snapshot", None)) and callable(getattr(self.env, "restore", None))

    def enter(self, env: VectorEnv[Any, Any, Any]) -> None:
        """From here on collect in another environment with the same spaces; `start` or `load` begins there. The one that is left is closed."""
        if env is not self.env:
            self.env.close()
        self.env = env
        self.teams = agent_rows(env)
        self.mode = autoreset_mode(env)

    def begin_anew(self) -> None:
        """Every instance begins a new episode, from seeds that no earlier start had; what was under way counts for nothing."""
        self.restarts += 1
        if self.reward_scaler is not None:
            self.reward_scaler.running = np.zeros_like(self.reward_scaler.running)
        self.start()

    def start(self) -> None:
        """Begin (or, after a resume without a snapshot, begin anew) an episode in every instance."""
        root = derive_seed(self.seed, "training episodes", self.restarts) % (2**31)
        try:
            observation, _ = self.env.reset(seed=root)
        except LearnproofError:
            raise
        except Exception as error:
            raise EnvironmentFault(
                f"The environment {self.name} raised {type(error).__name__} at reset: {error}. Nothing was trained yet."
            ) from error
        self.returns[:] = 0
        self.lengths[:] = 0
        self.ended[:] = False
        if self.memory is not None:
            self.memory[:] = 0
        self._see(observation, None)

    def collect(
        self, steps: int, on_progress: Callable[[int], None] | None = None
    ) -> tuple[Rollout, list[FinishedEpisode]]:
        """`steps` steps of every instance (of every team, where rows are agents); `on_progress` hears of the run's step count now and then."""
        count, size, width = self.env.num_envs, self.actor.observations.size, self.actor.actions.size
        observation = np.empty((steps, count, size), self.row_type)
        action = np.empty((steps, count, width), np.float32)
        log_prob = np.zeros((steps, count), np.float32)
        reward = np.empty((steps, count), np.float64)
        terminated = np.empty((steps, count), bool)
        truncated = np.empty((steps, count), bool)
        valid = np.ones((steps, count), bool)
        final_rows: list[int] = []
        final_observation: list[Array] = []
        episodes: list[FinishedEpisode] = []
        remembered = None if self.memory is None else self.memory.copy()
        for t in range(steps):
            observation[t] = self._flat if self.raw_rows else self.rows
            acted = self.actor.act_on_rows(
                self.rows, self.noise, "sampled", with_log_prob=not self.raw_rows, memory=self.memory
            )
            action[t] = acted.raw
            if acted.log_prob is not None:
                log_prob[t] = acted.log_prob
            if self.mode is AutoresetMode.NEXT_STEP:
                valid[t] = ~self.ended
            elif self.teams is not None:
                valid[t] = ~self.teams.absent
            observed, reward[t], terminated[t], truncated[t], infos = self._step(acted.action)
            self.steps += self.at_once
            ended = terminated[t] | truncated[t]
            if self.teams is None:
                over = ended
                self.returns += reward[t]
                self.lengths += valid[t]
            else:
                over = self.teams.team_ended
                self.returns += self.teams.team_reward
                self.lengths += 1
            if ended.any():
                last = self._last_rows(observed, ended, infos)
                for row in np.flatnonzero(truncated[t] & ~terminated[t]):
                    final_rows.append(t * count + int(row))
                    final_observation.append(last[row])
                for env in np.flatnonzero(over):
                    episodes.append(self._finish(int(env), terminated[t], infos))
                if self.mode is AutoresetMode.DISABLED:
                    observed, _ = self.env.reset(options={"reset_mask": ended})
            self.ended = ended
            if acted.memory is not None:
                self.memory = np.where((ended | ~valid[t])[:, None], np.float32(0), acted.memory)
            self._see(observed, reward[t])
            if on_progress is not None and t % STEPS_BETWEEN_NEWS == 0:
                on_progress(self.steps)
        scale = 1.0
        if self.reward_scaler is not None:
            counted = None if self.teams is None else valid
            scale = self.reward_scaler.scale_for(reward, terminated | truncated, counted)
        rollout = Rollout(
            observation=observation,
            action=action,
            log_prob=log_prob,
            reward=reward,
            reward_scale=scale,
            terminated=terminated,
            truncated=truncated & ~terminated,
            valid=valid,
            last_observation=(self._flat if self.raw_rows else self.rows).copy(),
            final_rows=np.array(final_rows, np.int64),
            final_observation=np.array(final_observation, self.row_type).reshape(-1, size),
            memory=remembered,
            teams_ended=None if self.teams is None else len(episodes),
        )
        return rollout, episodes

    def _step(self, action: Any) -> tuple[Any, Array, Array, Array, dict[str, Any]]:
        try:
            answer = self.env.step(action)
        except LearnproofError:
            raise
        except Exception as error:
            raise EnvironmentFault(
                f"The environment {self.name} raised {type(error).__name__} at step {self.steps} of training: {error}. "
                "No weights were changed by it. Its own traceback is shown beside this message."
            ) from error
        check_batch(self.env, answer, self.steps, self.name)
        return answer

    def _see(self, observed: Any, reward: Array | None) -> None:
        """Take in the next observation: flattened, checked, counted by the normaliser, normalised."""
        self._flat = self.actor.observations.flatten(observed)
        check_finite(self._flat, reward, self.steps, self.name)
        if self.actor.normalizer is not None:
            present = self._flat if self.teams is None else self._flat[~self.teams.absent]
            self.actor.normalizer.add(present)
            self.rows = self.actor.normalizer.apply(self._flat)
        else:
            self.rows = self._flat

    def _last_rows(self, observed: Any, ended: Array, infos: dict[str, Any]) -> Array:
        """The true last observations as the network would read them; rows of instances that go on are not used."""
        if self.mode is not AutoresetMode.SAME_STEP:
            return self.actor.observations.flatten(observed) if self.raw_rows else self.actor.read(observed)
        final = infos.get("final_obs")
        if final is None:
            raise EnvironmentFault(
                f"The environment {self.name} declares same-step autoreset but gave no infos['final_obs'] when an episode "
                "ended, so what a time limit cut off cannot be valued. Give it, or declare the mode that it really has."
            )
        space = self.env.single_observation_space
        rows = np.zeros((len(ended), self.actor.observations.size), self.actor.observations.dtype)
        picked = np.flatnonzero(ended)
        if isinstance(final, np.ndarray) and final.dtype == object:
            rows[picked] = _flatten_singles(self.actor.observations, space, [final[i] for i in picked])
        else:
            rows[picked] = self.actor.observations.flatten(final)[picked]
        check_finite(rows, None, self.steps, self.name)
        return rows if self.actor.normalizer is None or self.raw_rows else self.actor.normalizer.apply(rows)

    def _finish(self, env: int, terminated: Array, infos: dict[str, Any]) -> FinishedEpisode:
        first = env * (len(terminated) // self.at_once)
        rows = slice(first, first + len(terminated) // self.at_once)
        source = infos.get("final_info", {}) if self.mode is AutoresetMode.SAME_STEP else infos
        episode = FinishedEpisode(
            step=self.steps,
            env=env,
            return_=float(self.returns[env]),
            length=int(self.lengths[env]),
            terminated=bool(terminated[rows].any()),
            metrics=episode_metrics(source, first),
        )
        self.returns[env] = 0
        self.lengths[env] = 0
        return episode

    # ------------------------------------------------------------------ over a kill

    def state(self) -> dict[str, Any]:
        return {"steps": self.steps, "restarts": self.restarts, "noise": generator_state(self.noise)}

    def tensors(self) -> dict[str, Array]:
        """Empty where the environment cannot be saved."""
        if not self.can_snapshot:
            return {}
        snapshot: dict[str, Array] = self.env.snapshot()  # type: ignore[attr-defined]
        own = {
            "returns": self.returns,
            "lengths": self.lengths,
            "ended": self.ended,
            "rows": self.rows,
            "flat": self._flat,
        }
        if self.memory is not None:
            own["memory"] = self.memory
        return {**{f"env.{k}": v for k, v in snapshot.items()}, **{f"collector.{k}": v for k, v in own.items()}}

    def load(self, state: dict[str, Any], tensors: dict[str, Array]) -> bool:
        """True where every instance goes on in the middle of its episode, False where episodes were begun anew."""
        self.steps = int(state["steps"])
        self.restarts = int(state["restarts"])
        restore_generator(self.noise, state["noise"])
        if not tensors:
            self.restarts += 1
            self.start()
            return False
        self.env.restore({k[4:]: v for k, v in tensors.items() if k.startswith("env.")})  # type: ignore[attr-defined]
        self.returns = tensors["collector.returns"].copy()
        self.lengths = tensors["collector.lengths"].copy()
        self.ended = tensors["collector.ended"].copy()
        self.rows = tensors["collector.rows"].copy()
        self._flat = tensors["collector.flat"].copy()
        if self.memory is not None:
            self.memory = tensors["collector.memory"].copy()
        return True


def episode_metrics(infos: dict[str, Any], env: int) -> dict[str, float]:
    """The numbers that the environment reports of an instance's finished episode."""
    metrics: dict[str, float] = {}
    for key, values in infos.items():
        mask = infos.get(f"_{key}")
        if key.startswith("_") or mask is None or not mask[env] or not isinstance(values, np.ndarray):
            continue
        if values.ndim == 1 and np.issubdtype(values.dtype, np.number):
            metrics[key] = float(values[env])
    return metrics


def _flatten_singles(layout: ObservationLayout, space: gym.Space[Any], singles: list[Any]) -> Array:
    empty: Any = gym.vector.utils.create_empty_array(space, len(singles))
    return layout.flatten(gym.vector.utils.concatenate(space, singles, empty))
