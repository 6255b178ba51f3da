"""Actions drawn from the distribution that scores them, and from others; steps that share one weight."""

from types import SimpleNamespace

import numpy as np
import pytest

from learnproof.proof.seen import Seen
from learnproof.proof.seen.weights import one_weight_for_all
from learnproof.proof.watched.sampling import CLEARLY, LOG_RARE, _surprises_of


def scored(rng, rows, spread, temperature=1.0, actions=4):
    """Log-probabilities of actions that were drawn at some temperature, and the logits that score them."""
    logits = spread * rng.standard_normal((rows, actions))

    def table(values):
        return values - np.logaddexp.reduce(values, axis=1, keepdims=True)

    drawn = (np.exp(table(logits / temperature)).cumsum(axis=1) < rng.random((rows, 1))).sum(axis=1)
    drawn = np.minimum(drawn, actions - 1)
    return table(logits)[np.arange(rows), drawn], logits


@pytest.mark.parametrize("spread", [0.3, 1.0, 4.0, 12.0])
def test_healthy_actions_are_never_far_off(spread):
    """4.0 and 12.0: policies that have nearly made up their minds, where no normal law holds."""
    rng = np.random.default_rng(0)
    told = [_surprises_of([scored(rng, 800, spread)]) for _ in range(300)]
    assert not [each for each in told if each.log_chance < LOG_RARE]
    assert np.mean([each.log_chance < np.log(0.05) for each in told]) < 0.1  # either side at 0.05


@pytest.mark.parametrize(("temperature", "side"), [(0.5, -1), (2.0, 1)])
def test_another_temperature_is_told_with_its_side(temperature, side):
    rng = np.random.default_rng(1)
    for _ in range(20):
        told = _surprises_of([scored(rng, 300, 1.5, temperature) for _ in range(4)])
        assert told.log_chance < LOG_RARE
        assert told.share * side > CLEARLY


def test_where_nothing_could_have_gone_otherwise_nothing_is_said():
    told = _surprises_of([scored(np.random.default_rng(2), 500, 400.0)])
    assert told.log_chance > LOG_RARE
    assert told.chances < 5


def test_actions_that_are_masked_out_do_no_harm():
    rng = np.random.default_rng(4)
    log_prob, logits = scored(rng, 500, 1.0, actions=3)
    masked = np.hstack([logits, np.full((500, 1), -np.inf)])
    assert _surprises_of([(log_prob, masked)]).share == pytest.approx(_surprises_of([(log_prob, logits)]).share)
    assert _surprises_of([(log_prob, masked)]).log_chance > LOG_RARE


def losses(weights, targets):
    return [
        SimpleNamespace(
            policies=[SimpleNamespace(weight=weight, even=bool(np.ptp(weight) == 0))],
            regressions=[SimpleNamespace(target=target)],
        )
        for weight, target in zip(weights, targets, strict=True)
    ]


def test_one_weight_for_all_steps_is_told_where_their_returns_differ():
    rng = np.random.default_rng(3)
    returns = [rng.standard_normal(20) for _ in range(10)]
    averaged = [np.full(20, value) for value in rng.standard_normal(10)]
    assert len(one_weight_for_all(losses(averaged, returns))) == 10
    assert not one_weight_for_all(losses(returns, returns))  # each step its own
    assert not one_weight_for_all(losses([np.full(20, 0.05)] * 10, returns))  # actions that are copied: one sign
    assert not one_weight_for_all(losses(averaged, [np.ones(20)] * 10))  # steps that all have the same return
    assert not one_weight_for_all(losses([w[:1] for w in averaged], [r[:1] for r in returns]))  # one step at a time


def test_the_first_scored_loss_counts_unless_an_earlier_one_moved_its_network():
    def loss(reach, scored):
        return SimpleNamespace(policies=[1] if scored else [], reach=frozenset(reach))

    critic, actor, shared = loss({"critic.weight"}, False), loss({"actor.weight"}, True), loss({"actor.weight"}, False)
    for losses_of_cycle, found in (
        ([actor, critic], [actor]),
        ([critic, critic, actor, actor], [actor]),
        ([critic, shared, actor], []),
        ([critic], []),
    ):
        assert Seen.unmoved(SimpleNamespace(by_cycle={3: losses_of_cycle}), 3) == found
