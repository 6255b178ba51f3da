"""gae and lambda_returns equal their definitions, written out as sums, on made-up cases with every kind of ending."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from learnproof.algorithms.returns import explained_variance, gae, lambda_returns, next_values


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


def test_explained_variance_is_one_for_a_perfect_critic_and_zero_for_a_constant():
    target = np.array([1.0, 2.0, 4.0])
    assert explained_variance(target, target) == 1
    assert explained_variance(np.full(3, 5.0), target) == pytest.approx(0)
    assert np.isnan(explained_variance(target, np.ones(3)))
