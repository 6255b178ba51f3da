"""Whole sweeps of little trainings: every trial is a run with a verdict, and no interruption loses one."""

import io
import json
import signal

import pytest
from rich.console import Console
from toy_environments import register_toys

from learnproof.config import Settings, load_settings, value_of
from learnproof.errors import RunFolderError, SettingsError, UnknownEnvironment, UnsupportedSpace
from learnproof.show.sweep_sheet import SweepSheet, TrialDisplay
from learnproof.sweeping.running import resume_sweep, sweep
from learnproof.sweeping.study import SweepStudy

SMALL = {
    "steps": 128,
    "policy.hidden": (8,),
    "env.n_envs": 2,
    "ppo.n_steps": 16,
    "ppo.minibatch_size": 16,
    "ppo.epochs": 2,
    "evaluation.every_steps": 32,
    "evaluation.episodes": 2,
    "checkpoint.every_steps": 32,
    "proof.episodes": 10,
}
PLAN = {"episodes": 4, "pruner": "none", "sampler": "random"}
ALLOCATION = {"env.id": "learnproof/TaskAllocation-v1", "env.kwargs": {"n_agents": 2}}


class Killed(BaseException):
    """What kill -9 is to a process: nothing that runs can answer it."""


class Sheet(SweepSheet):
    """Quiet; at a step of a trial it presses Ctrl-C, or lets the process die."""

    def __init__(self, trial=None, step=0, how=None):
        super().__init__(Console(file=io.StringIO(), width=100))
        self.at = trial, step, how

    def display_for(self, total_steps):
        sheet = self

        class Display(TrialDisplay):
            def update(self, status):
                trial, step, how = sheet.at
                if f"trial {trial}," in self.title and status.step is not None and status.step >= step:
                    sheet.at = None, 0, None
                    if how == "kill":
                        raise Killed
                    signal.raise_signal(signal.SIGINT)

        return lambda number, seed: Display(total_steps, f"trial {number}, seed {seed}", self.console)

    @property
    def text(self):
        return self.console.file.getvalue()


@pytest.fixture(autouse=True)
def _no_pictures(monkeypatch):
    """They take longer than these trainings."""
    monkeypatch.setattr("learnproof.training.verification.show_run", lambda *_: None)
    monkeypatch.setattr("learnproof.sweeping.running.sweep_png", lambda results: b"a picture")
    register_toys()


def run(path, space, changes=(), sheet=None, **options):
    settings = Settings().replace({**SMALL, **dict(changes)})
    return sweep(settings=settings, space=space, out=path, sheet=sheet or Sheet(), **{**PLAN, **options})


@pytest.mark.slow
def test_every_trial_is_a_run_with_a_verdict_and_all_is_written_down(tmp_path):
    space = {"ppo.learning_rate": "1e-4..1e-2:log", "policy.activation": ["relu", "tanh"]}
    result = run(tmp_path / "sweep", space, {"env.id": "CartPole-v1"}, trials=2, seeds=2)
    trials = result.results["trials"]
    assert [trial["number"] for trial in trials] == [0, 1]
    assert trials[0]["values"] == {"ppo.learning_rate": 3e-4, "policy.activation": "relu"}, (
        "the base settings come first"
    )
    for trial in trials:
        assert trial["state"] == "finished"
        assert trial["score"] == pytest.approx(sum(one["score"] for one in trial["runs"]) / 2)
        for seed, one in enumerate(trial["runs"]):
            folder = tmp_path / "sweep" / one["folder"]
            assert json.loads((folder / "verdict.json").read_text())["verdict"] == one["verdict"]
            settings = load_settings(folder / "config.toml")
            assert settings.seed == seed
            assert all(value_of(settings, name) == value for name, value in trial["values"].items())
            assert one["evaluations"][0][0] == 0
    assert json.loads((tmp_path / "sweep" / "results.json").read_text()) == result.results
    assert (tmp_path / "sweep" / "sweep.png").read_bytes() == b"a picture"
    proven = [trial for trial in trials if trial["verdict"] == "proven"]
    assert (result.best is not None) == bool(proven)
    assert result.exit_code == (0 if proven else 3)
    if result.best is not None:
        best = load_settings(tmp_path / "sweep" / "best.toml")
        assert value_of(best, "ppo.learning_rate") == result.best["values"]["ppo.learning_rate"]


@pytest.mark.slow
def test_a_sweep_stopped_and_killed_on_its_way_ends_as_one_that_was_left_alone(tmp_path):
    space = {"ppo.learning_rate": "1e-4..1e-2:log"}
    calm = run(tmp_path / "calm", space, ALLOCATION, trials=2)
    sheet = Sheet(trial=0, step=50, how="Ctrl-C")
    stopped = run(tmp_path / "hunted", space, ALLOCATION, sheet=sheet, trials=2)
    assert stopped.exit_code == 130
    assert stopped.results["trials"][-1]["state"] == "paused"
    assert "learnproof sweep --resume" in sheet.text
    with pytest.raises(Killed):
        resume_sweep(tmp_path / "hunted", sheet=Sheet(trial=1, step=100, how="kill"))
    sheet = Sheet()
    result = resume_sweep(tmp_path / "hunted", sheet=sheet)
    assert "trial 1 was killed" in sheet.text
    by_trial = [trial["interrupted"] for trial in result.results["trials"]]
    assert by_trial == [["SIGINT"], ["killed"]]

    def told(results):
        kept = ("number", "state", "verdict", "score", "values", "runs")
        return [{name: trial[name] for name in kept} for trial in results["trials"]]

    assert told(result.results) == told(calm.results)

    again = resume_sweep(tmp_path / "hunted", sheet=Sheet())
    assert again.results == result.results, "nothing is left to do"


def test_a_broken_trial_is_marked_and_never_the_best_its_healthy_twin_is_not(tmp_path):
    space = {"ppo.learning_rate": [3e-4, 0.0]}
    run(tmp_path / "sweep", space, {"env.id": "CartPole-v1"}, trials=1)
    result = resume_sweep(tmp_path / "sweep", trials=3, sheet=Sheet())
    assert len(result.results["trials"]) == 3
    by_rate = {trial["values"]["ppo.learning_rate"]: trial for trial in result.results["trials"]}
    assert (by_rate[0.0]["state"], by_rate[0.0]["verdict"], by_rate[0.0]["score"]) == ("broken", "broken", None)
    assert by_rate[3e-4]["state"] == "finished"
    assert by_rate[3e-4]["score"] is not None
    assert result.best is None or result.best["values"]["ppo.learning_rate"] != 0.0


def test_a_trial_whose_environment_fails_is_marked_and_the_sweep_goes_on(tmp_path):
    space = {"env.kwargs.fault": ["none", "nan reward"]}
    result = run(tmp_path / "sweep", space, {"env.id": "toy/Faulty-v0", "env.kwargs": {"fault": "none"}}, trials=3)
    states = {trial["values"]["env.kwargs.fault"]: trial["state"] for trial in result.results["trials"]}
    assert states == {"none": "finished", "nan reward": "failed"}
    assert all(trial["note"] for trial in result.results["trials"] if trial["state"] == "failed")


def test_a_trial_that_falls_behind_is_given_up_early_and_judged_all_the_same(tmp_path, monkeypatch):
    monkeypatch.setattr(SweepStudy, "report", lambda self, asked, rung, score: asked.number == 1 and rung >= 2)
    result = run(tmp_path / "sweep", {"ppo.gamma": "0.9..1"}, {"env.id": "CartPole-v1"}, trials=2)
    whole, pruned = result.results["trials"]
    assert (whole["state"], pruned["state"]) == ("finished", "pruned")
    assert (whole["runs"][0]["steps"], pruned["runs"][0]["steps"]) == (128, 64)
    assert pruned["runs"][0]["stopped"] == "pruned"
    assert pruned["verdict"] in ("proven", "unproven")
    assert result.best is None or result.best["number"] == 0


@pytest.mark.parametrize(
    ("space", "changes", "error"),
    [
        ({"ppo.gama": "0.9..1"}, {"env.id": "CartPole-v1"}, SettingsError),
        ({"ppo.gamma": "0.9..1"}, {"env.id": "CartPol-v1"}, UnknownEnvironment),
        ({"dqn.gamma": "0.9..1"}, {"env.id": "Pendulum-v1", "algorithm": "dqn"}, UnsupportedSpace),
        ({"ppo.gamma": "0.9..1"}, {"env.id": "CartPole-v1", "proof.waive": {"nothing": "x"}}, SettingsError),
    ],
)
def test_what_is_wrong_with_every_trial_is_said_before_the_first(tmp_path, space, changes, error):
    with pytest.raises(error):
        run(tmp_path / "sweep", space, changes)
    assert not (tmp_path / "sweep").exists()


def test_only_a_sweep_can_be_gone_on_with(tmp_path):
    with pytest.raises(RunFolderError, match="no sweep in"):
        resume_sweep(tmp_path)
