"""A reward that chance never finds: curiosity finds it, and the best policy without it is the one that gives up."""

import pytest
from toy_environments import Dive

import learnproof

pytestmark = pytest.mark.slow

SMALL = {
    "policy.hidden": (64, 64),
    "ppo.n_steps": 128,
    "ppo.minibatch_size": 256,
    "ppo.epochs": 4,
    "ppo.learning_rate": 1e-3,
    "curiosity.learning_rate": 1e-3,
    "evaluation.every_steps": 0,
    "proof.episodes": 30,
    "steps": 60_000,
}


def trained(folder, coefficient, seed):
    settings = {**SMALL, "curiosity.coefficient": coefficient, "seed": seed}
    return learnproof.train(Dive(8), evaluation_env=Dive(30), out=folder, **settings).verdict


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_curiosity_finds_what_chance_does_not(tmp_path, seed):
    """The bottom pays 0.89 after its costs; chance finds it once in 4,096 dives."""
    verdict = trained(tmp_path / "run", 0.3, seed)
    assert verdict.verdict == "proven", verdict.missing
    assert verdict.performance.trained > 0.8


def test_without_it_nothing_is_found(tmp_path):
    verdict = trained(tmp_path / "run", 0.0, 0)
    assert verdict.verdict == "unproven"
