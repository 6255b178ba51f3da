"""A temperature that is trained must be the one that the actor uses."""

from types import SimpleNamespace

import numpy as np
import pytest
from made_losses import made_loss, made_view

from learnproof.proof.watched.temperature import TemperatureApart

ROWS, LOSSES, FIRST = 64, 30, 0.2


def seen(used, moved=lambda n: 0.02 * n, driven: bool = True, losses: int = LOSSES):
    """An actor's loss and one of the temperature by turns. `used` is what the n-th weighs the log-probability with, `moved` how far the
    logarithm is from where it was; without `driven` that scalar's loss is weighed with other numbers."""
    rng = np.random.default_rng(0)
    made, actors, steps = [], [], []
    for n in range(losses):
        drawn = rng.standard_normal((ROWS, 2))
        value = -0.5 * drawn**2 - 0.919
        log_prob = (value - np.log1p(1e-6 - np.tanh(drawn) ** 2)).sum(1)
        policy = SimpleNamespace(
            even=True,
            action=drawn.astype(np.float32),
            value=value.astype(np.float32),
            gradient=np.full(ROWS, used(n) / ROWS, np.float32),
        )
        actor = SimpleNamespace(
            update=2 * n, policies=[policy], reach=frozenset({"actor.weight"}), term_reach=[], arrays={}
        )
        weight = log_prob - 2.0 if driven else rng.standard_normal(ROWS)
        temperature = made_loss({"k0": weight.astype(np.float32)[:, None]}, 2 * n + 1)
        temperature.reach = frozenset({"log_alpha"})
        made += [actor, temperature]
        actors.append((actor, -1.0))
        steps.append(SimpleNamespace(update=2 * n + 1, descent=-1.0, distances={"log_alpha": moved(n)}))
    return made_view(
        made,
        owned={0: {"log_alpha"}, 1: {"actor.weight", "actor.bias"}},
        optimizers={0: SimpleNamespace(n_owned=1), 1: SimpleNamespace(n_owned=2)},
        steps=steps,
        notes={"actor_losses": actors},
    )


def fixed(n: int) -> float:
    return FIRST


def test_a_temperature_that_moves_while_the_actor_uses_its_first_number_is_named():
    found = TemperatureApart().look(seen(fixed))
    assert found.status == "fail"
    assert "not what is used" in found.summary
    assert found.figures["weight_in_the_actor"] == pytest.approx(FIRST)
    assert found.figures["moved"] == pytest.approx(0.02 * (LOSSES - 2))  # up to the last loss of the actor


@pytest.mark.parametrize(
    "about",
    [
        {"used": lambda n: FIRST * np.exp(-0.02 * n)},
        {"used": lambda n: FIRST if n < LOSSES - 1 else 0.9 * FIRST},  # read again once, late
        {"used": fixed, "driven": False},
        {"used": fixed, "moved": lambda n: 0.001 * n},
        {"used": fixed, "moved": lambda n: 3.0},
        {"used": fixed, "losses": 12},
    ],
    ids=[
        "the weight follows",
        "the weight is read again",
        "another scalar, which no log-probability drives",
        "a temperature that hardly moves",
        "a temperature that had moved before and stands still",
        "few losses",
    ],
)
def test_a_weight_that_follows_or_has_nothing_to_follow_is_no_fault(about):
    found = TemperatureApart().look(seen(**about))
    assert found.status == "pass", found.summary
