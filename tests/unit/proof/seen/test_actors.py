"""An actor that is trained through a critic: its losses are found by the critic that they ask, and must raise its answer."""

from types import SimpleNamespace

import numpy as np
import pytest
from made_losses import made_loss, made_view

from learnproof.proof.watched.actors import ActorClimbs, actor_losses

ROWS = 32


def seen(slope: float, asked: str = "critic"):
    losses = []
    for update in range(8):
        arrays = {"c0.gradient": np.full((ROWS, 1), slope / ROWS, np.float32)}
        loss = made_loss(arrays, update, calls=[{"module": asked, "shape": [ROWS, 1], "terms": [0]}])
        loss.reach = frozenset({"actor.weight", "critic.q1.weight"})
        loss.term_reach = [loss.reach]
        losses.append(loss)
    fitted = SimpleNamespace(module="critic.q1", explanations=[])
    return made_view(losses, notes={"bootstraps": [fitted]}, owners=lambda parameters: {0, 1})


@pytest.mark.parametrize("asked", ["critic", "critic.q1", "critic.q1.last"])
def test_the_losses_of_an_actor_are_those_that_ask_a_critic_or_a_part_of_it_with_a_gradient(asked):
    assert len(actor_losses(seen(-1.0, asked))) == 8
    assert actor_losses(seen(-1.0, "critic.q2")) == []


@pytest.mark.parametrize(("slope", "status"), [(-1.0, "pass"), (1.0, "fail")])
def test_an_actor_must_raise_the_critics_answer(slope, status):
    found = ActorClimbs().look(seen(slope))
    assert found.status == status, found.summary
