"""The ladder's answers are what the problems say, and each known fault is told apart from the right answer somewhere."""

from __future__ import annotations

import json
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from learnproof.errors import UsageError
from learnproof.probing.calling import arguments_for, find_function
from learnproof.probing.climbing import Climb, ask, climb_ladder, ladder
from learnproof.probing.environment import ProbeEnv
from learnproof.probing.rungs import LADDER, Rung
from learnproof.probing.solving import FAULTS, action_values, right_actions, state_values

GAMMA = 0.99
BY_NAME = {rung.name: rung for rung in LADDER}
TELLS = {
    "reversed": "action_reward",
    "myopic": "delayed_credit",
    "undiscounted": "discounting",
    "limit_is_end": "time_limit",
    "reset_after_limit": "time_limit",
    "end_ignored": "terminal",
    "sign_of_reward": "stochastic",
}


def learner_with(fault: str) -> Any:
    """A learner that answers every rung as one with that fault would, from its table instead of from training."""

    def train(env: ProbeEnv, gamma: float) -> Any:
        worth = action_values(env.rung, gamma, fault)
        shown = {env.observe(state).tobytes(): values for state, values in worth.items()}
        return lambda seen: int(shown[seen.tobytes()].argmax()), lambda seen: float(shown[seen.tobytes()].max())

    return train


def climb(train: Any, name: str, **options: Any) -> Climb:
    return next(climb_ladder(train, rungs=[BY_NAME[name]], **options))


def test_the_ladder_has_its_rungs() -> None:
    assert len(LADDER) >= 8
    assert len({rung.name for rung in LADDER}) == len(LADDER)


@pytest.mark.parametrize("rung", LADDER, ids=lambda rung: rung.name)
def test_each_table_is_whole(rung: Rung) -> None:
    assert sum(rung.starts.values()) == pytest.approx(1)
    assert set(rung.moves) == set(rung.observations)
    assert len({tuple(seen) for seen in rung.observations.values()}) == len(rung.observations)
    for choices in rung.moves.values():
        assert len(choices) == rung.actions
        for outcomes in choices:
            assert sum(outcome.probability for outcome in outcomes) == pytest.approx(1)
            assert all(outcome.then in rung.observations for outcome in outcomes)


@pytest.mark.parametrize("rung", LADDER, ids=lambda rung: rung.name)
def test_each_environment_keeps_gymnasiums_contract(rung: Rung) -> None:
    check_env(ProbeEnv(rung, 0), skip_render_check=True)
    check_env(ProbeEnv(rung, 0, continuous=True), skip_render_check=True)


def test_values_by_hand() -> None:
    assert state_values(BY_NAME["constant_reward"], GAMMA) == {"only": 1.0}
    assert state_values(BY_NAME["delayed_reward"], GAMMA) == pytest.approx({"first": 0.99, "second": 1.0})
    worth = action_values(BY_NAME["time_limit"], GAMMA)["start, left"]
    assert worth.tolist() == pytest.approx([0.99**2, 0.7])
    worth = action_values(BY_NAME["discounting"], GAMMA)["choice, left"]
    assert worth.tolist() == pytest.approx([0.99, 1.1 * 0.99**19])


@pytest.mark.parametrize("rung", LADDER, ids=lambda rung: rung.name)
def test_a_right_learner_climbs(rung: Rung) -> None:
    assert climb(learner_with(""), rung.name).status == "climbed"


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_fails_its_rung_and_is_named(fault: str) -> None:
    done = climb(learner_with(fault), TELLS[fault])
    assert done.status == "failed"
    assert FAULTS[fault] in done.finding


def test_each_rung_refuses_some_learner() -> None:
    refused = {
        rung.name
        for rung in LADDER
        for fault in FAULTS
        if climb(learner_with(fault), rung.name, seeds=1).status == "failed"
    }
    assert refused == set(BY_NAME)


def test_a_blind_learner_is_named() -> None:
    done = climb(lambda env: lambda seen: 1, "action_by_observation")
    assert done.status == "failed"
    assert "same answer to every observation" in done.finding


def test_an_untrained_value_is_named() -> None:
    done = climb(lambda env: (lambda seen: 0, lambda seen: 0.01), "reward_by_observation")
    assert done.status == "failed"
    assert "stayed where they began" in done.finding


def test_a_learner_that_is_right_by_luck_is_not_steady() -> None:
    def train(env: ProbeEnv, seed: int, gamma: float) -> Any:
        return learner_with("" if seed == 0 else "limit_is_end")(env, gamma)

    done = climb(train, "time_limit")
    assert done.status == "unsteady"
    assert "1 of 3 seeds" in done.finding


def test_a_policy_without_values_is_not_accused_of_them() -> None:
    done = climb(lambda env: lambda seen: 0, "constant_reward")
    assert done.status == "not_seen"
    assert len(done.answers) == 1


def test_an_error_in_training_is_told_with_its_place() -> None:
    def train(env: ProbeEnv) -> Any:
        raise RuntimeError("size mismatch")

    done = climb(train, "action_reward")
    assert done.status == "raised"
    assert "size mismatch" in done.finding
    assert "test_ladder.py:" in done.finding
    json.dumps(done.to_json())


@pytest.mark.parametrize("returned", [None, 3, "policy"])
def test_what_cannot_choose_is_refused(returned: Any) -> None:
    with pytest.raises(UsageError, match="Return"):
        climb(lambda env: returned, "action_reward")


@pytest.mark.parametrize("action", [7, [0, 1], float("nan")])
def test_what_is_no_action_is_refused(action: Any) -> None:
    with pytest.raises(UsageError, match="the policy gave"):
        climb(lambda env: lambda seen: action, "action_reward")


def test_the_function_gets_what_it_names() -> None:
    env = ProbeEnv(LADDER[0], 0)
    make = lambda: env  # noqa: E731
    named = {"make_env": make, "steps": 5, "seed": 1}
    assert arguments_for(lambda make_env, steps, seed: None, env, make, 5, 1, GAMMA) == named
    assert arguments_for(lambda environment: None, env, make, 5, 1, GAMMA) == {"environment": env}
    assert set(arguments_for(lambda **all: None, env, make, 5, 1, GAMMA)) == {
        "env",
        "make_env",
        "steps",
        "seed",
        "gamma",
    }
    with pytest.raises(UsageError, match="takes no environment"):
        arguments_for(lambda: None, env, make, 5, 1, GAMMA)
    with pytest.raises(UsageError, match="wants 'width'"):
        arguments_for(lambda env, width: None, env, make, 5, 1, GAMMA)


def test_functions_are_found_by_name(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "somebodys_agent.py").write_text("def train(env):\n    return lambda seen: 0\nnumber = 3\n")
    (tmp_path / "raises_at_once.py").write_text("rate = 1\nrate / 0\n")
    monkeypatch.chdir(tmp_path)
    assert callable(find_function("somebodys_agent:train"))
    assert callable(find_function("somebodys_agent.py:train"))
    for named, said in (
        ("somebodys_agent", "names no function"),
        ("somebodys_agent:tarin", "Did you mean 'train'"),
        ("somebodys_agent:number", "not a function"),
        ("nowhere_to_be_found:train", "cannot be imported"),
        ("missing.py:train", "no file"),
        ("raises_at_once:train", r"ZeroDivisionError.*raises_at_once.py:2"),
        ("raises_at_once.py:train", r"ZeroDivisionError.*raises_at_once.py:2"),
    ):
        with pytest.raises(UsageError, match=said):
            find_function(named)


def test_the_discount_decides_and_odd_ones_are_refused() -> None:
    assert right_actions(BY_NAME["discounting"], 0.999) != right_actions(BY_NAME["discounting"], 0.99)
    undecided = ask(lambda env: lambda seen: 0, BY_NAME["discounting"], 0, 10, 0.9947, False)
    assert "as good as each other" in undecided.unseen
    with pytest.raises(UsageError, match="gamma"):
        next(climb_ladder(lambda env: None, gamma=1.0))
    with pytest.raises(UsageError, match="no rung"):
        ladder(["time_limits"])


def test_continuous_actions_are_cut_into_parts() -> None:
    env = ProbeEnv(BY_NAME["action_reward"], 0, continuous=True)
    assert [env.choice(np.array([place])) for place in (-1.0, -0.4, 0.1, 0.9, 1.0)] == [0, 1, 2, 3, 3]
    assert isinstance(env.action_space, gym.spaces.Box)


def test_equal_seeds_give_equal_episodes() -> None:
    def played(seed: int) -> list[float]:
        env = ProbeEnv(BY_NAME["stochastic"], seed)
        rewards = []
        for _ in range(30):
            env.reset()
            rewards.append(env.step(2)[1])
        return rewards

    assert played(4) == played(4)
    assert played(4) != played(5)
