"""Our classic control is Gymnasium's: the same spaces, and from the same state with the same actions the same results."""

from __future__ import annotations

import warnings
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from learnproof.envs import register_environments
from learnproof.envs.classic_control import (
    Acrobot,
    AcrobotVector,
    CartPole,
    CartPoleVector,
    MountainCar,
    MountainCarVector,
    Pendulum,
    PendulumVector,
)
from learnproof.errors import CheckpointMismatch, SettingsError, UsageError

register_environments()
Array = np.ndarray[Any, Any]
FORMS = {
    "CartPole-v1": (CartPoleVector, CartPole),
    "Acrobot-v1": (AcrobotVector, Acrobot),
    "Pendulum-v1": (PendulumVector, Pendulum),
    "MountainCar-v0": (MountainCarVector, MountainCar),
}
NAMES = sorted(FORMS)


def actions_for(env: Any, generator: np.random.Generator) -> Array:
    """Within the space, and of a Box also beyond its bounds."""
    space = env.single_action_space
    if isinstance(space, gym.spaces.Discrete):
        return generator.integers(0, space.n, env.num_envs)
    return generator.normal(0, 2, (env.num_envs, *space.shape)).astype(np.float32)


def start_twin(twin: Any, state: Array) -> None:
    twin.reset()
    twin.unwrapped.state = state.copy()


@pytest.mark.parametrize("name", NAMES)
def test_spaces_and_limits_are_those_of_gymnasium(name: str) -> None:
    ours, theirs = gym.make(f"learnproof/{name}"), gym.make(name)
    assert ours.observation_space == theirs.observation_space
    assert ours.action_space == theirs.action_space
    assert theirs.spec is not None
    assert ours.unwrapped._batch.rules.episode_steps == theirs.spec.max_episode_steps  # type: ignore[attr-defined]
    assert ours.spec is not None
    assert ours.spec.reward_threshold == theirs.spec.reward_threshold
    assert ours.metadata["render_fps"] == theirs.metadata["render_fps"]


@pytest.mark.parametrize("name", NAMES)
def test_from_the_same_state_the_same_actions_give_gymnasiums_results_over_whole_episodes(name: str) -> None:
    batch = FORMS[name][0](3, AutoresetMode.DISABLED)
    twins = [gym.make(name, disable_env_checker=True) for _ in range(3)]
    generator = np.random.default_rng(0)
    batch.reset(seed=5)
    for twin, state in zip(twins, batch.state, strict=True):
        start_twin(twin, state)
    ends = {"terminated": 0, "truncated": 0}
    for _ in range(600):
        actions = actions_for(batch, generator)
        observation, reward, terminated, truncated, _ = batch.step(actions)
        for i, twin in enumerate(twins):
            action = actions[i].astype(np.float64) if name == "Pendulum-v1" else actions[i]
            expected = twin.step(action)
            np.testing.assert_allclose(observation[i], expected[0], rtol=1e-5, atol=1e-5)
            assert reward[i] == pytest.approx(expected[1], abs=1e-5)
            assert (terminated[i], truncated[i]) == expected[2:4]
        ended = terminated | truncated
        ends["terminated"] += terminated.sum()
        ends["truncated"] += truncated.sum()
        if ended.any():
            batch.reset(options={"reset_mask": ended})
            for i in np.flatnonzero(ended):
                start_twin(twins[i], batch.state[i])
    assert ends["terminated" if name == "CartPole-v1" else "truncated"] >= 3


@pytest.mark.parametrize("name", NAMES)
def test_one_step_from_any_state_agrees_to_rounding(name: str) -> None:
    """States that random play seldom sees: fast, near the ends, at the walls."""
    batch = FORMS[name][0](400, AutoresetMode.DISABLED)
    batch.reset(seed=0)
    generator = np.random.default_rng(1)
    spread = {
        "CartPole-v1": [3, 5, 0.3, 5],
        "Acrobot-v1": [3.1, 3.1, 12.5, 28],
        "Pendulum-v1": [10, 8],
        "MountainCar-v0": [0, 0.07],
    }[name]
    states = generator.uniform(-1, 1, (400, len(spread))) * spread
    if name == "MountainCar-v0":
        states[:, 0] = generator.uniform(-1.2, 0.6, 400)
    saved = batch.snapshot()
    batch.restore({**saved, "state": states})
    actions = actions_for(batch, generator)
    observation, reward, terminated, *_ = batch.step(actions)
    twin = gym.make(name, disable_env_checker=True)
    for i in range(400):
        start_twin(twin, states[i])
        expected = twin.step(actions[i].astype(np.float64) if name == "Pendulum-v1" else actions[i])
        np.testing.assert_allclose(observation[i], expected[0], rtol=1e-6, atol=1e-7)
        assert reward[i] == pytest.approx(expected[1], abs=1e-12)
        assert terminated[i] == expected[2]
    assert terminated.any() or name == "Pendulum-v1"
    assert not terminated.all()


@pytest.mark.parametrize("name", NAMES)
def test_starts_have_gymnasiums_range_and_fill_it(name: str) -> None:
    batch = FORMS[name][0](4_000)
    batch.reset(seed=0)
    twin = gym.make(name).unwrapped
    theirs = np.stack([(twin.reset(seed=seed), np.array(twin.state))[1] for seed in range(1_000)])  # type: ignore[attr-defined]
    np.testing.assert_allclose(batch.state.min(axis=0), theirs.min(axis=0), rtol=0.02, atol=1e-4)
    np.testing.assert_allclose(batch.state.max(axis=0), theirs.max(axis=0), rtol=0.02, atol=1e-4)


def test_both_of_cartpoles_rewards_are_there() -> None:
    batch = CartPoleVector(1, "Disabled", sutton_barto_reward=True)
    twin = gym.make("CartPole-v1", sutton_barto_reward=True)
    batch.reset(seed=0)
    start_twin(twin, batch.state[0])
    ended = False
    while not ended:
        _, reward, terminated, *_ = batch.step(np.array([1]))
        assert (reward[0], terminated[0]) == twin.step(1)[1:3]
        ended = terminated.any()
    assert reward[0] == -1


@pytest.mark.parametrize("name", NAMES)
def test_gymnasium_finds_nothing_wrong_with_the_single_form(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for of_the_spaces in (".*symmetric and normalized", ".*infinity"):  # which are Gymnasium's own
            warnings.filterwarnings("ignore", message=of_the_spaces)
        check_env(gym.make(f"learnproof/{name}").unwrapped, skip_render_check=True)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_a_batch_equals_gymnasiums_own_vector_of_single_ones(name: str, mode: Any) -> None:
    vector, single = FORMS[name]
    batch = vector(4, mode, episode_steps=13)
    singles = SyncVectorEnv([lambda: single(episode_steps=13)] * 4, autoreset_mode=mode)
    generator = np.random.default_rng(0)
    assert (batch.reset(seed=11)[0] == singles.reset(seed=11)[0]).all()
    for _ in range(40):
        if mode is AutoresetMode.DISABLED and singles._autoreset_envs.any():
            mask = singles._autoreset_envs.copy()
            batch.reset(options={"reset_mask": mask.copy()})
            singles.reset(options={"reset_mask": mask.copy()})
        actions = actions_for(batch, generator)
        mine, theirs = batch.step(actions), singles.step(actions)
        for left, right in zip(mine[:4], theirs[:4], strict=True):
            assert left.dtype == right.dtype
            assert left.tobytes() == right.tobytes()
        assert mine[4].keys() == theirs[4].keys()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("steps_before", [0, 9, 30])
def test_restoring_a_snapshot_gives_the_same_bytes(name: str, steps_before: int) -> None:
    vector = FORMS[name][0]
    env, other = vector(3, episode_steps=20), vector(3, episode_steps=20)
    env.reset(seed=5)
    generator = np.random.default_rng(1)
    for _ in range(steps_before):
        env.step(actions_for(env, generator))
    saved = env.snapshot()
    actions = [actions_for(env, generator) for _ in range(50)]
    first = [env.step(a)[0].tobytes() for a in actions]
    assert other.restore(saved).tobytes() == saved["observation"].tobytes()
    assert [other.step(a)[0].tobytes() for a in actions] == first
    assert all((other.snapshot()[k] == v).all() for k, v in env.snapshot().items())


def test_a_snapshot_that_does_not_fit_is_refused() -> None:
    env = CartPoleVector(2)
    env.reset(seed=0)
    saved = env.snapshot()
    for change, message in (
        ({"state": np.full((2, 4), np.nan)}, "not a finite number"),
        ({"steps": np.array([0, 501])}, r"501, outside 0\.\.500"),
        ({"state": np.zeros((3, 4))}, r"state is float64 \(3, 4\)"),
    ):
        with pytest.raises(CheckpointMismatch, match=message):
            env.restore({**saved, **change})
    with pytest.raises(CheckpointMismatch, match=r"force was 10, is 8"):
        CartPoleVector(2, force=8.0).restore(saved)


def test_choices_that_are_none_are_refused_before_anything_changes() -> None:
    env = AcrobotVector(2)
    env.reset(seed=0)
    before = env.snapshot()
    for actions, message in (
        (np.array([0, 3]), r"actions\[1\] = 3, and there are only 0 to 2"),
        (np.array([-1, 0]), r"actions\[0\] = -1"),
        (np.array([0.0, 1.0]), "float64; here they are whole numbers from 0 to 2"),
        (np.array([[0, 1]]), r"shape \(1, 2\)"),
    ):
        with pytest.raises(UsageError, match=message):
            env.step(actions)
    assert all((env.snapshot()[k] == v).all() for k, v in before.items())
    with pytest.raises(SettingsError, match="Did you mean 'force'"):
        MountainCarVector(1, forse=1.0)


@pytest.mark.parametrize("name", NAMES)
def test_a_picture_is_gymnasiums_picture_of_the_same_state(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pygame")
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    ours, theirs = gym.make(f"learnproof/{name}", render_mode="rgb_array"), gym.make(name, render_mode="rgb_array")
    ours.reset(seed=3)
    start_twin(theirs, ours.unwrapped._batch.state[0])  # type: ignore[attr-defined]
    action = np.array([1.5], np.float32) if name == "Pendulum-v1" else 0
    for _ in range(5):
        ours.step(action)
        theirs.step(action)
    picture: Any = ours.render()
    assert picture.dtype == np.uint8
    assert (picture == theirs.render()).mean() > 0.999
    ours.close()
    with pytest.raises(UsageError, match="render_mode='rgb_array'"):
        FORMS[name][1]().render()
