"""A policy's memory: sequences say what single steps say, episodes begin with an empty one, and the derivative is autograd's."""

import itertools

import numpy as np
import pytest
import torch
from gymnasium import spaces

from learnproof.config import PolicySettings
from learnproof.errors import UsageError
from learnproof.policies.actor import NetworkActor
from learnproof.policies.encoders import make_encoder
from learnproof.policies.flat import FlatParameters
from learnproof.policies.heads import CategoricalHead, GaussianHead
from learnproof.policies.networks import ActorCritic
from learnproof.policies.recurrent import GatedUnit, Sequences
from learnproof.policies.spaces import ActionLayout, ObservationLayout

LENGTH, COUNT, WIDTH = 6, 4, 5
SHAPES = list(itertools.product(("relu", "tanh"), (False, True), (False, True)))
VECTOR = spaces.Box(-9, 9, (3,), np.float32)
IMAGE = spaces.Box(0, 255, (6, 6, 1), np.uint8)


def noise(seed=3):
    return torch.Generator().manual_seed(seed)


def network_of(space=VECTOR, head=None, **changes):
    settings = PolicySettings(hidden=(6,), recurrent=True, memory_size=WIDTH, **changes)
    layout = ObservationLayout(space)
    encoder = make_encoder(layout, "auto", settings.activation, noise())
    network = ActorCritic(layout.size, head or CategoricalHead([3]), settings, noise(), encoder=encoder)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter += 0.3 * torch.randn(parameter.shape, generator=noise(5))
    return network


def sequences(space=VECTOR, chosen=None):
    shape = (LENGTH, COUNT, ObservationLayout(space).size)
    rows = torch.randn(shape, generator=noise(1))
    if space is IMAGE:
        rows = torch.randint(0, 256, shape, generator=noise(1), dtype=torch.uint8)
    begins = torch.zeros((LENGTH, COUNT), dtype=torch.bool)
    begins[2, 1] = begins[0, 2] = begins[3, 3] = begins[4, 3] = True
    memory = torch.rand((COUNT, WIDTH), generator=noise(2)) * 2 - 1
    everything = torch.arange(LENGTH * COUNT)
    return Sequences(rows, memory, begins, everything if chosen is None else chosen)


def test_the_unit_is_torchs_gru():
    unit, theirs = GatedUnit(3, WIDTH, noise()), torch.nn.GRUCell(3, WIDTH)
    with torch.no_grad():
        for ours, of_torch in (
            (unit.seen, (theirs.weight_ih, theirs.bias_ih)),
            (unit.held, (theirs.weight_hh, theirs.bias_hh)),
        ):
            of_torch[0].copy_(ours.weight)
            of_torch[1].copy_(ours.bias)
    x, memory = torch.randn((COUNT, 3), generator=noise(1)), torch.randn((COUNT, WIDTH), generator=noise(2))
    torch.testing.assert_close(unit.step(x, memory), theirs(x, memory))


@pytest.mark.parametrize("space", [VECTOR, IMAGE], ids=["numbers", "image"])
def test_sequences_say_what_single_steps_say(space):
    network, given = network_of(space), sequences(space)
    with torch.no_grad():
        together = network.policy_params(given).view(LENGTH, COUNT, -1)
        values = network.values(given).view(LENGTH, COUNT)
        memory = given.memory
        for t in range(LENGTH):
            memory = torch.where(given.begins[t][:, None], torch.zeros(()), memory)
            params, after = network.recall(given.rows[t], memory)
            torch.testing.assert_close(together[t], params)
            torch.testing.assert_close(values[t], network.values_of(network.look(given.rows[t], memory)[0]))
            memory = after


def test_nothing_is_remembered_over_the_beginning_of_an_episode():
    network, given = network_of(), sequences()
    other = given.rows.clone()
    other[:2, 1] += 1.0
    with torch.no_grad():
        before = network.policy_params(given).view(LENGTH, COUNT, -1)
        after = network.policy_params(Sequences(other, given.memory, given.begins, given.chosen)).view(
            LENGTH, COUNT, -1
        )
    assert (before[:2, 1] != after[:2, 1]).any()
    assert (before[2:, 1] == after[2:, 1]).all()
    assert (before[:, [0, 2, 3]] == after[:, [0, 2, 3]]).all()


def test_what_is_not_chosen_teaches_nothing():
    """Neither by itself nor, below the last chosen step of its column, through the memory."""
    chosen = torch.tensor([0, 1, 2, 3, 4, 6])  # of column 1 only the first step
    network, given = network_of(), sequences(chosen=chosen)
    rows = given.rows.clone().requires_grad_()
    network.policy_params(Sequences(rows, given.memory, given.begins, chosen)).sum().backward()
    touched = rows.grad.abs().sum(2) > 0
    assert touched.nonzero().tolist() == [[0, 0], [0, 1], [0, 2], [0, 3], [1, 0], [1, 2]]


@pytest.mark.parametrize("space", [VECTOR, IMAGE], ids=["numbers", "image"])
@pytest.mark.parametrize(("activation", "layer_norm", "shared_trunk"), SHAPES)
def test_backward_through_memory_equals_autograd(space, activation, layer_norm, shared_trunk):
    network = network_of(
        space, GaussianHead(2, -0.3), activation=activation, layer_norm=layer_norm, shared_trunk=shared_trunk
    )
    flat = FlatParameters(network)
    chosen = torch.tensor([0, 3, 5, 9, 10, 22, 23])
    given, rows = sequences(space, chosen), len(chosen)
    action = torch.linspace(-1, 1, 2 * rows).view(rows, 2)
    to_log_prob, to_entropy, to_value = torch.randn((3, rows), generator=noise(1))

    log_prob, entropy, value = network(given, action)
    flat.gradient.zero_()
    (log_prob * to_log_prob + entropy * to_entropy + value * to_value).sum().backward()
    expected = flat.gradient.clone()

    flat.gradient.fill_(float("nan"))
    outputs = network.keeping(given)
    said = network.head.log_prob_and_entropy(outputs.params, action)
    network.backward(outputs, *said, to_log_prob, to_entropy, to_value)
    torch.testing.assert_close(outputs.value, value.detach())
    torch.testing.assert_close(flat.gradient, expected, rtol=1e-3, atol=1e-5)
    flat.check_aliasing()
    for stretch in flat.stretches:
        assert expected[stretch.start : stretch.stop].abs().max() > 0, stretch.name


# ---------------------------------------------------------------------- acting


def actor_of():
    return NetworkActor(network_of(), ObservationLayout(VECTOR), ActionLayout(spaces.Discrete(3)), None)


def test_an_actor_gives_back_what_it_remembers_and_holds_nothing():
    actor, generator = actor_of(), np.random.default_rng(0)
    seen = np.ones((2, 3), np.float32)
    first = actor.act(seen, generator, "deterministic")
    assert first.memory.shape == (2, WIDTH)
    again = actor.act(seen, generator, "deterministic")
    assert (again.memory == first.memory).all()
    empty = actor.act(seen, generator, "deterministic", np.zeros((2, WIDTH), np.float32))
    assert (empty.memory == first.memory).all()
    later = actor.act(seen, generator, "deterministic", first.memory)
    assert (later.memory != first.memory).any()


def test_a_called_policy_remembers_until_it_is_reset():
    actor = actor_of()
    seen = [np.full(3, x, np.float32) for x in (1.0, -2.0, 0.5)]
    generator, memory = np.random.default_rng(0), None
    for one in seen:
        acted = actor.act(one[None], generator, "deterministic", memory)
        memory = acted.memory
        assert actor(one) == acted.action[0]
        assert (actor._called_with == memory).all()
    actor.reset()
    assert actor._called_with is None

    actor(np.stack(seen))
    actor.reset(np.array([True, False, False]))
    assert (actor._called_with[0] == 0).all()
    assert (actor._called_with[1] != 0).any()
    with pytest.raises(UsageError, match="remembers 3 episodes"):
        actor(seen[0])
