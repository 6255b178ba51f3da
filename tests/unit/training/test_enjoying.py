"""`enjoy` plays the best policy, draws it where that can be done, and says why where it cannot."""

import io

import gymnasium as gym
import numpy as np
import pytest
from PIL import Image
from rich.console import Console
from small_runs import RUNS, train_small

import learnproof
from learnproof.errors import EnvironmentFault, UsageError
from learnproof.show.playback import show_playback
from learnproof.training.playing import play


def printed(played, rows=30):
    out = io.StringIO()
    show_playback(played, rows=rows, console=Console(file=out, width=120))
    return out.getvalue()


@pytest.fixture(scope="module")
def painter(tmp_path_factory):
    def run(fault):
        folder = tmp_path_factory.mktemp("painter") / "run"
        return train_small("ppo painter", folder, **{"env.kwargs": {"fault": fault}, "steps": 128})

    return run


@pytest.mark.parametrize("name", [name for name in RUNS if name != "ppo painter"])
def test_every_policy_plays_and_is_shown_as_a_table(small_run, name):
    played = play(small_run(name), episodes=2, form="text")
    assert played.film is None
    assert len(played.episodes) == 2
    text = printed(played)
    for word in ("step", "reward", "return", "action", "Episode 2", "not judged yet"):
        assert word in text
    for episode in played.episodes:
        assert episode.ended in ("terminated", "truncated (time limit)")
        assert all(len(step.observation) == len(played.names) for step in episode.steps)


def test_an_episode_is_what_the_evaluator_would_have_played(small_run):
    policy = learnproof.load_policy(small_run("dqn"))
    played = play(small_run("dqn"), form="text")
    env = gym.make("CartPole-v1")
    observation, _ = env.reset(seed=played.episodes[0].seed)
    total, ended = 0.0, False
    while not ended:
        observation, reward, terminated, truncated, _ = env.step(policy(observation))
        total, ended = total + reward, terminated or truncated
    assert played.episodes[0].total == total
    again = play(small_run("dqn"), form="text")
    assert [step.action for step in again.episodes[0].steps] == [step.action for step in played.episodes[0].steps]
    assert play(small_run("dqn"), form="text", seed=5).episodes[0].seed != played.episodes[0].seed


def test_the_environments_own_metric_is_told(small_run):
    played = play(small_run("ppo allocation"))
    assert played.metric == "completion_rate"
    assert 0 <= played.episodes[0].metric <= 1
    assert "completion_rate" in printed(played)
    assert played.film is None, "it cannot draw itself, and nobody asked for a film"
    assert played.not_drawn == ""


def test_a_long_episode_is_shown_by_steps_evenly_spaced_or_in_full(small_run):
    played = play(small_run("ppo gaussian"), form="text")
    assert len(played.episodes[0].steps) == 200
    short, full = printed(played, rows=10), printed(played, rows=0)
    assert "10 of 200 steps" in short
    assert short.count("\n") < 20
    assert full.count("\n") > 200
    steps = [line.split()[0] for line in short.splitlines() if line.strip()]
    assert {"1", "200"} <= set(steps), "the first and the last step are among them"


def test_of_many_numbers_those_are_shown_that_change(small_run):
    played = play(small_run("ppo allocation"), form="text")
    header = next(line for line in printed(played).splitlines() if "reward" in line)
    shown = [int(word[4:-1]) for word in header.split() if word.startswith("obs[")]
    seen = np.stack([step.observation for step in played.episodes[0].steps])
    assert len(shown) == 6
    assert all(np.ptp(seen[:, column]) > 0 for column in shown)


def test_nested_observations_and_actions_have_names(small_run):
    played = play(small_run("ppo dict"), form="text")
    assert list(played.names) == ["gauge", "lamp[0]", "lamp[1]", "shelves[0]", "shelves[1]"]
    assert "pour" in printed(played)
    assert "shelf" in printed(played)


def test_a_drawn_environment_becomes_a_gif_in_the_runs_folder(small_run, tmp_path):
    run = small_run("ppo painter")
    played = play(run, out=tmp_path / "two.gif", episodes=2)
    assert played.film == tmp_path / "two.gif"
    assert "two.gif" in printed(played).replace("\n", "")
    assert "obs[0]" not in printed(played), "a film says more than a table"
    with Image.open(tmp_path / "two.gif") as picture:
        assert picture.n_frames >= 20
    assert play(run).film == run / "enjoy.gif"
    (run / "enjoy.gif").unlink()


def test_an_mp4_is_made_where_it_is_asked_for(small_run, tmp_path):
    play(small_run("ppo painter"), form="mp4", out=tmp_path / "film.mp4")
    assert (tmp_path / "film.mp4").read_bytes()[4:8] == b"ftyp"


@pytest.mark.parametrize(("fault", "said"), [("raises", "no display"), ("missing", "learnproof[enjoy]")])
def test_where_the_drawing_fails_the_steps_are_shown_and_the_reason_is_said(painter, fault, said):
    run = painter(fault)
    played = play(run)
    assert played.film is None
    assert said in played.not_drawn
    assert "No film" in printed(played)
    assert not (run / "enjoy.gif").exists()
    with pytest.raises(UsageError, match="could not be drawn"):
        play(run, form="gif")


def test_a_drawing_of_the_wrong_shape_is_the_environments_fault(painter):
    run = painter("shape")
    with pytest.raises(EnvironmentFault, match="rgb_array promises"):
        play(run)
    assert play(run, form="text").episodes


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"episodes": 0}, "at least one"),
        ({"form": "text", "out": "film.gif"}, "writes no file"),
        ({"form": "gif", "out": "film.mp4"}, "should end in .gif"),
        ({"out": "film.avi"}, "should end in"),
        ({"form": "gif"}, "cannot be drawn"),
        ({"out": "film.gif"}, "cannot be drawn"),
    ],
)
def test_bad_usage_is_refused(small_run, changes, said):
    with pytest.raises(UsageError, match=said):
        play(small_run("ppo dict"), **changes)


def test_a_sampled_policy_plays_otherwise_than_its_deterministic_twin(small_run):
    run = small_run("ppo gaussian")
    calm, wild = play(run, form="text"), play(run, form="text", mode="sampled")
    assert calm.episodes[0].seed == wild.episodes[0].seed
    assert calm.episodes[0].total != wild.episodes[0].total
