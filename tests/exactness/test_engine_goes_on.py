"""An engine saved, loaded and continued ends in the same bytes as one that was never interrupted."""

import pytest
from collecting import acting_with, collect
from toy_environments import Beam, Corridor

from crashes import digests
from learnproof import TrainingEngine

SMALL = {
    "policy.hidden": (16, 16),
    "normalize_observations": True,
    "normalize_rewards": True,
    "schedule.kind": "linear",
    "expected_transitions": 2_000,
    "keep_checkpoints": 2,
    "optimizer.grokfast": 0.5,
    "evidence.max_inspections": 6,
    "evidence.check_every_episodes": 5,
}
ALGORITHMS = {
    "ppo": (Corridor, {}),
    "dqn": (
        Corridor,
        {"dqn.prioritised": True, "dqn.n_step": 3, "dqn.duelling": True, "dqn.target_every": 7, "dqn.replay_size": 500},
    ),
    "sac": (Beam, {"sac.replay_size": 500}),
}
CALLS = 8


def goes_on(engine, world, calls):
    """Its own episodes, and in every third call those of the policy that it began with."""
    for call in calls:
        act = acting_with(engine.initial_policy, seed=call) if call % 3 == 1 else engine.act_many
        metrics = engine.train_step_now(collect(world(4), act, 5, seed=call), 16 + call, 1 + call % 2)
        if call == 2:
            engine.snapshot("early")
    return metrics


@pytest.mark.parametrize("algorithm", sorted(ALGORITHMS))
def test_an_engine_goes_on_in_the_same_bytes_its_memory_included(tmp_path, algorithm):
    world, changes = ALGORITHMS[algorithm]
    spaces = world(1).single_observation_space, world(1).single_action_space
    settings = {**SMALL, **changes, "algorithm": algorithm, "seed": 3}
    saves = (2, 5, CALLS)

    with TrainingEngine(*spaces, out=tmp_path / "calm", **settings) as calm:
        begun = 0
        for save in saves:
            last = goes_on(calm, world, range(begun, save))
            calm.save()
            begun = save
        distance = calm.distance("early")
        calm.verify_learning_now()

    with TrainingEngine(*spaces, out=tmp_path / "hunted", **settings) as hunted:
        goes_on(hunted, world, range(saves[0]))
        hunted.save()
        goes_on(hunted, world, range(saves[0], saves[0] + 2))  # lost, since it is not saved
    with TrainingEngine.load(tmp_path / "hunted", *spaces) as hunted:
        goes_on(hunted, world, range(saves[0], saves[1]))
        hunted.save()
    with TrainingEngine.load(tmp_path / "hunted", *spaces) as hunted:
        assert goes_on(hunted, world, range(saves[1], CALLS)) == last
        hunted.save()
        assert hunted.distance("early") == distance
        hunted.verify_learning_now()
    assert digests(tmp_path / "hunted") == digests(tmp_path / "calm")


def test_going_back_to_an_earlier_checkpoint_gives_the_same_end(tmp_path):
    spaces = Corridor(1).single_observation_space, Corridor(1).single_action_space
    ends = []
    for name, back in (("calm", False), ("back", True)):
        with TrainingEngine(*spaces, out=tmp_path / name, **SMALL) as engine:
            goes_on(engine, Corridor, range(3))
            engine.save()
            step = engine.progress.transitions
            goes_on(engine, Corridor, range(3, 5))
            engine.save()
            ends.append(engine.folder.path)
        if back:
            with TrainingEngine.load(tmp_path / name, *spaces, step=step) as engine:
                goes_on(engine, Corridor, range(3, 5))
                engine.save()
    assert digests(ends[0]) == digests(ends[1])
