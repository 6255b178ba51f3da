"""Clipping: between a backward pass and its step it passes; too late, or of nothing, it is named."""

from types import SimpleNamespace

import pytest

from learnproof.evidence.watched import ClippingTotals
from learnproof.proof.watched.rates import ClippingActs


@pytest.mark.parametrize(
    ("totals", "status", "says"),
    [
        ({"in_time": 100, "too_late": 0}, "pass", "between a backward pass"),
        ({"in_time": 100, "too_late": 0, "nothing": 2}, "pass", "between a backward pass"),
        ({"in_time": 100, "too_late": 0, "nothing": 100}, "fail", "no parameters"),
        ({"in_time": 100, "too_late": 0, "looked_at": 40, "barren": 40}, "fail", "none of the weights had a gradient"),
        ({"in_time": 100, "too_late": 0, "looked_at": 40, "barren": 20}, "pass", "between a backward pass"),
        ({"in_time": 0, "too_late": 100}, "fail", "after the optimizer's step"),
        ({"in_time": 100, "too_late": 0, "of_others": 50}, "fail", "gradients of other weights were clipped"),
    ],
)
def test_clipping_acts(totals, status, says):
    events = [ClippingTotals(**totals)]
    seen = SimpleNamespace(evidence=SimpleNamespace(of=lambda kind: events), process=events[0].process, steps=[])
    found = ClippingActs().look(seen)
    assert (found.status, says in found.summary) == (status, True), found.summary
