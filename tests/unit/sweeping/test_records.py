"""The best trial is the proven one of the highest score, and a plan is the same after it was written down."""

import json
import tomllib

import pytest
from sample_sweep import mixed, mixed_results, plan, trial

from learnproof.errors import RunFolderError, SettingsError
from learnproof.sweeping.plan import SweepFolder, SweepPlan, check_plan
from learnproof.sweeping.records import joint_verdict


def test_the_best_is_proven_whatever_scores_higher():
    body = mixed_results()
    assert body["best"] == 1
    assert body["ranking"][:3] == [1, 0, 3]
    assert set(body["ranking"][3:5]) == {4, 6}
    json.dumps(body, allow_nan=False)


def test_no_best_where_none_is_proven():
    body = mixed_results([one for one in mixed() if one["verdict"] != "proven" or one["state"] != "finished"])
    assert body["best"] is None


@pytest.mark.parametrize(
    ("verdicts", "expected"),
    [
        (["proven", "proven"], "proven"),
        (["proven", "unproven"], "unproven"),
        (["proven", "broken"], "broken"),
        (["unproven"], "unproven"),
        ([], "unproven"),
    ],
)
def test_a_trial_is_proven_where_all_its_seeds_are(verdicts, expected):
    assert joint_verdict(verdicts) == expected


def test_tendencies_are_told_of_numbers_from_five_trials_on():
    rising = [trial(n, 10.0 * n, rate=1e-4 * (n + 1)) for n in range(6)]
    found = mixed_results(rising)["tendencies"]
    assert found["ppo.learning_rate"]["rank_correlation"] == pytest.approx(1.0)
    assert "policy.activation" not in found
    assert mixed_results(rising[:4])["tendencies"] == {}
    assert "ppo.learning_rate" not in mixed_results([trial(n, 5.0) for n in range(6)])["tendencies"]


def test_a_plan_is_the_same_after_it_was_written_down(tmp_path):
    made = plan(trials=7, seeds=2, sampler="random")
    folder = SweepFolder.create(tmp_path / "sweep", made)
    assert folder.read_plan() == made
    assert SweepFolder.open(tmp_path / "sweep").read_plan().digest() == made.digest()
    assert "dqn" not in tomllib.loads(folder.plan.read_text())["settings"], "only the algorithm that is used"


def test_a_folder_is_not_used_twice_and_a_stranger_is_no_sweep(tmp_path):
    SweepFolder.create(tmp_path / "sweep", plan())
    with pytest.raises(RunFolderError, match="learnproof sweep --resume"):
        SweepFolder.create(tmp_path / "sweep", plan())
    (tmp_path / "holiday").mkdir()
    (tmp_path / "holiday" / "photo.jpg").write_text("")
    with pytest.raises(RunFolderError, match="not empty"):
        SweepFolder.create(tmp_path / "holiday", plan())
    with pytest.raises(RunFolderError, match="no sweep in"):
        SweepFolder.open(tmp_path / "holiday")
    (tmp_path / "file").write_text("")
    with pytest.raises(RunFolderError, match="cannot hold a sweep"):
        SweepFolder.create(tmp_path / "file", plan())


def test_two_processes_do_not_sweep_in_one_folder(tmp_path):
    folder = SweepFolder.create(tmp_path / "sweep", plan())
    with folder.lock(), pytest.raises(RunFolderError, match="is in use"), SweepFolder.open(tmp_path / "sweep").lock():
        pass
    with folder.lock():
        pass


@pytest.mark.parametrize("text", ["trials = 0", "[settings.ppo]\ngama = 1", "space = 3", "[["])
def test_a_plan_that_was_spoilt_is_refused(tmp_path, text):
    folder = SweepFolder.create(tmp_path / "sweep", plan())
    folder.plan.write_text(text)
    with pytest.raises(SettingsError):
        folder.read_plan()


def test_a_plan_that_no_trial_could_follow_is_refused():
    check_plan(plan())
    with pytest.raises(SettingsError, match="Nothing is searched"):
        check_plan(SweepPlan())
    blind = plan().settings.replace({"evaluation.every_steps": 0})
    with pytest.raises(SettingsError, match="--pruner none"):
        check_plan(plan(settings=blind))
    check_plan(plan(settings=blind, pruner="none"))
