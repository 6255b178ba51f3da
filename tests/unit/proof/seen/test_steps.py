"""Optimizers that live for a step, and gradients that several losses leave for one step."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from made_losses import made_loss, made_view

from learnproof.evidence.watched import OptimizerTotals
from learnproof.proof.watched.stepping import GradientsCleared, OptimizersFed, OptimizersStep, _fell_dry


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
    evidence = SimpleNamespace(of=lambda _: told, episodes=[])
    return OptimizersStep().look(made_view([], optimizers=optimizers, evidence=evidence))


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
    evidence = SimpleNamespace(of=lambda _: told, episodes=[])
    found = OptimizersStep().look(made_view([loss], optimizers=optimizers, owned=owned, evidence=evidence))
    assert found.status == status
    assert ("never took a step" in found.summary) == (status == "fail")


POLICY, VALUE, OTHER = 0, 1, 2


def scored(update: int, reach: set[str], policy: bool = True):
    loss = made_loss({}, update)
    loss.__dict__["reach"] = frozenset(reach)
    loss.__dict__["policies"] = [SimpleNamespace()] if policy else []
    return loss


def stopping(
    policy_steps: int = 400,
    value_steps: int = 2_000,
    episodes: int = 100,
    held_by_value: bool = False,
    later=(),
    elsewhere=0,
):
    """Two optimizers that step by turns, until the policy's stops. `later` are the weights of a policy that is trained after that;
    `elsewhere` are steps of an optimizer of another process."""
    owned = {POLICY: {"actor.weight"}, VALUE: {"critic.weight"}, OTHER: set(later)}
    owned[VALUE] |= owned[POLICY] if held_by_value else set()
    last = 2 * policy_steps - 2
    whole = policy_steps + value_steps
    told = [
        replace(totals(POLICY, policy_steps), last_update=last),
        replace(totals(VALUE, value_steps), last_update=whole - 1),
        *([replace(totals(OTHER, 100), last_update=whole + 99)] if later else []),
        *([replace(totals(VALUE, elsewhere), process=7, last_update=elsewhere - 1)] if elsewhere else []),
    ]
    losses = [scored(update, owned[POLICY]) for update in range(0, last, 50)]
    losses += [scored(update, owned[VALUE], policy=False) for update in range(1, whole, 50)]
    losses += [scored(update, set(later)) for update in range(whole, whole + 100, 10) if later]
    played = [SimpleNamespace(update=update) for update in range(last)]
    played += [SimpleNamespace(update=last + 1 + number) for number in range(episodes)]
    optimizers = {
        i: SimpleNamespace(kind="Adam", owns=sorted(owned[i]), groups=[{}], place="train.py:9") for i in owned
    }
    evidence = SimpleNamespace(of=lambda _: told, episodes=played)
    return OptimizersStep().look(made_view(losses, optimizers=optimizers, owned=owned, evidence=evidence))


def test_a_policy_that_is_no_longer_stepped_while_its_values_are_is_named():
    found = stopping()
    assert found.status == "fail"
    assert "took its last step after 798 of 2400 updates" in found.summary
    assert "holding actor" in found.summary
    assert found.figures["steps_of_others_after"] == 1_601
    assert found.where == "train.py:9"


@pytest.mark.parametrize(
    "healthy",
    [
        {"policy_steps": 2_000},
        {"policy_steps": 1_200},  # a last phase in which the values learn alone
        {"policy_steps": 100, "value_steps": 500},
        {"held_by_value": True},
        {"episodes": 20},
        {"later": {"second.weight"}},
        {"policy_steps": 1_500, "value_steps": 1_500, "elsewhere": 9_000},
    ],
    ids=[
        "to the end",
        "in the second half",
        "a short run",
        "pretraining, then another optimizer of the same weights",
        "nothing is played any more",
        "another agent is trained after it",
        "another process goes on",
    ],
)
def test_an_optimizer_that_stops_with_good_reason_is_no_fault(healthy):
    found = stopping(**healthy)
    assert found.status == "pass", found.summary


def test_an_optimizer_of_values_alone_may_stop():
    """What is pretrained and then only read, a model of the world say, trains no policy."""
    told = [replace(totals(0, 400), last_update=399), replace(totals(1, 2_000), last_update=2_399)]
    owned = {0: {"model.weight"}, 1: {"actor.weight"}}
    optimizers = {
        i: SimpleNamespace(kind="Adam", owns=sorted(owned[i]), groups=[{}], place="train.py:9") for i in owned
    }
    losses = [scored(update, owned[0], policy=False) for update in range(0, 400, 50)]
    losses += [scored(update, owned[1]) for update in range(400, 2_400, 50)]
    evidence = SimpleNamespace(of=lambda _: told, episodes=[SimpleNamespace(update=u) for u in range(2_400)])
    assert (
        OptimizersStep().look(made_view(losses, optimizers=optimizers, owned=owned, evidence=evidence)).status == "pass"
    )


def measured(with_gradients: list[bool]) -> list[SimpleNamespace]:
    """Steps of one optimizer, each with the gradients of its weights or without any."""
    return [
        SimpleNamespace(
            optimizer=0, update=10 * n, grad_norm=float(own), parameters={"net.weight": [1.0]} if own else {}
        )
        for n, own in enumerate(with_gradients)
    ]


def test_weights_that_lose_their_gradients_in_the_middle_of_a_run_are_named():
    optimizers = {0: SimpleNamespace(kind="Adam", place="")}
    steps = measured([True] * 20 + [False] * 20)
    found = OptimizersFed().look(made_view([], steps=steps, optimizers=optimizers, owned={0: {"net.weight"}}))
    assert found.status == "fail"
    assert "190" in found.summary  # the last step with gradients


@pytest.mark.parametrize(
    "with_gradients",
    [
        [True] * 40,
        [True, False] * 20,  # an actor that is trained at every second step
        [False] * 20 + [True] * 20,  # a warm-up
        [True] * 36 + [False] * 4,  # a few at the end: the script is tidying up
    ],
)
def test_steps_without_gradients_that_are_no_fault(with_gradients):
    assert _fell_dry(measured(with_gradients)) is None
