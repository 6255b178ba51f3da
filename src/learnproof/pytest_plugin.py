"""For pytest: training functions that must learn, and training code that must prove it.

    @pytest.mark.must_learn
    def test_my_agent(env, steps, seed):
        return my_agent.train(env, steps, seed)      # what chooses the actions

    def test_my_loop(prove):
        prove(my_loop.main, epochs=20)               # watched; fails unless the verdict is proven

`must_learn` makes one test of each rung of the probe ladder. The test function is the training function: it is called once
per seed with what it names of env, make_env, steps, seed and gamma, and returns what `learnproof probe` takes. The marker
takes rungs, seeds, steps, gamma and continuous. Fixtures may be asked for beside them.

`prove(function, *arguments)` calls a function, watched, and gives its verdict; it fails where the verdict is not proven, or
with `allow="unproven"`, where it is broken.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pytest

if TYPE_CHECKING:
    from .probing.rungs import Rung
    from .proof.verdict import Verdict

OPTIONS = ("rungs", "seeds", "steps", "gamma", "continuous")
OFFERED = ("env", "make_env", "steps", "seed", "gamma")
RUNG = "learnproof_rung"
MARKER = (
    "must_learn(rungs=(), seeds=3, steps=None, gamma=0.99, continuous=False): the test trains and returns a policy, which "
    "must be right on each rung of learnproof's probe ladder"
)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", MARKER)


@pytest.hookimpl(tryfirst=True)
def pytest_pycollect_makeitem(collector: pytest.Collector, name: str, obj: object) -> None:
    """A must_learn test's own arguments are ours to give: to pytest it shows the rung in their place."""
    if not inspect.isfunction(obj) or not any(mark.name == "must_learn" for mark in getattr(obj, "pytestmark", [])):
        return
    own = inspect.signature(obj)
    left = [parameter for parameter in own.parameters.values() if parameter.name not in OFFERED]
    rung = inspect.Parameter(RUNG, inspect.Parameter.KEYWORD_ONLY)
    at = next((place for place, one in enumerate(left) if one.kind is one.VAR_KEYWORD), len(left))
    obj.__learnproof_signature__ = own  # type: ignore[attr-defined]
    obj.__signature__ = own.replace(parameters=[*left[:at], rung, *left[at:]])  # type: ignore[attr-defined]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    marker = metafunc.definition.get_closest_marker("must_learn")
    if marker is None:
        return
    unknown = [name for name in marker.kwargs if name not in OPTIONS]
    if unknown:
        pytest.fail(f"must_learn does not know {unknown[0]!r}. It takes: {', '.join(OPTIONS)}.", pytrace=False)
    names = marker.kwargs.get("rungs", marker.args)
    rungs = _ladder((names,) if isinstance(names, str) else tuple(names))
    metafunc.parametrize(RUNG, rungs, ids=[rung.name for rung in rungs])


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    marker = pyfuncitem.get_closest_marker("must_learn")
    if marker is None or RUNG not in pyfuncitem.funcargs:
        return None
    from .errors import LearnproofError
    from .probing.climbing import climb_ladder

    rung: Any = pyfuncitem.funcargs[RUNG]
    function = pyfuncitem.obj
    own: inspect.Signature = function.__learnproof_signature__
    fixtures = {name: pyfuncitem.funcargs[name] for name in own.parameters if name in pyfuncitem.funcargs}
    train = functools.partial(function, **fixtures)
    taken = [
        parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY, default=inspect.Parameter.empty)
        for parameter in own.parameters.values()
        if parameter.name in OFFERED
    ]
    train.__signature__ = inspect.Signature(taken)  # type: ignore[attr-defined]
    options = {name: value for name, value in marker.kwargs.items() if name != "rungs"}
    try:
        climb = next(climb_ladder(train, rungs=[rung], on_error="raise", **options))
    except LearnproofError as error:
        pytest.fail(str(error), pytrace=False)
    if climb.status == "not_seen":
        pytest.skip(climb.finding)
    if climb.status != "climbed":
        pytest.fail(f"{climb.rung} was not climbed. {climb.question}\n{climb.finding}", pytrace=False)
    return True


@pytest.fixture
def prove(tmp_path: Path) -> Callable[..., Verdict]:
    """prove(function, *arguments): call it, watched; its verdict, or a failed test where learning is not proven."""

    def prove(
        function: Callable[..., Any],
        *arguments: Any,
        allow: Literal["proven", "unproven"] = "proven",
        waive: dict[str, str] | None = None,
        **named: Any,
    ) -> Verdict:
        from .supervising.joining import watch

        number = len(list(tmp_path.glob("watched-*"))) + 1
        with watch(out=tmp_path / f"watched-{number}", waive=waive) as proof:
            function(*arguments, **named)
        if proof.verdict is None:
            pytest.fail("The test process is already being watched, so that there is no verdict of its own.")
        verdict = proof.verdict
        wanted = ("proven",) if allow == "proven" else ("proven", "unproven")
        if verdict.verdict not in wanted:
            pytest.fail(_explained(verdict), pytrace=False)
        return verdict

    return prove


@functools.cache
def _ladder(names: tuple[str, ...]) -> list[Rung]:
    from .probing.climbing import ladder

    return ladder(names)


def _explained(verdict: Verdict) -> str:
    from io import StringIO

    from rich.console import Console

    from .show.verdict_table import print_verdict

    text = StringIO()
    print_verdict(verdict.to_json(), console=Console(file=text, width=100))
    return text.getvalue()
