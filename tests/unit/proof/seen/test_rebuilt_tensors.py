"""Log-probabilities rebuilt as a tensor of their own are named; a temperature, a network and a multiplier are not."""

import pytest
from made_losses import made_loss, made_view

from learnproof.proof.watched.ownership import LEAF, LossesReachWeights

POLICY = frozenset({"policy.weight", "policy.bias"})


def losses(leaf, structure, shape=(48,)):
    """Each has a term of an entropy, which reaches the policy, and one of what `leaf` names."""
    found = []
    for update in range(12):
        terms = [
            {"coefficient": -1.0, "structure": structure, "shape": list(shape), "reductions": ["sum"]},
            {"coefficient": -0.01, "structure": ["StackBackward0", "NegBackward0", "SumBackward1"], "shape": [48]},
        ]
        loss = made_loss({}, update, terms=terms, n_terms=2)
        loss.term_reach = [frozenset({leaf(update)}), POLICY]
        loss.reach = POLICY | {leaf(update)}
        found.append(loss)
    return found


@pytest.mark.parametrize(
    ("leaf", "structure", "shape", "status"),
    [
        (lambda update: f"tensor-48#{update}", ["MulBackward0", LEAF], (48,), "fail"),
        (lambda update: "log_alpha", ["MulBackward0", LEAF], (48,), "pass"),
        (lambda update: "tensor-1#3", ["MulBackward0", LEAF], (48,), "pass"),
        (lambda update: f"tensor-48#{update}", ["MulBackward0", "AddmmBackward0", LEAF], (48,), "pass"),
        (lambda update: f"tensor-scalar#{update}", ["MulBackward0", LEAF], (), "pass"),
    ],
    ids=["made anew", "a temperature", "a multiplier without a name", "inputs of a network", "one number"],
)
def test_a_term_without_a_network(leaf, structure, shape, status):
    view = made_view(losses(leaf, structure, shape), all_owned=set(POLICY), owned_whole=True)
    view.optimizers = {0: None}
    view.evidence.samples = lambda kind: []
    view.modules = {}
    found = LossesReachWeights().look(view)
    assert found.status == status
    assert ("made for this loss alone" in found.summary) == (status == "fail")
