"""Gradients that are clipped once more in front of another network's step, and weights that have none to clip."""

import os

import pytest
import torch
from torch import nn

from learnproof.watching import session as sessions
from learnproof.watching.clipping import Clipping
from learnproof.watching.session import Session


@pytest.fixture
def clipping(monkeypatch, tmp_path):
    monkeypatch.setenv(sessions.PARENT, str(os.getpid()))
    monkeypatch.setattr(Session, "inspecting", property(lambda _: True))
    session = Session(str(tmp_path))
    monkeypatch.setattr(sessions, "CURRENT", session)
    session.torch = torch
    found = Clipping(session)
    yield found
    found.stop()
    assert session.errors == {}


def train(clipping: Clipping, clips, updates: int = 6) -> int:
    """Actor and critic by turns; `clips` says whose gradients are clipped before each one's step."""
    torch.manual_seed(0)
    networks = {"actor": nn.Linear(3, 2), "critic": nn.Linear(3, 1)}
    optimizers = {name: torch.optim.SGD(network.parameters(), lr=0.1) for name, network in networks.items()}
    for _ in range(updates):
        for name, network in networks.items():
            optimizers[name].zero_grad()
            network(torch.randn(5, 3)).pow(2).mean().backward()
            clipping.session.backwards += 1
            given = [parameter for each in clips[name] for parameter in networks[each].parameters()]
            if given:
                torch.nn.utils.clip_grad_norm_(given, 0.5)
            clipping.before_step(optimizers[name])
            optimizers[name].step()
            clipping.after_step()
    return clipping.of_others


@pytest.mark.parametrize(
    ("clips", "wrong"),
    [
        ({"actor": ["actor"], "critic": ["critic"]}, 0),
        ({"actor": ["actor"], "critic": []}, 0),
        ({"actor": ["actor", "critic"], "critic": ["actor", "critic"]}, 0),
        ({"actor": ["actor"], "critic": ["actor"]}, 6),
    ],
)
def test_a_line_that_was_copied_is_told_from_a_network_that_goes_unclipped(clipping, clips, wrong):
    assert train(clipping, clips) == wrong


@pytest.mark.parametrize(("clips", "barren"), [("online", 0), ("target", 6), ("both", 0)])
def test_weights_without_gradients_are_counted(clipping, clips, barren):
    """A target network that is clipped in place of the one that trains."""
    online, target = nn.Linear(3, 1), nn.Linear(3, 1)
    optimizer = torch.optim.SGD(online.parameters(), lr=0.1)
    given = {"online": [*online.parameters()], "target": [*target.parameters()]}
    given["both"] = given["target"] + given["online"]
    for _ in range(6):
        optimizer.zero_grad()
        online(torch.ones(5, 3)).pow(2).mean().backward()
        clipping.session.backwards += 1
        torch.nn.utils.clip_grad_norm_(given[clips], 0.5)
        clipping.before_step(optimizer)
        optimizer.step()
        clipping.after_step()
    assert (clipping.looked_at, clipping.barren) == (6, barren)
