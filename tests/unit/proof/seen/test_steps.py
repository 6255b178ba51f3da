"""Optimizers that live for a step, and gradients that several losses leave for one step."""

from types import SimpleNamespace

import numpy as np
import pytest
from made_losses import made_loss

from learnproof.evidence.watched import OptimizerTotals
from learnproof.proof.watched.stepping import GradientsCleared, OptimizersStep


def totals(index: int, steps: int) -> OptimizerTotals:
    return OptimizerTotals(
        optimizer=index, steps=steps, without_backward=0, rate_lowest=1e-3, rate_highest=1e-3, rate_changes=0
    )


def made(count: int, steps: int, kind: str = "Adam", momentum: float = 0.0, own: bool = False):
    """`count` optimizers, each with `steps` steps, of the same weights or each of its own."""
    optimizers = {
        index: SimpleNamespace(
            kind=kind, owns=[f"net{index if own else ''}.weight"], groups=[{"momentum": momentum}], place="train.py:9"
        )
        for index in range(count)
    }
    told = [totals(index, steps) for index in range(count)]
    return OptimizersStep().look(SimpleNamespace(optimizers=optimizers, evidence=SimpleNamespace(of=lambda _: told)))


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        ({"count": 40, "steps": 1}, "fail"),
        ({"count": 40, "steps": 1, "kind": "SGD", "momentum": 0.9}, "fail"),
        ({"count": 40, "steps": 1, "kind": "SGD"}, "pass"),  # has nothing to lose
        ({"count": 40, "steps": 20}, "pass"),  # made anew for each rollout
        ({"count": 40, "steps": 1, "own": True}, "pass"),  # inner loops, each with weights of its own
        ({"count": 1, "steps": 400}, "pass"),
    ],
)
def test_optimizers_made_anew_for_each_step_are_named(arguments, status):
    assert made(**arguments).status == status


def cleared(joined: bool):
    """Two optimizers; before each step of the first comes a critic's loss that reaches both, or came before the step in between."""
    owned = {0: {"trunk", "policy"}, 1: {"value"}}
    losses, steps = [], []
    for update in range(0, 40, 2):
        losses.append(_loss(update, 0, 0.0, {"trunk", "value"}))
        losses.append(_loss(update + (0 if joined else 1), 1 if joined else 0, 0.5, {"trunk", "policy"}))
        steps += [_step(update, 0 if joined else 1), _step(update + 1, 1 if joined else 0)]
    return GradientsCleared().look(SimpleNamespace(owned=owned, training_losses=losses, steps=steps))


def _loss(update: int, earlier: int, before: float, reach: set[str]):
    loss = made_loss({}, update, earlier=earlier, gradient_before=before)
    loss.__dict__["reach"] = frozenset(reach)
    loss.__dict__["structure"] = (len(reach), tuple(sorted(reach)))
    return loss


def _step(update: int, optimizer: int):
    return SimpleNamespace(update=update, optimizer=optimizer, inspected=True)


def test_losses_that_come_before_one_step_are_meant_to_be_added():
    assert cleared(joined=True).status == "pass"


def test_gradients_that_an_earlier_step_left_are_named():
    assert cleared(joined=False).status == "fail"


@pytest.mark.parametrize(("weight", "status"), [(0.5, "fail"), (0.0, "pass")])
def test_only_gradients_that_were_there_can_be_thrown_away(weight, status):
    """Two micro-batches a step, and no gradient before the second: it was cleared, or the first one's advantages are all 0."""
    arrays = {"p0.value": np.full(8, -1.0), "p0.gradient": np.full(8, weight)}
    losses = []
    for update in range(20):
        for earlier in range(2):
            loss = made_loss(arrays, update, earlier=earlier, gradient_before=0.0, log_probs=[{"kind": "gather"}])
            loss.__dict__["reach"] = frozenset({"model.weight"})
            losses.append(loss)
    steps = [_step(update, 0) for update in range(20)]
    view = SimpleNamespace(owned={0: {"model.weight"}}, training_losses=losses, steps=steps)
    assert GradientsCleared().look(view).status == status


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({}, "fail"),
        ({"others": 500}, "pass"),  # a phase in which the critic learns alone may still be over soon
        ({"shared": True}, "pass"),  # another optimizer trains these weights
        ({"reached": True}, "pass"),  # a loss reaches them: the script may step them by hand
        ({"asked": "something else"}, "pass"),  # nobody uses them
    ],
)
def test_an_optimizer_that_nobody_steps_is_named_where_its_weights_are_in_use(change, status):
    told = [totals(0, change.get("others", 5_000)), totals(1, 0)]
    owned = {0: {"critic.weight"}, 1: {"actor.weight"}}
    owned[0] |= owned[1] if change.get("shared") else set()
    optimizers = {
        i: SimpleNamespace(kind="Adam", owns=sorted(owned[i]), groups=[{}], place="train.py:9") for i in owned
    }
    loss = made_loss({}, silent=[{"module": change.get("asked", "actor")}])
    loss.__dict__["reach"] = frozenset(owned[0] | (owned[1] if change.get("reached") else set()))
    view = SimpleNamespace(
        optimizers=optimizers, owned=owned, training_losses=[loss], evidence=SimpleNamespace(of=lambda _: told)
    )
    found = OptimizersStep().look(view)
    assert found.status == status
    assert ("never took a step" in found.summary) == (status == "fail")
