"""Rows that a script rescaled are called by what the environment returned; what is not a fixed scale is left alone."""

import numpy as np
import pytest

from learnproof.watching.aliases import EQUAL, PAIRS, Aliases
from learnproof.watching.identity import identities


def observations(seed: int, count: int = 2_000) -> np.ndarray:
    source = np.random.default_rng(seed)
    return (source.normal(size=(count, 3)) * np.array([1.0, 0.2, 8.0])).astype(np.float32)


def met(returned: np.ndarray, given: np.ndarray) -> Aliases:
    aliases = Aliases()
    for one, other in zip(returned[:PAIRS], given[:PAIRS], strict=True):
        aliases.meet(np, one[None], other[None])
    return aliases


@pytest.mark.parametrize(
    "rescaled",
    [
        lambda x: x * np.array([1, 1, 0.125], np.float32),
        lambda x: x / np.float32(255.0),
        lambda x: (x - np.array([0.1, -0.3, 2.0], np.float32)) / np.array([1.5, 0.2, 7.7], np.float32),
    ],
)
def test_a_fixed_scale_is_seen_through(rescaled) -> None:
    returned = observations(0)
    given = rescaled(returned)
    aliases = met(returned, given)
    assert aliases.known
    names = identities(np, returned)
    aliases.add(np, returned, names)
    found = aliases.translated(np, given, identities(np, given))
    assert (found == names).mean() > 0.98


def test_observations_given_as_they_are_end_the_search() -> None:
    returned = observations(1)
    aliases = met(returned, returned)
    assert aliases.equal == EQUAL
    assert aliases.done
    assert not aliases.known


def test_rows_changed_in_another_way_are_found_again_where_they_were_kept() -> None:
    returned = observations(4, 200)
    moving = (returned - np.linspace(0, 1, 200, dtype=np.float32)[:, None]) / np.linspace(1, 2, 200, dtype=np.float32)[
        :, None
    ]
    features = np.hstack([np.tanh(returned), returned**2])
    for given in (moving, features):
        aliases = Aliases()
        for one, other in zip(returned, given, strict=True):
            aliases.meet(np, one[None], other[None])
        aliases.meet(np, returned[:1], given[1:2])  # asked about once more, when the environment has gone on
        assert not aliases.known
        names = identities(np, returned)
        assert (aliases.translated(np, given, identities(np, given)) == names).all()
        other = identities(np, given + 1)
        assert (aliases.translated(np, given + 1, other) == other).all()


def test_what_another_network_is_given_counts_for_nothing_where_one_is_given_observations() -> None:
    returned = observations(5, 50)
    aliases = met(returned, returned)
    aliases.meet(np, returned[:1], returned[:1] ** 2)
    assert not aliases.asks


def test_other_states_that_a_value_network_is_asked_about_are_no_changed_observations() -> None:
    """After each step it is asked about the state before, and at an end about the last one, which the environment returned elsewhere."""
    returned = observations(6, 100)
    last = observations(7, 100)
    aliases = Aliases()
    for before, now, final in zip(returned, returned[1:], last, strict=False):
        aliases.meet(np, now[None], before[None])
        aliases.meet(np, now[None], final[None])
        aliases.meet(np, now[None], now[None])
    for rows in (returned, last):
        names = identities(np, rows)
        assert (aliases.translated(np, rows, names) == names).all()


def test_states_that_were_acted_on_before_are_no_changed_observations() -> None:
    """Where acting itself is trained, only values of states are asked for without a gradient: of the wrong ones too."""
    returned = observations(8, 100)
    names = identities(np, returned)
    aliases = Aliases()
    for number in range(1, len(returned)):
        earlier = set(names[:number].tolist())
        aliases.meet(np, returned[number : number + 1], returned[number - 1 : number], lambda earlier=earlier: earlier)
    assert (aliases.translated(np, returned, names) == names).all()


def test_what_is_no_fixed_scale_is_left_alone() -> None:
    returned = observations(2)
    drifting = returned / np.linspace(1, 2, len(returned), dtype=np.float32)[:, None] ** 8
    assert met(returned, np.tanh(returned)).done
    assert not met(returned, np.tanh(returned)).known
    assert not met(returned, returned[:, ::-1] * 2).known
    assert not met(returned[:: len(returned) // PAIRS], drifting[:: len(returned) // PAIRS]).known


def test_rows_of_another_width_keep_their_names() -> None:
    returned = observations(3)
    aliases = met(returned, returned * np.float32(0.5))
    wider = np.hstack([returned, returned])
    names = identities(np, wider)
    assert (aliases.translated(np, wider, names) == names).all()
