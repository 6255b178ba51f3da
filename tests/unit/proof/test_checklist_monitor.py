"""The live monitor: looks every so many episodes, in constant memory, and says once what has gone wrong."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import pytest
from synthetic import train

from learnproof.evidence import Episode, Event, Evidence, Update
from learnproof.proof import ChecklistMonitor, MonitorLook, look
from learnproof.proof.classic import RULES
from learnproof.proof.monitor import History


def in_order(evidence: Evidence) -> list[Event]:
    """Updates and the episodes that ended before them, as a training loop would tell them."""
    return sorted([*evidence.episodes, *evidence.updates], key=lambda event: (event.step, isinstance(event, Update)))


def monitor(
    evidence: Evidence, profile: Literal["default", "classic"] = "default", every: int = 10
) -> ChecklistMonitor:
    return ChecklistMonitor(evidence.run, check_every_episodes=every, profile=profile)


def looks_of(watcher: ChecklistMonitor, events: Iterable[Event]) -> list[MonitorLook]:
    return [said for event in events if (said := watcher.feed(event)) is not None]


@pytest.mark.parametrize("count", [0, 10, 11, 20, 21, 49, 50, 51, 99, 100, 101, 102, 103, 150, 400])
@pytest.mark.parametrize("at_once", [1, 7, 60, 400])
def test_the_shortened_history_answers_every_rule_as_the_whole_would(count: int, at_once: int) -> None:
    records = np.random.default_rng(count).normal(1, 1, count).tolist()
    history = History()
    for start in range(0, count, at_once):
        history.extend(records[start : start + at_once])
    assert len(history.records()) <= 101
    for name, rule in RULES.items():
        assert rule(history.records()) == rule(records), name


def test_it_looks_every_ten_episodes_and_agrees_with_a_look_at_the_evidence() -> None:
    evidence = train(iterations=30).evidence
    said = looks_of(monitor(evidence, every=10), [*evidence.updates, *evidence.episodes])
    assert len(said) == len(evidence.episodes) // 10
    assert [one.look.episodes for one in said[:3]] == [10, 20, 30]
    evidence.episodes = evidence.episodes[: said[-1].look.episodes]
    expected = look(evidence).to_json()
    assert {name: getattr(said[-1].look, name) for name in expected} == expected


def test_a_look_before_there_are_enough_records_says_neither_yes_nor_no() -> None:
    evidence = train().evidence
    first = looks_of(monitor(evidence), evidence.episodes[:10])[0]
    assert first.look.weights_changing is None
    assert first.newly_wrong == []


def test_a_healthy_run_is_left_in_peace() -> None:
    evidence = train(iterations=30).evidence
    assert [s for one in looks_of(monitor(evidence), in_order(evidence)) for s in one.newly_wrong] == []


def test_weights_that_do_not_move_are_said_once_and_as_soon_as_known() -> None:
    evidence = train(fault="learning rate 0", iterations=30).evidence
    said = looks_of(monitor(evidence), in_order(evidence))
    spoken = [(one.look.step, sentence) for one in said for sentence in one.newly_wrong]
    assert len(spoken) == 1
    assert "weights_changing" in spoken[0][1]
    assert spoken[0][0] <= evidence.updates[12].step


def test_what_recovers_and_goes_wrong_again_is_said_again() -> None:
    evidence = train(iterations=40).evidence
    norms = [0.0 if 11 <= update.index < 14 or update.index >= 30 else 1.0 for update in evidence.updates]
    evidence.updates = [replace(u, grad_norm=[norm] * 4) for u, norm in zip(evidence.updates, norms, strict=True)]
    spoken = [s for one in looks_of(monitor(evidence, every=1), in_order(evidence)) for s in one.newly_wrong]
    assert len([s for s in spoken if "gradients_flowing" in s]) == 2


def test_only_the_classic_profile_speaks_of_entropy_loss_and_performance() -> None:
    evidence = train(fault="policy sign", iterations=30, entropy_coefficient=0.0).evidence
    evidence.updates = [replace(update, entropy=[1.0] * 4, loss=[1.0] * 4) for update in evidence.updates]
    spoken = {
        profile: [s for one in looks_of(monitor(evidence, profile), in_order(evidence)) for s in one.newly_wrong]
        for profile in ("default", "classic")
    }
    assert spoken["default"] == []
    for name in ("entropy_decreasing", "loss_improving"):
        assert any(name in sentence for sentence in spoken["classic"])


def test_a_number_that_is_not_finite_is_said_once_in_every_profile() -> None:
    evidence = train(iterations=6).evidence
    evidence.updates[1] = replace(evidence.updates[1], loss=[float("nan")] * 4)
    said = looks_of(monitor(evidence), in_order(evidence))
    spoken = [s for one in said for s in one.newly_wrong]
    assert len(spoken) == 1
    assert "update 1: loss" in spoken[0]


def test_a_monitor_that_is_fed_the_same_events_again_goes_on_as_if_never_interrupted() -> None:
    evidence = train(fault="learning rate 0", iterations=30).evidence
    evidence.updates[3] = replace(evidence.updates[3], loss=[float("nan")] * 4)
    events = in_order(evidence)
    expected = looks_of(monitor(evidence), events)
    for cut in (77, 400):
        resumed = monitor(evidence)
        before = looks_of(resumed, events[:cut])
        assert [*before, *looks_of(resumed, events[cut:])] == expected


def test_events_of_other_kinds_are_passed_over() -> None:
    evidence = train().evidence
    events: list[Any] = [evidence.run, evidence.inspections[0], evidence.stopped]
    assert looks_of(monitor(evidence, every=1), events) == []
    assert isinstance(evidence.episodes[0], Episode)
    assert len(looks_of(monitor(evidence, every=1), evidence.episodes[:1])) == 1
