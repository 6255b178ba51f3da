"""A curriculum goes from easier stages to the full task, and nothing easier is ever evaluated or proven."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from toy_environments import Corridor

import learnproof
from learnproof.comparing.sources import read_group
from learnproof.config import Settings, parse_settings, to_toml
from learnproof.envs.team_making import environment_source
from learnproof.errors import SettingsError, UsageError
from learnproof.evidence import Evidence, StageBegan
from learnproof.training.curriculum import CurriculumLook
from learnproof.training.loop import Trainer

SMALL: dict[str, Any] = {
    "env.id": "learnproof/Pendulum-v1",
    "steps": 1600,
    "policy.hidden": (8,),
    "ppo.n_steps": 50,
    "ppo.minibatch_size": 100,
    "ppo.epochs": 1,
    "evaluation.every_steps": 400,
    "evaluation.episodes": 2,
    "proof.episodes": 10,
}
SHORT = {"kwargs": {"episode_steps": 10}, "until_fraction": 0.25}
LONGER = {"kwargs": {"episode_steps": 50}, "until_score": -1e9}


def trained(folder: Path, stages: list[dict[str, Any]], **more: Any) -> tuple[learnproof.RunResult, Evidence]:
    changes = {**SMALL, "curriculum.stages": stages, **more}
    result = learnproof.train(out=folder / "run", **changes)
    return result, Evidence.read(result.path)


def test_stages_begin_by_share_and_by_score_and_the_full_task_comes_last(tmp_path: Path) -> None:
    _, evidence = trained(tmp_path, [SHORT, LONGER], **{"curriculum.episodes": 4})
    stages = evidence.of(StageBegan)
    assert [(s.stage, s.stages, s.full) for s in stages] == [(1, 3, False), (2, 3, False), (3, 3, True)]
    assert [s.kwargs for s in stages] == [{"episode_steps": 10}, {"episode_steps": 50}, {}]
    assert stages[1].step == 400
    assert "25% of the steps" in stages[1].reason
    assert stages[2].step == 600, "four episodes of 50 steps have ended by then"
    assert "4 training episodes reached" in stages[2].reason
    lengths = {bound: {e.length for e in evidence.episodes if e.step <= bound} for bound in (400, 600, 1600)}
    assert lengths == {400: {10}, 600: {10, 50}, 1600: {10, 50, 200}}


def test_evaluations_and_the_proof_are_of_the_full_task_even_if_it_is_never_reached(tmp_path: Path) -> None:
    never = {"kwargs": {"episode_steps": 10}, "until_score": 0.0}
    result, evidence = trained(tmp_path, [never])
    assert not evidence.of(StageBegan)[-1].full
    assert all(e.return_ > -170 for e in evidence.episodes)
    assert all(score < -170 for e in evidence.evaluations for score in e.deterministic)
    assert result.verdict is not None
    assert result.verdict.performance is not None
    assert result.verdict.performance.trained < -170
    with pytest.raises(UsageError, match="ended in stage 1 of its curriculum"):
        read_group(result.path, None)


def test_an_evaluation_may_open_the_next_stage(tmp_path: Path) -> None:
    stage = {"kwargs": {"episode_steps": 10}, "until_score": -1e9}
    _, evidence = trained(tmp_path, [stage], **{"curriculum.measure": "evaluation"})
    assert [s.step for s in evidence.of(StageBegan)] == [0, 200], (
        "the evaluation at step 0 counts after the first iteration"
    )
    with pytest.raises(SettingsError, match=r"waits for evaluations, and there are none"):
        trained(tmp_path / "b", [stage], **{"curriculum.measure": "evaluation", "evaluation.every_steps": 0})


class Lane(gym.Env[Any, Any]):
    """Ends after as many steps as its level says: 2 to 12."""

    def __init__(self) -> None:
        self.observation_space = gym.spaces.Box(-1, 1, (1,), np.float32)
        self.action_space = gym.spaces.Discrete(2)
        self.level = 1.0
        self.left = 0

    def set_difficulty(self, level: float) -> None:
        self.level = level

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.left = 2 + round(10 * self.level)
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> Any:
        self.left -= 1
        return np.zeros(1, np.float32), float(action), self.left == 0, False, {}


if "toy/Lane-v0" not in gym.registry:
    gym.register("toy/Lane-v0", entry_point=Lane)


@pytest.mark.parametrize("given", [False, True])
def test_an_environment_can_be_told_by_set_difficulty(tmp_path: Path, given: bool) -> None:
    stages = [{"difficulty": 0.2, "until_fraction": 0.5}]
    lanes = [gym.vector.SyncVectorEnv([Lane] * 4, autoreset_mode="SameStep") for _ in range(2)]
    world = {"env": lanes[0], "evaluation_env": lanes[1]} if given else {"env": "toy/Lane-v0"}
    changes = {**SMALL, "curriculum.stages": stages}
    del changes["env.id"]
    result = learnproof.train(out=tmp_path / "run", **world, **changes)
    evidence = Evidence.read(result.path)
    assert {e.length for e in evidence.episodes if e.step <= 800} == {4}
    assert {e.length for e in evidence.episodes if e.step > 800} == {12}


def test_a_function_may_decide(tmp_path: Path) -> None:
    looks: list[CurriculumLook] = []

    def harder(look: CurriculumLook) -> dict[str, Any] | None:
        looks.append(look)
        if look.stage == 0:
            return {"episode_steps": 10}
        return {} if len(look.scores) == 20 and look.steps_in_stage >= 400 else None

    result = learnproof.train(out=tmp_path / "run", curriculum=harder, **SMALL)
    stages = Evidence.read(result.path).of(StageBegan)
    assert [(s.stage, s.stages, s.full, s.step) for s in stages] == [(1, None, False, 0), (2, None, True, 400)]
    assert [look.stage for look in looks[:4]] == [0, 1, 1, 2]
    assert looks[1].fraction == 0.125
    with pytest.raises(UsageError, match="leave one of them out"):
        learnproof.train(out=tmp_path / "b", curriculum=harder, **SMALL, **{"curriculum.stages": [SHORT]})
    with pytest.raises(UsageError, match=r"answered 'harder'.*None to stay"):
        learnproof.train(out=tmp_path / "c", curriculum=lambda look: "harder", **SMALL)  # type: ignore[arg-type, return-value]


def refused(stage: dict[str, Any], env: str = "learnproof/TaskAllocation-v1", **more: Any) -> None:
    settings = Settings().replace({**SMALL, "env.id": env, "curriculum.stages": [stage], **more})
    Trainer(settings, environment_source(settings.env))


def test_stages_that_no_network_fits_or_that_cannot_be_made_are_refused_before_training() -> None:
    end = {"until_fraction": 0.5}
    with pytest.raises(
        SettingsError, match=r"Stage 1 of the curriculum \(n_agents = 2\) changes what is observed.*One network"
    ):
        refused({"kwargs": {"n_agents": 2}, **end})
    with pytest.raises(SettingsError, match="changes the number of agents: 2 instead of 5"):
        refused({"kwargs": {"n_agents": 2}, **end}, **{"env.per_agent": True})
    with pytest.raises(SettingsError, match=r"Stage 1 of the curriculum: .*Did you mean 'arrival_probability'"):
        refused({"kwargs": {"arrival_probabilty": 0.1}, **end})
    with pytest.raises(SettingsError, match=r"has no method set_difficulty\(level\)"):
        refused({"difficulty": 0.5, **end})
    with pytest.raises(SettingsError, match=r"has no method set_difficulty\(level\)"):
        refused({"difficulty": 0.5, **end}, "CartPole-v1")
    with pytest.raises(UsageError, match=r"was given is made already.*set_difficulty"):
        learnproof.train(
            Corridor(2), evaluation_env=Corridor(2), **{"curriculum.stages": [{"kwargs": {"a": 1}, **end}]}
        )


@pytest.mark.parametrize(
    ("stages", "message"),
    [
        ([{"kwargs": {"a": 1}}], "says what ends it"),
        ([{"until_fraction": 0.5}], "says what is easier"),
        ([{"difficulty": 2.0, "until_fraction": 0.5}], "less than or equal to 1"),
        ([{**SHORT, "until_fraction": 0.5}, SHORT], r"must rise from stage to stage, not \[0.5, 0.25\]"),
    ],
)
def test_impossible_plans_are_refused(stages: list[dict[str, Any]], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        Settings().replace({"curriculum.stages": stages})


def test_a_plan_survives_its_settings_file() -> None:
    import tomllib

    settings = Settings().replace({"curriculum.stages": [SHORT, LONGER], "curriculum.episodes": 7})
    assert parse_settings(tomllib.loads(to_toml(settings)), "a test") == settings
