"""DQN's and SAC's kernels against autograd and torch's Adam: gradients in float32, weights after ten updates in float64."""

import copy

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from same_numbers import flat_gradient, flat_weights

from learnproof.compiled.adam import Moments, Stride
from learnproof.compiled.network import layer_table, starts_of
from learnproof.compiled.off_policy import make_q_room, make_soft_room
from learnproof.compiled.q_learning import Drawn, QNet, QTold, descend_q, differentiate_q
from learnproof.compiled.soft import descend_soft
from learnproof.compiled.soft_arrays import SoftMoments, SoftNet, SoftPace, SoftTold
from learnproof.config import PolicySettings
from learnproof.policies.flat import FlatParameters
from learnproof.policies.greedy import EpsilonGreedyHead, QNetwork
from learnproof.policies.heads import CategoricalHead
from learnproof.policies.soft import SoftPolicy, SquashedGaussianHead, TwinCritic, squashed_log_prob

shapes = st.fixed_dictionaries(
    {
        "size": st.integers(1, 7),
        "actions": st.integers(1, 3),
        "hidden": st.lists(st.integers(1, 20), min_size=1, max_size=3).map(tuple),
        "activation": st.sampled_from(("relu", "tanh")),
        "rows": st.integers(2, 30),
        "seed": st.integers(0, 2**20),
    }
)
REALS = {torch.float32: np.float32, torch.float64: np.float64}


def flat_of(module, real, noise):
    """The layout of a module, and its weights, stirred; the module keeps the same ones, as tensors of its own."""
    flat = FlatParameters(module)
    with torch.no_grad():
        flat.vector.add_(0.3 * torch.randn(flat.vector.shape, generator=noise))
    vector = flat.vector.detach().numpy().astype(REALS[real])
    for parameter in module.parameters():
        parameter.data, parameter.grad = parameter.data.to(real).clone(), None
    module.to(real)
    return flat, vector


def drawn_rows(rows, size, action, real, generator):
    columns = {
        "observation": generator.standard_normal((rows, size)),
        "action": action,
        "reward": generator.standard_normal(rows),
        "terminated": generator.random(rows) < 0.2,
        "next_observation": generator.standard_normal((rows, size)),
        "discount": np.full(rows, 0.97),
        "weight": generator.random(rows),
    }
    kept = {name: a if a.dtype == bool else a.astype(REALS[real]) for name, a in columns.items()}
    return Drawn(**kept), {name: torch.from_numpy(a) for name, a in kept.items()}


def moments_of(vector):
    return Moments(np.zeros_like(vector), np.zeros_like(vector))


# ---------------------------------------------------------------------- DQN


def q_case(size, actions, hidden, activation, rows, seed, real, batches=1):
    noise, generator = torch.Generator().manual_seed(seed), np.random.default_rng(seed)
    choices = actions + 1
    policy = PolicySettings(hidden=hidden, activation=activation)
    network = QNetwork(size, EpsilonGreedyHead(choices, 0.1), policy, False, noise)
    slower = copy.deepcopy(network)
    flat, vector = flat_of(network, real, noise)
    _, target = flat_of(slower, real, noise)
    layers = np.concatenate([layer_table(flat, network.trunk), line_of(network.advantage, flat)])
    net = QNet(vector, np.zeros_like(vector), target, layers, activation == "tanh")
    action = generator.integers(0, choices, (rows * batches, 1)).astype(float)
    drawn, tensors = drawn_rows(rows * batches, size, action, real, generator)
    return network, slower, net, drawn, tensors


def line_of(layer, flat):
    starts = starts_of(flat)
    return np.array(
        [(starts[id(layer.weight)], starts[id(layer.bias)], layer.out_features, layer.in_features)], np.int64
    )


def q_loss(network, slower, t, double):
    with torch.no_grad():
        worth = slower(t["next_observation"])
        chooser = network(t["next_observation"]) if double else worth
        future = worth.gather(1, chooser.argmax(1, keepdim=True)).squeeze(1)
        target = t["reward"] + t["discount"] * (~t["terminated"]) * future
    value = network(t["observation"]).gather(1, t["action"].long()).squeeze(1)
    return (t["weight"] * F.smooth_l1_loss(value, target, reduction="none")).mean()


@settings(max_examples=40, deadline=None)
@given(shape=shapes, double=st.booleans())
def test_gradients_of_dqn_are_autograds(shape, double):
    network, slower, net, drawn, tensors = q_case(**shape, real=torch.float32)
    rows = shape["rows"]
    loss = q_loss(network, slower, tensors, double)
    loss.backward()
    told = QTold(*(np.empty(rows, np.float32) for _ in range(2)))
    got = differentiate_q(net, drawn, 0, rows, double, make_q_room(net.layers, rows), told)
    assert got == pytest.approx(float(loss.detach()), rel=1e-4, abs=1e-6)
    wanted = flat_gradient(network)
    assert np.linalg.norm(net.gradient - wanted) <= 1e-5 * max(np.linalg.norm(wanted), 1e-2)


@settings(max_examples=25, deadline=None)
@given(shape=shapes, double=st.booleans(), limit=st.sampled_from((0.1, 1e9)))
def test_ten_updates_of_dqn_in_float64(shape, double, limit):
    network, slower, net, drawn, tensors = q_case(**shape, real=torch.float64, batches=10)
    rows = shape["rows"]
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-2, eps=1e-5)
    told = QTold(*(np.empty(rows * 10) for _ in range(2)))
    room = make_q_room(net.layers, rows, np.float64)
    stride = Stride(1e-2, 1e-5, limit)
    moments, losses, norms = moments_of(net.vector), np.empty(10), np.empty(10)
    descend_q(net, moments, drawn, rows, 0, 10, double, stride, 0, room, told, losses, norms)
    for number in range(10):
        own = {name: t[number * rows : (number + 1) * rows] for name, t in tensors.items()}
        optimizer.zero_grad()
        q_loss(network, slower, own, double).backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), limit)
        optimizer.step()
    np.testing.assert_allclose(net.vector, flat_weights(network), rtol=0, atol=1e-9)


# ---------------------------------------------------------------------- SAC


class SoftCase:
    """Continuous actions, or choices (one more of them)."""

    def __init__(self, size, actions, hidden, activation, rows, seed, choices, real, batches):
        noise, generator = torch.Generator().manual_seed(seed), np.random.default_rng(seed)
        policy = PolicySettings(hidden=hidden, activation=activation)
        self.choices = choices
        bounds = np.full(actions, -2.0), np.full(actions, 1.0)
        self.head = CategoricalHead([actions + 1]) if choices else SquashedGaussianHead(*bounds)
        self.actor = SoftPolicy(size, self.head, policy, noise)
        self.critics = TwinCritic(size, self.head, policy, noise)
        self.slower = copy.deepcopy(self.critics)
        actor, actor_vector = flat_of(self.actor, real, noise)
        critics, critics_vector = flat_of(self.critics, real, noise)
        _, target = flat_of(self.slower, real, noise)
        self.log_alpha = torch.tensor([-0.7], dtype=real, requires_grad=True)
        one, none = np.zeros(1, REALS[real]), np.empty(0, np.float32)
        self.net = SoftNet(
            actor=actor_vector, actor_gradient=np.zeros_like(actor_vector), policy=layer_table(actor, self.actor.policy),
            critics=critics_vector, critics_gradient=np.zeros_like(critics_vector), target=target,
            first=layer_table(critics, self.critics.first), second=layer_table(critics, self.critics.second),
            log_alpha=one - REALS[real](0.7), log_alpha_gradient=one.copy(), tanh=activation == "tanh",
            discrete=choices, middle=none if choices else self.head.middle.numpy(), stretch=none if choices else self.head.stretch.numpy(),
        )  # fmt: skip
        action = generator.uniform(-2, 1, (rows * batches, actions))
        if choices:
            action = generator.integers(0, actions + 1, (rows * batches, 1)).astype(float)
        self.drawn, self.tensors = drawn_rows(rows * batches, size, action, real, generator)
        self.noise = generator.standard_normal((batches, 2, rows, 0 if choices else actions)).astype(REALS[real])
        self.rows, self.batches = rows, batches
        self.moments = SoftMoments(moments_of(actor_vector), moments_of(critics_vector), moments_of(one))
        self.told = SoftTold(
            *(np.empty(rows * batches, REALS[real]) for _ in range(2)), *(np.empty(batches) for _ in range(4))
        )

    def descend(self, limit=1e9, learning_rate=1e-2):
        pace = SoftPace(self.rows, Stride(learning_rate, 1e-5, limit), True, -1.5, 0.05, 0)
        room = make_soft_room(self.net, self.rows)
        descend_soft(self.net, self.moments, self.drawn, self.noise, 0, self.batches, pace, room, self.told)

    def draw(self, observation, noise):
        mean, log_std = self.head.split(self.actor.policy_params(observation))
        u = mean + log_std.exp() * noise
        return torch.tanh(u), squashed_log_prob(u, noise, log_std)

    def expected(self, observation, critics, alpha, graph):
        """Of choices: what the policy expects of critics and entropy, and of its log-probability."""
        with torch.set_grad_enabled(graph):
            log_prob = torch.log_softmax(self.actor.policy_params(observation), dim=1)
            worth = torch.min(*critics.of(observation)).detach()
            return (log_prob.exp() * (worth - alpha * log_prob)).sum(1), (log_prob.exp() * log_prob).sum(1)

    def value(self, t, alpha, noise):
        """Of the next observations."""
        if self.choices:
            return self.expected(t["next_observation"], self.slower, alpha, False)[0]
        with torch.no_grad():
            unit, log_prob = self.draw(t["next_observation"], noise)
            return torch.min(*self.slower.of(t["next_observation"], unit)).squeeze(1) - alpha * log_prob

    def said(self, t):
        if self.choices:
            return [q.gather(1, t["action"].long()).squeeze(1) for q in self.critics.of(t["observation"])]
        return [q.squeeze(1) for q in self.critics.of(t["observation"], self.head.to_unit(t["action"]))]

    def actor_loss(self, t, alpha, noise):
        """And the log-probabilities before the step."""
        if self.choices:
            gain, log_prob = self.expected(t["observation"], self.critics, alpha, True)
            return -gain.mean(), log_prob
        unit, log_prob = self.draw(t["observation"], noise)
        return (alpha * log_prob - torch.min(*self.critics.of(t["observation"], unit)).squeeze(1)).mean(), log_prob

    def losses(self, number, optimizers):
        """One gradient step of torch's, as the paper has it; gives the two losses."""
        own = slice(number * self.rows, (number + 1) * self.rows)
        t = {name: column[own] for name, column in self.tensors.items()}
        following, present = torch.from_numpy(self.noise[number])
        alpha = float(self.log_alpha.detach().exp())
        target = t["reward"] + t["discount"] * (~t["terminated"]) * self.value(t, alpha, following)
        critic_loss = sum(0.5 * (t["weight"] * (q - target).square()).mean() for q in self.said(t))
        optimizers["critics"](critic_loss)
        actor_loss, log_prob = self.actor_loss(t, alpha, present)
        optimizers["actor"](actor_loss)
        optimizers["temperature"](-(self.log_alpha * (log_prob.detach() - 1.5)).mean())
        with torch.no_grad():
            for slow, quick in zip(self.slower.parameters(), self.critics.parameters(), strict=True):
                slow.lerp_(quick, 0.05)
        return float(critic_loss.detach()), float(actor_loss.detach())


def stepper(parameters, limit, learning_rate=1e-2):
    parameters = list(parameters)
    optimizer = torch.optim.Adam(parameters, lr=learning_rate, eps=1e-5)

    def step(loss):
        for parameter, gradient in zip(parameters, torch.autograd.grad(loss, parameters), strict=True):
            parameter.grad = gradient
        torch.nn.utils.clip_grad_norm_(parameters, limit)
        optimizer.step()

    return step


@settings(max_examples=40, deadline=None)
@given(shape=shapes, choices=st.booleans())
def test_losses_and_gradients_of_sac_are_autograds(shape, choices):
    case = SoftCase(**shape, choices=choices, real=torch.float32, batches=1)
    case.descend(learning_rate=0.0)
    gradients = {}

    def keep(name, parameters):
        parameters = list(parameters)

        def step(loss):
            gradients[name] = torch.cat([g.flatten() for g in torch.autograd.grad(loss, parameters)]).numpy()

        return step

    critic_loss, actor_loss = case.losses(
        0,
        {
            "critics": keep("critics", case.critics.parameters()),
            "actor": keep("actor", case.actor.parameters()),
            "temperature": keep("temperature", [case.log_alpha]),
        },
    )
    assert case.told.critic_loss[0] == pytest.approx(critic_loss, rel=1e-4)
    assert case.told.actor_loss[0] == pytest.approx(actor_loss, rel=1e-4, abs=1e-4)
    got = {
        "critics": case.net.critics_gradient,
        "actor": case.net.actor_gradient,
        "temperature": case.net.log_alpha_gradient,
    }
    for name, wanted in gradients.items():
        assert np.linalg.norm(got[name] - wanted) <= 1e-5 * max(np.linalg.norm(wanted), 1.0), name


@settings(max_examples=25, deadline=None)
@given(shape=shapes, choices=st.booleans(), limit=st.sampled_from((0.5, 1e9)))
def test_ten_updates_of_sac_in_float64(shape, choices, limit):
    case = SoftCase(**shape, choices=choices, real=torch.float64, batches=10)
    case.descend(limit)
    optimizers = {
        "critics": stepper(case.critics.parameters(), limit),
        "actor": stepper(case.actor.parameters(), limit),
        "temperature": stepper([case.log_alpha], limit),
    }
    for number in range(10):
        case.losses(number, optimizers)
    for got, wanted in ((case.net.actor, case.actor), (case.net.critics, case.critics), (case.net.target, case.slower)):
        np.testing.assert_allclose(got, flat_weights(wanted), rtol=0, atol=1e-9)
    assert case.net.log_alpha[0] == pytest.approx(float(case.log_alpha.detach()), abs=1e-9)
