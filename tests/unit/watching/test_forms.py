"""A wrapper has the parameters of what it wraps, and hands them on as they came."""

import inspect

import pytest

from learnproof.watching.forms import in_the_form_of

BODY = "return our_watch({given}, {named}, our_original({passed}))"


def plain(self, action):
    return self, action


def keyword_only(self, *, seed=None, options=None):
    return self, seed, options


def everything(self, first, /, second=2, *more, third, fourth=4, **others):
    return self, first, second, more, third, fourth, others


def loose(*arguments, **options):
    return arguments, options


def wrapped(original):
    return in_the_form_of(original, BODY, our_watch=lambda given, named, answer: answer, our_original=original)


@pytest.mark.parametrize("original", [plain, keyword_only, everything, loose, lambda self, x=1: (self, x)])
def test_it_looks_like_the_original(original):
    made = wrapped(original)
    assert inspect.signature(made) == inspect.signature(original)
    assert inspect.getfullargspec(made) == inspect.getfullargspec(original)
    assert (made.__defaults__, made.__kwdefaults__) == (original.__defaults__, original.__kwdefaults__)
    assert made.__code__.co_argcount == original.__code__.co_argcount


@pytest.mark.parametrize(
    ("original", "arguments", "options"),
    [
        (plain, (0, 1), {}),
        (plain, (0,), {"action": 1}),
        (keyword_only, (0,), {"seed": 3}),
        (everything, (0, 1), {"third": 3}),
        (everything, (0, 1, 5, 6, 7), {"third": 3, "fourth": 8, "first": 9}),
        (loose, (), {}),
        (loose, (0, 1), {"action": 2}),
    ],
)
def test_it_answers_like_the_original(original, arguments, options):
    assert wrapped(original)(*arguments, **options) == original(*arguments, **options)


def test_it_sees_what_was_given():
    seen = []

    def watch(*what):
        seen.append(what)

    in_the_form_of(everything, BODY, our_watch=watch, our_original=everything)(0, 1, 5, 6, third=3, fifth=9)
    assert seen[0][:2] == ((0, 1, 5, 6), {"third": 3, "fourth": 4, "fifth": 9})


def test_it_refuses_parameters_called_like_its_own():
    assert wrapped(lambda self, our_watch: None) is None
