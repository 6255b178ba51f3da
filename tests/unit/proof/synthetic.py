"""A small real PPO in numpy whose evidence the tests judge: healthy by default, broken on purpose by one switch.

The task is a corridor of five cells. Walking off its right end pays 1 and terminates, off its left end pays nothing and
terminates; a step slips with probability 0.1, and a time limit truncates. Policy and value are linear in a one-hot
observation (a softmax table and a value table), trained in float32 by PPO with Adam, in the way the events document.
"""

from __future__ import annotations

import copy
import functools
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from learnproof.evidence import Episode, Evidence, Fault, Inspection, RunStarted, RunStopped, Update
from learnproof.evidence.events import ModuleChange
from learnproof.proof import PairedScores

Array = np.ndarray[Any, Any]
CELLS, ACTIONS, START = 5, 3, 1
F = np.float32


@dataclass(frozen=True)
class Toy:
    """A training run to be made; `fault` names what is broken in it."""

    seed: int = 0
    fault: str = ""
    iterations: int = 16
    n_steps: int = 32
    n_envs: int = 8
    epochs: int = 6
    minibatch_size: int = 24
    learning_rate: float = 0.01
    schedule: str = "constant"
    gamma: float = 0.97
    gae_lambda: float = 0.9
    clip_range: float = 0.2
    normalize_advantage: bool = True
    entropy_coefficient: float = 0.01
    value_coefficient: float = 0.5
    time_limit: int = 8
    next_step_autoreset: bool = True
    start: str = "undecided"
    rewards: str = "goal"
    inspected_steps: int = 4
    proof_episodes: int = 60


@dataclass(frozen=True)
class ToyRun:
    evidence: Evidence
    scores: PairedScores


def softmax(logits: Array) -> Array:
    shifted = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return (shifted / shifted.sum(axis=-1, keepdims=True)).astype(F)


class Corridor:
    """N corridors stepped at once; after an episode's end the next step is empty, or the reset is immediate."""

    def __init__(self, toy: Toy, generator: np.random.Generator) -> None:
        self.toy, self.generator = toy, generator
        self.cell = np.full(toy.n_envs, START)
        self.clock = np.zeros(toy.n_envs, dtype=int)
        self.waiting = np.zeros(toy.n_envs, dtype=bool)

    def step(self, action: Array) -> tuple[Array, Array, Array, Array, Array]:
        """reward, terminated, truncated, valid, and the cell truly reached before any reset."""
        valid = ~self.waiting
        reward, terminated, reached = move(self.cell, action, self.generator.random(self.toy.n_envs))
        self.clock += 1
        terminated &= valid
        truncated = valid & ~terminated & (self.clock >= self.toy.time_limit)
        reward = np.where(valid & (self.toy.rewards == "goal"), reward, 0.0)
        ended = terminated | truncated
        reset = self.waiting | (ended if not self.toy.next_step_autoreset else False)
        self.cell = np.where(reset, START, reached)
        self.clock = np.where(reset, 0, self.clock)
        self.waiting = ended if self.toy.next_step_autoreset else np.zeros_like(ended)
        return reward.astype(F), terminated, truncated, valid, reached


def move(cell: Array, action: Array, chance: Array) -> tuple[Array, Array, Array]:
    """Actions 0 left, 1 stay, 2 right; one step in ten goes the other way."""
    shift = np.where(chance < 0.1, 1 - action, action - 1)
    reached = cell + shift
    terminated = (reached < 0) | (reached >= CELLS)
    return (reached >= CELLS).astype(float), terminated, np.clip(reached, 0, CELLS - 1)


class Adam:
    def __init__(self, shapes: dict[str, tuple[int, ...]]) -> None:
        self.first = {name: np.zeros(shape, F) for name, shape in shapes.items()}
        self.second = {name: np.zeros(shape, F) for name, shape in shapes.items()}
        self.count = 0

    def step(self, weights: dict[str, Array], gradients: dict[str, Array], rate: float) -> None:
        self.count += 1
        for name, gradient in gradients.items():
            self.first[name] = F(0.9) * self.first[name] + F(0.1) * gradient
            self.second[name] = F(0.999) * self.second[name] + F(0.001) * gradient**2
            mean = self.first[name] / F(1 - 0.9**self.count)
            size = np.sqrt(self.second[name] / F(1 - 0.999**self.count)) + F(1e-5)
            weights[name] = weights[name] - F(rate) * mean / size


def advantages(toy: Toy, roll: dict[str, Array]) -> Array:
    """GAE in float32, with the faults that real code has had."""
    gamma = 0.8 if toy.fault == "other gamma" else toy.gamma
    decay = gamma * (1.0 if toy.fault == "other lambda" else toy.gae_lambda)
    terminated, truncated = roll["terminated"], roll["truncated"]
    if toy.fault == "ends shifted":
        terminated, truncated = (np.concatenate([np.zeros_like(a[:1]), a[:-1]]) for a in (terminated, truncated))
    if toy.fault == "time limit as terminal":
        terminated, truncated = terminated | truncated, np.zeros_like(truncated)
    if toy.fault == "crossing episodes":
        terminated, truncated = np.zeros_like(terminated), np.zeros_like(truncated)
    last = np.zeros_like(roll["last_value"]) if toy.fault == "last value zero" else roll["last_value"]
    following = np.concatenate([roll["value"][1:], last[None]])
    result = np.zeros_like(roll["value"])
    carried = np.zeros_like(last)
    for t in reversed(range(toy.n_steps)):
        next_value = np.where(terminated[t], F(0), np.where(truncated[t], roll["final_value"][t], following[t]))
        delta = roll["reward"][t] + F(gamma) * next_value - roll["value"][t]
        carried = delta + F(decay) * np.where(terminated[t] | truncated[t], F(0), carried)
        result[t] = carried
    return (-result if toy.fault == "advantage sign" else result).astype(F)


class Trainer:
    """One run: collects, updates, and writes down what the events ask for."""

    def __init__(self, toy: Toy) -> None:
        self.toy = toy
        self.generator = np.random.default_rng([77, toy.seed])
        policy = self.generator.normal(0, 0.05, (CELLS, ACTIONS))
        if toy.start == "optimal":
            policy = policy + np.array([-2.0, 0.0, 3.0])
        if toy.start == "too greedy":
            policy = policy + np.array([4.0, 0.0, 0.0])
        self.weights = {"policy.table": policy.astype(F), "value.table": self.generator.normal(0, 0.1, CELLS).astype(F)}
        self.initial = {name: w.copy() for name, w in self.weights.items()}
        self.behaviour = self.weights["policy.table"].copy()
        self.adam = Adam({name: w.shape for name, w in self.weights.items()})
        self.world = Corridor(toy, self.generator)
        self.lengths = np.zeros(toy.n_envs, dtype=int)
        self.returns = np.zeros(toy.n_envs)
        self.steps_taken = 0
        constants = {
            name: getattr(toy, name)
            for name in [
                "gamma",
                "gae_lambda",
                "clip_range",
                "normalize_advantage",
                "entropy_coefficient",
                "value_coefficient",
                "n_steps",
                "epochs",
                "minibatch_size",
            ]
        }
        self.evidence = Evidence(
            run=RunStarted(
                producer="test",
                algorithm="ppo",
                environment="corridor",
                seed=toy.seed,
                metric="return",
                n_envs=toy.n_envs,
                constants=constants,
                parameters={name: int(w.size) for name, w in self.weights.items()},
                max_entropy=float(np.log(ACTIONS)),
            )
        )

    def rate(self, iteration: int) -> float:
        toy = self.toy
        done = iteration / max(1, toy.iterations - 1)
        if toy.fault == "learning rate 0":
            return 0.0
        if toy.fault == "schedule spent early":
            return toy.learning_rate * max(0.0, 1 - 3 * done)
        if toy.schedule == "to zero":
            return toy.learning_rate * (1 - done)
        if toy.schedule == "warm-up":
            return toy.learning_rate * min(1.0, iteration / 4)
        return toy.learning_rate

    def collect(self, iteration: int) -> dict[str, Array]:
        toy, table, value = self.toy, self.weights["policy.table"], self.weights["value.table"]
        names = ["cell", "action", "reward", "terminated", "truncated", "valid", "value", "final_value", "old_log_prob"]
        columns: dict[str, list[Array]] = {name: [] for name in names}
        probability = softmax(table)
        stored = np.log(softmax(self.behaviour)) if toy.fault == "stale log-probs" else np.log(probability)
        for _ in range(toy.n_steps):
            cell = self.world.cell
            action = (self.generator.random((toy.n_envs, 1)) > np.cumsum(probability[cell], axis=1)).sum(axis=1)
            action = np.minimum(action, ACTIONS - 1)
            reward, terminated, truncated, valid, reached = self.world.step(action)
            self._episodes(reward, terminated, truncated, valid, iteration)
            final = np.where(truncated, value[reached], F(0))
            row = (cell, action, reward, terminated, truncated, valid, value[cell], final, stored[cell, action])
            for name, values in zip(names, row, strict=True):
                columns[name].append(values)
        self.behaviour = table.copy()
        roll = {name: np.stack(values) for name, values in columns.items()}
        roll["last_value"] = value[self.world.cell]
        roll["advantage"] = advantages(toy, roll)
        roll["target"] = roll["advantage"] + roll["value"]
        if toy.fault == "shuffled rollout":
            flat = roll["advantage"][roll["valid"]]
            roll["advantage"][roll["valid"]] = self.generator.permutation(flat)
        return roll

    def _episodes(self, reward: Array, terminated: Array, truncated: Array, valid: Array, iteration: int) -> None:
        self.returns += reward
        self.lengths += valid
        for env in np.flatnonzero(terminated | truncated):
            self.evidence.episodes.append(
                Episode(
                    step=iteration * self.toy.n_steps * self.toy.n_envs,
                    env=int(env),
                    return_=float(self.returns[env]),
                    length=int(self.lengths[env]),
                    terminated=bool(terminated[env]),
                )
            )
            self.returns[env], self.lengths[env] = 0.0, 0

    def log_probs(self, cell: Array, action: Array) -> Array:
        return np.log(softmax(self.weights["policy.table"]))[cell, action]

    def gradients(self, batch: dict[str, Array]) -> tuple[dict[str, Array], dict[str, float]]:
        toy, size = self.toy, len(batch["cell"])
        probability = softmax(self.weights["policy.table"])[batch["cell"]]
        log_probability = np.log(probability)
        rows = np.arange(size)
        log_prob = log_probability[rows, batch["action"]]
        ratio = np.exp(log_prob - batch["old_log_prob"])
        advantage = -batch["advantage"] if toy.fault == "policy sign" else batch["advantage"]
        cut = np.where(advantage > 0, ratio > 1 + toy.clip_range, ratio < 1 - toy.clip_range)
        pull = np.where(cut, F(0), advantage * ratio) / F(size)
        entropy = -(probability * log_probability).sum(axis=1)
        by_logit = -pull[:, None] * (np.eye(ACTIONS, dtype=F)[batch["action"]] - probability)
        by_logit += F(toy.entropy_coefficient / size) * probability * (log_probability + entropy[:, None])
        table = np.zeros((CELLS, ACTIONS), F)
        np.add.at(table, batch["cell"], by_logit)
        error = self.weights["value.table"][batch["cell"]] - batch["target"]
        by_value = F(2 * toy.value_coefficient / size) * (-error if toy.fault == "value sign" else error)
        value = np.zeros(CELLS, F)
        np.add.at(value, batch["cell"], by_value)
        if toy.fault == "value without gradient":
            value[:] = 0
        policy_loss, value_loss = -float(np.mean(np.minimum(ratio, 1.2) * advantage)), float(np.mean(error**2))
        measured = {
            "policy_loss": policy_loss,
            "value_loss": value_loss,
            "entropy": float(entropy.mean()),
            "loss": policy_loss + toy.value_coefficient * value_loss - toy.entropy_coefficient * float(entropy.mean()),
            "approx_kl": float(np.mean(ratio - 1 - np.log(ratio))),
            "clip_fraction": float(np.mean(np.abs(ratio - 1) > toy.clip_range)),
        }
        return {"policy.table": table, "value.table": value}, measured

    def step(self, gradients: dict[str, Array], rate: float) -> None:
        if self.toy.fault == "no step":
            return
        before = self.weights["policy.table"]
        self.adam.step(self.weights, gradients, rate)
        if self.toy.fault == "policy in no optimizer":
            self.weights["policy.table"] = before

    def iterate(self, iteration: int) -> None:
        toy, rate = self.toy, self.rate(iteration)
        roll = self.collect(iteration)
        flat = {name: roll[name].reshape(-1) for name in ("cell", "action", "old_log_prob", "advantage", "target")}
        flat = {name: values.copy() for name, values in flat.items()}
        kept = np.ones(roll["valid"].size, bool) if toy.fault == "empty steps" else roll["valid"].reshape(-1)
        pool = np.flatnonzero(kept)
        if toy.fault == "shuffled minibatch":
            flat["advantage"][pool] = self.generator.permutation(flat["advantage"][pool])
        self._keep(Inspection(kind="rollout", update=iteration, optimizer_step=self.steps_taken), roll)
        start = {name: w.copy() for name, w in self.weights.items()}
        before_value = self.weights["value.table"][flat["cell"]]
        epochs: list[list[dict[str, float]]] = []
        per_epoch = max(1, len(pool) // toy.minibatch_size)
        chosen = set(np.linspace(0, per_epoch * toy.epochs - 1, toy.inspected_steps).astype(int).tolist())
        for epoch in range(toy.epochs):
            epochs.append([])
            for minibatch, rows in enumerate(np.array_split(self.generator.permutation(pool), per_epoch)):
                inspected = epoch * per_epoch + minibatch in chosen
                epochs[-1].append(self._gradient_step(iteration, epoch, minibatch, rows, flat, rate, inspected))
        rows = pool[: 2 * toy.minibatch_size]
        sample = {
            "row": rows,
            "old_log_prob": flat["old_log_prob"][rows],
            "log_prob_after": self.log_probs(flat["cell"][rows], flat["action"][rows]),
            "value_before": before_value[rows],
            "value_after": self.weights["value.table"][flat["cell"][rows]],
        }
        self._keep(Inspection(kind="iteration", update=iteration, optimizer_step=self.steps_taken), sample)
        self._update(iteration, rate, epochs, start, roll)

    def _gradient_step(
        self,
        iteration: int,
        epoch: int,
        minibatch: int,
        rows: Array,
        flat: dict[str, Array],
        rate: float,
        inspected: bool,
    ) -> dict[str, float]:
        toy = self.toy
        batch = {name: values[rows] for name, values in flat.items()}
        if toy.normalize_advantage:
            centred = batch["advantage"] - batch["advantage"].mean()
            batch["advantage"] = centred / (batch["advantage"].std(ddof=1) + F(1e-8))
        gradients, measured = self.gradients(batch)
        if toy.fault == "nan" and iteration == 5 and epoch == 0 and minibatch == 0:
            gradients["policy.table"] = gradients["policy.table"] * F(np.nan)
        before = dict(self.weights)
        sample = self._networks_say(batch, "before") if inspected else {}
        self.step(gradients, rate)
        norms = {name: float(np.linalg.norm(gradient)) for name, gradient in gradients.items()}
        if inspected:
            sample |= self._networks_say(batch, "after") | {"row": rows}
            sample |= {role: batch[role] for role in ("advantage", "target", "old_log_prob")}
            parameters = {
                name: [norms[name], float(np.linalg.norm(w)), float(np.linalg.norm(self.weights[name] - w))]
                for name, w in before.items()
            }
            self._keep(
                Inspection(
                    kind="gradient_step",
                    update=iteration,
                    optimizer_step=self.steps_taken,
                    epoch=epoch,
                    minibatch=minibatch,
                    learning_rate=rate,
                    parameters=parameters,
                ),
                sample,
            )
        self.steps_taken += 1
        return {
            **measured,
            "grad_norm": float(np.hypot(*norms.values())),
            **{f"{name}.grad": norm for name, norm in norms.items()},
        }

    def _networks_say(self, batch: dict[str, Array], when: str) -> dict[str, Array]:
        return {
            f"log_prob_{when}": self.log_probs(batch["cell"], batch["action"]),
            f"value_{when}": self.weights["value.table"][batch["cell"]],
        }

    def _keep(self, event: Inspection, arrays: dict[str, Array]) -> None:
        kept = {role: values.copy() for role, values in arrays.items() if role not in ("cell", "action")}
        self.evidence.held[len(self.evidence.inspections)] = kept
        self.evidence.inspections.append(replace(event, roles=sorted(kept)))

    def _update(
        self,
        iteration: int,
        rate: float,
        epochs: list[list[dict[str, float]]],
        start: dict[str, Array],
        roll: dict[str, Array],
    ) -> None:
        def per_epoch(name: str) -> list[float]:
            return [float(np.mean([step[name] for step in epoch])) for epoch in epochs]

        def distance(weights: dict[str, Array], name: str) -> float:
            return float(np.linalg.norm(self.weights[name] - weights[name]))

        modules = {
            name.split(".")[0]: ModuleChange(
                weight_norm=float(np.linalg.norm(self.weights[name])),
                weight_change=distance(self.initial, name),
                weight_step=distance(start, name),
                grad_norm=float(np.mean(per_epoch(f"{name}.grad"))),
                learning_rate=rate,
            )
            for name in self.weights
        }
        valid = roll["valid"]
        spread = float(np.var(roll["target"][valid]))
        error = float(np.var((roll["target"] - roll["value"])[valid]))
        self.evidence.updates.append(
            Update(
                index=iteration,
                step=(iteration + 1) * self.toy.n_steps * self.toy.n_envs,
                optimizer_steps=self.steps_taken,
                learning_rate=rate,
                loss=per_epoch("loss"),
                policy_loss=per_epoch("policy_loss"),
                value_loss=per_epoch("value_loss"),
                entropy=per_epoch("entropy"),
                grad_norm=per_epoch("grad_norm"),
                grad_norm_max=[max(step["grad_norm"] for step in epoch) for epoch in epochs],
                approx_kl=per_epoch("approx_kl"),
                clip_fraction=per_epoch("clip_fraction"),
                explained_variance=1 - error / spread if spread > 0 else float("nan"),
                advantage_mean=float(roll["advantage"][valid].mean()),
                advantage_std=float(roll["advantage"][valid].std()),
                weight_change=sum(change.weight_change for change in modules.values()),
                weight_step=sum(change.weight_step for change in modules.values()),
                modules=modules,
            )
        )


def play(table: Array, seeds: list[int], toy: Toy) -> list[float]:
    """Return of one episode per seed; the same seed meets the same chances whatever the policy."""
    chances = np.stack([np.random.default_rng(seed).random((toy.time_limit, 2)) for seed in seeds])
    probability = np.cumsum(softmax(table), axis=1)
    cell, alive, total = np.full(len(seeds), START), np.ones(len(seeds), bool), np.zeros(len(seeds))
    for t in range(toy.time_limit):
        action = np.minimum((chances[:, t, :1] > probability[cell]).sum(axis=1), ACTIONS - 1)
        reward, terminated, cell = move(cell, action, chances[:, t, 1])
        total += np.where(alive & (toy.rewards == "goal"), reward, 0.0)
        alive &= ~terminated
    return [float(score) for score in total]


def train(**changes: Any) -> ToyRun:
    """The run of these settings, the caller's own to change; made once for equal settings."""
    return copy.deepcopy(_train(Toy(**changes)))


@functools.lru_cache(maxsize=32)
def _train(toy: Toy) -> ToyRun:
    trainer = Trainer(toy)
    for iteration in range(toy.iterations):
        trainer.iterate(iteration)
        if not np.all(np.isfinite(trainer.weights["policy.table"])):
            trainer.evidence.faults.append(
                Fault(step=0, kind="not_finite", where="policy.table", summary="the gradient is NaN")
            )
            break
    trainer.evidence.stopped = RunStopped(
        step=trainer.evidence.updates[-1].step, rule="budget", reason="all steps done"
    )
    seeds = [int(s) for s in np.random.default_rng([5, toy.seed]).integers(0, 2**31, toy.proof_episodes)]
    scores = PairedScores(
        metric="return",
        seeds=seeds,
        initial=play(trainer.initial["policy.table"], seeds, toy),
        trained=play(np.nan_to_num(trainer.weights["policy.table"]), seeds, toy),
        random=play(np.zeros((CELLS, ACTIONS), F), seeds, toy),
        mode="sampled",
    )
    return ToyRun(trainer.evidence, scores)
