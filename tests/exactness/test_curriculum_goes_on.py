"""A run with a curriculum, interrupted before, at and after its stages change, ends in the same bytes."""

import pytest
from test_interruptions import SMALL, Display

import learnproof
from crashes import digests
from learnproof.errors import UsageError
from learnproof.evidence import StageBegan

CHANGES = {name: value for name, value in SMALL.items() if not name.startswith("env.kwargs")}
STAGES = [
    {"kwargs": {"arrival_probability": 0.1, "episode_steps": 20}, "until_fraction": 0.3},
    {"kwargs": {"complexity_max": 0.5, "episode_steps": 40}, "until_score": 0.0, "until_fraction": 0.9},
]
WORLDS = {
    "ppo": {"env.id": "learnproof/TaskAllocation-v1", "env.kwargs": {"n_agents": 2}, "curriculum.stages": STAGES},
    "dqn": {
        "env.id": "learnproof/MountainCar-v0",
        "algorithm": "dqn",
        "dqn.prioritised": True,
        "dqn.n_step": 3,
        "dqn.learning_starts": 200,
        "curriculum.stages": [{"kwargs": {"goal_position": -0.3, "episode_steps": 50}, "until_fraction": 0.4}],
    },
}


@pytest.mark.parametrize("algorithm", ["dqn", pytest.param("ppo", marks=pytest.mark.thorough)])
def test_stages_go_on_in_the_same_bytes(tmp_path, algorithm):
    changes = {**CHANGES, **WORLDS[algorithm], "curriculum.episodes": 4}
    learnproof.train(out=tmp_path / "calm", display=Display(), **changes)
    result = learnproof.train(out=tmp_path / "hunted", display=Display(300), **changes)
    for step in (640, 1000, None):
        assert result.verdict is None
        result = learnproof.resume(tmp_path / "hunted", display=Display(step))
    stages = [e.stage for e in learnproof.Evidence.read(tmp_path / "calm").of(StageBegan)]
    assert len(stages) == 1 + len(WORLDS[algorithm]["curriculum.stages"])
    assert digests(tmp_path / "hunted") == digests(tmp_path / "calm")


def test_what_a_function_decided_goes_on_with_the_function_alone(tmp_path):
    def harder(look):
        return {"episode_steps": 20} if look.stage == 0 else {} if look.step >= 900 else None

    changes = {**CHANGES, "env.id": "learnproof/TaskAllocation-v1", "env.kwargs": {"n_agents": 2}}
    learnproof.train(out=tmp_path / "calm", display=Display(), curriculum=harder, **changes)
    learnproof.train(out=tmp_path / "hunted", display=Display(600), curriculum=harder, **changes)
    with pytest.raises(UsageError, match="Give it again"):
        learnproof.resume(tmp_path / "hunted", display=Display())
    learnproof.resume(tmp_path / "hunted", display=Display(), curriculum=harder)
    assert digests(tmp_path / "hunted") == digests(tmp_path / "calm")
