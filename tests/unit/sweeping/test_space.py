"""Any setting can be searched by its dotted name; what cannot be searched is said before the first trial."""

import pytest

from learnproof.config import Settings
from learnproof.errors import SettingsError
from learnproof.sweeping.space import Choices, Range, parse_space, parse_words, read_space, ready_space, values_of_base

BASE = Settings()


def test_the_usual_ranges_are_those_of_the_specification():
    assert ready_space(BASE) == {
        "ppo.learning_rate": Range(1e-4, 1e-3, "log"),
        "ppo.clip_range": Range(0.1, 0.3),
        "ppo.gae_lambda": Range(0.9, 0.99),
        "ppo.minibatch_size": Range(32, 256, "doubling", integer=True),
        "ppo.n_steps": Range(512, 4096, "doubling", integer=True),
    }


@pytest.mark.parametrize("algorithm", ["ppo", "dqn", "sac", "reinforce"])
def test_every_algorithm_has_usual_ranges_and_its_defaults_lie_in_its_settings(algorithm):
    base = BASE.replace({"algorithm": algorithm})
    space = ready_space(base)
    assert f"{algorithm}.learning_rate" in space
    assert all(name.startswith(algorithm) for name in space)


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("ppo.learning-rate=1e-4..1e-3:log", Range(1e-4, 1e-3, "log")),
        ("ppo.epochs=3..20", Range(3, 20, integer=True)),
        ("ppo.gamma=0.9..1", Range(0.9, 1.0)),
        ("ppo.target_kl=none/0.01/0.03", Choices((None, 0.01, 0.03))),
        ("policy.hidden=64,64/256,256,128", Choices(((64, 64), (256, 256, 128)))),
        ("policy.activation=relu/tanh", Choices(("relu", "tanh"))),
        ("env.normalize-observations=true/false", Choices((True, False))),
        ("env.kwargs.n_agents=2..8", Range(2, 8, integer=True)),
        ("env.kwargs.load=0.5..2.0", Range(0.5, 2.0)),
        ("env.kwargs.kind=easy/hard", Choices(("easy", "hard"))),
        ("schedule.kind=linear/cosine", Choices(("linear", "cosine"))),
    ],
)
def test_words_of_the_command_line_are_ranges_and_choices(word, expected):
    (dimension,) = parse_words([word], BASE).values()
    assert dimension == expected


def test_a_space_is_the_same_after_it_was_written_down():
    words = ["ppo.learning_rate=1e-4..1e-3:log", "ppo.n_steps=512..4096:doubling", "ppo.target_kl=none/0.01"]
    space = parse_words([*words, "policy.hidden=64,64/256,256"], BASE)
    assert parse_space({name: one.typed for name, one in space.items()}, BASE) == space


def test_a_file_has_the_tables_of_a_settings_file(tmp_path):
    path = tmp_path / "space.toml"
    path.write_text(
        '[ppo]\nlearning_rate = "1e-4..1e-3:log"\nclip_range = {low = 0.1, high = 0.3}\n'
        "[policy]\nhidden = [[64, 64], [256, 256]]\n[env.kwargs]\nn_agents = [2, 5]\n"
    )
    assert read_space(path, BASE) == {
        "ppo.learning_rate": Range(1e-4, 1e-3, "log"),
        "ppo.clip_range": Range(0.1, 0.3),
        "policy.hidden": Choices(((64, 64), (256, 256))),
        "env.kwargs.n_agents": Choices((2, 5)),
    }


@pytest.mark.parametrize(
    ("text", "said"), [("[ppo", "not valid TOML"), ("", "names no settings"), ("x = 1", "no setting 'x'")]
)
def test_a_file_without_a_space_is_refused(tmp_path, text, said):
    (tmp_path / "space.toml").write_text(text)
    with pytest.raises(SettingsError, match=said):
        read_space(tmp_path / "space.toml", BASE)
    with pytest.raises(SettingsError, match="cannot be read"):
        read_space(tmp_path / "nowhere.toml", BASE)


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("ppo.learning_rate", "names no values"),
        ("ppo.learning_rat=1..2", "Did you mean 'ppo.learning_rate'"),
        ("ppo=1/2", "is a section"),
        ("ppo.learning_rate=1e-3..1e-4", "below the second"),
        ("ppo.learning_rate=low..high", "are numbers"),
        ("ppo.learning_rate=1e-4..1e-3:square", "linear, log or doubling"),
        ("ppo.learning_rate=0..1e-3:log", "Begin above 0"),
        ("ppo.n_steps=500..3000:doubling", "never gives 3000"),
        ("ppo.n_steps=1.5..2.5", "whole number"),
        ("ppo.gamma=0.9", "neither a range nor"),
        ("ppo.gamma=0.9..1.5", "gamma = 1.5 cannot be used"),
        ("policy.activation=1..2", "it is not a number"),
        ("policy.activation=relu/tan", "'tan' cannot be used"),
        ("ppo.epochs=3/3", "each once"),
        ("seed=1/2", "--seeds"),
        ("steps=1000..2000", "same budget"),
        ("env.id=CartPole-v1/Acrobot-v1", "sweep each by itself"),
        ("algorithm=ppo/dqn", "sweep each by itself"),
        ("evaluation.episodes=5..10", "how a run is measured"),
        ("proof.error_rate=0.01..0.1", "how a run is measured"),
        ("dqn.n_step=1/3", "the algorithm is ppo"),
    ],
)
def test_what_cannot_be_searched_is_refused_and_said_why(word, said):
    with pytest.raises(SettingsError, match=said):
        parse_words([word], BASE)


def test_the_base_settings_are_a_trial_where_they_lie_in_the_space():
    space = ready_space(BASE)
    assert values_of_base(space, BASE) == {
        "ppo.learning_rate": 3e-4,
        "ppo.clip_range": 0.2,
        "ppo.gae_lambda": 0.95,
        "ppo.minibatch_size": 64,
        "ppo.n_steps": 2048,
    }
    assert values_of_base(space, BASE.replace({"ppo.learning_rate": 0.1})) is None
    assert values_of_base(space, BASE.replace({"ppo.n_steps": 1000})) is None, "not a doubling of 512"
