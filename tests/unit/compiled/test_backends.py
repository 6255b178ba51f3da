"""Which runs machine code takes, that both backends train alike, and that either goes on from the other's checkpoint."""

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from toy_environments import Corridor

import learnproof
from learnproof.algorithms.learner import Inspect
from learnproof.compiled.off_policy import CompiledDQN, CompiledOffPolicy, CompiledSAC
from learnproof.compiled.on_policy import CompiledOnPolicy
from learnproof.config import Settings
from learnproof.errors import SettingsError
from learnproof.training.assembly import actor_for_spaces, make_actor, make_learner
from learnproof.training.rollout import Collector

BOX = spaces.Box(-1.0, 1.0, (3,), np.float32)
FORCES = spaces.Box(-2.0, 2.0, (2,), np.float32)
CHOICES = spaces.Discrete(3)
SMALL = {"policy.hidden": (8, 6), "steps": 4_000}


def learner_of(action_space, observation_space=BOX, **changes):
    settings = Settings().replace({**SMALL, **changes})
    actor = actor_for_spaces(settings, observation_space, action_space, None)
    return make_learner(settings, actor, n_envs=2)


@pytest.mark.parametrize(
    ("algorithm", "space"),
    [("ppo", CHOICES), ("ppo", FORCES), ("reinforce", CHOICES), ("dqn", CHOICES), ("sac", FORCES), ("sac", CHOICES)],
)
def test_plain_networks_are_taken_by_itself(algorithm, space):
    assert isinstance(learner_of(space, algorithm=algorithm), (CompiledOnPolicy, CompiledOffPolicy))
    assert not isinstance(
        learner_of(space, algorithm=algorithm, backend="torch"), (CompiledOnPolicy, CompiledOffPolicy)
    )


IMAGES = spaces.Box(0, 255, (36, 36, 1), np.uint8)


@pytest.mark.parametrize(
    ("changes", "space", "observed", "why"),
    [
        ({"policy.shared_trunk": True}, CHOICES, BOX, "shared_trunk"),
        ({"policy.layer_norm": True}, CHOICES, BOX, "layer_norm"),
        ({"policy.recurrent": True}, CHOICES, BOX, "memory"),
        ({}, CHOICES, IMAGES, "images"),
        ({"optimizer.kind": "adamw"}, CHOICES, BOX, "adam"),
        ({"optimizer.grokfast": 2.0}, CHOICES, BOX, "adam"),
        ({"algorithm": "reinforce", "reinforce.kl_coefficient": 0.1}, CHOICES, BOX, "second policy"),
        ({"algorithm": "dqn", "dqn.duelling": True}, CHOICES, BOX, "duelling"),
    ],
)
def test_what_only_torch_can_is_left_to_it_and_refused_by_name(changes, space, observed, why):
    assert not isinstance(learner_of(space, observed, **changes), (CompiledOnPolicy, CompiledOffPolicy))
    with pytest.raises(SettingsError, match=why):
        learner_of(space, observed, backend="compiled", **changes)


def trained(backend, algorithm, environment, **changes):
    """Weights, and what was reported, after a few iterations in a toy world; and the learner with its collector."""
    world = environment()
    settings = Settings().replace(
        {**SMALL, "algorithm": algorithm, "backend": backend, "env.n_envs": world.num_envs, **changes}
    )
    actor = make_actor(settings, world)
    learner = make_learner(settings, actor, n_envs=world.num_envs)
    collector = Collector(world, "toy", actor, None, 3, raw_rows=algorithm in ("dqn", "sac"))
    collector.start()
    return learner, collector


def iterate(learner, collector, times, inspect=0):
    length, count = getattr(learner.settings, "n_steps", 4), 16 if hasattr(learner.settings, "train_every") else 1
    reports = []
    for _ in range(times):
        pieces = (collector.collect(length)[0] for _ in range(count))
        reports.append(learner.learn(pieces, 1e-3, Inspect(inspect, 16 if inspect else 0)))
    return reports


WORLDS = {
    "ppo": (lambda: Corridor(4), {"ppo.n_steps": 32, "ppo.minibatch_size": 48, "ppo.epochs": 3}),
    "reinforce": (lambda: Corridor(4), {"reinforce.n_steps": 32}),
    "dqn": (lambda: Corridor(4), {"dqn.learning_starts": 32, "dqn.target_every": 7, "dqn.gradient_steps": 5}),
    "dqn by priority": (lambda: Corridor(4), {"dqn.learning_starts": 32, "dqn.prioritised": True, "dqn.n_step": 3}),
    "sac": (
        lambda: gym.make_vec("learnproof/Pendulum-v1", num_envs=2, vectorization_mode="vector_entry_point"),
        {"sac.learning_starts": 32, "sac.minibatch_size": 32, "sac.gradient_steps": 3},
    ),
    "sac of choices": (lambda: Corridor(4), {"sac.learning_starts": 32, "sac.minibatch_size": 32}),
}


@pytest.mark.parametrize("name", list(WORLDS))
@pytest.mark.parametrize("inspect", [0, 3])
def test_both_backends_learn_alike(name, inspect):
    world, changes = WORLDS[name]
    found = {}
    for backend in ("torch", "compiled"):
        learner, collector = trained(backend, name.split()[0], world, **changes)
        found[backend] = (iterate(learner, collector, 4, inspect)[-1], learner.tensors(), learner.state())
    (one, tensors, state), (other, others, its_state) = found["torch"], found["compiled"]
    assert state == its_state, "counters and generators"
    for group, arrays in tensors.items():
        for key, array in arrays.items():
            np.testing.assert_allclose(others[group][key], array, atol=2e-3, rtol=2e-3, err_msg=f"{group} {key}")
    for field in ("loss", "value_loss", "entropy", "grad_norm", "approx_kl"):
        np.testing.assert_allclose(getattr(other, field), getattr(one, field), rtol=0.02, atol=2e-4, err_msg=field)
    assert len(one.inspected) == len(other.inspected)
    for seen, also in zip(one.inspected, other.inspected, strict=True):
        assert seen.arrays.keys() == also.arrays.keys()
        assert (seen.optimizer_step, seen.minibatch, seen.epoch) == (also.optimizer_step, also.minibatch, also.epoch)
        assert seen.parameters.keys() == also.parameters.keys()


@pytest.mark.parametrize("name", list(WORLDS))
@pytest.mark.parametrize(("first", "then"), [("torch", "compiled"), ("compiled", "torch")])
def test_either_goes_on_from_the_others_checkpoint(name, first, then):
    world, changes = WORLDS[name]
    learner, collector = trained(first, name.split()[0], world, **changes)
    iterate(learner, collector, 3)
    other, its_collector = trained(then, name.split()[0], world, **changes)
    other.load(
        learner.state(), {g: {k: a.copy() for k, a in arrays.items()} for g, arrays in learner.tensors().items()}
    )
    its_collector.load(collector.state(), {k: a.copy() for k, a in collector.tensors().items()})
    for each, its in ((learner, collector), (other, its_collector)):
        iterate(each, its, 1)
    assert learner.optimizer_steps == other.optimizer_steps
    for key, array in learner.tensors()["weights"].items():
        np.testing.assert_allclose(other.tensors()["weights"][key], array, atol=2e-3, err_msg=key)


@pytest.mark.parametrize(
    ("kind", "space", "algorithm"),
    [(CompiledDQN, CHOICES, "dqn"), (CompiledSAC, FORCES, "sac"), (CompiledSAC, CHOICES, "sac")],
)
def test_actions_are_those_that_torch_would_take(kind, space, algorithm):
    learner = learner_of(space, algorithm=algorithm)
    assert isinstance(learner, kind)
    actor, rows = learner.actor, np.random.default_rng(0).standard_normal((50, 3)).astype(np.float32)
    for mode in ("sampled", "deterministic"):
        quick = actor.act_on_rows(rows, np.random.default_rng(1), mode)
        kept, actor.compiled = actor.compiled, None
        plain = actor.act_on_rows(rows, np.random.default_rng(1), mode)
        actor.compiled = kept
        np.testing.assert_allclose(quick.raw, plain.raw, atol=1e-5)
        if mode == "sampled":
            np.testing.assert_allclose(quick.log_prob, plain.log_prob, atol=1e-3)
        assert (quick.log_prob is None) == (plain.log_prob is None)


def test_gradients_that_are_not_finite_are_refused(tmp_path):
    learner, collector = trained("compiled", "ppo", WORLDS["ppo"][0], **WORLDS["ppo"][1])
    rollout, _ = collector.collect(32)
    rollout.reward[5, 1] = np.nan
    before = learner.flat.vector.detach().clone()
    with pytest.raises(learnproof.errors.TrainingFault, match="not finite"):
        learner.learn(iter([rollout]), 1e-3, Inspect())
    assert bool((learner.flat.vector == before).all())
