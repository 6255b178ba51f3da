"""Each setting gives the schedule that it names, and each schedule has the shape that it promises."""

import pytest

from learnproof.algorithms.schedules import (
    ConstantSchedule,
    CosineSchedule,
    LinearSchedule,
    PlateauSchedule,
    WarmUp,
    make_schedule,
)
from learnproof.config import ScheduleSettings


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"kind": "constant"}, ConstantSchedule),
        ({"kind": "linear"}, LinearSchedule),
        ({"kind": "cosine"}, CosineSchedule),
        ({"kind": "plateau"}, PlateauSchedule),
        ({"kind": "cosine", "warmup_fraction": 0.1}, WarmUp),
        ({}, LinearSchedule),
    ],
)
def test_each_setting_gives_the_type_it_names(changes, expected):
    assert type(make_schedule(ScheduleSettings(**changes))) is expected


@pytest.mark.parametrize("kind", ["linear", "cosine"])
def test_decays_begin_at_one_and_end_at_a_tenth_and_never_rise(kind):
    schedule = make_schedule(ScheduleSettings(kind=kind))
    factors = [schedule.factor(p / 100) for p in range(101)]
    assert factors[0] == pytest.approx(1.0)
    assert factors[-1] == pytest.approx(0.1)
    assert factors == sorted(factors, reverse=True)
    assert schedule.factor(1.5) == pytest.approx(0.1)


def test_warm_up_rises_from_a_tenth_and_then_hands_over():
    schedule = make_schedule(ScheduleSettings(kind="linear", warmup_fraction=0.2))
    assert schedule.factor(0.0) == pytest.approx(0.1), "the first rollout is learnt from, too"
    assert schedule.factor(0.1) == pytest.approx(0.55)
    assert schedule.factor(0.2) == pytest.approx(1.0)
    assert schedule.factor(1.0) == pytest.approx(0.1)


@pytest.mark.parametrize("kind", ["constant", "linear", "cosine", "plateau"])
def test_every_kind_can_be_warmed_up_and_never_leaves_0_to_1(kind):
    schedule = make_schedule(ScheduleSettings(kind=kind, warmup_fraction=0.3))
    factors = [schedule.factor(p / 100) for p in range(101)]
    assert all(0 < factor <= 1 for factor in factors)
    assert factors[:31] == sorted(factors[:31])
    assert factors[30] == pytest.approx(1.0)


def test_cosine_falls_slowly_first_and_last():
    schedule = make_schedule(ScheduleSettings(kind="cosine", final_fraction=0.0))
    fall = [schedule.factor(p / 4) - schedule.factor((p + 1) / 4) for p in range(4)]
    assert fall[0] == pytest.approx(fall[3])
    assert fall[1] > 2 * fall[0]
    assert schedule.factor(0.5) == pytest.approx(0.5)


def test_plateau_hears_of_evaluations_through_its_warm_up():
    schedule = make_schedule(ScheduleSettings(kind="plateau", plateau_patience=1, warmup_fraction=0.2))
    for score in (1.0, 0.0):
        schedule.observe(score)
    assert schedule.factor(0.5) == 0.5
    again = make_schedule(ScheduleSettings(kind="plateau", plateau_patience=1, warmup_fraction=0.2))
    again.load(schedule.state())
    assert again.factor(0.5) == 0.5


def test_plateau_cuts_after_patience_and_goes_on_after_a_restart():
    settings = ScheduleSettings(kind="plateau", plateau_patience=2, plateau_factor=0.5, final_fraction=0.2)
    first = make_schedule(settings)
    for score in (1.0, 1.0):
        first.observe(score)
    assert first.factor(0.5) == 1.0
    second = make_schedule(settings)
    second.load(first.state())
    second.observe(0.5)
    assert second.factor(0.5) == 0.5
    for score in (0.0,) * 10:
        second.observe(score)
    assert second.factor(0.5) == 0.2
    second.observe(9.0)
    assert second.factor(0.5) == 0.2
