"""Which questions about the updates must have been answered with yes before a mechanism is called working.

Absence of findings proves nothing: a better policy may be luck. So one question about the *direction* of the updates must have
passed for everything that is being trained, and one about *targets or identity*, on enough gradient steps.

    declared: PPO, REINFORCE                policy_direction; advantages_recomputed or ratio_is_one
    declared: DQN, SAC                      value_direction; targets_recomputed; target_network_follows; SAC: actor_climbs
    watched: a policy on its rollouts       policy_direction; returns_recomputed or ratio_is_one
    watched: a language model's tokens      policy_direction; ratio_is_one or tokens_masked; policy_looks
    watched: values from a memory           value_direction; bootstrap_recomputed; target_networks, where there are any
    watched: an actor through a critic      as values from a memory, and actor_climbs
    watched: labels, and no values          labels_direction; distributions_fit
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Mapping, Sequence

from ..evidence import Evidence
from .check import Finding
from .seen import seen
from .seen.tokens import token_losses

MIN_INSPECTED_STEPS = 8
"""Gradient steps that must have been looked at before a mechanism is called working."""


def missing_quorum(evidence: Evidence, findings: Sequence[Finding], waived: Container[str] = ()) -> list[str]:
    """What the quorum lacks, as sentences; empty where it is met."""
    by_name = {finding.check: finding for finding in findings}
    steps = sum(gradient_steps_inspected(evidence).values())
    missing = []
    if steps < MIN_INSPECTED_STEPS:
        missing.append(
            f"{steps} gradient steps were inspected and {MIN_INSPECTED_STEPS} are needed: {MIN_INSPECTED_STEPS - steps} more."
        )
    for alternatives in _questions(evidence, by_name):
        asked = [by_name[name] for name in alternatives]
        if all(finding.status != "pass" for finding in asked):
            could = [finding for finding in asked if finding.status != "not_applicable"]
            missing += [lacks(finding, waived) for finding in could or asked]
    return missing


def _questions(evidence: Evidence, by_name: Mapping[str, Finding]) -> list[tuple[str, ...]]:
    """One of each tuple must have passed."""
    questions = _by_kind(evidence, by_name)
    looks = by_name.get("policy_looks")
    if looks is not None and looks.status == "undecided" and "observations_lost" in looks.figures:
        questions.append(("policy_looks",))
    return questions


def _by_kind(evidence: Evidence, by_name: Mapping[str, Finding]) -> list[tuple[str, ...]]:
    if not evidence.of_watcher:
        temporal: list[tuple[str, ...]] = [("value_direction",), ("targets_recomputed",), ("target_network_follows",)]
        match evidence.run.algorithm:
            case "dqn":
                return temporal
            case "sac":
                return [*temporal, ("actor_climbs",)]
        return [("policy_direction",), ("advantages_recomputed", "ratio_is_one")]
    if seen(evidence).on_policy:
        return [("policy_direction",), ("returns_recomputed", "ratio_is_one")]
    if token_losses(seen(evidence)):
        return [("policy_direction",), ("ratio_is_one", "tokens_masked"), ("policy_looks",)]
    labels, values = by_name["labels_direction"].status, by_name["value_direction"].status
    if labels != "not_applicable" and values == "not_applicable":
        return [("labels_direction",), ("distributions_fit",)]
    questions: list[tuple[str, ...]] = [("value_direction",), ("bootstrap_recomputed",)]
    questions += [(name,) for name in ("target_networks", "actor_climbs") if by_name[name].status != "not_applicable"]
    return questions


def lacks(finding: Finding, waived: Container[str] = ()) -> str:
    if finding.check in waived:
        return f"{finding.check} is waived, which keeps it from counting against the run, and does not count for it."
    return f"{finding.check} has not passed. {finding.summary} {finding.advice}".rstrip()


def gradient_steps_inspected(evidence: Evidence) -> Counter[int]:
    """update -> gradient steps that were looked at closely in it."""
    if evidence.of_watcher:
        return Counter(dict.fromkeys({loss.update for loss in seen(evidence).training_losses}, 1))
    return Counter(event.update for event in evidence.inspections if event.kind == "gradient_step")


def gradient_steps(evidence: Evidence) -> int:
    if evidence.of_watcher:
        return seen(evidence).updates
    return evidence.updates[-1].optimizer_steps if evidence.updates else 0
