"""The stopping rules stop when they should and only then, and remember over a restart."""

from learnproof.config import StoppingSettings
from learnproof.training.stopping import Stopping


def stops(settings, scores):
    stopping = Stopping(settings)
    for position, score in enumerate(scores):
        stop = stopping.observe(score)
        if stop is not None:
            return position, stop.rule
    return None


def test_a_flat_reward_stops_after_patience_evaluations_without_improvement():
    settings = StoppingSettings(plateau_patience=2)
    assert stops(settings, [1.0, 1.0, 1.0, 1.0]) == (2, "plateau")
    assert stops(settings, [1.0, 1.0005, 1.0009, 1.0]) == (2, "plateau")


def test_an_improving_reward_does_not_stop():
    assert stops(StoppingSettings(plateau_patience=2), [0.1 * k for k in range(50)]) is None


def test_patience_zero_switches_the_plateau_off():
    assert stops(StoppingSettings(plateau_patience=0, decline_patience=0), [1.0] * 100) is None


def test_the_target_stops_when_reached_and_not_before():
    settings = StoppingSettings(target=475.0)
    assert stops(settings, [10.0, 474.9, 475.0]) == (2, "target")


def test_a_lasting_decline_stops_and_a_passing_dip_does_not():
    settings = StoppingSettings(plateau_patience=0, decline_patience=2, decline_fraction=0.5)
    assert stops(settings, [0.0, 100.0, 40.0, 40.0]) == (3, "decline")
    assert stops(settings, [0.0, 100.0, 40.0, 60.0, 40.0, 60.0]) is None
    assert stops(settings, [-5.0, -5.0, -6.0, -7.0, -8.0]) is None


def test_patience_goes_on_counting_after_a_restart():
    settings = StoppingSettings(plateau_patience=3)
    first = Stopping(settings)
    for score in (5.0, 5.0, 5.0):
        assert first.observe(score) is None
    second = Stopping(settings)
    second.load(first.state())
    stop = second.observe(5.0)
    assert stop is not None
    assert stop.rule == "plateau"


def test_before_a_curriculum_has_reached_the_full_task_only_the_target_stops():
    stopping = Stopping(StoppingSettings(plateau_patience=1, decline_patience=1, target=9.0))
    assert [stopping.observe(score, waiting=True) for score in (1.0, 5.0, 1.0, 1.0)] == [None] * 4
    assert stopping.observe(1.0).rule == "decline"
    assert stopping.observe(9.0, waiting=True).rule == "target"
