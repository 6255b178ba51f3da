"""An environment that breaks its contract gets an error that teaches, and no weights are spoilt by it."""

import gymnasium as gym
import numpy as np
import pytest
from toy_environments import register_toys

import learnproof
from learnproof.errors import EnvironmentFault, SettingsError, UnknownEnvironment, UnsupportedSpace

SMALL = {"policy.hidden": (8,), "ppo.n_steps": 8, "ppo.minibatch_size": 8, "env.n_envs": 2, "evaluation.every_steps": 0}


@pytest.fixture(autouse=True)
def toys(tmp_path, monkeypatch):
    register_toys()
    monkeypatch.chdir(tmp_path)


def train(fault, at=21, **changes):
    """With two instances and rollouts of 8 steps, instance steps 1 to 16 are two whole updates before the fault."""
    kwargs = {"env.kwargs": {"fault": fault, "at": at}}
    return learnproof.train("toy/Faulty-v0", steps=200, out="run", **SMALL, **kwargs, **changes)


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("nan observation", ["nan", "entry 1", "instance 0", "step"]),
        ("inf observation", ["inf", "entry 2"]),
        ("nan reward", ["reward nan"]),
        ("inf reward", ["reward inf"]),
        ("shape", ["(4,)", "(3,)", "step 21"]),
        ("dtype", ["float64", "float32", "cast-observations"]),
        ("text", ["<U1", "float32"]),
        ("reward text", ["'high'", "not one number"]),
        ("raises", ["ZeroDivisionError", "fell over", "step 21"]),
    ],
)
def test_each_fault_is_named_with_its_place(fault, words, tmp_path):
    with pytest.raises(EnvironmentFault) as caught:
        train(fault)
    for word in words:
        assert word in str(caught.value)
    assert "No weights were changed by it" in str(caught.value)


def test_the_healthy_twin_trains_to_its_end():
    assert train("none").steps == 200


def test_a_wrong_dtype_passes_where_the_user_allows_it():
    assert train("dtype", **{"env.cast_observations": True}).steps == 200


def test_weights_before_the_fault_are_kept_and_finite(tmp_path):
    with pytest.raises(EnvironmentFault):
        train("nan observation", **{"checkpoint.every_steps": 1})
    shelf = learnproof.training.api.RunFolder.open(tmp_path / "run").checkpoints()
    assert shelf.steps() == [16, 32]
    newest = shelf.newest()
    newest.verify()
    weights = newest.tensors("weights", newest.layout("weights"))
    assert all(np.isfinite(w).all() for w in weights.values())


def test_unknown_environments_are_refused_with_a_suggestion():
    with pytest.raises(UnknownEnvironment, match="CartPole-v1"):
        learnproof.train("CartPol-v1")
    with pytest.raises(UnknownEnvironment, match="learnproof/TaskAllocation-v1"):
        learnproof.train("learnproof/TaskAlocation-v1")
    with pytest.raises(UnknownEnvironment, match="No environment was named"):
        learnproof.train()


def test_unknown_settings_are_refused_with_a_suggestion():
    with pytest.raises(SettingsError, match=r"ppo\.learning_rate"):
        learnproof.train("CartPole-v1", **{"ppo.learning_rat": 1e-3})
    with pytest.raises(SettingsError, match="steps"):
        learnproof.train("CartPole-v1", steps="many")


def test_unknown_environment_arguments_are_refused():
    with pytest.raises(SettingsError, match=r"env\.kwargs"):
        learnproof.train("CartPole-v1", out="x", **{"env.kwargs": {"gravitation": 3}})


def test_a_space_that_cannot_be_learnt_is_refused():
    class Poem(gym.Env):
        observation_space = gym.spaces.Text(10)
        action_space = gym.spaces.Discrete(2)

    if "toy/Poem-v0" not in gym.registry:
        gym.register("toy/Poem-v0", Poem)
    with pytest.raises(UnsupportedSpace, match="Supported are Box"):
        learnproof.train("toy/Poem-v0", out="x")
