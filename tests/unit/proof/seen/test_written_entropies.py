"""An entropy that a loss writes out is known by its graph; the actor's loss of a discrete SAC, nearly the same graph, is none."""

import pytest
import torch
import torch.nn.functional as F
from made_losses import made_loss
from torch import nn

from learnproof.watching import graph

ALPHA = 0.2


@pytest.fixture
def logits():
    torch.manual_seed(0)
    return nn.Linear(3, 4)(torch.randn(16, 3))


def entropies(loss):
    reading = graph.read(torch, [loss.grad_fn])
    terms = [
        {"coefficient": term.coefficient, "reductions": term.reductions, "structure": term.structure}
        for term in reading.terms
    ]
    constants = [
        {
            "role": constant.role,
            "beside": constant.beside,
            "terms": [n for n, term in enumerate(reading.terms) if constant.node in term.members],
        }
        for constant in reading.constants
    ]
    return [
        terms[position]["coefficient"] for position in made_loss({}, terms=terms, constants=constants).entropy_terms
    ]


def by_softmax(logits):
    return F.softmax(logits, -1), F.log_softmax(logits, -1)


def by_exponential(logits):
    log_p = F.log_softmax(logits, -1)
    return log_p.exp(), log_p


def by_logsumexp(logits):
    log_p = logits - logits.logsumexp(-1, keepdim=True)
    return log_p.exp(), log_p


@pytest.mark.parametrize("way", [by_softmax, by_exponential, by_logsumexp])
def test_a_bonus_that_is_written_out_is_an_entropy(way, logits):
    p, log_p = way(logits)
    assert entropies(-0.01 * -(p * log_p).sum(-1).mean()) == [pytest.approx(0.01)]


@pytest.mark.parametrize("way", [by_softmax, by_exponential])
def test_the_actor_of_a_discrete_sac_is_no_entropy(way, logits):
    p, log_p = way(logits)
    assert entropies((p * (ALPHA * log_p - torch.randn(16, 4))).sum(-1).mean()) == []


@pytest.mark.parametrize("way", [by_softmax, by_exponential])
def test_of_values_and_an_entropy_added_only_the_entropy_is_one(way, logits):
    p, log_p = way(logits)
    entropy = -(p * log_p).sum(-1)
    value = (p * torch.randn(16, 4)).sum(-1)
    assert entropies((-ALPHA * entropy - value).mean()) == [pytest.approx(ALPHA)]
