"""The derivatives that DQN and SAC have written out are those that autograd finds for the losses in their docstrings."""

import gymnasium as gym
import numpy as np
import pytest
import torch
import torch.nn.functional as F

from learnproof.algorithms.dqn import DQN
from learnproof.algorithms.off_policy import TensorBatch
from learnproof.algorithms.sac import SAC
from learnproof.config import Settings
from learnproof.training.assembly import make_actor, make_learner

ROWS = 32


def learner(algorithm, env, **changes):
    settings = Settings().replace({"algorithm": algorithm, "policy.hidden": (16, 8), **changes})
    vector = gym.make_vec(env, 1, vectorization_mode="sync")
    made = make_learner(settings, make_actor(settings, vector))
    made.actor.network.apply(_spread)  # last layers start near 0: too flat to tell one derivative from another
    return made


def _spread(module):
    if isinstance(module, torch.nn.Linear):
        with torch.no_grad():
            module.weight.mul_(1.5).add_(
                0.2 * torch.randn(module.weight.shape, generator=torch.Generator().manual_seed(1))
            )


def batch(made, discrete):
    generator = np.random.default_rng(0)
    size = made.actor.observations.size

    def normal(*shape):
        return torch.from_numpy(generator.standard_normal(shape).astype(np.float32))

    actions = generator.integers(0, 2, (ROWS, 1)) if discrete else generator.uniform(-2, 2, (ROWS, 1))
    return TensorBatch(
        observation=normal(ROWS, size),
        action=torch.from_numpy(actions.astype(np.float32)),
        reward=normal(ROWS),
        goes_on=torch.from_numpy((generator.random(ROWS) > 0.3).astype(np.float32)),
        next_observation=normal(ROWS, size),
        discount=torch.full((ROWS,), 0.9),
        weight=torch.from_numpy(generator.random(ROWS).astype(np.float32)),
    )


def gradient_of(stepper):
    return stepper.flat.gradient.clone() / stepper.scale


def by_autograd(loss, stepper):
    parts = torch.autograd.grad(loss, list(stepper.flat.module.parameters()), allow_unused=True)
    pieces = [
        torch.zeros_like(p) if g is None else g for p, g in zip(stepper.flat.module.parameters(), parts, strict=True)
    ]
    return torch.cat([piece.flatten() for piece in pieces])


@pytest.mark.parametrize("duelling", [False, True])
@pytest.mark.parametrize("double", [False, True])
@pytest.mark.parametrize("layer_norm", [False, True])
def test_dqn(duelling, double, layer_norm):
    made = learner(
        "dqn", "CartPole-v1", **{"dqn.duelling": duelling, "dqn.double": double, "policy.layer_norm": layer_norm}
    )
    assert isinstance(made, DQN)
    given = batch(made, discrete=True)
    value = made.network(given.observation).gather(1, given.action.long()).squeeze(1)
    with torch.no_grad():
        told = made.slower(given.next_observation)
        chosen = (made.network(given.next_observation) if double else told).argmax(1, keepdim=True)
        target = given.reward + given.discount * given.goes_on * told.gather(1, chosen).squeeze(1)
    loss = (F.smooth_l1_loss(value, target, reduction="none") * given.weight).mean()
    expected = by_autograd(loss, made.stepper)
    made.learning_rate = 0.0
    step = made.gradient_step(given, np.arange(ROWS))
    torch.testing.assert_close(gradient_of(made.stepper), expected, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(step.loss, loss.detach())


@pytest.mark.parametrize("env", ["Pendulum-v1", "CartPole-v1"])
@pytest.mark.parametrize("layer_norm", [False, True])
def test_sac(env, layer_norm):
    made = learner("sac", env, **{"policy.layer_norm": layer_norm, "sac.temperature_start": 0.3})
    assert isinstance(made, SAC)
    made.critics.apply(_spread)
    made.learning_rate = 0.0
    given = batch(made, discrete=made.critics.discrete)
    target = made.targets(given, made.alpha())

    rows, action = made._critic_rows(given, given.observation)
    said = [v.squeeze(1) if action is None else v.gather(1, action).squeeze(1) for v in made.critics(rows)]
    critic_loss = sum(0.5 * ((value - target.clone()).square() * given.weight).mean() for value in said)
    expected = by_autograd(critic_loss, made.critic_stepper)
    made.critic_step(given, target.clone())
    torch.testing.assert_close(gradient_of(made.critic_stepper), expected, rtol=1e-4, atol=1e-6)

    alpha = made.alpha()
    state = made.reparameterisation.bit_generator.state
    if made.critics.discrete:
        log_prob = torch.log_softmax(made.network.policy(given.observation), dim=1)
        loss = (log_prob.exp() * (alpha * log_prob - torch.min(*made.critics(given.observation)))).sum(1).mean()
    else:
        drawn = made.draw_actions(given.observation)
        worth = torch.min(*made.critics(torch.cat([given.observation, drawn.unit], 1))).squeeze(1)
        loss = (alpha * drawn.log_prob - worth).mean()
    expected = by_autograd(loss, made.actor_stepper)
    made.reparameterisation.bit_generator.state = state
    before = made.critic_stepper.flat.gradient.clone()
    _, told = made.actor_step(given, alpha)
    torch.testing.assert_close(gradient_of(made.actor_stepper), expected, rtol=1e-3, atol=1e-6)
    torch.testing.assert_close(told, loss.detach())
    assert (made.critic_stepper.flat.gradient == before).all(), "the actor's loss has trained the critics"


def test_the_density_of_a_squashed_gaussian_integrates_to_one():
    made = learner("sac", "Pendulum-v1")
    head = made.head
    head.uniform.fill_(False)
    params = torch.tensor([[0.7, -0.4]])
    grid = torch.linspace(-2, 2, 40_001)[1:-1, None]
    log_prob, _ = head.log_prob_and_entropy(params.expand(len(grid), 2), grid)
    # densities are those of the action in -1..1, half as long as -2..2
    assert float(log_prob.exp().mean() * 2) == pytest.approx(1, abs=1e-3)
    sampled = head.sample(params.expand(20_000, 2), np.random.default_rng(0))
    shares = np.histogram(sampled.numpy(), bins=8, range=(-2, 2))[0] / 20_000
    mass = log_prob.exp()[:-1].reshape(-1)[: 8 * 4999].reshape(8, -1).mean(1) * 2 / 8
    np.testing.assert_allclose(shares, mass, atol=0.02)
