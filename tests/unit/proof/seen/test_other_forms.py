"""Honest programs of other forms: workers that hand their gradients over, layers called one by one, data sets, groups from one start."""

from types import SimpleNamespace

import numpy as np
import pytest
from made_losses import made_loss, nothing

from learnproof.evidence.watched import LossSeen, ModuleSeen, OptimizerSeen, OptimizerStep, Reach
from learnproof.proof.seen.inner_layers import graded_rows, silent_rows, timed_rows
from learnproof.proof.seen.view import Seen, seen
from learnproof.proof.watched.ownership import LossesReachWeights, WeightsOwned, _never_reached
from learnproof.proof.watched.returns import _begins_again

LAYERS = ("body.weight", "body.bias", "head.weight", "head.bias")


def network(name: str, layers: tuple[str, ...] = LAYERS) -> ModuleSeen:
    return ModuleSeen(
        name=name, kind="Net", parameters=[[f"{name}.{layer}", [4, 2], True] for layer in layers], numbers=16
    )


def step(update: int, fed: bool) -> OptimizerStep:
    figures = {f"gnet.{layer}": (0.5, 1.0, 0.01, -0.005) for layer in LAYERS} if fed else {}
    return OptimizerStep(
        update=update, optimizer=0, step=update, cycle=update, env_steps=10 * update, learning_rates=[1e-3], backwards=1,
        cleared=1, without_gradient=[] if fed else [f"gnet.{layer}" for layer in LAYERS], inspected=True, parameters=figures,
        grad_norm=1.0 if fed else 0.0,
    )  # fmt: skip


def workers(*, fed: bool, layers: tuple[str, ...] = LAYERS):
    """Losses of two workers' networks, and an optimizer that holds a third one of the same form."""
    evidence = nothing()
    for module in (network("gnet"), network("lnet", layers), network("Net#2", layers)):
        evidence.add(module)
    owned = [f"gnet.{layer}" for layer in LAYERS]
    evidence.add(OptimizerSeen(index=0, kind="Adam", groups=[], owns=owned, n_owned=len(owned)))
    for index, name in enumerate(("lnet", "Net#2")):
        reached = [f"{name}.{layer}" for layer in layers]
        evidence.add(Reach(index=index, parameters=reached, n=len(reached)))
    for update in range(20):
        calls = [{"module": "lnet.head" if update % 2 == 0 else "Net#2.head"}]
        evidence.add(made_loss({}, update=update, reach=update % 2, calls=calls, transitions_of=None).event)
        evidence.add(step(update, fed))
    return seen(evidence)


def test_gradients_that_are_handed_over_reach_the_network_that_takes_them():
    there = workers(fed=True)
    assert LossesReachWeights().look(there).status == "pass"
    assert WeightsOwned().look(there).status == "pass"
    assert {about["module"] for loss in there.losses for about in loss.event.calls} == {"gnet.head"}


@pytest.mark.parametrize(("fed", "layers"), [(False, LAYERS), (True, LAYERS[:2])])
def test_a_copy_whose_gradients_nobody_takes_is_named(fed, layers):
    """The optimizer finds no gradients; or the networks are of another form, and whatever it finds is not theirs."""
    there = workers(fed=fed, layers=layers)
    assert LossesReachWeights().look(there).status == "fail"


def ids(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.uint64)


def test_a_layer_of_unknown_rows_speaks_of_the_rows_of_its_batch():
    known = ids(1, 2, 3, 4)
    arrays = {"c0.rows": ids(1, 2, 3), "c1.rows": ids(71, 72, 73), "c2.rows": ids(81, 82), "p0.rows": ids(91, 92, 93)}
    found = graded_rows(arrays, calls=3, log_probs=1, known=known)
    assert {key: rows.tolist() for key, rows in found.items()} == {"c1.rows": [1, 2, 3], "p0.rows": [1, 2, 3]}
    assert graded_rows({"c0.rows": ids(71, 72), "c1.rows": ids(81, 82)}, 2, 0, known) == {}


def test_a_layer_without_a_graph_speaks_of_the_rows_before_it():
    arrays = {"n0.rows": ids(1), "n1.rows": ids(70), "n2.rows": ids(2), "n3.rows": ids(80), "n4.rows": ids(81, 82)}
    found = silent_rows(arrays, calls=5, known=ids(1, 2, 3))
    assert {key: rows.tolist() for key, rows in found.items()} == {"n1.rows": [1], "n3.rows": [2]}


def test_layers_that_were_asked_at_the_same_moments_were_asked_about_the_same_rows():
    moments = np.arange(3)
    arrays = {"m0.time": moments, "m0.rows": ids(1, 2, 3), "m1.time": moments, "m1.rows": ids(7, 8, 9)}
    arrays |= {"m2.time": moments + 5, "m2.rows": ids(17, 18, 19)}
    found = timed_rows(arrays, [{}, {}, {}], ids(1, 2, 3))
    assert {key: rows.tolist() for key, rows in found.items()} == {"m1.rows": [1, 2, 3]}


def test_the_event_of_a_loss_stays_as_it_is_where_nobody_acts_for_another():
    evidence = nothing()
    evidence.add(made_loss({}, calls=[{"module": "net.head"}], transitions_of=None).event)
    assert seen(evidence).losses[0].event is evidence.of(LossSeen)[0]


def test_a_network_that_is_found_with_gradients_is_reached_by_a_loss_that_was_not_looked_at():
    """Of each cycle the first updates are looked at; where they are all the critic's, the actor's come later."""
    steps = [SimpleNamespace(parameters={"actor.weight": (0.5, 1.0, 0.01, -0.1)})]
    there = {"trainable": {"actor.weight": True}, "all_owned": {"actor.weight"}, "training_losses": []}
    assert _never_reached(SimpleNamespace(steps=steps, **there), {"actor"}) == set()
    assert _never_reached(SimpleNamespace(steps=[], **there), {"actor"}) == {"actor"}


@pytest.mark.parametrize(
    ("moments", "rows", "fresh"),
    [
        (range(8), [10, 11, 12, 13], True),  # the policy played, and is trained on what it was shown
        (range(2), [10, 11, 12, 13], False),  # a script played: hardly ever was a network asked
        (range(8), [70, 71, 72, 73], False),  # it played for an evaluation, and is trained on a data set
    ],
)
def test_actions_are_held_against_a_policy_only_where_it_drew_them(moments, rows, fresh):
    played = SimpleNamespace(
        cycle=0, time=np.arange(1, 10), stream=np.zeros(9), copy=np.zeros(9), observation=np.arange(10, 19).astype(np.uint64)
    )  # fmt: skip
    asked = np.array(list(moments))
    there = SimpleNamespace(rollouts=[played], _long_cycles={0}, _asked={0: [(asked, (asked + 10).astype(np.uint64))]})
    loss = SimpleNamespace(policies=[SimpleNamespace(rows=ids(*rows), time=None)])
    assert Seen._of_a_data_set(there, 0, loss) is not fresh


def test_whole_returns_are_honest_weights_of_episodes_that_begin_alike():
    """Compared with others from the same start (a leave-one-out baseline, say)."""
    steps, episodes = 5, 6
    before = np.arange(steps * episodes) - 1
    ended = np.arange(steps * episodes) % steps == steps - 1
    states = np.arange(steps * episodes)
    rollout = SimpleNamespace(preceding=before, ended=ended, resets=np.zeros(len(ended), bool), observation=states)
    assert not _begins_again(rollout)
    rollout.observation = np.where(states % steps == 0, states // (2 * steps), states + 1_000)
    assert _begins_again(rollout)
