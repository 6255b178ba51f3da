"""The script's objects are looked at without running its code."""

import collections
import functools

import gymnasium
import pytest
import torch

from learnproof.watching.glances import asked, attributes, held, is_a

noticed = collections.Counter()


class Proxy:
    @property
    def __class__(self):
        noticed["class"] += 1
        return dict

    @property
    def __dict__(self):
        noticed["dict"] += 1
        return {}

    def __getattr__(self, name):
        noticed[name] += 1
        raise AttributeError(name)


class Slots:
    __slots__ = ("empty", "logits")


class Plain(gymnasium.Env):
    observation_space = gymnasium.spaces.Discrete(3)
    num_envs = 2


class Computing(gymnasium.Env):
    @property
    def observation_space(self):
        noticed["observation_space"] += 1
        return gymnasium.spaces.Discrete(3)

    @property
    def num_envs(self):
        return 4


class Keeping(gymnasium.Env):
    @functools.cached_property
    def spec(self):
        noticed["spec"] += 1
        return "kept"


class Forwarding(gymnasium.Wrapper):
    def __getattr__(self, name):
        noticed[name] += 1
        raise AttributeError(name)


@pytest.fixture(autouse=True)
def nobody_notices():
    noticed.clear()
    yield
    assert not noticed


def test_a_type_is_the_true_one():
    assert is_a({}, dict)
    assert is_a(True, int)
    assert not is_a(Proxy(), dict)


def test_what_is_held_is_found_and_what_is_computed_is_not():
    slots = Slots()
    slots.logits = 3
    thing = Plain()
    thing.logits = 4
    assert [held(thing, "logits"), held(slots, "logits"), held(slots, "empty")] == [4, 3, None]
    assert held(Computing(), "observation_space") is None
    assert held(Proxy(), "logits") is None
    assert attributes(Proxy()) == {}
    assert attributes(thing) is thing.__dict__
    assert attributes(3) == {}


def test_an_environment_is_asked_for_what_it_or_a_library_answers():
    assert asked(Plain(), "observation_space") == gymnasium.spaces.Discrete(3)
    assert asked(gymnasium.Wrapper(Plain()), "observation_space") == gymnasium.spaces.Discrete(3)
    assert asked(gymnasium.make("CartPole-v1"), "spec").id == "CartPole-v1"
    assert asked(Plain(), "nothing of the kind") is None
    assert asked(None, "spec") is None


def test_it_is_not_asked_for_what_the_script_computes():
    assert asked(Computing(), "observation_space") is None
    assert asked(gymnasium.Wrapper(Computing()), "observation_space") is None
    assert asked(Forwarding(Plain()), "num_envs") is None


def test_what_was_computed_once_and_kept_is_found():
    thing = Keeping()
    assert [asked(thing, "spec"), held(thing, "spec")] == [None, None]
    assert thing.spec == "kept"
    noticed.clear()
    assert [asked(thing, "spec"), held(thing, "spec")] == ["kept", "kept"]
    logits = torch.zeros(2)
    assert held(torch.distributions.Categorical(logits=logits), "logits") is not None


def test_a_property_of_the_script_may_be_allowed():
    assert asked(Computing(), "num_envs", even_if_computed=True) == 4
    assert asked(Forwarding(Plain()), "num_envs", even_if_computed=True) is None
