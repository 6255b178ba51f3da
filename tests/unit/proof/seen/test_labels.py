"""Cross entropy of labels: the right way round, turned round, and where it says nothing."""

from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from made_losses import made_loss

from learnproof.proof.watched.labels import LabelsDirection


def looked_at(sign: float, count: int = 20, rate: float = 0.5, ignored: int = 0):
    """`count` losses of a linear model, each with a step of descent."""
    source = torch.Generator().manual_seed(0)
    losses = []
    for update in range(count):
        logits = torch.randn(32, 5, generator=source, requires_grad=True)
        labels = torch.randint(0, 5, (32,), generator=source)
        labels[:ignored] = -100
        (sign * F.cross_entropy(logits, labels)).backward()
        arrays = {
            "c0.output": logits.detach().numpy(), "c0.gradient": logits.grad.numpy(),
            "c0.after": (logits - rate * logits.grad).detach().numpy(), "k0": labels.numpy(),
        }  # fmt: skip
        constants = [{"role": "label", "terms": [0], "calls": [0]}]
        losses.append(
            made_loss(arrays, update, constants=constants, calls=[{"module": "net", "terms": [0]}], log_probs=[])
        )
    steps = [SimpleNamespace(descent=-1.0)] * count
    return SimpleNamespace(training_losses=losses, steps=steps, notes={"token_losses": []})


@pytest.mark.parametrize(("sign", "status"), [(1.0, "pass"), (-1.0, "fail")])
@pytest.mark.parametrize("ignored", [0, 8])
def test_the_direction_of_labels(monkeypatch, sign, status, ignored):
    monkeypatch.setattr("learnproof.proof.watched.labels.token_losses", lambda seen: [])
    found = LabelsDirection().look(looked_at(sign, ignored=ignored))
    assert found.status == status
    assert found.figures["losses"] == 20
    assert found.figures["nearer_after_the_step"] == ("20 of 20" if sign > 0 else "0 of 20")


def test_a_few_losses_say_nothing(monkeypatch):
    monkeypatch.setattr("learnproof.proof.watched.labels.token_losses", lambda seen: [])
    assert LabelsDirection().look(looked_at(-1.0, count=3)).status == "undecided"
