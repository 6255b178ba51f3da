"""Task allocation agent by agent: the same episodes as the joint form, seen and paid one by one."""

import gymnasium as gym
import numpy as np
import pytest

from learnproof.envs.agents import OWN, STATE, OneTeam
from learnproof.envs.parallel_agents import ParallelAgents
from learnproof.envs.task_allocation import (
    TaskAllocationAgentsV0,
    TaskAllocationAgentsV1,
    TaskAllocationVectorV0,
    TaskAllocationVectorV1,
    parallel_env,
)
from learnproof.envs.task_allocation.layout import observation_parts
from learnproof.errors import CheckpointMismatch, SettingsError, UsageError

FORMS = {
    "v0": (TaskAllocationAgentsV0, TaskAllocationVectorV0),
    "v1": (TaskAllocationAgentsV1, TaskAllocationVectorV1),
}
VERSIONS = sorted(FORMS)


def some_actions(env, generator):
    return generator.random((env.num_envs, 3), dtype=np.float32)


@pytest.mark.parametrize("version", VERSIONS)
def test_the_same_seeds_and_actions_give_the_episodes_of_the_joint_form(version):
    agents, joint = (kind(4, n_agents=3) for kind in FORMS[version])
    shared = FORMS[version][0](4, rewards="shared", n_agents=3)
    for env in (agents, joint, shared):
        env.reset(seed=5)
    generator = np.random.default_rng(0)
    paid_apart = False
    for _ in range(101):
        actions = some_actions(agents, generator)
        _, own, *_, infos = agents.step(actions)
        _, paid, *_ = shared.step(actions)
        _, reward, _, truncated, joint_infos = joint.step(actions.reshape(4, 9))
        assert (agents.team_reward == reward).all()
        assert (agents.team_ended == truncated).all()
        np.testing.assert_allclose(own.reshape(4, 3).sum(1), reward, atol=1e-9)
        assert (paid.reshape(4, 3) == reward[:, None]).all()
        paid_apart |= bool((own.reshape(4, 3)[:, 0] != own.reshape(4, 3)[:, 1]).any())
        for name, value in joint_infos.get("final_info", {}).items():
            assert (infos["final_info"][name] == np.repeat(value, 3)).all()
    assert paid_apart


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("n_agents", [1, 2, 5])
def test_what_an_agent_sees_by_its_definition(version, n_agents):
    agents, joint = (kind(3, n_agents=n_agents) for kind in FORMS[version])
    seen, _ = agents.reset(seed=1)
    whole, _ = joint.reset(seed=1)
    generator, rules = np.random.default_rng(0), joint.rules
    for _ in range(105):
        parts = observation_parts(whole, rules)
        for team in range(3):
            features, slots, matrix = parts.agents[team], parts.slots[team], parts.matrix[team]
            for agent in range(n_agents):
                others = [other for other in range(n_agents) if other != agent]
                first = [(agent - k) % rules.max_tasks if version == "v1" else k for k in range(4)]
                expected = [
                    features[agent],
                    slots[first].ravel(),
                    [matrix[agent, others].mean() if others else 0, matrix[others, agent].mean() if others else 0],
                    features.mean(0),
                    slots.mean(0),
                ]
                row = seen[OWN][team * n_agents + agent]
                np.testing.assert_allclose(row, np.concatenate(expected), rtol=1e-5, atol=1e-6)
                state = [features.mean(0), features.std(0), slots.mean(0), slots.std(0), [matrix.mean(), matrix.std()]]
                row = seen[STATE][team * n_agents + agent]
                np.testing.assert_allclose(row, np.concatenate(state), rtol=1e-4, atol=2e-5)
        actions = some_actions(agents, generator)
        seen = agents.step(actions)[0]
        whole = joint.step(actions.reshape(3, -1))[0]
        assert agents.observation_space.contains(seen)


def test_the_belt_brings_what_was_seen_ahead():
    """What stands two steps ahead stands before the agent two steps later, if nobody takes it and it is not overdue."""
    env = TaskAllocationAgentsV1(1, n_agents=6, slack_min=40, slack_max=40, arrival_probability=0.0, initial_tasks=6)
    seen, _ = env.reset(seed=3)
    features, slot = env.rules.agent_features, env.rules.slot_features
    for ahead in range(4):
        types = slice(4, slot)
        there = seen[OWN][:, features + ahead * slot : features + (ahead + 1) * slot][:, types]
        other = TaskAllocationAgentsV1(
            1, n_agents=6, slack_min=40, slack_max=40, arrival_probability=0.0, initial_tasks=6
        )
        later, _ = other.reset(seed=3)
        for _ in range(ahead):
            later = other.step(np.zeros((6, 3), np.float32))[0]
        assert (later[OWN][:, features : features + slot][:, types] == there).all()


def test_the_size_of_what_is_seen_does_not_grow_with_the_team():
    sizes = {n: TaskAllocationAgentsV1(1, n_agents=n).single_observation_space for n in (1, 3, 50)}
    assert len({(size[OWN].shape, size[STATE].shape) for size in sizes.values()}) == 1
    few = TaskAllocationAgentsV0(1, n_agents=2, max_tasks=2)
    seen, _ = few.reset(seed=0)
    assert few.own_space.shape == TaskAllocationAgentsV0(1, n_agents=5).own_space.shape
    assert (seen[OWN][:, 7 + 2 * 5 : 7 + 4 * 5] == 0).all(), "a queue of two has no third task"
    joint = TaskAllocationAgentsV1(1, state="joint", n_agents=4)
    assert (
        joint.single_observation_space[STATE].shape == TaskAllocationVectorV1(1, n_agents=4).observation_space.shape[1:]
    )


@pytest.mark.parametrize("version", VERSIONS)
def test_the_pettingzoo_form_shows_the_same_where_it_is_asked_for_the_compact_view(version):
    native = FORMS[version][0](2, n_agents=3, episode_steps=7)
    adapted = ParallelAgents(
        lambda: parallel_env(version, "individual", "compact", n_agents=3, episode_steps=7), 2, "individual"
    )
    assert native.own_space == adapted.own_space
    ours, theirs = (env.reset(seed=9)[0] for env in (native, adapted))
    generator = np.random.default_rng(0)
    for _ in range(7):
        assert (ours[OWN] == theirs[OWN]).all()
        actions = some_actions(native, generator)
        one, other = native.step(actions), adapted.step(actions)
        for mine, its in zip(one[1:4], other[1:4], strict=True):
            assert (mine == its).all()
        assert (native.team_reward == adapted.team_reward).all() or np.allclose(native.team_reward, adapted.team_reward)
        ours, theirs = one[0], other[0]
    assert (one[4]["final_obs"][OWN] == other[4]["final_obs"][OWN]).all()
    assert (one[4]["final_info"]["completion_rate"] == other[4]["final_info"]["completion_rate"]).all()


@pytest.mark.parametrize("version", VERSIONS)
def test_a_team_does_not_know_how_many_others_there_are(version):
    many, one = FORMS[version][0](5, n_agents=3), FORMS[version][0](1, n_agents=3)
    seen, alone = many.reset(seed=4)[0], one.reset(seed=[6])[0]
    generator = np.random.default_rng(0)
    for _ in range(120):
        for part in (OWN, STATE):
            assert (seen[part][6:9] == alone[part]).all()
        actions = some_actions(many, generator)
        seen, reward, *_ = many.step(actions)
        alone, its, *_ = one.step(actions[6:9])
        assert (reward[6:9] == its).all()


@pytest.mark.parametrize("version", VERSIONS)
def test_a_restored_team_goes_on_in_the_same_bytes(version):
    kind = FORMS[version][0]
    env, other = kind(3, n_agents=4), kind(3, n_agents=4)
    env.reset(seed=0)
    generator = np.random.default_rng(0)
    for _ in range(30):
        seen = env.step(some_actions(env, generator))[0]
    other.reset(seed=77)
    restored = other.restore(env.snapshot())
    assert all((restored[part] == seen[part]).all() for part in (OWN, STATE))
    for _ in range(100):
        actions = some_actions(env, generator)
        one, two = env.step(actions), other.step(actions)
        assert all((one[0][part] == two[0][part]).all() for part in (OWN, STATE))
        assert (one[1] == two[1]).all()
    with pytest.raises(CheckpointMismatch):
        kind(2, n_agents=4).restore(env.snapshot())


def test_what_an_episode_ended_with_is_in_the_infos():
    env = TaskAllocationAgentsV1(2, n_agents=3, episode_steps=4)
    apart = gym.make_vec("learnproof/TaskAllocation-v1", 2, n_agents=3, episode_steps=4, autoreset_mode="Disabled")
    env.reset(seed=0)
    apart.reset(seed=0)
    actions = np.full((6, 3), 0.9, np.float32)
    for _ in range(4):
        *_, infos = env.step(actions)
        last, *_ = apart.step(actions.reshape(2, 9))
    own, state = env.views.of(last)
    assert (infos["final_obs"][OWN] == own.reshape(6, -1)).all()
    assert (infos["final_obs"][STATE] == np.repeat(state, 3, axis=0)).all()
    assert infos["_final_obs"].all()


def test_one_team_as_a_single_environment():
    env = OneTeam(TaskAllocationAgentsV1(1, n_agents=3, episode_steps=4))
    env.reset(seed=0)
    for step in range(4):
        _, reward, terminated, truncated, info = env.step(np.ones((3, 3), np.float32))
        assert isinstance(reward, float)
        assert (terminated, truncated) == (False, step == 3)
    assert 0 <= info["completion_rate"] <= 1


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"rewards": "equal"}, "individual"),
        ({"state": "none"}, "compact"),
        ({"n_teams": 0}, "at least one"),
    ],
)
def test_what_cannot_be_is_refused(arguments, says):
    with pytest.raises(UsageError, match=says):
        TaskAllocationAgentsV1(**{"n_teams": 1, **arguments})


def test_wrong_calls_are_refused():
    with pytest.raises(SettingsError, match="n_agents"):
        TaskAllocationAgentsV1(1, n_agent=3)
    env = TaskAllocationAgentsV1(2, n_agents=3)
    with pytest.raises(UsageError, match="2 teams"):
        env.reset(seed=[1, 2, 3])
    with pytest.raises(UsageError, match="no options"):
        env.reset(options={"reset_mask": np.ones(6, bool)})
    env.reset(seed=0)
    with pytest.raises(UsageError, match=r"\(6, 3\)"):
        env.step(np.zeros((2, 9), np.float32))
