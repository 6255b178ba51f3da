"""PPO: several epochs of clipped policy-gradient steps on each rollout.

Comes in: a Rollout [T, N]. Goes out: an UpdateReport. On the way: values of all states -> advantages and targets
(returns.py) -> `epochs` passes over shuffled minibatches, each one gradient step of the clipped objective (surrogate.py),
ratio = pi(a|s) / pi_old(a|s). All parameters are one flat vector (policies/flat.py) under one fused Adam.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..config import PPOSettings
from ..errors import TrainingFault
from ..policies.actor import NetworkActor
from ..policies.flat import FlatParameters
from ..seeding import generator, generator_state, restore_generator
from .learner import Array, Inspect, InspectedStep, ModuleReport, Rollout, UpdateReport
from .returns import explained_variance, gae
from .surrogate import Asked, Figures, Said, derivative, figures

ADVANTAGE_EPSILON = 1e-8


@dataclass
class Experience:
    """A rollout made ready for gradient steps: one row per valid transition, [B, ...]."""

    row: Tensor
    observation: Tensor
    action: Tensor
    old_log_prob: Tensor
    value: Tensor
    advantage: Tensor
    target: Tensor

    def take(self, index: Tensor) -> Experience:
        return Experience(*(getattr(self, name).index_select(0, index) for name in self.__dataclass_fields__))

    def stretch(self, start: int, stop: int) -> Experience:
        return Experience(*(getattr(self, name)[start:stop] for name in self.__dataclass_fields__))

    @property
    def asked(self) -> Asked:
        return Asked(self.old_log_prob, self.advantage, self.value, self.target)

    def __len__(self) -> int:
        return len(self.row)


@dataclass(frozen=True)
class Step:
    """One gradient step: what the network said before it, the gradient's norm, and how it was scaled by clipping."""

    said: Said
    norm: float
    scale: float


@dataclass(frozen=True)
class Epoch:
    figures: Figures
    grad_norm: float
    grad_norm_max: float


class PPO:
    def __init__(self, actor: NetworkActor, settings: PPOSettings, seed: int) -> None:
        self.actor = actor
        self.network = actor.network
        self.settings = settings
        self.flat = FlatParameters(self.network)
        self.start = self.flat.vector.detach().clone()
        self.optimizer = torch.optim.Adam(
            [self.flat.vector], lr=settings.learning_rate, eps=settings.adam_epsilon, fused=True
        )
        self.shuffler = generator(seed, "minibatches")
        self.optimizer_steps = 0

    # ------------------------------------------------------------------ one update

    def update(self, rollout: Rollout, learning_rate: float, inspect: Inspect) -> UpdateReport:
        self.flat.check_aliasing()
        self.optimizer.param_groups[0]["lr"] = learning_rate
        value, last_value, final_value = self._values(rollout)
        advantage = self.advantages(rollout, value, last_value, final_value)
        target = advantage + value
        experience = self._experience(rollout, value, advantage, target)
        before = self.flat.vector.detach().clone()

        epochs, inspected = self._epochs(experience, inspect)

        after = self.flat.vector.detach()
        valid = rollout.valid
        report = self._report(epochs, before, after, learning_rate)
        return UpdateReport(
            **report,
            optimizer_steps=self.optimizer_steps,
            learning_rate=learning_rate,
            explained_variance=explained_variance(value[valid], target[valid]),
            advantage_mean=float(advantage[valid].mean()),
            advantage_std=float(advantage[valid].std()),
            inspected=inspected,
            rollout=_rollout_roles(rollout, value, last_value, final_value, advantage)
            if inspect.gradient_steps
            else None,
            iteration=self._look_again(rollout, value, inspect.rows),
        )

    def advantages(self, rollout: Rollout, value: Array, last_value: Array, final_value: Array) -> Array:
        return gae(
            rollout.reward * rollout.reward_scale,
            value,
            last_value,
            rollout.terminated,
            rollout.truncated,
            final_value,
            self.settings.gamma,
            self.settings.gae_lambda,
        ).astype(np.float32)

    def gradient_step(self, batch: Experience) -> Step:
        """One descent step. Gradients that are not finite are refused before they reach the weights."""
        outputs = self.network.keeping(batch.observation)
        log_prob, entropy = self.network.head.log_prob_and_entropy(outputs.params, batch.action)
        said = Said(log_prob.detach(), entropy.detach(), outputs.value)
        wanted = derivative(said, batch.asked, self.settings)
        self.network.backward(outputs, log_prob, entropy, *wanted)
        norm = float(torch.linalg.vector_norm(self.flat.gradient))
        if not math.isfinite(norm):
            raise self._not_finite(figures(said, batch.asked, self.settings).loss)
        scale = min(1.0, self.settings.max_grad_norm / (norm + 1e-6))
        if scale < 1.0:
            self.flat.gradient.mul_(scale)
        self.optimizer_step()
        self.optimizer_steps += 1
        return Step(said, norm, scale)

    def optimizer_step(self) -> None:
        self.optimizer.step()

    # ------------------------------------------------------------------ its parts

    def _values(self, rollout: Rollout) -> tuple[Array, Array, Array]:
        """V of every state of the rollout [T, N], of where it stopped [N], and of what time limits hid [T, N]."""
        steps, envs, size = rollout.observation.shape
        with torch.inference_mode():
            rows = np.concatenate(
                [rollout.observation.reshape(-1, size), rollout.last_observation, rollout.final_observation]
            )
            values = self.network.values(self._tensor(rows)).cpu().numpy()
        final = np.zeros(steps * envs, np.float32)
        final[rollout.final_rows] = values[(steps + 1) * envs :]
        return (
            values[: steps * envs].reshape(steps, envs),
            values[steps * envs : (steps + 1) * envs],
            final.reshape(steps, envs),
        )

    def _experience(self, rollout: Rollout, value: Array, advantage: Array, target: Array) -> Experience:
        rows = np.flatnonzero(rollout.valid.ravel())
        size, width = rollout.observation.shape[2], rollout.action.shape[2]
        return Experience(
            row=torch.from_numpy(rows),
            observation=self._tensor(rollout.observation.reshape(-1, size)[rows]),
            action=self._tensor(rollout.action.reshape(-1, width)[rows]),
            old_log_prob=self._tensor(rollout.log_prob.ravel()[rows]),
            value=self._tensor(value.ravel()[rows]),
            advantage=self._tensor(advantage.ravel()[rows]),
            target=self._tensor(target.ravel()[rows].astype(np.float32)),
        )

    def _epochs(self, experience: Experience, inspect: Inspect) -> tuple[list[Epoch], list[InspectedStep]]:
        s = self.settings
        per_epoch = math.ceil(len(experience) / s.minibatch_size)
        wanted = _spread(inspect.gradient_steps, s.epochs * per_epoch)
        epochs: list[Epoch] = []
        inspected: list[InspectedStep] = []
        for epoch in range(s.epochs):
            shuffled = experience.take(torch.from_numpy(self.shuffler.permutation(len(experience))))
            if s.normalize_advantage:
                shuffled.advantage = _normalised(shuffled.advantage, s.minibatch_size)
            steps: list[Step] = []
            for minibatch in range(per_epoch):
                batch = shuffled.stretch(minibatch * s.minibatch_size, (minibatch + 1) * s.minibatch_size)
                if epoch * per_epoch + minibatch in wanted:
                    step, seen = self._inspected_step(batch, epoch, minibatch)
                    inspected.append(seen)
                else:
                    step = self.gradient_step(batch)
                steps.append(step)
            said = Said(*(torch.cat(parts) for parts in zip(*(step.said for step in steps), strict=True)))
            norms = [step.norm for step in steps]
            measured = figures(said, shuffled.asked, s)
            epochs.append(Epoch(measured, sum(norms) / len(norms), max(norms)))
            if s.target_kl is not None and float(measured.approx_kl) > 1.5 * s.target_kl:
                break
        return epochs, inspected

    def _inspected_step(self, batch: Experience, epoch: int, minibatch: int) -> tuple[Step, InspectedStep]:
        before = self.flat.vector.detach().clone()
        number = self.optimizer_steps
        step = self.gradient_step(batch)
        with torch.no_grad():
            log_prob_after, _, value_after = self.network(batch.observation, batch.action)
            gradients = self.flat.norms(self.flat.gradient) / step.scale
            weights = self.flat.norms(before)
            moved = self.flat.norms(self.flat.vector - before)
        arrays = {
            "row": batch.row,
            "observation": batch.observation,
            "action": batch.action,
            "advantage": batch.advantage,
            "target": batch.target,
            "old_log_prob": batch.old_log_prob,
            "log_prob_before": step.said.log_prob,
            "log_prob_after": log_prob_after,
            "value_before": step.said.value,
            "value_after": value_after,
        }
        names = [stretch.name for stretch in self.flat.stretches]
        figures = torch.stack([gradients, weights, moved], dim=1).tolist()
        return step, InspectedStep(
            optimizer_step=number,
            epoch=epoch,
            minibatch=minibatch,
            learning_rate=float(self.optimizer.param_groups[0]["lr"]),
            arrays={role: tensor.detach().cpu().numpy() for role, tensor in arrays.items()},
            parameters=dict(zip(names, figures, strict=True)),
        )

    def _look_again(self, rollout: Rollout, value: Array, rows: Array | None) -> dict[str, Array] | None:
        if rows is None:
            return None
        size, width = rollout.observation.shape[2], rollout.action.shape[2]
        with torch.inference_mode():
            log_prob, _, value_after = self.network(
                self._tensor(rollout.observation.reshape(-1, size)[rows]),
                self._tensor(rollout.action.reshape(-1, width)[rows]),
            )
        return {
            "row": rows,
            "old_log_prob": rollout.log_prob.ravel()[rows],
            "log_prob_after": log_prob.cpu().numpy(),
            "value_before": value.ravel()[rows],
            "value_after": value_after.cpu().numpy(),
        }

    def _report(self, epochs: list[Epoch], before: Tensor, after: Tensor, learning_rate: float) -> dict[str, Any]:
        report: dict[str, Any] = {
            name: [float(getattr(epoch.figures, name)) for epoch in epochs] for name in Figures._fields
        }
        report["grad_norm"] = [epoch.grad_norm for epoch in epochs]
        report["grad_norm_max"] = [epoch.grad_norm_max for epoch in epochs]
        norms = self.flat.norms(after).double().cpu().numpy()
        changes = self.flat.norms(after - self.start).double().cpu().numpy()
        steps = self.flat.norms(after - before).double().cpu().numpy()
        gradients = self.flat.norms(self.flat.gradient).double().cpu().numpy()
        owners = [self.flat.module_of(stretch.name) for stretch in self.flat.stretches]
        modules: dict[str, ModuleReport] = {}
        for module in dict.fromkeys(owners):
            own = [i for i, owner in enumerate(owners) if owner == module]
            modules[module] = ModuleReport(
                weight_norm=float(np.linalg.norm(norms[own])),
                weight_change=float(changes[own].sum()),
                weight_step=float(steps[own].sum()),
                grad_norm=float(np.linalg.norm(gradients[own])),
                learning_rate=learning_rate,
            )
        report |= {"weight_change": float(changes.sum()), "weight_step": float(steps.sum()), "modules": modules}
        return report

    def _not_finite(self, loss: Tensor) -> TrainingFault:
        bad = [name for name, piece in self.flat.named(self.flat.gradient) if not bool(torch.isfinite(piece).all())]
        return TrainingFault(
            f"Gradient step {self.optimizer_steps} gave a loss of {float(loss):.6g} and gradients that are not finite "
            f"in {', '.join(bad[:4]) or 'no single parameter (their norm overflows)'}. The step was not taken and the "
            "weights are as they were. Likeliest cause: a learning rate that is too high, or rewards or observations of "
            "huge size. "
            "Lower ppo.learning_rate, or set env.normalize_observations and env.normalize_rewards."
        )

    def _tensor(self, array: Array) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(array)).to(self.flat.vector.device)

    # ------------------------------------------------------------------ what others need to know of it

    def constants(self) -> dict[str, Any]:
        return self.settings.model_dump()

    def parameter_sizes(self) -> dict[str, int]:
        return {stretch.name: stretch.stop - stretch.start for stretch in self.flat.stretches}

    def state(self) -> dict[str, Any]:
        return {"optimizer_steps": self.optimizer_steps, "shuffler": generator_state(self.shuffler)}

    def tensors(self) -> dict[str, dict[str, Array]]:
        adam = self.optimizer.state[self.flat.vector]
        empty = torch.zeros_like(self.flat.vector)
        return {
            "weights": {
                s.name: self.flat.vector.detach()[s.start : s.stop].view(s.shape).cpu().numpy()
                for s in self.flat.stretches
            },
            "optimizer": {
                "exp_avg": adam.get("exp_avg", empty).detach().cpu().numpy(),
                "exp_avg_sq": adam.get("exp_avg_sq", empty).detach().cpu().numpy(),
                "step": np.array([float(adam.get("step", 0.0))], np.float32),
                "start": self.start.cpu().numpy(),
            },
        }

    def load(self, state: dict[str, Any], tensors: dict[str, dict[str, Array]]) -> None:
        self.optimizer_steps = int(state["optimizer_steps"])
        restore_generator(self.shuffler, state["shuffler"])
        self.load_weights(tensors["weights"])
        saved = tensors["optimizer"]
        self.start = self._tensor(saved["start"]).clone()
        self.optimizer.state[self.flat.vector] = {
            "step": torch.tensor(float(saved["step"][0])),
            "exp_avg": self._tensor(saved["exp_avg"]).clone(),
            "exp_avg_sq": self._tensor(saved["exp_avg_sq"]).clone(),
        }

    def load_weights(self, weights: dict[str, Array]) -> None:
        with torch.no_grad():
            for stretch in self.flat.stretches:
                self.flat.vector[stretch.start : stretch.stop] = self._tensor(weights[stretch.name]).flatten()


def _spread(count: int, total: int) -> set[int]:
    """`count` of `total` gradient steps, evenly spaced, the first and the last among them."""
    return set(np.linspace(0, total - 1, min(count, total)).round().astype(int).tolist()) if count else set()


def _normalised(advantage: Tensor, size: int) -> Tensor:
    """Mean 0 and deviation 1 in each minibatch of `size` rows; the last one may be smaller."""
    whole = len(advantage) - len(advantage) % size
    parts = [advantage[:whole].view(-1, size), advantage[whole:].view(1, -1)]
    for position, part in enumerate(parts):
        if len(part) and part.shape[1] > 1:  # the deviation of one sample is not a number
            spread = part.std(1, keepdim=True) + ADVANTAGE_EPSILON
            parts[position] = (part - part.mean(1, keepdim=True)) / spread
    return torch.cat([part.flatten() for part in parts])


def _rollout_roles(
    rollout: Rollout, value: Array, last_value: Array, final_value: Array, advantage: Array
) -> dict[str, Array]:
    return {
        "reward": rollout.reward,
        "reward_scale": np.array(rollout.reward_scale),
        "terminated": rollout.terminated,
        "truncated": rollout.truncated,
        "valid": rollout.valid,
        "value": value,
        "last_value": last_value,
        "final_value": final_value,
        "old_log_prob": rollout.log_prob,
        "advantage": advantage,
        "target": advantage + value,
    }
