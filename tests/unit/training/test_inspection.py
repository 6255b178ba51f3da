"""Which iterations are inspected follows from counts alone: enough of them, spread over the run, within the budget."""

import numpy as np
import pytest

from learnproof.config import EvidenceSettings, Settings
from learnproof.training.inspection import InspectionPlan, OpenPlan, _Columns, thinned


def plan(**changes):
    return InspectionPlan(Settings().replace(changes))


def test_a_run_of_few_iterations_is_inspected_in_all_of_them():
    assert plan(steps=13 * 8192).iterations == set(range(13))
    assert plan(steps=10).iterations == {0}


def test_a_long_run_is_inspected_early_and_then_evenly_to_its_end():
    chosen = sorted(plan(steps=1000 * 8192).iterations)
    assert chosen[:8] == list(range(8))
    assert chosen[-1] == 999
    assert len(chosen) == 48
    gaps = np.diff(chosen[8:])
    assert gaps.max() - gaps.min() <= 1


@pytest.mark.parametrize("steps", [10_000, 100_000, 1_000_000])
def test_close_looks_stay_near_one_gradient_step_in_fifty(steps):
    changes = {"steps": steps, "env.n_envs": 8, "ppo.n_steps": 32, "ppo.minibatch_size": 256, "ppo.epochs": 20}
    chosen = plan(**changes)
    in_all = -(-steps // 256) * 20
    looked_at = len(chosen.iterations) * chosen.gradient_steps
    assert looked_at <= max(48, in_all / 40)
    assert len(chosen.iterations) >= 24


def test_without_evidence_nothing_is_inspected():
    chosen = plan(**{"evidence.enabled": False})
    assert chosen.iterations == set()
    assert chosen.request(0).gradient_steps == 0


@pytest.mark.parametrize("algorithm", ["dqn", "sac"])
def test_a_run_from_a_memory_is_inspected_too(algorithm):
    chosen = plan(algorithm=algorithm, steps=20_000)
    assert len(chosen.iterations) >= 24
    assert max(chosen.iterations) <= 20_000 // 256


def test_a_huge_rollout_is_trimmed_to_whole_environments_and_rows_still_point_right():
    steps, envs = 1000, 200
    keep = _Columns((steps, envs))
    assert keep.kept < envs
    value = np.arange(steps * envs).reshape(steps, envs)
    kept = keep.of_rollout({"value": value, "scale": np.array(2.0)})["value"]
    rows = np.array([0, 5, envs + 3, 999 * envs + 1, 7 * envs + envs - 1])
    trimmed = keep.of_rows({"row": rows, "value": value.ravel()[rows]})
    assert (kept.ravel()[trimmed["row"]] == trimmed["value"]).all()
    assert len(trimmed["row"]) == 4


def test_where_the_end_is_unknown_the_first_are_inspected_and_then_ever_fewer():
    chosen = sorted(OpenPlan(EvidenceSettings(max_inspections=96)).iterations)
    assert chosen[:49] == list(range(49))
    assert len(chosen) == 96
    assert (np.diff(chosen[48:]) <= 0.11 * np.array(chosen[48:-1]) + 1).all()
    assert 3000 < chosen[-1] < 6000
    assert OpenPlan(EvidenceSettings(max_inspections=1)).iterations == {0}
    assert not OpenPlan(EvidenceSettings(enabled=False)).iterations


def test_images_are_kept_thinned_and_other_observations_whole():
    narrow, wide = np.arange(12).reshape(2, 6), np.arange(2 * 28_224).reshape(2, -1)
    assert thinned({"observation": narrow, "row": np.arange(2)})["observation"] is narrow
    kept = thinned({"observation": wide, "row": np.arange(2)})
    assert kept["observation"].shape == (2, 1024)
    assert kept["observation"][:, [0, -1]].tolist() == wide[:, [0, -1]].tolist()
    assert kept["row"].tolist() == [0, 1]
