"""Minibatches that are drawn together are those that would have been drawn one by one."""

import gymnasium as gym
import numpy as np
import pytest
import torch

from learnproof.algorithms import off_policy
from learnproof.algorithms.learner import Inspect
from learnproof.config import Settings
from learnproof.training.assembly import make_actor, make_learner
from learnproof.training.rollout import Collector


def trained(**changes):
    """The weights after four pieces of 16 steps with 6 gradient steps each, and the batches that were looked at."""
    settings = Settings().replace(
        {
            "algorithm": "dqn", "policy.hidden": (8,), "dqn.minibatch_size": 8, "dqn.learning_starts": 16, "dqn.train_every": 16,
            "dqn.gradient_steps": 6, **changes,
        }
    )  # fmt: skip
    env = gym.make_vec("CartPole-v1", 2, vectorization_mode="sync")
    actor = make_actor(settings, env)
    collector = Collector(env, "CartPole-v1", actor, None, seed=0, raw_rows=True)
    collector.start()
    learner = make_learner(settings, actor)
    report = learner.learn((collector.collect(16)[0] for _ in range(4)), 1e-2, Inspect(gradient_steps=4))
    assert report is not None
    return learner, report.inspected


@pytest.mark.parametrize("changes", [{"dqn.target_every": 4}, {"dqn.target_every": 100, "dqn.n_step": 3}])
def test_batches_drawn_together_train_as_batches_drawn_one_by_one(changes, monkeypatch):
    together, seen = trained(**changes)
    monkeypatch.setattr(off_policy, "MOST_DRAWN_BYTES", 0)
    apart, seen_apart = trained(**changes)
    assert together.optimizer_steps == apart.optimizer_steps >= 18
    torch.testing.assert_close(together.stepper.flat.vector, apart.stepper.flat.vector, rtol=1e-5, atol=1e-6)
    for one, other in zip(seen, seen_apart, strict=True):
        np.testing.assert_array_equal(one.arrays["row"], other.arrays["row"])
        np.testing.assert_allclose(one.arrays["target"], other.arrays["target"], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("changes", "count"),
    [
        ({"dqn.target_every": 4}, 4),
        ({"dqn.target_every": 1, "dqn.target_tau": 0.01}, 1),
        ({"dqn.target_every": 4, "dqn.prioritised": True}, 1),
    ],
)
def test_no_batch_is_drawn_before_what_it_depends_on_is_known(changes, count):
    learner, _ = trained(**changes)
    learner.optimizer_steps = 40
    assert learner.drawn_together() == count
    learner.optimizer_steps = 42
    assert learner.drawn_together() == (2 if count == 4 else 1)
