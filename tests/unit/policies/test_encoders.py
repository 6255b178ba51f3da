"""Images through convolutions: shapes, channels, bytes; and the derivative, half written out and half autograd's, is autograd's."""

import itertools

import numpy as np
import pytest
import torch
from gymnasium import spaces

from learnproof.config import PolicySettings
from learnproof.errors import SettingsError
from learnproof.policies.encoders import ByteScale, ImageEncoder, layers_for, make_encoder
from learnproof.policies.flat import FlatParameters
from learnproof.policies.greedy import EpsilonGreedyHead, QNetwork
from learnproof.policies.heads import CategoricalHead
from learnproof.policies.networks import ActorCritic
from learnproof.policies.spaces import ObservationLayout

ROWS = 7
SHAPES = list(itertools.product(("relu", "tanh"), (False, True), (False, True)))


def bytes_of(*shape):
    return spaces.Box(0, 255, shape, np.uint8)


def noise(seed=3):
    return torch.Generator().manual_seed(seed)


def encoder_of(space, kind="auto"):
    return make_encoder(ObservationLayout(space), kind, "relu", noise())


def rows_of(space, count=ROWS):
    layout = ObservationLayout(space)
    space.seed(0)
    parts = [np.stack([leaf.space.sample() for _ in range(count)]) for leaf in layout.leaves]
    return torch.from_numpy(layout.rows_of(parts))


def mixed():
    gauge = spaces.Box(-1, 1, (2,), np.float32)
    return spaces.Dict({"camera": bytes_of(6, 6, 2), "gauge": gauge, "kind": spaces.Discrete(3)})


@pytest.mark.parametrize(
    ("shape", "size"),
    [
        ((84, 84, 4), 64 * 7 * 7),
        ((4, 84, 84), 64 * 7 * 7),
        ((36, 36, 3), 64),
        ((10, 10, 6), 32 * 5 * 5),
        ((8, 8, 1), 32 * 4 * 4),
        ((35, 20, 3), 32 * 5 * 3),
        ((3, 3, 3), 32 * 2 * 2),
        ((1, 5, 9), 32 * 3 * 5),
    ],
)
def test_every_size_of_image_is_read(shape, size):
    encoder = encoder_of(bytes_of(*shape))
    assert encoder.size == size
    assert encoder(rows_of(bytes_of(*shape))).shape == (ROWS, size)


def test_atari_has_the_layers_of_the_nature_paper():
    assert layers_for(84, 84) == ((32, 8, 4, 0), (64, 4, 2, 0), (64, 3, 1, 0))


def test_both_orders_of_channels_are_the_same_picture():
    last, first = encoder_of(bytes_of(9, 8, 2)), encoder_of(bytes_of(2, 9, 8))
    picture = rows_of(bytes_of(9, 8, 2)).view(ROWS, 9, 8, 2)
    turned = picture.permute(0, 3, 1, 2).reshape(ROWS, -1)
    torch.testing.assert_close(last(picture.reshape(ROWS, -1)), first(turned))


def test_bytes_are_scaled_where_they_are_read():
    rows = rows_of(bytes_of(8, 8, 1))
    encoder = encoder_of(bytes_of(8, 8, 1))
    assert rows.dtype == torch.uint8
    torch.testing.assert_close(encoder(rows), encoder(rows.float() / 255))
    flat = encoder_of(bytes_of(5))
    assert isinstance(flat, ByteScale)
    torch.testing.assert_close(flat(torch.tensor([[0, 255]], dtype=torch.uint8)), torch.tensor([[0.0, 1.0]]))


def test_other_numbers_stand_behind_the_features_of_images():
    encoder = encoder_of(mixed())
    rows = rows_of(mixed())
    assert encoder.size == 32 * 3 * 3 + 2 + 3
    layout = ObservationLayout(mixed())
    others = [rows[:, leaf.start : leaf.stop] for leaf in layout.leaves if len(leaf.space.shape) != 3]
    torch.testing.assert_close(encoder(rows)[:, -5:], torch.cat(others, dim=1))


@pytest.mark.parametrize(
    ("space", "kind", "expected"),
    [
        (bytes_of(8, 8, 3), "none", ByteScale),
        (spaces.Box(0, 1, (8, 8, 3), np.float32), "auto", ImageEncoder),
        (spaces.Box(0, 1, (8, 8, 3), np.float32), "none", type(None)),
        (spaces.Box(0, 1, (8, 8), np.float32), "auto", type(None)),
        (spaces.Box(0, 1, (2, 2, 2), np.float32), "auto", type(None)),
        (spaces.Box(0, 1, (8,), np.float32), "auto", type(None)),
    ],
)
def test_only_images_get_convolutions(space, kind, expected):
    assert isinstance(encoder_of(space, kind), expected)


def test_convolutions_that_were_asked_for_need_an_image():
    with pytest.raises(SettingsError, match="holds none"):
        encoder_of(spaces.Box(-1, 1, (4,), np.float32), "cnn")


def away_from_the_start(network):
    """A near-zero last layer would hide a mistake behind it."""
    flat = FlatParameters(network)
    with torch.no_grad():
        flat.vector += 0.1 * torch.randn(flat.vector.shape, generator=noise(5))
    return flat


def assert_same_gradient(flat, expected):
    torch.testing.assert_close(flat.gradient, expected, rtol=1e-3, atol=1e-5)
    flat.check_aliasing()
    for stretch in flat.stretches:
        assert expected[stretch.start : stretch.stop].abs().max() > 0, stretch.name


@pytest.mark.parametrize("space", [bytes_of(8, 8, 2), mixed()], ids=["image", "image and numbers"])
@pytest.mark.parametrize(("activation", "layer_norm", "shared_trunk"), SHAPES)
def test_backward_through_an_encoder_equals_autograd(space, activation, layer_norm, shared_trunk):
    settings = PolicySettings(hidden=(6, 4), activation=activation, layer_norm=layer_norm, shared_trunk=shared_trunk)
    encoder = make_encoder(ObservationLayout(space), "auto", activation, noise())
    network = ActorCritic(0, CategoricalHead([3]), settings, noise(), encoder=encoder)
    flat = away_from_the_start(network)
    rows, action = rows_of(space), torch.tensor([[2.0]] * ROWS)
    to_log_prob, to_entropy, to_value = torch.randn((3, ROWS), generator=noise(1))

    log_prob, entropy, value = network(rows, action)
    flat.gradient.zero_()
    (log_prob * to_log_prob + entropy * to_entropy + value * to_value).sum().backward()
    expected = flat.gradient.clone()

    flat.gradient.fill_(float("nan"))
    outputs = network.keeping(rows)
    said = network.head.log_prob_and_entropy(outputs.params, action)
    network.backward(outputs, *said, to_log_prob, to_entropy, to_value)
    torch.testing.assert_close(outputs.value, value.detach())
    assert_same_gradient(flat, expected)


@pytest.mark.parametrize("duelling", [False, True])
@pytest.mark.parametrize("layer_norm", [False, True])
def test_values_of_actions_through_an_encoder_have_autograds_gradient(duelling, layer_norm):
    settings = PolicySettings(hidden=(6,), layer_norm=layer_norm)
    space = bytes_of(8, 8, 2)
    network = QNetwork(0, EpsilonGreedyHead(3, 0.1), settings, duelling, noise(), encoder_of(space))
    flat = away_from_the_start(network)
    wanted = torch.randn((ROWS, 3), generator=noise(1))
    flat.gradient.zero_()
    (network(rows_of(space)) * wanted).sum().backward()
    expected = flat.gradient.clone()
    flat.gradient.fill_(float("nan"))
    network.backward(network.keeping(rows_of(space)), wanted)
    assert_same_gradient(flat, expected)


def test_bytes_without_an_image_need_no_gradient_in_front_of_the_towers():
    network = ActorCritic(5, CategoricalHead([3]), PolicySettings(hidden=(4,)), noise(), encoder=ByteScale(5))
    assert network.keeping(rows_of(bytes_of(5))).graph is None
