"""load_policy gives back what was trained, whatever trained it: the same weights, normalisation and action forms."""

import shutil

import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector.utils import batch_space
from small_runs import RUNS, settings_of
from toy_environments import Corridor

import learnproof
from learnproof.envs.making import RegisteredEnvironment
from learnproof.errors import LearnproofError, RunFolderError, SettingsError, UnknownEnvironment, UsageError
from learnproof.policies.spaces import ObservationLayout
from learnproof.runs.folder import RunFolder
from learnproof.training.loading import open_policy


def observations(name, count=50):
    space = RegisteredEnvironment(settings_of(name).env).evaluation(1).single_observation_space
    batched = batch_space(space, count)
    batched.seed(3)
    return batched.sample()


def pick(batch, position):
    if isinstance(batch, dict):
        return {key: pick(value, position) for key, value in batch.items()}
    if isinstance(batch, tuple):
        return tuple(pick(value, position) for value in batch)
    return batch[position]


def leaves(action):
    if isinstance(action, dict):
        return [leaf for key in action for leaf in leaves(action[key])]
    return [leaf for part in action for leaf in leaves(part)] if isinstance(action, tuple) else [action]


@pytest.mark.parametrize("name", RUNS)
def test_every_policy_is_callable_on_a_batch_and_on_one_observation(small_run, name):
    policy = learnproof.load_policy(small_run(name))
    env = RegisteredEnvironment(settings_of(name).env).evaluation(50)
    batch = observations(name)
    actions = policy(batch)
    assert env.action_space.contains(actions)
    for position in (0, 7):
        policy.reset()
        one = policy(pick(batch, position))
        assert env.single_action_space.contains(one)
        for single, batched in zip(leaves(one), leaves(pick(actions, position)), strict=True):
            np.testing.assert_allclose(single, batched, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", [name for name in RUNS if "recurrent" not in name])
def test_it_acts_by_the_best_weights_on_normalised_observations(small_run, name):
    policy = learnproof.load_policy(small_run(name))
    best = RunFolder.open(small_run(name)).best.newest()
    assert best is not None
    moments = policy.normalizer.moments
    assert moments.count[0] > 100, "the normaliser has seen the training"
    rows = policy.observations.flatten(observations(name))
    by_hand = np.clip((rows - moments.mean) / np.sqrt(moments.variance + 1e-8), -10, 10).astype(np.float32)
    with torch.no_grad():
        raw = policy.head.mode(policy.network.policy_params(torch.from_numpy(by_hand)))
        unnormalised = policy.network.policy_params(torch.from_numpy(rows))
        normalised = policy.network.policy_params(torch.from_numpy(by_hand))
    expected = policy.actions.to_environment(raw.numpy())
    for one, other in zip(leaves(policy(observations(name))), leaves(expected), strict=True):
        np.testing.assert_array_equal(one, other)
    assert not torch.allclose(unnormalised, normalised), "without the normaliser it would be another policy"


def test_where_it_comes_from_is_told(small_run):
    kept = open_policy(small_run("dqn"))
    assert (kept.metric, kept.settings.algorithm, kept.verdict) == ("return", "dqn", None)
    assert kept.step >= 256
    assert isinstance(kept.score, float)
    assert len(kept.digest) == 64


@pytest.mark.parametrize(
    "observation", [np.zeros(3), np.zeros((2, 3)), np.zeros((2, 2, 4)), 0.0, {"a": np.zeros(4)}, np.zeros((4, 2))]
)
def test_an_observation_of_another_shape_is_refused(small_run, observation):
    with pytest.raises(UsageError, match="one observation of Box"):
        learnproof.load_policy(small_run("dqn"))(observation)


def test_a_missing_part_of_a_nested_observation_is_named(small_run):
    policy = learnproof.load_policy(small_run("ppo dict"))
    whole = pick(observations("ppo dict"), 0)
    policy(whole)
    with pytest.raises(UsageError, match=r"observation\['lamp'\] is missing"):
        policy({key: value for key, value in whole.items() if key != "lamp"})


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_an_observation_that_is_not_finite_is_refused(small_run, value):
    policy = learnproof.load_policy(small_run("dqn"))
    for observation in (np.full(4, value), np.stack([np.zeros(4), np.full(4, value)])):
        with pytest.raises(UsageError, match="finite numbers"):
            policy(observation)


@pytest.mark.parametrize("value", [-1, 3, 1.5])
def test_a_choice_that_the_space_does_not_have_is_named(value):
    layout = ObservationLayout(spaces.Dict({"place": spaces.Discrete(3), "speed": spaces.Box(-1, 1, (2,), np.float32)}))
    layout.require_possible({"place": np.array([0, 2]), "speed": np.zeros((2, 2))})
    with pytest.raises(
        UsageError, match=rf"observation\['place'\] holds {value}, and it reads whole numbers of Discrete"
    ):
        layout.require_possible({"place": np.array([0, value]), "speed": np.zeros((2, 2))})


@pytest.mark.parametrize(
    ("spoil", "error"),
    [
        (lambda run: shutil.rmtree(run / "best"), RunFolderError),
        (lambda run: next((run / "best").glob("*/policy.safetensors")).write_bytes(b"x"), LearnproofError),
        (lambda run: (run / "config.toml").write_text("seed = 1\n"), RunFolderError),
    ],
    ids=["no best policy", "damaged", "other settings"],
)
def test_a_run_without_a_whole_policy_is_refused(tmp_path, small_run, spoil, error):
    run = shutil.copytree(small_run("dqn"), tmp_path / "run")
    learnproof.load_policy(run)
    spoil(run)
    with pytest.raises(error):
        learnproof.load_policy(run)


def test_a_watched_run_has_no_policy_to_load(tmp_path):
    RunFolder.create(tmp_path / "run", "", {"watched": {"command": ["python", "x.py"]}})
    with pytest.raises(RunFolderError, match="watched script"):
        learnproof.load_policy(tmp_path / "run")


def test_a_policy_of_an_environment_object_wants_such_an_object_again(tmp_path):
    small = {"steps": 256, "policy.hidden": (8,), "ppo.n_steps": 32, "proof.episodes": 10, "evaluation.every_steps": 0}
    result = learnproof.train(Corridor(2), out=tmp_path / "run", **small)
    with pytest.raises(UnknownEnvironment, match=r"load_policy\(path, env\)"):
        learnproof.load_policy(result.path)
    policy = learnproof.load_policy(result.path, Corridor(1))
    assert policy(np.eye(9, dtype=np.float32)).shape == (9,)


def test_the_device_can_be_another_than_the_run_was_trained_on(small_run):
    assert learnproof.load_policy(small_run("dqn"), device="cpu") is not None
    with pytest.raises(SettingsError, match="cannot be used here"):
        learnproof.load_policy(small_run("dqn"), device="cuda:7")
