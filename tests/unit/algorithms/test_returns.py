"""gae and lambda_returns equal their definitions, written out as sums, on made-up cases with every kind of ending."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from learnproof.algorithms.returns import (
    explained_variance,
    gae,
    lambda_returns,
    next_values,
    truncated_importance,
)


@st.composite
def cases(draw):
    steps, envs = draw(st.integers(1, 12)), draw(st.integers(1, 4))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    terminated = rng.random((steps, envs)) < draw(st.sampled_from([0.0, 0.2, 0.7]))
    truncated = (rng.random((steps, envs)) < draw(st.sampled_from([0.0, 0.2, 0.7]))) & ~terminated
    arrays = {
        "reward": rng.normal(size=(steps, envs)) * 10,
        "value": rng.normal(size=(steps, envs)),
        "last_value": rng.normal(size=envs),
        "terminated": terminated,
        "truncated": truncated,
        "final_value": np.where(truncated, rng.normal(size=(steps, envs)), 0.0),
    }
    return arrays, draw(st.sampled_from([0.0, 0.5, 0.99, 1.0])), draw(st.sampled_from([0.0, 0.5, 0.95, 1.0]))


def advantage_by_definition(arrays, gamma, lam, t, n):
    """The sum over k of (gamma lam)^k delta_{t+k}, up to the end of the episode or of the rollout."""
    total, weight = 0.0, 1.0
    for k in range(t, len(arrays["reward"])):
        if arrays["terminated"][k, n]:
            following = 0.0
        elif arrays["truncated"][k, n]:
            following = arrays["final_value"][k, n]
        elif k + 1 < len(arrays["reward"]):
            following = arrays["value"][k + 1, n]
        else:
            following = arrays["last_value"][n]
        total += weight * (arrays["reward"][k, n] + gamma * following - arrays["value"][k, n])
        weight *= gamma * lam
        if arrays["terminated"][k, n] or arrays["truncated"][k, n]:
            break
    return total


def lambda_return_by_definition(arrays, gamma, lam, t, n):
    """(1 - lam) sum over m of lam^(m-1) G^(m), the last of the n-step returns taking the rest of the weight."""
    steps = len(arrays["reward"])
    following = next_values(*(arrays[k] for k in ("value", "last_value", "terminated", "truncated", "final_value")))
    n_step, rewards, weight = [], 0.0, 1.0
    for k in range(t, steps):
        rewards += weight * arrays["reward"][k, n]
        weight *= gamma
        n_step.append(rewards + weight * following[k, n])
        if arrays["terminated"][k, n] or arrays["truncated"][k, n]:
            break
    weights = [(1 - lam) * lam**m for m in range(len(n_step) - 1)] + [lam ** (len(n_step) - 1)]
    return float(np.dot(weights, n_step))


@given(cases())
@settings(max_examples=200, deadline=None)
def test_gae_equals_its_definition(case):
    arrays, gamma, lam = case
    computed = gae(**arrays, gamma=gamma, lam=lam)
    for t, n in np.ndindex(computed.shape):
        assert computed[t, n] == pytest.approx(advantage_by_definition(arrays, gamma, lam, t, n), abs=1e-9)


@given(cases())
@settings(max_examples=200, deadline=None)
def test_lambda_returns_equal_their_definition(case):
    arrays, gamma, lam = case
    computed = lambda_returns(**arrays, gamma=gamma, lam=lam)
    for t, n in np.ndindex(computed.shape):
        assert computed[t, n] == pytest.approx(lambda_return_by_definition(arrays, gamma, lam, t, n), abs=1e-8)


def trace_by_definition(arrays, importance, gamma, lam, t, n):
    """V-trace's sum, written out: how far the target lies from the value of step t of environment n."""
    following = next_values(*(arrays[k] for k in ("value", "last_value", "terminated", "truncated", "final_value")))
    total, passed = 0.0, 1.0
    for k in range(t, len(arrays["reward"])):
        delta = arrays["reward"][k, n] + gamma * following[k, n] - arrays["value"][k, n]
        total += passed * importance[k, n] * delta
        passed *= gamma * lam * importance[k, n]
        if arrays["terminated"][k, n] or arrays["truncated"][k, n]:
            break
    return total


@given(cases(), st.integers(0, 2**32 - 1))
@settings(max_examples=100, deadline=None)
def test_targets_of_another_policy_are_those_of_v_trace(case, seed):
    arrays, gamma, lam = case
    importance = np.minimum(1, np.random.default_rng(seed).lognormal(0, 1, arrays["reward"].shape))
    computed = lambda_returns(**arrays, gamma=gamma, lam=lam, importance=importance) - arrays["value"]
    for t, n in np.ndindex(computed.shape):
        assert computed[t, n] == pytest.approx(trace_by_definition(arrays, importance, gamma, lam, t, n), abs=1e-8)


@given(cases())
@settings(max_examples=50, deadline=None)
def test_importance_1_everywhere_changes_nothing(case):
    arrays, gamma, lam = case
    ones = np.ones(arrays["reward"].shape)
    assert (gae(**arrays, gamma=gamma, lam=lam, importance=ones) == gae(**arrays, gamma=gamma, lam=lam)).all()
    plain = lambda_returns(**arrays, gamma=gamma, lam=lam)
    assert (lambda_returns(**arrays, gamma=gamma, lam=lam, importance=ones) == plain).all()


def test_a_small_trace_by_hand():
    """Two steps, gamma = lambda = 1/2, importance 1/2 and 1/4: deltas 1 + 2 - 2 = 1 and 3 + 0 - 4 = -1."""
    column = {"reward": [1.0, 3.0], "value": [2.0, 4.0], "final_value": [0.0, 0.0]}
    arrays = {name: np.array(values).reshape(2, 1) for name, values in column.items()}
    arrays |= {"terminated": np.array([[False], [True]]), "truncated": np.zeros((2, 1), bool)}
    arrays |= {"last_value": np.array([9.0]), "importance": np.array([[0.5], [0.25]])}
    advantage = gae(**arrays, gamma=0.5, lam=0.5)
    assert advantage[:, 0].tolist() == [1 + 0.25 * 0.25 * -1, -1]
    targets = lambda_returns(**arrays, gamma=0.5, lam=0.5)
    assert targets[:, 0].tolist() == [2 + 0.5 * advantage[0, 0], 4 - 0.25]


def test_importance_is_the_ratio_of_probabilities_and_at_most_1():
    own, behaviour = np.log(np.array([0.1, 0.8, 0.5])), np.log(np.array([0.4, 0.2, 0.5]))
    assert truncated_importance(own, behaviour) == pytest.approx([0.25, 1.0, 1.0])
    assert truncated_importance(np.array([0.0]), np.array([-1e5])) == pytest.approx([1.0])


def test_a_time_limit_is_not_a_terminal_state():
    common = {
        "reward": np.ones((1, 1)),
        "value": np.zeros((1, 1)),
        "last_value": np.array([99.0]),
        "final_value": np.array([[7.0]]),
    }
    yes, no = np.array([[True]]), np.array([[False]])
    truncated = gae(**common, terminated=no, truncated=yes, gamma=0.5, lam=1.0)
    terminated = gae(**common, terminated=yes, truncated=no, gamma=0.5, lam=1.0)
    assert truncated[0, 0] == 1 + 0.5 * 7
    assert terminated[0, 0] == 1


def test_shapes_that_would_broadcast_are_refused():
    good = {k: np.zeros((3, 2)) for k in ("reward", "value", "final_value")}
    flags = {"terminated": np.zeros((3, 2), bool), "truncated": np.zeros((3, 2), bool)}
    gae(**good, **flags, last_value=np.zeros(2), gamma=0.9, lam=0.9)
    with pytest.raises(ValueError, match="one shape"):
        gae(**{**good, "reward": np.zeros((3, 1))}, **flags, last_value=np.zeros(2), gamma=0.9, lam=0.9)
    with pytest.raises(ValueError, match="last_value"):
        gae(**good, **flags, last_value=np.zeros((2, 1)), gamma=0.9, lam=0.9)
    with pytest.raises(ValueError, match="one shape"):
        gae(**good, **flags, last_value=np.zeros(2), gamma=0.9, lam=0.9, importance=np.ones(2))


def test_explained_variance_is_one_for_a_perfect_critic_and_zero_for_a_constant():
    target = np.array([1.0, 2.0, 4.0])
    assert explained_variance(target, target) == 1
    assert explained_variance(np.full(3, 5.0), target) == pytest.approx(0)
    assert np.isnan(explained_variance(target, np.ones(3)))
