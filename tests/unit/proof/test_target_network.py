"""The target network must stand where it should; what float32 cannot keep of its weights is not held against it."""

from __future__ import annotations

import numpy as np
import pytest

from learnproof.evidence import Evidence, Inspection, RunStarted, Update
from learnproof.evidence.events import ModuleChange
from learnproof.proof.check import Finding, run_checks
from learnproof.proof.temporal import TargetNetworkFollows

LISTS = ("policy_loss", "value_loss", "entropy", "grad_norm", "grad_norm_max", "approx_kl", "clip_fraction", "loss")
NUMBERS = ("explained_variance", "advantage_mean", "advantage_std", "weight_change")


def ask(went: float, way: float, off: float, weight_norm: float = 10.0) -> Finding:
    """Ten iterations of one inspected gradient step each, all alike."""
    run = RunStarted(
        producer="test", algorithm="dqn", environment="made up", seed=0, metric="return", n_envs=1,
        constants={"target_every": 1}, parameters={},
    )  # fmt: skip
    evidence = Evidence(run=run)
    module = ModuleChange(
        weight_norm=weight_norm, weight_change=1.0, weight_step=went, grad_norm=0.0, learning_rate=0.0
    )
    for i in range(10):
        figures = {**{name: [0.0] for name in LISTS}, **dict.fromkeys(NUMBERS, 0.0)}
        evidence.add(
            Update(
                index=i,
                step=i,
                optimizer_steps=i + 1,
                learning_rate=1e-3,
                weight_step=1.0,
                modules={"target": module},
                **figures,
            )
        )
        evidence.held[i] = {"target_moved": np.array([went, way, off, 1.0], np.float32)}
        evidence.add(Inspection(kind="gradient_step", update=i, optimizer_step=i, roles=["target_moved"]))
    return run_checks(evidence, [TargetNetworkFollows()], 0.001)[0]


@pytest.mark.parametrize(("way", "off"), [(1.0, 0.0), (1.0, 9e-4), (5e-5, 4e-7)], ids=["exact", "near", "converged"])
def test_a_network_that_follows_passes(way: float, off: float) -> None:
    assert ask(0.02 * way, way, off).status == "pass"


@pytest.mark.parametrize(("way", "off"), [(1.0, 0.02), (5e-5, 1e-5)], ids=["too short", "converged and wrong"])
def test_one_that_stands_elsewhere_is_refused(way: float, off: float) -> None:
    assert ask(0.02 * way, way, off).status == "fail"
