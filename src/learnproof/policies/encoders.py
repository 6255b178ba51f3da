"""Encoders: from rows to features, for the networks that do not read rows as they are.

    encoder = make_encoder(layout, settings.encoder, settings.activation, noise)     # None: rows are read as they are
    features = encoder(rows)                                                         # [B, size] -> [B, encoder.size]

An image goes through convolutions; other numbers of the same observation are put behind its features. Rows of bytes are scaled to
0..1 here and nowhere before, so that rollouts and memories hold bytes.

An encoder is trained by autograd, as far as its features; the towers behind it have their derivative written out (networks.py).
`Encoded` is where the two meet.
"""

from __future__ import annotations

import itertools
import math
from typing import Any, Literal

import gymnasium as gym
import torch
import torch.nn.functional as F
from gymnasium import spaces
from torch import Tensor, nn

from ..errors import SettingsError
from .spaces import Leaf, ObservationLayout

NATURE = ((32, 8, 4, 0), (64, 4, 2, 0), (64, 3, 1, 0))
"""(channels, kernel, stride, padding) of each layer, from Mnih et al. 2015."""
SMALLEST_FOR_NATURE = 36
"""Pixels of the shorter side from which that shape leaves anything of an image."""
SMALLEST_SIDE = 3
"""Pixels of the shorter side; below, a 3-d Box is not taken for an image."""
NARROW_ENOUGH = 6
"""A small image is halved until its longer side has no more than this."""
LARGEST_BYTE = 255


class Encoder(nn.Module):
    size: int
    """Numbers that it makes of a row."""


class ByteScale(Encoder):
    """Rows of bytes without an image in them: only their scale is changed."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size

    def forward(self, rows: Tensor) -> Tensor:
        return scaled(rows)


class ImageEncoder(Encoder):
    def __init__(
        self, layout: ObservationLayout, images: list[Leaf], activation: Literal["relu", "tanh"], noise: torch.Generator
    ) -> None:
        super().__init__()
        self.images = nn.ModuleList(Convolutions(leaf, activation, noise) for leaf in images)
        self.spans = [(leaf.start, leaf.stop) for leaf in images]
        seen = {leaf.start for leaf in images}
        self.others = [(leaf.start, leaf.stop) for leaf in layout.leaves if leaf.start not in seen]
        self.size = sum(image.size for image in self.images)  # type: ignore[misc]
        self.size += sum(stop - start for start, stop in self.others)

    def forward(self, rows: Tensor) -> Tensor:
        rows = scaled(rows)
        parts = [image(rows[:, a:b]) for image, (a, b) in zip(self.images, self.spans, strict=True)]
        parts += [rows[:, a:b] for a, b in self.others]
        return parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)


class Convolutions(nn.Module):
    """One image, [B, pixels] -> [B, size]. The fewest numbers along a side are the channels, the last side where two are equal."""

    def __init__(self, leaf: Leaf, activation: Literal["relu", "tanh"], noise: torch.Generator) -> None:
        super().__init__()
        self.shape = tuple(int(n) for n in leaf.space.shape or ())
        self.channels_last = channels_are_last(self.shape)
        first, *sides = (self.shape[2], *self.shape[:2]) if self.channels_last else self.shape
        plan = layers_for(*sides)
        widths = [first, *(channels for channels, *_ in plan)]
        self.layers = nn.ModuleList(
            convolution(a, b, kernel, noise)
            for (a, b), (_, kernel, _, _) in zip(itertools.pairwise(widths), plan, strict=True)
        )
        self.moves = [(stride, padding) for *_, stride, padding in plan]
        self.activation = torch.relu if activation == "relu" else torch.tanh
        for _, kernel, stride, padding in plan:
            sides = [(side + 2 * padding - kernel) // stride + 1 for side in sides]
        self.size = widths[-1] * sides[0] * sides[1]

    def forward(self, pixels: Tensor) -> Tensor:
        x = pixels.reshape(-1, *self.shape)
        if self.channels_last:
            x = x.permute(0, 3, 1, 2)
        for layer, (stride, padding) in zip(self.layers, self.moves, strict=True):
            x = self.activation(F.conv2d(x, layer.weight, layer.bias, stride, padding))  # type: ignore[arg-type]
        return x.flatten(1)


class Encoded(nn.Module):
    """A network whose rows may pass through an encoder first."""

    def __init__(self, encoder: Encoder | None) -> None:
        super().__init__()
        self.encoder = encoder

    def read(self, rows: Any) -> Tensor:
        """What the towers are fed."""
        out: Tensor = rows if self.encoder is None else self.encoder(rows)
        return out

    def read_keeping(self, rows: Any) -> tuple[Tensor, Tensor | None]:
        """The same, cut off from its graph; and the end of the graph, or None where nothing on the way is trained."""
        return (rows, None) if self.encoder is None else self.cut_off(rows)

    def cut_off(self, rows: Any) -> tuple[Tensor, Tensor | None]:
        with torch.enable_grad():
            graph = self.read(rows)
        return graph.detach(), graph if graph.requires_grad else None

    def write_reading(self, graph: Tensor, gradient: Tensor) -> None:
        """From d loss / d features, d loss / d parameter of all that read the rows, written over each `.grad`."""
        for parameter in self.reading_parameters():
            assert parameter.grad is not None
            parameter.grad.zero_()
        torch.autograd.backward(graph, gradient)

    def reading_parameters(self) -> list[nn.Parameter]:
        return [] if self.encoder is None else list(self.encoder.parameters())


def make_encoder(
    layout: ObservationLayout,
    kind: Literal["auto", "cnn", "none"],
    activation: Literal["relu", "tanh"],
    noise: torch.Generator,
) -> Encoder | None:
    images = [] if kind == "none" else [leaf for leaf in layout.leaves if is_image(leaf.space)]
    if images:
        return ImageEncoder(layout, images, activation, noise)
    if kind == "cnn":
        raise SettingsError(
            f"policy.encoder = 'cnn' reads images, and {layout.space} holds none: an image is a Box of three dimensions, {SMALLEST_SIDE} or more "
            "pixels high and wide. Use auto, or give the environment's observation that shape."
        )
    return ByteScale(layout.size) if layout.of_bytes else None


def is_image(space: gym.Space[Any]) -> bool:
    if not isinstance(space, spaces.Box) or len(space.shape) != 3:
        return False
    sides = space.shape[:2] if channels_are_last(space.shape) else space.shape[1:]
    return min(sides) >= SMALLEST_SIDE


def channels_are_last(shape: tuple[int, ...]) -> bool:
    return not (shape[0] < shape[2] and shape[0] <= shape[1])


def layers_for(height: int, width: int) -> tuple[tuple[int, int, int, int], ...]:
    """What Atari's screens are read by, or, for small images, one layer that keeps every pixel's place and some that halve the image."""
    if min(height, width) >= SMALLEST_FOR_NATURE:
        return NATURE
    plan = [(16, 3, 1, 1)]
    longer = max(height, width)
    while len(plan) == 1 or longer > NARROW_ENOUGH:
        plan.append((32, 3, 2, 1))
        longer = (longer + 1) // 2
    return tuple(plan)


def scaled(rows: Tensor) -> Tensor:
    """Bytes as 0..1. Rows that are floats were scaled, or normalised, before."""
    return rows.float().mul_(1 / LARGEST_BYTE) if rows.dtype == torch.uint8 else rows


def convolution(channels: int, out: int, kernel: int, noise: torch.Generator) -> nn.Conv2d:
    layer = nn.utils.skip_init(nn.Conv2d, channels, out, kernel)  # type: ignore[no-untyped-call]
    nn.init.orthogonal_(layer.weight, math.sqrt(2), generator=noise)
    nn.init.zeros_(layer.bias)
    assert isinstance(layer, nn.Conv2d)
    return layer
