"""Curiosity: a bonus for states that are new, by random network distillation (Burda et al. 2018, arXiv 1810.12894).

A network that nobody trains answers every state with a few numbers; a second one learns to give the same answers on the states that were
seen. Where it is still wrong, the state is new, and its error, over the running deviation of the discounted bonus, is paid beside the
reward:

    bonus[t] = coefficient |predicted(s[t+1]) - answer(s[t+1])|^2 / deviation

A step that ends the task leads nowhere and is paid no bonus, so that dying early is not worth it; one that a time limit cuts is paid for the
state that it reached.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..config import CuriositySettings, LearningSettings, OptimizerSettings, PolicySettings
from ..policies.networks import MLP
from ..policies.normalization import ObservationNormalizer, RewardScaler
from ..seeding import derive_seed, generator, generator_state, restore_generator
from .learner import Array, Rollout
from .stepping import Stepper

FARTHEST = 5.0
"""Normalised observations are cut off here: a number that has hardly varied so far would otherwise drown the others."""
HIDDEN = (128, 128)


class Curiosity:
    def __init__(self, size: int, n_envs: int, gamma: float, settings: CuriositySettings, seed: int) -> None:
        self.settings = settings
        noise = torch.Generator().manual_seed(derive_seed(seed, "curiosity"))
        network = PolicySettings(hidden=HIDDEN, activation="relu")
        self.answers = MLP(size, network, settings.features, 1.0, noise).requires_grad_(False)
        self.predictor = MLP(size, network, settings.features, 1.0, noise)
        learning = LearningSettings(learning_rate=settings.learning_rate, max_grad_norm=1e9)
        self.stepper = Stepper(self.predictor, learning, OptimizerSettings())
        self.normalizer = ObservationNormalizer(size)
        self.scaler = RewardScaler(n_envs, gamma)
        self.shuffler = generator(seed, "curiosity minibatches")

    def paid(self, rollout: Rollout) -> tuple[Rollout, Array]:
        """The rollout with the bonus in its rewards, and the bonus [T, N] in the units of what is learnt from; then the states of the
        rollout are learnt."""
        rows, reached = self._reached(rollout)
        self.normalizer.add(rows)
        states = self._tensor(rows)
        with torch.no_grad():
            wrong = (self.predictor(states) - self.answers(states)).square().mean(1).numpy()
        errors = np.zeros(rollout.reward.size)
        errors[reached] = wrong
        errors = errors.reshape(rollout.reward.shape)
        scale = self.scaler.scale_for(errors, rollout.terminated | rollout.truncated)
        bonus = self.settings.coefficient * scale * errors
        self._learn(states)
        return replace(rollout, reward=rollout.reward + bonus / rollout.reward_scale), bonus

    def _reached(self, rollout: Rollout) -> tuple[Array, Array]:
        """States that valid steps led to, and the steps t * N + n that did."""
        size = rollout.observation.shape[2]
        following = np.concatenate([rollout.observation[1:], rollout.last_observation[None]]).reshape(-1, size).copy()
        following[rollout.final_rows] = rollout.final_observation
        steps = np.flatnonzero((rollout.valid & ~rollout.terminated).ravel())
        rows = following[steps].astype(np.float32)
        return (rows / np.float32(255) if following.dtype == np.uint8 else rows), steps

    @torch.no_grad()
    def _learn(self, states: Tensor) -> None:
        """One pass over them; the derivative is written out (networks.py)."""
        s = self.settings
        order = torch.from_numpy(self.shuffler.permutation(len(states)))
        for start in range(0, len(order), s.minibatch_size):
            batch = states.index_select(0, order[start : start + s.minibatch_size])
            predicted, kept = self.predictor.keeping(batch)
            wrong = predicted - self.answers(batch)
            self.predictor.backward(kept, 2 * wrong / wrong.numel())
            self.stepper.step(s.learning_rate)

    def _tensor(self, rows: Array) -> Tensor:
        return torch.from_numpy(np.clip(self.normalizer.apply(rows), -FARTHEST, FARTHEST))

    # ------------------------------------------------------------------ over a kill

    def state(self) -> dict[str, Any]:
        return {"steps": self.stepper.steps, "shuffler": generator_state(self.shuffler)}

    def tensors(self) -> dict[str, Array]:
        """One group; what the untrained network answers follows from the seed."""
        parts = {
            "predictor": self.stepper.weight_tensors(),
            "optimizer": self.stepper.optimizer_tensors(),
            "observations": self.normalizer.moments.state(),
            "bonus": self.scaler.state(),
        }
        return {f"{part}.{name}": array for part, arrays in parts.items() for name, array in arrays.items()}

    def load(self, state: dict[str, Any], tensors: dict[str, Array]) -> None:
        def part(prefix: str) -> dict[str, Array]:
            return {name[len(prefix) + 1 :]: array for name, array in tensors.items() if name.startswith(prefix + ".")}

        self.stepper.steps = int(state["steps"])
        restore_generator(self.shuffler, state["shuffler"])
        self.stepper.load(part("predictor"), part("optimizer"))
        self.normalizer.moments.load(part("observations"))
        self.scaler.load(part("bonus"))
