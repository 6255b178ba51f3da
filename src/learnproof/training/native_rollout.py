"""Collecting in environments that are kernels, with a policy that is one: the whole rollout is one call (compiled/collecting.py).

What comes out is what the collector of rollout.py gives, and so is what goes into a checkpoint; a run may change from one to the other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from gymnasium.spaces import Discrete
from gymnasium.vector import AutoresetMode, VectorEnv

from ..algorithms.learner import Rollout
from ..envs.native import NativeEnv
from ..policies.actor import NetworkActor
from .rollout import Collector, FinishedEpisode


class NativeCollector(Collector):
    @staticmethod
    def fits(env: VectorEnv[Any, Any, Any], actor: NetworkActor) -> bool:
        if (
            not isinstance(env, NativeEnv)
            or env.autoreset_mode is not AutoresetMode.SAME_STEP
            or actor.compiled is None
        ):
            return False
        from ..compiled.acting import CompiledPolicy

        return isinstance(actor.compiled, CompiledPolicy) and actor.normalizer is None

    def collect(
        self, steps: int, on_progress: Callable[[int], None] | None = None
    ) -> tuple[Rollout, list[FinishedEpisode]]:
        from ..compiled.acting import CompiledPolicy
        from ..compiled.collecting import make_kept, rollout_in

        env, policy = self.env, self.actor.compiled
        if not (self.fits(env, self.actor) and isinstance(env, NativeEnv) and isinstance(policy, CompiledPolicy)):
            return super().collect(steps, on_progress)
        count = env.num_envs
        kept = make_kept(steps, count, self.actor.observations.size, self.actor.actions.size, len(env.metrics))
        given, low, high = _given(env)
        taken, cut, ended = rollout_in(type(env))(
            policy.net,
            env.batch,
            policy.room_for(count),
            self.noise,
            given,
            low,
            high,
            self.returns,
            self.lengths,
            kept,
        )
        if taken < steps:
            self._step(given)  # which refuses an action that is not finite, and says why
        before = self.steps
        self.steps += steps * count
        episodes = [
            FinishedEpisode(
                step=before + (at // count + 1) * count,
                env=at % count,
                return_=return_,
                length=length,
                terminated=bool(kept.terminated.ravel()[at]),
                metrics=dict(zip(env.metrics, figures, strict=True)),
            )
            for at, return_, length, figures in zip(
                kept.ended_at[:ended].tolist(),
                kept.ended_return[:ended].tolist(),
                kept.ended_length[:ended].tolist(),
                kept.ended_figures[:ended].tolist(),
                strict=True,
            )
        ]
        over = kept.terminated | kept.truncated
        self.ended = over[-1]
        self._flat = self.rows = env.observation
        scale = 1.0 if self.reward_scaler is None else self.reward_scaler.scale_for(kept.reward, over)
        if on_progress is not None:
            on_progress(self.steps)
        rollout = Rollout(
            observation=kept.observation,
            action=kept.action,
            log_prob=kept.log_prob,
            reward=kept.reward,
            reward_scale=scale,
            terminated=kept.terminated,
            truncated=kept.truncated,
            valid=np.ones((steps, count), bool),
            last_observation=env.observation,
            final_rows=kept.final_row[:cut].copy(),
            final_observation=kept.final_observation[:cut].copy(),
        )
        return rollout, episodes


def _given(env: NativeEnv) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """What the environment is handed, to be written into, and the bounds of its numbers."""
    space: Any = env.single_action_space
    if isinstance(space, Discrete):
        return np.zeros(env.num_envs, np.int64), np.empty(0, np.float32), np.empty(0, np.float32)
    return np.zeros((env.num_envs, *space.shape), np.float32), space.low, space.high
