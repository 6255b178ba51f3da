"""An environment that breaks its contract gets an error that teaches, and no weights are spoilt by it."""

import gymnasium as gym
import numpy as np
import pytest
from toy_environments import register_toys

import learnproof
from learnproof.errors import EnvironmentFault, SettingsError, UnknownEnvironment, UnsupportedSpace, UsageError

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
    with pytest.raises(SettingsError, match=r"policy\.hidden"):
        learnproof.train("CartPole-v1", **{"policy.hidden": ()})
    with pytest.raises(SettingsError, match="steps"):
        learnproof.train("CartPole-v1", steps="many")


def test_unknown_environment_arguments_are_refused():
    with pytest.raises(SettingsError, match=r"env\.kwargs"):
        learnproof.train("CartPole-v1", out="x", **{"env.kwargs": {"gravitation": 3}})


def test_a_module_beside_the_user_is_imported_for_its_environment(tmp_path):
    code = "import gymnasium\nfrom toy_environments import Lever\ngymnasium.register('beside/Lever-v0', Lever)\n"
    (tmp_path / "my_environments.py").write_text(code)
    result = learnproof.train("my_environments:beside/Lever-v0", steps=32, out="run", **SMALL)
    assert result.steps == 32
    with pytest.raises(UnknownEnvironment, match="no_such_module"):
        learnproof.train("no_such_module:Lever-v0")


def test_a_single_environment_and_one_object_for_both_purposes_are_refused():
    with pytest.raises(UsageError, match="single one"):
        learnproof.train(gym.make("CartPole-v1"))
    env = gym.make_vec("CartPole-v1", 2)
    with pytest.raises(UsageError, match="one object"):
        learnproof.train(env, evaluation_env=env)


def test_the_whole_budget_is_used_whatever_the_minibatch():
    result = learnproof.train("toy/Faulty-v0", steps=160, out="run", **{**SMALL, "ppo.minibatch_size": 9999})
    assert result.steps == 160


def test_a_blank_observation_is_not_an_accusation():
    """Zeros in, zero biases: right code whose first layer can have no gradient."""

    class Blank(gym.Env):
        observation_space = gym.spaces.Box(-1, 1, (2,), np.float32)
        action_space = gym.spaces.Discrete(2)

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            self.t = 0
            return np.zeros(2, np.float32), {}

        def step(self, action):
            self.t += 1
            return np.zeros(2, np.float32), float(action), False, self.t == 5, {}

    if "toy/Blank-v0" not in gym.registry:
        gym.register("toy/Blank-v0", Blank)
    verdict = learnproof.train("toy/Blank-v0", steps=400, out="run", **SMALL).verdict
    assert verdict.verdict != "broken", verdict.issues_found


def test_a_loaded_policy_is_called_with_a_batch_of_observations(tmp_path):
    result = learnproof.train("toy/Lever-v0", steps=32, out="run", **SMALL)
    actions = learnproof.load_policy(result.path)(np.array([[0, 1], [2, 3], [1, 1]]))
    assert actions.shape == (3, 2)


def test_a_space_that_cannot_be_learnt_is_refused():
    class Poem(gym.Env):
        observation_space = gym.spaces.Text(10)
        action_space = gym.spaces.Discrete(2)

    if "toy/Poem-v0" not in gym.registry:
        gym.register("toy/Poem-v0", Poem)
    with pytest.raises(UnsupportedSpace, match="Supported are Box"):
        learnproof.train("toy/Poem-v0", out="x")
