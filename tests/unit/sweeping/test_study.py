"""Optuna's side: values survive the storage, an interrupted study asks for the same, trials that fall behind are given up."""

import sys

import pytest
from sample_sweep import plan

from learnproof.errors import MissingExtra, RunFolderError, SettingsError
from learnproof.sweeping.study import SweepStudy, decoded, encoded

SEARCHED = {
    "ppo.learning_rate": "1e-4..1e-3:log",
    "ppo.n_steps": "512..4096:doubling",
    "ppo.epochs": "1..20:log",
    "ppo.target_kl": ["none", 0.01, 0.03],
    "policy.hidden": [[64, 64], [256, 256]],
}


def test_values_are_settings_again_after_the_storage(tmp_path):
    study = SweepStudy(tmp_path / "study.db", plan(space=SEARCHED, sampler="random"))
    settings = plan().settings
    seen = set()
    for _ in range(12):
        asked = study.ask()
        changed = settings.replace(asked.values)
        assert changed.ppo.n_steps in (512, 1024, 2048, 4096)
        assert changed.policy.hidden in ((64, 64), (256, 256), (256, 256, 128))
        assert isinstance(asked.values["ppo.epochs"], int)
        for name, dimension in study.space.items():
            assert decoded(dimension, encoded(dimension, asked.values[name])) == pytest.approx(asked.values[name])
        seen.add(changed.ppo.target_kl)
        study.finish(asked, 1.0)
    assert seen == {None, 0.01, 0.03}


def test_the_first_trial_is_the_base_settings(tmp_path):
    study = SweepStudy(tmp_path / "study.db", plan())
    assert study.ask().values == {"ppo.learning_rate": 3e-4, "policy.activation": "relu", "ppo.n_steps": 2048}


@pytest.mark.parametrize("sampler", ["tpe", pytest.param("random", marks=pytest.mark.thorough)])
def test_a_study_that_was_reopened_asks_for_the_same_trials(tmp_path, sampler):
    def scores(asked):
        return -abs(asked.values["ppo.learning_rate"] - 5e-4)

    calm = SweepStudy(tmp_path / "calm.db", plan(sampler=sampler))
    hunted = SweepStudy(tmp_path / "hunted.db", plan(sampler=sampler))
    for position in range(13):
        if position % 4 == 3:
            hunted = SweepStudy(tmp_path / "hunted.db", plan(sampler=sampler))
        pair = calm.ask(), hunted.ask()
        assert pair[0].values == pair[1].values
        for study, asked in zip((calm, hunted), pair, strict=True):
            study.finish(asked, scores(asked))


def test_what_a_kill_left_running_is_found_with_its_values_notes_and_reports(tmp_path):
    study = SweepStudy(tmp_path / "study.db", plan())
    study.finish(study.ask(), 1.0)
    lost = study.ask()
    study.report(lost, 0, 5.0)
    study.note(lost, "scores", {"0": 5.0})
    del study
    again = SweepStudy(tmp_path / "study.db", plan())
    (found,) = again.left_behind()
    assert (found.number, found.values, found.notes) == (lost.number, lost.values, {"scores": {"0": 5.0}})
    again.report(found, 0, 7.0)
    again.report(found, 2, 9.0)
    assert again._study.trials[1].intermediate_values == {0: 5.0, 1: 5.0, 2: 9.0}, "what was told before stands"
    again.finish(found, 9.0)
    assert again.left_behind() == []
    assert again.ended() == 2


def test_trials_that_fall_behind_are_given_up_and_good_ones_are_not(tmp_path):
    study = SweepStudy(tmp_path / "study.db", plan(prune_after=2, prune_from=0.2))
    assert study.plan.rungs == 10
    for good in (10.0, 12.0, 14.0):
        asked = study.ask()
        assert not any(study.report(asked, rung, good * rung) for rung in range(11))
        study.finish(asked, 10 * good)
    bad, better = study.ask(), study.ask()
    answers = [study.report(bad, rung, 1.0 * rung) for rung in range(5)]
    assert answers == [False, False, True, True, True], "not before a fifth of the budget"
    assert not any(study.report(better, rung, 20.0 * rung) for rung in range(11))
    study.give_up(bad)
    study.finish(better, 200.0)
    assert study.ended() == 5


def test_without_a_pruner_nothing_is_given_up(tmp_path):
    study = SweepStudy(tmp_path / "study.db", plan(pruner="none", prune_after=1, prune_from=0))
    first = study.ask()
    study.report(first, 1, 100.0)
    study.finish(first, 100.0)
    assert not study.report(study.ask(), 1, -100.0)


def test_rollouts_that_pass_over_an_evaluation_are_compared_all_the_same(tmp_path):
    study = SweepStudy(tmp_path / "study.db", plan(prune_after=1, prune_from=0))
    first = study.ask()
    for rung in range(5):
        study.report(first, rung, 50.0)
    study.finish(first, 50.0)
    second = study.ask()
    study.report(second, 0, 60.0)
    assert not study.report(second, 4, 60.0)
    assert study._study.trials[1].intermediate_values == {0: 60.0, 1: 60.0, 2: 60.0, 3: 60.0, 4: 60.0}


def test_another_plan_is_refused_but_for_the_number_of_trials(tmp_path):
    SweepStudy(tmp_path / "study.db", plan())
    SweepStudy(tmp_path / "study.db", plan(trials=99))
    with pytest.raises(SettingsError, match="only `trials` may change"):
        SweepStudy(tmp_path / "study.db", plan(space={"ppo.gamma": "0.9..1"}))


def test_a_damaged_storage_is_refused(tmp_path):
    (tmp_path / "study.db").write_bytes(b"SQLite format 3\0" + b"nonsense" * 1000)
    with pytest.raises(RunFolderError, match="cannot be used as a sweep's storage"):
        SweepStudy(tmp_path / "study.db", plan())


def test_without_optuna_the_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(MissingExtra, match=r"learnproof\[sweep\]"):
        SweepStudy(tmp_path / "study.db", plan())
