"""What every batch environment does: autoreset in three modes, seeds, snapshots, refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from learnproof.envs.task_allocation import (
    TaskAllocationV0,
    TaskAllocationV1,
    TaskAllocationVectorV0,
    TaskAllocationVectorV1,
)
from learnproof.errors import CheckpointMismatch, UsageError

Array = np.ndarray[Any, Any]
VERSIONS = [(TaskAllocationVectorV0, TaskAllocationV0), (TaskAllocationVectorV1, TaskAllocationV1)]
MODES = list(AutoresetMode)


def random_actions(env: Any, generator: np.random.Generator) -> Array:
    return generator.random(env.action_space.shape, dtype=np.float32)


def step(env: Any, actions: Array) -> tuple[Array, Array, Array, Array, dict[str, Any]]:
    """One step; where autoreset is disabled, finished instances are reset first."""
    if env.autoreset_mode is AutoresetMode.DISABLED and env.snapshot()["finished"].any():
        env.reset(options={"reset_mask": env.snapshot()["finished"]})
    answer: tuple[Array, Array, Array, Array, dict[str, Any]] = env.step(actions)
    return answer


def assert_same(left: Any, right: Any) -> None:
    assert type(left) is type(right)
    if isinstance(left, dict):
        assert left.keys() == right.keys()
        for key in left:
            assert_same(left[key], right[key])
    elif isinstance(left, tuple) or (isinstance(left, np.ndarray) and left.dtype == object):
        for a, b in zip(left, right, strict=True):
            assert_same(a, b)
    elif isinstance(left, np.ndarray):
        assert left.dtype == right.dtype
        assert left.tobytes() == right.tobytes()
    else:
        assert left == right


@pytest.mark.parametrize(("vector", "single"), VERSIONS)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("n_agents", [1, 3, 7])
def test_a_batch_equals_gymnasiums_own_vector_of_single_ones(
    vector: Any, single: Any, mode: Any, n_agents: int
) -> None:
    arguments = {"n_agents": n_agents, "episode_steps": 9}
    batch = vector(4, mode, **arguments)
    singles = SyncVectorEnv([lambda: single(**arguments)] * 4, autoreset_mode=mode)
    generator = np.random.default_rng(n_agents)
    assert_same(batch.reset(seed=11), singles.reset(seed=11))
    for _ in range(40):
        actions = random_actions(batch, generator)
        if mode is AutoresetMode.DISABLED and singles._autoreset_envs.any():
            mask = singles._autoreset_envs.copy()
            assert_same(
                batch.reset(options={"reset_mask": mask.copy()}), singles.reset(options={"reset_mask": mask.copy()})
            )
        assert_same(batch.step(actions), singles.step(actions))


@pytest.mark.parametrize(("vector", "single"), VERSIONS)
def test_instances_do_not_depend_on_their_neighbours(vector: Any, single: Any) -> None:
    alone, crowd = vector(1, n_agents=3), vector(5, n_agents=3)
    alone.reset(seed=[42])
    crowd.reset(seed=[1, 2, 42, 3, 4])
    generator = np.random.default_rng(0)
    for _ in range(150):
        actions = random_actions(crowd, generator)
        mine, theirs = alone.step(actions[2:3]), crowd.step(actions)
        assert mine[0].tobytes() == theirs[0][2].tobytes()
        assert mine[1][0] == theirs[1][2]


def test_same_step_gives_the_last_observation_apart_and_the_first_of_the_next_episode() -> None:
    env, twin = (TaskAllocationVectorV1(2, mode, n_agents=3, episode_steps=5) for mode in ("SameStep", "Disabled"))
    env.reset(seed=3)
    twin.reset(seed=3)
    actions = np.ones(env.action_space.shape, np.float32)
    for _ in range(4):
        *_, truncated, infos = env.step(actions)
        twin.step(actions)
        assert not truncated.any()
        assert infos == {}
    observation, reward, terminated, truncated, infos = env.step(actions)
    last, last_reward, *_, metrics = twin.step(actions)
    first, _ = twin.reset()
    assert truncated.all()
    assert not terminated.any(), "a time limit is not a terminal state"
    assert np.stack(list(infos["final_obs"])).tobytes() == last.tobytes()
    assert observation.tobytes() == first.tobytes()
    assert (reward == last_reward).all()
    assert_same(infos["final_info"], metrics)
    assert infos["_final_obs"].all()
    assert infos["_final_info"].all()


def test_next_step_wastes_one_step_with_reward_0_and_ignores_its_action() -> None:
    env = TaskAllocationVectorV0(2, "NextStep", n_agents=3, episode_steps=3)
    env.reset(seed=3)
    actions = np.ones(env.action_space.shape, np.float32)
    for _ in range(3):
        *_, truncated, _ = env.step(actions)
    assert truncated.all()
    before = env.snapshot()
    first = env.step(actions)
    env.restore(before)
    again = env.step(np.zeros_like(actions))
    assert_same(first, again)
    assert (first[1] == 0).all()
    assert not first[3].any()
    assert (env.snapshot()["counts"][:, 0] == 0).all(), "the clock of the new episode has not started"


def test_disabled_refuses_to_step_finished_instances_and_resets_only_the_mask() -> None:
    env = TaskAllocationVectorV0(3, AutoresetMode.DISABLED, n_agents=2, episode_steps=2)
    env.reset(seed=0)
    actions = np.ones(env.action_space.shape, np.float32)
    env.step(actions)
    env.reset(options={"reset_mask": np.array([True, False, False])})
    env.step(actions)
    with pytest.raises(UsageError, match=r"instances \[1, 2\] are over"):
        env.step(actions)
    kept = env.observation[0]
    env.reset(options={"reset_mask": np.array([False, True, True])})
    assert (env.observation[0] == kept).all()
    env.step(actions)


@pytest.mark.parametrize(("vector", "single"), VERSIONS)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("steps_before", [0, 4, 7, 10])
def test_restoring_a_snapshot_gives_the_same_bytes(vector: Any, single: Any, mode: Any, steps_before: int) -> None:
    env = vector(3, mode, n_agents=4, episode_steps=7)
    env.reset(seed=5)
    generator = np.random.default_rng(1)
    for _ in range(steps_before):
        step(env, random_actions(env, generator))
    saved = env.snapshot()
    untouched = {name: value.copy() for name, value in saved.items()}
    actions = [random_actions(env, generator) for _ in range(25)]
    first = [step(env, a) for a in actions]
    end = env.snapshot()

    other = vector(3, mode, n_agents=4, episode_steps=7)
    assert other.restore(saved).tobytes() == saved["observation"].tobytes()
    for left, right in zip(first, [step(other, a) for a in actions], strict=True):
        assert_same(left, right)
    assert_same(other.snapshot(), end)
    assert_same(saved, untouched)


def test_a_snapshot_holds_plain_arrays_of_fixed_shape() -> None:
    env = TaskAllocationVectorV1(2, n_agents=3)
    env.reset(seed=0)
    first = env.snapshot()
    for _ in range(130):
        env.step(np.ones(env.action_space.shape, np.float32))
    second = env.snapshot()
    assert {k: (v.shape, v.dtype) for k, v in first.items()} == {k: (v.shape, v.dtype) for k, v in second.items()}
    assert all(value.dtype.kind in "bufi" for value in first.values())


def changed(**changes: Any) -> Any:
    def change(snapshot: dict[str, Array]) -> None:
        for name, value in changes.items():
            if value is None:
                del snapshot[name]
            else:
                snapshot[name] = value(snapshot[name]) if callable(value) else value

    return change


def poke(index: tuple[int, ...], value: float) -> Any:
    def change(array: Array) -> Array:
        array = array.copy()
        array[index] = value
        return array

    return change


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (changed(matrix=None), "matrix is missing"),
        (changed(surplus=np.zeros(3)), "surplus is not known here"),
        (changed(queue=lambda a: a[:, :-1]), r"queue is float64 \(2, 9, 8\), here float64 \(2, 10, 8\)"),
        (changed(counts=lambda a: a.astype(np.int32)), "counts is int32"),
        (changed(autoreset_mode=np.array([1], np.uint8)), "autoreset mode 'NextStep'"),
        (changed(settings=poke((0,), 9)), "n_agents was 9, is 3"),
        (changed(counts=poke((0, 1), 10**6)), "queue's length is 1e.06, outside 0..10"),
        (changed(counts=poke((1, 2), -1)), "number of active tasks is -1"),
        (changed(active=poke((0, 5, 5), 77)), "owner is 77"),
        (changed(queue=poke((0, 0, 0), np.nan)), "type is nan"),
        (changed(matrix=poke((0, 0, 0), np.inf)), "not finite"),
    ],
)
def test_a_snapshot_that_does_not_fit_is_refused_and_changes_nothing(spoil: Any, message: str) -> None:
    env = TaskAllocationVectorV0(2, n_agents=3)
    env.reset(seed=0)
    snapshot = env.snapshot()
    spoil(snapshot)
    before = env.snapshot()
    with pytest.raises(CheckpointMismatch, match=message):
        env.restore(snapshot)
    assert_same(env.snapshot(), before)


@pytest.mark.parametrize(
    ("actions", "message"),
    [
        (np.zeros((2, 8), np.float32), r"shape \(2, 8\)"),
        (np.zeros(9, np.float32), r"shape \(9,\)"),
        (np.full((2, 9), np.nan, np.float32), r"actions\[0, 0\] = nan"),
        (np.where(np.arange(18).reshape(2, 9) == 13, np.inf, 0.0), r"actions\[1, 4\] = inf"),
    ],
)
def test_actions_that_are_no_actions_are_refused_before_anything_changes(actions: Array, message: str) -> None:
    env = TaskAllocationVectorV0(2, n_agents=3)
    env.reset(seed=0)
    before = env.snapshot()
    with pytest.raises(UsageError, match=message):
        env.step(actions)
    assert_same(env.snapshot(), before)


@pytest.mark.parametrize(("vector", "single"), VERSIONS)
def test_actions_out_of_range_are_clipped(vector: Any, single: Any) -> None:
    wild, tame = vector(2, n_agents=3), vector(2, n_agents=3)
    wild.reset(seed=0)
    tame.reset(seed=0)
    generator = np.random.default_rng(0)
    for _ in range(120):
        actions = generator.normal(0.5, 2.0, (2, 9)).astype(np.float32)
        assert_same(wild.step(actions), tame.step(np.clip(actions, 0, 1)))


def test_resets_refuse_what_cannot_be_reset() -> None:
    env = TaskAllocationVectorV0(2, n_agents=3)
    with pytest.raises(UsageError, match="before the first reset"):
        env.step(np.zeros((2, 9), np.float32))
    with pytest.raises(UsageError, match="before the first reset"):
        env.snapshot()
    with pytest.raises(UsageError, match="must cover every instance"):
        env.reset(options={"reset_mask": np.array([True, False])})
    with pytest.raises(UsageError, match="3 seeds were given for 2"):
        env.reset(seed=[1, 2, 3])
    for mask in (np.array([True]), np.array([1, 0]), [True, False]):
        with pytest.raises(UsageError, match="bool array of shape"):
            env.reset(options={"reset_mask": mask})
    with pytest.raises(UsageError, match="False everywhere"):
        env.reset(options={"reset_mask": np.array([False, False])})
    with pytest.raises(UsageError, match="no autoreset mode 'Never'"):
        TaskAllocationVectorV0(2, "Never")
    with pytest.raises(UsageError, match="at least one"):
        TaskAllocationVectorV0(0)


def test_without_a_seed_episodes_differ_and_a_later_reset_goes_on_with_the_stream() -> None:
    left, right = TaskAllocationVectorV0(1), TaskAllocationVectorV0(1)
    assert (left.reset()[0] != right.reset()[0]).any()
    left.reset(seed=1)
    right.reset(seed=1)
    assert (left.reset()[0] == right.reset()[0]).all()
    assert (left.reset()[0] != left.reset(seed=1)[0]).any()


@pytest.mark.parametrize(("vector", "single"), VERSIONS)
def test_returned_arrays_are_the_callers_own(vector: Any, single: Any) -> None:
    env = vector(2, n_agents=3)
    observation, _ = env.reset(seed=0)
    kept = observation.copy()
    answer = env.step(np.ones((2, 9), np.float32))
    assert (observation == kept).all()
    for part in answer[:4]:
        part[...] = 0
    assert env.observation.any()
