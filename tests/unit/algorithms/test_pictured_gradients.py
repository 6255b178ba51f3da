"""SAC's and DQN's gradients where an encoder reads images first: what autograd finds, written over every parameter's gradient."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from gymnasium import spaces
from hidden_and_pictured import Dots

from learnproof.algorithms.off_policy import TensorBatch
from learnproof.config import Settings
from learnproof.training.assembly import make_actor, make_learner

ROWS = 16


def learner(algorithm, actions, **changes):
    env = Dots(1, side=6)
    env.single_action_space = actions
    settings = Settings().replace({"algorithm": algorithm, "policy.hidden": (16, 8), **changes})
    made = make_learner(settings, make_actor(settings, env))
    noise = torch.Generator().manual_seed(1)
    for stepper in made.steppers.values():
        with torch.no_grad():  # last layers start near 0: too flat to tell one derivative from another
            stepper.flat.vector += 0.1 * torch.randn(stepper.flat.vector.shape, generator=noise)
    made.learning_rate = 0.0
    return made


def batch(made, discrete):
    generator = np.random.default_rng(0)
    pictures = generator.integers(0, 256, (2, ROWS, made.actor.observations.size), dtype=np.uint8)
    actions = generator.integers(0, 4, (ROWS, 1)) if discrete else generator.uniform(-2, 2, (ROWS, 1))
    return TensorBatch(
        observation=torch.from_numpy(pictures[0]),
        action=torch.from_numpy(actions.astype(np.float32)),
        reward=torch.from_numpy(generator.standard_normal(ROWS).astype(np.float32)),
        goes_on=torch.from_numpy((generator.random(ROWS) > 0.3).astype(np.float32)),
        next_observation=torch.from_numpy(pictures[1]),
        discount=torch.full((ROWS,), 0.9),
        weight=torch.from_numpy(generator.random(ROWS).astype(np.float32)),
    )


def assert_gradient_of(loss, stepper, take_step):
    parts = torch.autograd.grad(loss, list(stepper.flat.module.parameters()))
    expected = torch.cat([part.flatten() for part in parts])
    stepper.flat.gradient.fill_(float("nan"))
    told = take_step()
    torch.testing.assert_close(stepper.flat.gradient / stepper.scale, expected, rtol=1e-3, atol=1e-6)
    stepper.flat.check_aliasing()
    for stretch in stepper.flat.stretches:
        assert expected[stretch.start : stretch.stop].abs().max() > 0, stretch.name
    return told


@pytest.mark.parametrize("layer_norm", [False, True])
def test_dqn_reads_pictures(layer_norm):
    made = learner("dqn", spaces.Discrete(4), **{"policy.layer_norm": layer_norm, "dqn.duelling": True})
    given = batch(made, discrete=True)
    value = made.network(given.observation).gather(1, given.action.long()).squeeze(1)
    loss = (F.smooth_l1_loss(value, made.targets(given).clone(), reduction="none") * given.weight).mean()
    assert_gradient_of(loss, made.stepper, lambda: made.gradient_step(given, np.arange(ROWS)))


@pytest.mark.parametrize("layer_norm", [False, True])
@pytest.mark.parametrize("discrete", [False, True])
def test_sac_reads_pictures(discrete, layer_norm):
    actions = spaces.Discrete(4) if discrete else spaces.Box(-2, 2, (1,), np.float32)
    made = learner("sac", actions, **{"policy.layer_norm": layer_norm, "sac.temperature_start": 0.3})
    given, alpha = batch(made, discrete), made.alpha()
    target = made.targets(given, alpha).clone()
    action = given.action.long()
    if discrete:
        said = [values.gather(1, action).squeeze(1) for values in made.critics.of(given.observation)]
    else:
        said = [values.squeeze(1) for values in made.critics.of(given.observation, made.head.to_unit(given.action))]
    loss = sum(0.5 * ((value - target).square() * given.weight).mean() for value in said)
    assert_gradient_of(loss, made.critic_stepper, lambda: made.critic_step(given, target))

    state = made.reparameterisation.bit_generator.state
    if discrete:
        log_prob = torch.log_softmax(made.network.policy_params(given.observation), dim=1)
        loss = (log_prob.exp() * (alpha * log_prob - torch.min(*made.critics.of(given.observation)))).sum(1).mean()
    else:
        drawn = made.draw_actions(given.observation)
        worth = torch.min(*made.critics.of(given.observation, drawn.unit)).squeeze(1)
        loss = (alpha * drawn.log_prob - worth).mean()
    made.reparameterisation.bit_generator.state = state
    before = made.critic_stepper.flat.gradient.clone()
    _, told = assert_gradient_of(loss, made.actor_stepper, lambda: made.actor_step(given, alpha))
    torch.testing.assert_close(told, loss.detach())
    assert (made.critic_stepper.flat.gradient == before).all(), "the actor's loss has trained the critics"
    _, roles = made.inspected_step(given, np.arange(ROWS))
    assert roles["actor_pull"][2] < 1e-3, "the gradient is that of value and entropy"
