"""Any PettingZoo parallel environment as rows of agents, with agents that leave before their team."""

import numpy as np
import pytest
from gymnasium import spaces
from team_environments import Leaving, Matching, Stated, Team

from learnproof.envs.agents import OWN, STATE
from learnproof.envs.parallel_agents import ParallelAgents
from learnproof.errors import EnvironmentFault, UnsupportedSpace, UsageError

NOTHING = np.zeros(6, np.int64)


def test_an_agent_that_leaves_sits_out_until_its_team_begins_anew():
    env = ParallelAgents(Leaving, 2)
    seen, _ = env.reset(seed=0)
    assert seen[OWN].tolist() == [[0, 0], [0, 1], [0, 2]] * 2
    paid, over, cut, there, teams = [], [], [], [], []
    for _ in range(6):
        there.append((~env.absent[:3]).tolist())
        seen, reward, terminated, truncated, infos = env.step(NOTHING)
        paid.append(reward[:3].tolist())
        over.append(terminated[:3].tolist())
        cut.append(truncated[:3].tolist())
        teams.append((env.team_reward[0], bool(env.team_ended[0])))
        if env.team_ended[0]:
            assert seen[OWN][:3].tolist() == [[0, 0], [0, 1], [0, 2]], "the first of the next episode"
            assert infos["final_obs"][OWN][2].tolist() == [5, 2]
        elif infos:
            row = int(np.flatnonzero(terminated)[0])
            assert infos["final_obs"][OWN][row].tolist() == seen[OWN][row].tolist(), (
                "it stands in while the agent is away"
            )
    assert there == [
        [True] * 3,
        [False, True, True],
        [False, False, True],
        [False, False, True],
        [False, False, True],
        [True] * 3,
    ]
    assert paid == [[1, 2, 3], [0, 2, 3], [0, 0, 3], [0, 0, 3], [0, 0, 3], [1, 2, 3]]
    assert over == [[True, False, False], [False, True, False], *[[False] * 3] * 3, [True, False, False]]
    assert cut == [*[[False] * 3] * 4, [False, False, True], [False] * 3]
    assert teams == [(6, False), (5, False), (3, False), (3, False), (3, True), (6, False)]


def test_a_shared_reward_is_the_sum_for_everybody_who_acted():
    env = ParallelAgents(Leaving, 1, "shared")
    env.reset(seed=0)
    paid = [env.step(NOTHING[:3])[1].tolist() for _ in range(3)]
    assert paid == [[6, 6, 6], [0, 5, 5], [0, 0, 3]]


def test_the_critic_sees_everybody_and_who_is_there():
    env = ParallelAgents(Leaving, 2)
    env.reset(seed=0)
    env.step(NOTHING)
    seen = env.step(NOTHING)[0]
    assert seen[STATE]["present"].tolist() == [[0, 0, 1]] * 6
    assert [view[0].tolist() for view in seen[STATE]["views"]] == [[1, 0], [2, 1], [2, 2]]
    assert env.observation_space.contains(seen)


def test_a_state_of_its_own_is_preferred():
    env = ParallelAgents(Stated, 2)
    env.reset(seed=0)
    assert env.step(NOTHING)[0][STATE].tolist() == [[1]] * 6
    assert env.single_observation_space[STATE] == Stated.state_space


def test_teams_are_seeded_one_by_one_and_metrics_are_those_of_a_team():
    env, alone = ParallelAgents(Matching, 2), ParallelAgents(Matching, 1)
    assert env.reset(seed=3)[0][OWN][3:].tolist() == alone.reset(seed=[4])[0][OWN].tolist()
    for _ in range(8):
        *_, infos = env.step(NOTHING)
    assert infos["final_info"]["share_right"].shape == (6,)
    assert len(set(infos["final_info"]["share_right"][:3])) == 1
    assert infos["final_info"]["_share_right"].all()


class Unequal(Leaving):
    def action_space(self, agent):
        return spaces.Discrete(2 if agent == "worker_0" else 3)


class Silent(Leaving):
    def step(self, actions):
        views, paid, over, cut, infos = super().step(actions)
        paid.pop("worker_2")
        return views, paid, over, cut, infos


class Vanishing(Leaving):
    def step(self, actions):
        answer = super().step(actions)
        self.agents = [agent for agent in self.agents if agent != "worker_2"]
        return answer


class Misshapen(Leaving):
    def views(self):
        return {agent: np.zeros(3, np.float32) if self.time else view for agent, view in super().views().items()}


class Raising(Leaving):
    def step(self, actions):
        raise RuntimeError("out of paper")


class Turns(Leaving):
    agent_selection = "worker_0"


class Nobody(Team):
    def __init__(self):
        super().__init__(0)


@pytest.mark.parametrize(
    ("kind", "error", "says"),
    [
        (Unequal, UnsupportedSpace, "same spaces"),
        (Turns, UsageError, "at the same time"),
        (Nobody, UsageError, "nobody"),
    ],
)
def test_an_environment_that_cannot_be_shared_is_refused(kind, error, says):
    with pytest.raises(error, match=says):
        ParallelAgents(kind, 1)


@pytest.mark.parametrize(
    ("kind", "says"),
    [(Silent, "'worker_2'"), (Vanishing, "without saying"), (Raising, "out of paper"), (Misshapen, "does not fit")],
)
def test_an_environment_that_breaks_its_promises_is_named(kind, says):
    env = ParallelAgents(kind, 1)
    env.reset(seed=0)
    with pytest.raises(EnvironmentFault, match=says):
        env.step(NOTHING[:3])


def test_rewards_are_individual_or_shared():
    with pytest.raises(UsageError, match="individual"):
        ParallelAgents(Leaving, 1, "equal")
