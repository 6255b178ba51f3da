"""Several single environments that a script steps in turn: each is seen from its first step in a window on, and together they are what a
network is shown."""

import os
from types import SimpleNamespace

import gymnasium as gym
import numpy as np
import pytest
import torch

from learnproof.watching import session as sessions
from learnproof.watching.calls import Calls
from learnproof.watching.environments import Environments
from learnproof.watching.identity import identities
from learnproof.watching.plan import LONG_CYCLE_STEPS
from learnproof.watching.session import Session

COUNT = 4


class Counting(gym.Env):
    """Shows its own number and how often it was stepped; an episode has a few steps."""

    action_space = gym.spaces.Discrete(2)

    def __init__(self, number: int, width: int = 2) -> None:
        self.number, self.width, self.steps = number, width, 0
        self.observation_space = gym.spaces.Box(-np.inf, np.inf, (width,), np.float32)

    def shown(self) -> np.ndarray:
        return np.array([self.number, self.steps, 0.5][: self.width], np.float32)

    def reset(self, *, seed=None, options=None):
        return self.shown(), {}

    def step(self, action):
        self.steps += 1
        return self.shown(), 1.0, False, False, {}


@pytest.fixture
def watched(monkeypatch, tmp_path):
    """Environments of a session that nothing else is attached to."""
    monkeypatch.setenv(sessions.PARENT, str(os.getpid()))
    session = Session(str(tmp_path))
    monkeypatch.setattr(sessions, "CURRENT", session)
    session.torch, session.numpy = torch, np
    session.say = lambda *_, **__: None  # type: ignore[method-assign]
    found = Environments(session)
    session.senses["environments"] = found
    session.window_doors.append(found)
    yield found
    assert session.errors == {}


def reset(watched: Environments, env: gym.Env) -> np.ndarray:
    if watched.enter_reset((env,), {}):
        watched.local.inside = False
    answer = env.reset()
    watched.leave_reset((env,), {}, answer)
    return answer[0]


def step(watched: Environments, env: gym.Env) -> np.ndarray:
    outermost = watched.enter_step((env, 0), {})
    answer = env.step(0)
    assert outermost
    watched.local.inside = False
    watched.leave_step((env, 0), {}, answer)
    return answer[0]


def in_turn(watched: Environments, envs: list, rounds: int) -> list[list[np.ndarray]]:
    return [[step(watched, env) for env in envs] for _ in range(rounds)]


def in_a_later_window(watched: Environments, envs: list) -> list[np.ndarray]:
    """A rollout that nobody looks at, an update, and what the environments had shown when the next rollout begins, in a window."""
    for env in envs:
        reset(watched, env)
    shown = in_turn(watched, envs, LONG_CYCLE_STEPS)[-1]
    assert not watched.session.window
    assert watched.journal.remembered() is None
    watched.session.update_done()
    return shown


def test_in_a_later_window_every_environments_first_step_is_among_the_transitions(watched):
    envs = [Counting(number) for number in range(COUNT)]
    before = in_a_later_window(watched, envs)
    after = in_turn(watched, envs, 3)
    assert watched.session.window
    kept = watched.journal.remembered()
    assert kept is not None
    assert kept.count == 3 * COUNT
    found = kept.taken(np.arange(kept.count))
    assert found["stream"].tolist() == list(range(COUNT)) * 3
    assert found["time"].tolist() == list(range(LONG_CYCLE_STEPS * COUNT + 1, (LONG_CYCLE_STEPS + 3) * COUNT + 1))
    assert np.array_equal(found["observation"][:COUNT], identities(np, np.stack(before)))
    assert np.array_equal(found["next_observation"], identities(np, np.concatenate(after)))
    assert np.array_equal(found["observation"][COUNT:], found["next_observation"][:-COUNT])


def test_an_environment_that_is_first_stepped_in_a_window_begins_with_its_reset(watched):
    envs = [Counting(number) for number in range(COUNT)]
    in_a_later_window(watched, envs)
    in_turn(watched, envs, 1)
    late = Counting(9)
    first = reset(watched, late)
    step(watched, late)
    kept = watched.journal.remembered()
    assert kept is not None
    found = kept.taken(np.arange(kept.count))
    assert found["stream"].tolist() == [0, 1, 2, 3, 4]
    assert found["observation"][-1] == identities(np, first[None])[0]


def test_what_a_network_is_shown_are_the_last_rows_of_all_of_them(watched):
    envs = [Counting(number) for number in range(COUNT)]
    in_a_later_window(watched, envs)
    (rows,) = in_turn(watched, envs, 1)
    assert np.array_equal(watched.shown(COUNT), np.stack(rows))
    assert np.array_equal(watched.shown(1), rows[-1][None])
    rows[1] = reset(watched, envs[1])
    assert np.array_equal(watched.shown(COUNT), np.stack(rows))
    assert watched.shown(COUNT - 1) is None
    assert watched.shown(COUNT + 1) is None


def test_rows_of_different_widths_are_not_shown_together(watched):
    envs = [Counting(0), Counting(1, width=3)]
    in_a_later_window(watched, envs)
    in_turn(watched, envs, 1)
    assert watched.shown(2) is None


def test_an_environment_that_is_gone_shows_nothing_any_more(watched):
    envs = [Counting(number) for number in range(COUNT + 1)]
    in_a_later_window(watched, envs)
    in_turn(watched, envs, 1)
    assert watched.shown(COUNT) is None
    envs.pop(0)
    (rows,) = in_turn(watched, envs, 1)
    assert np.array_equal(watched.shown(COUNT), np.stack(rows))


def test_nothing_is_shown_while_nothing_is_kept(watched):
    envs = [Counting(number) for number in range(COUNT)]
    in_a_later_window(watched, envs)
    in_turn(watched, envs, 1)
    watched.session.close_window()
    in_turn(watched, envs, 1)
    assert watched.shown(COUNT) is None


def met(watched: Environments, given: np.ndarray) -> dict[int, int]:
    """Names of what a network was given -> of what the environments had returned."""
    Calls._meet(SimpleNamespace(session=watched.session), SimpleNamespace(value=torch.from_numpy(given)))  # type: ignore[arg-type]
    return watched.session.aliases.acted


def test_what_a_network_is_given_is_paired_with_what_each_environment_returned(watched):
    envs = [Counting(number) for number in range(COUNT)]
    in_a_later_window(watched, envs)
    (rows,) = in_turn(watched, envs, 1)
    returned = np.stack(rows)
    given = np.tanh(returned / 8)
    assert met(watched, given) == dict(
        zip(identities(np, given).tolist(), identities(np, returned).tolist(), strict=True)
    )


def test_a_batch_of_another_size_is_paired_with_nothing(watched):
    envs = [Counting(number) for number in range(COUNT)]
    in_a_later_window(watched, envs)
    (rows,) = in_turn(watched, envs, 1)
    assert met(watched, np.tanh(np.stack(rows + rows))) == {}
