"""A critic fitted to actions in other units than those in which the actor asks it."""

from types import SimpleNamespace

import numpy as np
import pytest
from made_losses import made_loss

from learnproof.proof.watched.units import stored_in_other_units


def seen(bound, stored, asked, given):
    """`stored`, `asked` and `given` make of numbers between -1 and 1 what the critic is fitted to, is asked about, and what the environment got."""
    rng = np.random.default_rng(0)
    losses, actors = [], []
    for update in range(80):
        spoken = np.tanh(2 * rng.standard_normal((64, 2)))
        arrays = {
            "c0.action": stored(spoken), "t.action": given(spoken), "t.row": np.arange(64), "t.time": rng.integers(0, 1 + 100 * update, 64),
        }  # fmt: skip
        loss = made_loss(arrays, update, env_steps=100 * update, calls=[{"module": "q"}])
        loss.__dict__["regressions"] = [SimpleNamespace(call=0)]
        losses.append(loss)
        actor = made_loss(
            {"c0.action": asked(np.tanh(2 * rng.standard_normal((64, 2))))}, update, calls=[{"module": "q"}]
        )
        actors.append((actor, -1.0))
    return SimpleNamespace(training_losses=losses, action_bound=bound, notes={"actor_losses": actors})


def times(factor):
    return lambda numbers: factor * numbers


@pytest.mark.parametrize(
    ("bound", "stored", "asked", "given", "told"),
    [
        (3.0, times(3), times(1), times(3), True),
        (3.0, times(1), times(1), times(3), False),  # stored as the actor gave it
        (3.0, times(3), times(3), times(3), False),  # the actor speaks of -3 to 3
        (1.0, times(1), times(1), times(1), False),
        (
            3.0,
            times(3),
            times(0.4),
            times(3),
            False,
        ),  # an actor that does not come to its end: nobody knows where it is
    ],
)
def test_units_that_differ_between_memory_and_actor_are_told(bound, stored, asked, given, told):
    found = stored_in_other_units(seen(bound, stored, asked, given))
    assert (found is not None) == told
    if found is not None:
        assert found.stored == pytest.approx(3.0, rel=0.02)
        assert found.share > 0.3
