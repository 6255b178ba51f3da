"""A watched run in the terms of one of our own: what pictures, the report and the classic rules read.

A watcher measures optimizer steps, not iterations. Each measured step stands here as one `Update` with one entry per list;
what a watcher cannot know (explained variance, clip fraction) is left out. Checks of the mechanism do not read this: they ask
for what was really seen.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import takewhile

from .events import ModuleChange, Update
from .reader import Evidence
from .watched import EnvironmentSeen, EnvironmentTotals, LossSeen, OptimizerSeen, OptimizerStep, OptimizerTotals

NAN = float("nan")


class MeasuredUpdates(list[Update]):
    """Kept in Evidence.derived under this type."""


def measured_updates(evidence: Evidence) -> list[Update]:
    """The run's own updates; of a watched run, its measured optimizer steps."""
    if evidence.updates or not evidence.of_watcher:
        return evidence.updates
    known = evidence.derived.get(MeasuredUpdates)
    if known is None:
        known = evidence.derived[MeasuredUpdates] = _of_steps(evidence)
    updates: list[Update] = known
    return updates


def count_updates(evidence: Evidence) -> int:
    totals = sum(total.steps for total in evidence.of(OptimizerTotals))
    return max(totals, len(measured_updates(evidence)))


def optimizer_names(evidence: Evidence) -> dict[int, str]:
    """Of a watched run with several optimizers: what each of them trains."""
    owned = {event.index: event.owns for event in evidence.of(OptimizerSeen)}
    busy = {step.optimizer for step in evidence.of(OptimizerStep)}
    names = {index: _shared_name(owns) or f"optimizer {index}" for index, owns in owned.items() if index in busy}
    if len(set(names.values())) < len(names):
        names = {index: f"{name} ({index})" for index, name in names.items()}
    return names if len(names) > 1 else {}


def environment_of(evidence: Evidence) -> str:
    """The environment's name; of a watched run, of the one in which most steps were made."""
    seen = {(event.process, event.index): event for event in evidence.of(EnvironmentSeen)}
    if not evidence.of_watcher or not seen:
        return evidence.run.environment
    steps = {(event.process, event.index): event.steps for event in evidence.of(EnvironmentTotals)}
    most = max(seen, key=lambda key: steps.get(key, 0))
    return seen[most].id or seen[most].kind


def _of_steps(evidence: Evidence) -> MeasuredUpdates:
    steps = evidence.of(OptimizerStep)
    process = Counter(step.process for step in steps).most_common(1)[0][0] if steps else 0
    entropies: dict[int, list[float]] = defaultdict(list)
    for loss in evidence.of(LossSeen):
        if loss.process == process:
            entropies[loss.update] += [float(entropy["mean"]) for entropy in loss.entropies if "mean" in entropy]
    by_update = not any(step.env_steps for step in steps)
    latest: dict[str, float] = {}
    updates = MeasuredUpdates()
    for step in steps:
        if step.process != process or not step.parameters:
            continue
        latest.update(step.distances)
        rate = next((rate for rate in step.learning_rates if rate is not None), NAN)
        entropy = entropies.get(step.update, [])
        updates.append(
            Update(
                index=step.update,
                step=step.update if by_update else step.env_steps,
                optimizer_steps=step.update + 1,
                optimizer=step.optimizer,
                learning_rate=rate,
                loss=[] if step.loss is None else [step.loss],
                policy_loss=[],
                value_loss=[],
                entropy=[sum(entropy) / len(entropy)] if entropy else [],
                grad_norm=[step.grad_norm],
                grad_norm_max=[step.grad_norm],
                approx_kl=[],
                clip_fraction=[],
                explained_variance=NAN,
                advantage_mean=NAN,
                advantage_std=NAN,
                weight_change=sum(latest.values()),
                weight_step=step.step_sum,
                modules=_modules(step, latest, rate),
            )
        )
    return updates


def _modules(step: OptimizerStep, distances: dict[str, float], rate: float) -> dict[str, ModuleChange]:
    members: dict[str, list[str]] = defaultdict(list)
    for parameter in step.parameters:
        members[_module_of(parameter)].append(parameter)
    return {
        module: ModuleChange(
            weight_norm=sum(step.parameters[name][1] ** 2 for name in names) ** 0.5,
            weight_change=sum(distances.get(name, 0.0) for name in names),
            weight_step=sum(step.parameters[name][2] for name in names),
            grad_norm=sum(step.parameters[name][0] ** 2 for name in names) ** 0.5,
            learning_rate=rate,
        )
        for module, names in members.items()
    }


def _shared_name(parameters: list[str]) -> str:
    """What the names of an optimizer's parameters have in common; the first two modules where that is nothing."""
    parts = [name.split(".")[:-1] or [name] for name in parameters]
    shared = [level[0] for level in takewhile(lambda level: len(set(level)) == 1, zip(*parts, strict=False))]
    if shared:
        return ".".join(takewhile(lambda part: not part.isdigit(), shared)) or shared[0]
    modules = list(dict.fromkeys(part[0] for part in parts))
    return ", ".join(modules[:2]) + (", ..." if len(modules) > 2 else "")


def _module_of(parameter: str) -> str:
    """agent.actor for agent.actor.0.weight: what stands before the first number, or before the tensor's own name."""
    parts = parameter.split(".")[:-1]
    return ".".join(takewhile(lambda part: not part.isdigit(), parts)) or parameter
