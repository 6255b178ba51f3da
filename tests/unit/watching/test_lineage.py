"""Which networks follow others, and that a new pair takes an old one's place."""

import copy
import os
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from learnproof.watching import session as sessions
from learnproof.watching.lineage import Lineage, _shallow_copies
from learnproof.watching.session import Session


def small_network() -> nn.Sequential:
    return nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 1))


def test_a_shallow_copy_is_paired_with_its_original_and_a_deep_one_is_not():
    network = small_network()
    shallow, deep = copy.copy(network), copy.deepcopy(network)
    assert _shallow_copies([network, shallow, deep]) == [(shallow, network)]
    assert _shallow_copies([network, deep]) == []


@pytest.fixture
def lineage(monkeypatch, tmp_path):
    """Told of modules by hand, and of which of them an optimizer holds."""
    monkeypatch.setenv(sessions.PARENT, str(os.getpid()))
    session = Session(str(tmp_path))
    monkeypatch.setattr(sessions, "CURRENT", session)
    session.torch = torch
    session.say = lambda *_, **__: None  # type: ignore[method-assign]
    owned: set[int] = set()
    session.senses["optimizers"] = SimpleNamespace(met_so_far=1, owned_ids=lambda: owned, tell_modules=lambda: None)
    found = Lineage(session)

    def trains(network):
        session.names.module_found(network)
        owned.update(id(parameter) for parameter in network.parameters())

    found.trains = trains  # type: ignore[attr-defined]
    found.meets = session.names.module_found  # type: ignore[attr-defined]
    yield found
    assert session.errors == {}


def test_networks_that_are_made_anew_are_paired_once_the_old_ones_are_gone(lineage):
    network = small_network()
    target = copy.deepcopy(network)
    lineage.trains(network)
    lineage.meets(target)
    lineage.before_step()
    assert [follower.module for follower in lineage.followers] == [target]
    fresh = copy.deepcopy(network)
    fresh_target = copy.deepcopy(network)
    lineage.trains(fresh)
    lineage.meets(fresh_target)
    lineage.before_step()
    assert [follower.leader for follower in lineage.followers] == [network, network]  # the old one still stands nearest
    del network, target
    lineage.after_step()
    assert lineage.followers == []
    lineage.before_step()
    assert [(follower.module, follower.leader) for follower in lineage.followers] == [(fresh_target, fresh)]


def test_parts_of_a_network_that_is_followed_whole_are_not_followed_apart(lineage):
    network = small_network()
    target = copy.deepcopy(network)
    lineage.trains(network)
    lineage.meets(target)
    lineage.before_step()
    lineage.meets(nn.Linear(5, 5))  # something new: pairs are looked for again
    lineage.before_step()
    assert [follower.module for follower in lineage.followers] == [target]
