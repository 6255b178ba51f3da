"""The plugin in a test suite of its own: what learns passes, what does not fails with the reason."""

from __future__ import annotations

import pytest

import learnproof.probing.climbing  # noqa: F401  numpy must be there before pytester begins to undo imports

pytest_plugins = ("pytester",)

TABLE = """
from learnproof.probing.solving import action_values

def answers(env, gamma, fault=""):
    worth = action_values(env.rung, gamma, fault)
    shown = {env.observe(state).tobytes(): values for state, values in worth.items()}
    return lambda seen: int(shown[seen.tobytes()].argmax())
"""


@pytest.fixture(autouse=True)
def table(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(table=TABLE)
    pytester.syspathinsert()


def test_one_test_per_rung_and_values_are_skipped_where_there_are_none(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import pytest
        from table import answers

        @pytest.mark.must_learn
        def test_agent(env, gamma):
            return answers(env, gamma)
        """
    )
    result = pytester.runpytest_inprocess("-p", "no:cacheprovider", "-p", "no:xdist", "--strict-markers")
    result.assert_outcomes(passed=8, skipped=3)


def test_the_rung_that_fails_says_what_is_broken(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import pytest
        from table import answers

        @pytest.mark.must_learn(rungs=["time_limit", "terminal"], seeds=2)
        def test_agent(env, gamma, tmp_path):
            assert tmp_path.exists()
            return answers(env, gamma, "limit_is_end")

        class TestInAClass:
            @pytest.mark.must_learn("terminal")
            def test_method(self, make_env, gamma):
                return answers(make_env(), gamma)
        """
    )
    result = pytester.runpytest_inprocess("-p", "no:cacheprovider", "-p", "no:xdist")
    result.assert_outcomes(passed=2, failed=1)
    result.stdout.fnmatch_lines(["*time_limit was not climbed*", "*takes a time limit for the end of the task*"])


def test_what_training_raises_is_shown_as_it_is(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.must_learn("action_reward")
        def test_agent(env):
            raise RuntimeError("size mismatch")

        @pytest.mark.must_learn("action_reward")
        def test_nothing(env):
            pass
        """
    )
    result = pytester.runpytest_inprocess("-p", "no:cacheprovider", "-p", "no:xdist")
    result.assert_outcomes(failed=2)
    result.stdout.fnmatch_lines(["*RuntimeError: size mismatch*", "*returned nothing*"])


def test_wrong_options_are_refused(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.must_learn(rung="terminal")
        def test_agent(env):
            return lambda seen: 0
        """
    )
    result = pytester.runpytest_inprocess("-p", "no:cacheprovider", "-p", "no:xdist")
    result.stdout.fnmatch_lines(["*must_learn does not know 'rung'*"])


LOOP = """
import gymnasium as gym
import numpy as np
import torch
from torch import nn


def train(episodes, lr=1e-2, sign=1.0):
    torch.manual_seed(0)
    env = gym.make("CartPole-v1")
    policy = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 2))
    optimizer = torch.optim.Adam(policy.parameters(), lr=lr)
    seen, _ = env.reset(seed=0)
    for episode in range(episodes):
        log_probs, rewards, done = [], [], False
        while not done:
            choice = torch.distributions.Categorical(logits=policy(torch.as_tensor(seen)))
            action = choice.sample()
            log_probs.append(choice.log_prob(action))
            seen, reward, ended, cut, _ = env.step(action.item())
            rewards.append(reward)
            done = ended or cut
        seen, _ = env.reset()
        returns = torch.tensor(np.cumsum(rewards[::-1])[::-1].copy(), dtype=torch.float32)
        returns = (returns - returns.mean()) / (returns.std() + 1e-8)
        loss = -sign * (torch.stack(log_probs) * returns).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""


def test_a_watched_loop_proves_itself_or_fails(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(loop=LOOP)
    pytester.makepyfile(
        """
        import loop

        def test_it_learns(prove):
            verdict = prove(loop.train, 100)
            assert verdict.verdict == "proven"

        def test_it_runs_too_shortly(prove):
            prove(loop.train, 2, allow="unproven")

        def test_reversed(prove):
            prove(loop.train, 40, sign=-1.0)
        """
    )
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider", "-p", "no:xdist")
    result.assert_outcomes(passed=2, failed=1)
    result.stdout.fnmatch_lines(["*BROKEN*"])
