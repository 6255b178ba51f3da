"""Ctrl-C, again and again, changes nothing: the run ends in the same bytes as one that was left alone."""

import itertools
import signal

import pytest
from toy_environments import Corridor

import learnproof
from crashes import digests
from learnproof.training.api import RunFolder

SMALL = {
    "steps": 2048,
    "policy.hidden": (16,),
    "env.kwargs": {"n_agents": 2},
    "env.normalize_observations": True,
    "env.normalize_rewards": True,
    "ppo.n_steps": 32,
    "ppo.minibatch_size": 64,
    "ppo.epochs": 2,
    "checkpoint.every_steps": 300,
    "checkpoint.keep": 2,
    "evaluation.every_steps": 500,
    "evaluation.episodes": 3,
    "proof.episodes": 10,
}


class Display:
    """Says nothing, and presses Ctrl-C when the run passes a step."""

    def __init__(self, press_at=None):
        self.press_at = press_at

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def say(self, text, kind="info"):
        pass

    def phase(self, text):
        pass

    def update(self, status):
        if self.press_at is not None and status.step is not None and status.step >= self.press_at:
            self.press_at = None
            signal.raise_signal(signal.SIGINT)


def test_a_run_interrupted_five_times_ends_in_the_same_bytes(tmp_path):
    env = "learnproof/TaskAllocation-v1"
    learnproof.train(env, out=tmp_path / "calm", display=Display(), **SMALL)
    result = learnproof.train(env, out=tmp_path / "hunted", display=Display(200), **SMALL)
    stops = 0
    for step in (400, 700, 1000, 1600, None):
        assert result.verdict is None
        assert result.stopped_by is signal.SIGINT
        stops += 1
        result = learnproof.resume(tmp_path / "hunted", display=Display(step))
    assert stops == 5
    assert result.verdict is not None
    assert digests(tmp_path / "hunted") == digests(tmp_path / "calm")


def test_going_back_to_an_earlier_checkpoint_gives_the_same_end(tmp_path):
    env = "learnproof/TaskAllocation-v0"
    learnproof.train(env, out=tmp_path / "calm", display=Display(), **SMALL)
    learnproof.train(env, out=tmp_path / "back", display=Display(1500), **SMALL)
    earlier = RunFolder.open(tmp_path / "back").checkpoints().steps()[0]
    learnproof.resume(tmp_path / "back", step=earlier, display=Display())
    assert digests(tmp_path / "back") == digests(tmp_path / "calm")


SCHEDULES = {
    "constant": {},
    "linear": {},
    "cosine": {"schedule.warmup_fraction": 0.4},
    "plateau": {"schedule.plateau_patience": 1, "schedule.final_fraction": 0.01, "stopping.plateau_patience": 0},
}


@pytest.mark.slow  # plateau alone has a memory that could be lost
@pytest.mark.parametrize(
    "kind",
    [pytest.param(k, marks=[] if k == "plateau" else pytest.mark.thorough) for k in sorted(SCHEDULES)],
)
def test_every_schedule_goes_on_where_it_was(tmp_path, kind):
    small = {name: value for name, value in SMALL.items() if not name.startswith("env")}
    settings = {**small, **SCHEDULES[kind], "schedule.kind": kind, "evaluation.max_episode_steps": 100}
    settings |= {"ppo.learning_rate": 1e-6 if kind == "plateau" else 1e-3, "stopping.decline_patience": 0}
    settings |= {"steps": 1280, "evaluation.every_steps": 250}

    def world():
        return {"env": Corridor(4), "evaluation_env": Corridor(2)}

    learnproof.train(**world(), out=tmp_path / "calm", display=Display(), **settings)
    result = learnproof.train(**world(), out=tmp_path / "hunted", display=Display(300), **settings)
    for step in (800, None):
        assert result.verdict is None
        result = learnproof.resume(tmp_path / "hunted", **world(), display=Display(step))
    assert digests(tmp_path / "hunted") == digests(tmp_path / "calm")

    rates = [update.learning_rate for update in learnproof.Evidence.read(tmp_path / "hunted").updates]
    falls = [b < a for a, b in itertools.pairwise(rates)]
    match kind:
        case "constant":
            assert set(rates) == {1e-3}
        case "linear":
            assert all(falls)
        case "cosine":
            assert rates[0] == pytest.approx(1e-4), "the warm-up begins at a tenth"
            assert not any(falls[:4])
            assert all(falls[-5:])
        case "plateau":
            cuts = [b / a for a, b in itertools.pairwise(rates) if b < a]
            assert len(cuts) >= 2
            assert set(cuts) == {0.5}


OTHERS = {
    "dqn": {"dqn.prioritised": True, "dqn.n_step": 3, "dqn.duelling": True, "dqn.learning_starts": 200},
    "sac": {"sac.learning_starts": 200, "sac.minibatch_size": 32, "sac.train_every": 4},
    "reinforce": {"reinforce.n_steps": 32, "reinforce.kl_coefficient": 0.01},
}


@pytest.mark.parametrize("algorithm", sorted(OTHERS))
@pytest.mark.parametrize("optimizer", ["adam", pytest.param("muon", marks=pytest.mark.thorough)])
def test_every_algorithm_goes_on_in_the_same_bytes_its_memory_included(tmp_path, algorithm, optimizer):
    shared = {name: value for name, value in SMALL.items() if not name.startswith(("ppo", "env"))}
    settings = {**shared, **OTHERS[algorithm], "algorithm": algorithm, "env.normalize_observations": True}
    settings |= {"env.normalize_rewards": True, "optimizer.kind": optimizer, "optimizer.grokfast": 0.5}
    settings |= {"policy.hidden": (16, 16), "evaluation.max_episode_steps": 100}

    def world():
        return {"env": Corridor(4), "evaluation_env": Corridor(2)}

    learnproof.train(**world(), out=tmp_path / "calm", display=Display(), **settings)
    result = learnproof.train(**world(), out=tmp_path / "hunted", display=Display(300), **settings)
    for step in (900, 1400, None):
        assert result.verdict is None
        result = learnproof.resume(tmp_path / "hunted", **world(), display=Display(step))
    assert result.verdict is not None
    assert digests(tmp_path / "hunted") == digests(tmp_path / "calm")
