"""Between Gymnasium's spaces and flat arrays: what a network reads and what a network's head writes.

An observation of any supported space becomes one row: of bytes where the whole of it is bytes (an Atari screen is then a
quarter of the size, and the network's encoder scales it), else of float32. An action is one float32 row ("raw"), of which
each leaf of the action space owns a stretch. Supported: Box, Discrete, MultiDiscrete, MultiBinary, and Dict or Tuple of
those.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from ..errors import UnsupportedSpace, UsageError

Array = np.ndarray[Any, Any]

SUPPORTED = "Supported are Box, Discrete, MultiDiscrete, MultiBinary, and Dict or Tuple of those."


@dataclass(frozen=True)
class Leaf:
    """A space without parts, where it sits in the nested space, and its stretch [start, stop) of the flat row."""

    path: tuple[str | int, ...]
    space: gym.Space[Any]
    start: int
    stop: int


class ObservationLayout:
    """Flattens batches of observations: Box as it is (among other numbers, bytes scaled to 0..1), the discrete kinds one-hot."""

    def __init__(self, space: gym.Space[Any]) -> None:
        self.space = space
        self.leaves = _lay_out(space, _observation_width)
        self.size = self.leaves[-1].stop if self.leaves else 0
        if self.size == 0:
            raise UnsupportedSpace(
                f"The observation space {space} holds no numbers, so there is nothing to learn from."
            )
        self.of_bytes = all(isinstance(leaf.space, spaces.Box) and leaf.space.dtype == np.uint8 for leaf in self.leaves)
        """Rows are uint8, 0 to 255."""
        self.dtype: np.dtype[Any] = np.dtype(np.uint8 if self.of_bytes else np.float32)
        """Of a row before normalisation, which makes it float32."""
        self._as_it_is = (
            len(self.leaves) == 1
            and isinstance(space, spaces.Box)
            and space.dtype == np.float32
            and len(space.shape) == 1
        )

    def flatten(self, batch: Any) -> Array:
        """[N, size] of `dtype`. The caller may keep the result: it is never a view of the environment's buffer."""
        if self._as_it_is:
            return np.array(batch, dtype=np.float32)
        first = _pick(batch, self.leaves[0].path)
        rows = np.empty((len(first), self.size), self.dtype)
        for leaf in self.leaves:
            rows[:, leaf.start : leaf.stop] = self._encoded(leaf, _pick(batch, leaf.path))
        return rows

    def size_of(self, key: str) -> int:
        """Columns of the first part of a Dict, which has this key; a row begins with them."""
        own = [leaf for leaf in self.leaves if leaf.path[:1] == (key,)]
        assert own
        assert own[0].start == 0
        return own[-1].stop

    def rows_of(self, parts: Sequence[Array]) -> Array:
        """The same from one array [N, ...] for each leaf, in the order of `leaves`."""
        return np.concatenate(
            [self._encoded(leaf, part) for leaf, part in zip(self.leaves, parts, strict=True)], axis=1
        )

    def _encoded(self, leaf: Leaf, batch: Any) -> Array:
        if self.of_bytes:
            return np.asarray(batch).reshape(len(batch), -1).astype(np.uint8)
        return _encode(leaf.space, batch)

    def is_single(self, observation: Any) -> bool:
        """Whether this is one observation and not a batch of them; what is neither is refused."""
        singles = set()
        for leaf in self.leaves:
            own = leaf.space.shape or ()
            try:
                shape = np.shape(_pick(observation, leaf.path))
            except (LookupError, TypeError, ValueError):
                shape = None
            if shape is None or own != shape[len(shape) - len(own) :] or len(shape) - len(own) not in (0, 1):
                name = "".join(f"[{key!r}]" for key in leaf.path)
                seen = "is missing" if shape is None else f"has the shape {shape}"
                raise UsageError(
                    f"The policy reads one observation of {self.space}, or a batch of them. Here observation{name} {seen}; "
                    f"{own} or {('N', *own)} was expected."
                )
            singles.add(shape == own)
        return singles == {True}

    def require_possible(self, batch: Any) -> None:
        """A policy answers whatever it is shown; so what the space cannot hold is refused here, by name."""
        for leaf in self.leaves:
            values = np.asarray(_pick(batch, leaf.path))
            least, most = _limits(leaf.space)
            bad = ~np.isfinite(values) if least is None else (values < least) | (values > most) | (values % 1 != 0)
            if bad.any():
                name = "".join(f"[{key!r}]" for key in leaf.path)
                holds = "finite numbers" if least is None else f"whole numbers of {leaf.space}"
                raise UsageError(
                    f"The policy cannot act on this: observation{name} holds {values[bad].flat[0]}, and it reads {holds}. Look at where the "
                    "observation comes from."
                )

    def batch_of_one(self, observation: Any) -> Any:
        return self.nest([np.asarray(_pick(observation, leaf.path))[None] for leaf in self.leaves])

    def nest(self, values: Sequence[Array]) -> Any:
        """One array for each leaf, in their order, as the space has them."""
        return _nest(self.space, {leaf.path: value for leaf, value in zip(self.leaves, values, strict=True)}, ())

    def parts(self, observation: Any) -> list[Any]:
        """The other way round."""
        return [_pick(observation, leaf.path) for leaf in self.leaves]


class ActionLayout:
    """Turns raw rows [N, size] into the batch of actions that an environment takes."""

    def __init__(self, space: gym.Space[Any]) -> None:
        self.space = space
        self.leaves = _lay_out(space, _action_width)
        self.size = self.leaves[-1].stop if self.leaves else 0
        if self.size == 0:
            raise UnsupportedSpace(f"The action space {space} offers no choice, so there is nothing to learn.")

    def to_environment(self, raw: Array, *, within_bounds: bool = True) -> Any:
        """`within_bounds` = False leaves the values of a Box as they were drawn."""
        decoded = {
            leaf.path: _decode(leaf.space, raw[:, leaf.start : leaf.stop], within_bounds) for leaf in self.leaves
        }
        return _nest(self.space, decoded, ())

    def rows_of(self, parts: Sequence[Array]) -> Array:
        """The other way: raw rows [N, size] from one array of actions [N, ...] for each leaf, in the order of `leaves`."""
        columns = [_to_raw(leaf.space, part) for leaf, part in zip(self.leaves, parts, strict=True)]
        return np.concatenate(columns, axis=1).astype(np.float32)

    def parts(self, action: Any) -> list[Any]:
        """What belongs to each leaf, in their order."""
        return [_pick(action, leaf.path) for leaf in self.leaves]

    def first(self, batch: Any) -> Any:
        """One action out of a batch, in the form that a single environment takes."""
        return _nest(self.space, {leaf.path: _pick(batch, leaf.path)[0] for leaf in self.leaves}, ())

    def sample_uniform(self, count: int, generator: np.random.Generator) -> Array:
        """Raw rows of a policy that knows nothing: uniform over each leaf (normal where a Box has no bounds)."""
        raw = np.empty((count, self.size), np.float32)
        for leaf in self.leaves:
            raw[:, leaf.start : leaf.stop] = _uniform(leaf.space, count, generator)
        return raw


def _lay_out(space: gym.Space[Any], width: Any) -> list[Leaf]:
    leaves: list[Leaf] = []
    position = 0
    for path, leaf in _walk(space, ()):
        count = width(leaf)
        leaves.append(Leaf(path, leaf, position, position + count))
        position += count
    return leaves


def _walk(space: gym.Space[Any], path: tuple[str | int, ...]) -> Iterator[tuple[tuple[str | int, ...], gym.Space[Any]]]:
    if isinstance(space, spaces.Dict):
        for key, inner in space.spaces.items():
            yield from _walk(inner, (*path, key))
    elif isinstance(space, spaces.Tuple):
        for position, inner in enumerate(space.spaces):
            yield from _walk(inner, (*path, position))
    else:
        yield path, space


def _pick(batch: Any, path: tuple[str | int, ...]) -> Any:
    for key in path:
        batch = batch[key]
    return batch


def _nest(space: gym.Space[Any], decoded: dict[tuple[str | int, ...], Array], path: tuple[str | int, ...]) -> Any:
    if isinstance(space, spaces.Dict):
        return {key: _nest(inner, decoded, (*path, key)) for key, inner in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(_nest(inner, decoded, (*path, i)) for i, inner in enumerate(space.spaces))
    return decoded[path]


def _observation_width(space: gym.Space[Any]) -> int:
    match space:
        case spaces.Box():
            return int(np.prod(space.shape))
        case spaces.Discrete():
            return int(space.n)
        case spaces.MultiDiscrete():
            return int(space.nvec.sum())
        case spaces.MultiBinary():
            return int(np.prod(space.shape))
        case _:
            raise UnsupportedSpace(f"Observations of the space {space} cannot be read. {SUPPORTED}")


def _action_width(space: gym.Space[Any]) -> int:
    match space:
        case spaces.Box() if np.issubdtype(space.dtype, np.floating):
            return int(np.prod(space.shape))
        case spaces.Discrete():
            return 1
        case spaces.MultiDiscrete():
            return int(space.nvec.size)
        case spaces.MultiBinary():
            return int(np.prod(space.shape))
        case _:
            raise UnsupportedSpace(f"Actions of the space {space} cannot be chosen. {SUPPORTED} (A Box of floats.)")


def _limits(space: gym.Space[Any]) -> tuple[Any, Any]:
    """Of the whole numbers that a discrete kind holds; None for a Box."""
    match space:
        case spaces.Discrete():
            return int(space.start), int(space.start) + int(space.n) - 1
        case spaces.MultiDiscrete():
            return space.start, space.start + space.nvec - 1
        case spaces.MultiBinary():
            return 0, 1
        case _:
            return None, None


def _encode(space: gym.Space[Any], batch: Any) -> Array:
    values = np.asarray(batch)
    count = len(values)
    match space:
        case spaces.Box():
            flat = values.reshape(count, -1).astype(np.float32)
            return flat / np.float32(255) if space.dtype == np.uint8 else flat
        case spaces.Discrete():
            return np.eye(int(space.n), dtype=np.float32)[values.astype(np.int64) - int(space.start)]
        case spaces.MultiDiscrete():
            return _one_hot_columns(
                values.reshape(count, -1).astype(np.int64) - space.start.ravel(), space.nvec.ravel()
            )
        case _:
            return values.reshape(count, -1).astype(np.float32)


def _one_hot_columns(indices: Array, widths: Array) -> Array:
    starts = np.concatenate([[0], np.cumsum(widths)[:-1]])
    rows = np.zeros((len(indices), int(widths.sum())), np.float32)
    np.put_along_axis(rows, indices + starts, 1.0, axis=1)
    return rows


def _decode(space: gym.Space[Any], raw: Array, within_bounds: bool = True) -> Array:
    match space:
        case spaces.Box():
            values = raw.reshape(-1, *space.shape)
            values = np.clip(values, space.low, space.high) if within_bounds else values
            return values.astype(space.dtype, copy=False)
        case spaces.Discrete():
            return raw[:, 0].astype(np.int64) + int(space.start)
        case spaces.MultiDiscrete():
            return (raw.astype(np.int64) + space.start.ravel()).reshape(-1, *space.shape)
        case _:
            return raw.astype(np.int8).reshape(-1, *(space.shape or ()))


def _to_raw(space: gym.Space[Any], actions: Array) -> Array:
    flat: Array = actions.reshape(len(actions), -1)
    match space:
        case spaces.Discrete():
            return flat - int(space.start)
        case spaces.MultiDiscrete():
            return flat - space.start.ravel()
        case _:
            return flat


def _uniform(space: gym.Space[Any], count: int, generator: np.random.Generator) -> Array:
    match space:
        case spaces.Box():
            low, high = (
                np.broadcast_to(space.low, space.shape).ravel(),
                np.broadcast_to(space.high, space.shape).ravel(),
            )
            bounded = np.isfinite(low) & np.isfinite(high)
            normal = generator.standard_normal((count, low.size))
            uniform = generator.random((count, low.size))
            spread = np.where(bounded, low, 0) + uniform * np.where(bounded, high - np.where(bounded, low, 0), 0)
            return np.where(bounded, spread, normal)
        case spaces.Discrete():
            return generator.integers(0, int(space.n), (count, 1))
        case spaces.MultiDiscrete():
            return generator.integers(0, space.nvec.ravel(), (count, space.nvec.size))
        case _:
            return generator.integers(0, 2, (count, int(np.prod(space.shape or (1,)))))
