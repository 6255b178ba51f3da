"""Train on each rung over several seeds, ask what was learnt, and say what is broken where the answer is wrong."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from ..errors import UsageError, did_you_mean
from .calling import arguments_for
from .environment import ProbeEnv
from .reading import read_policy
from .rungs import LADDER, Rung
from .solving import FAULTS, right_actions, state_values

TOLERANCE = 0.2
"""How far a learnt value may lie from the right one. Rewards are of size 1; the faults miss by 0.5 and more."""

Status = Literal["climbed", "unsteady", "failed", "raised", "not_seen"]


@dataclass(frozen=True)
class Answer:
    """One seed's answers on one rung."""

    seed: int
    right: int
    asked: int
    faults: tuple[str, ...] = ()
    """The names of the known faults whose answers these are."""
    shown: str = ""
    """The answers, for people."""
    error: str = ""
    unseen: str = ""

    @property
    def correct(self) -> bool:
        return self.asked > 0 and self.right == self.asked


@dataclass(frozen=True)
class Climb:
    """What came of one rung."""

    rung: str
    question: str
    status: Status
    answers: tuple[Answer, ...]
    finding: str
    seconds: float

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def ladder(names: Iterable[str] = ()) -> list[Rung]:
    """The rungs of these names, in the ladder's order; all of them where none is named."""
    known = {rung.name: rung for rung in LADDER}
    wanted = list(names)
    for name in wanted:
        if name not in known:
            raise UsageError(f"There is no rung {name!r}.{did_you_mean(name, known)} Rungs: {', '.join(known)}.")
    return [rung for rung in LADDER if not wanted or rung.name in wanted]


def climb_ladder(
    train: Callable[..., Any],
    *,
    rungs: Sequence[Rung] = LADDER,
    seeds: int = 3,
    steps: int | None = None,
    gamma: float = 0.99,
    continuous: bool = False,
    on_error: Literal["tell", "raise"] = "tell",
    on_seed: Callable[[Rung, int], None] = lambda rung, seed: None,
) -> Iterator[Climb]:
    """Each rung's result as it is there. `steps` stands in for the rungs' own budgets."""
    if seeds < 1:
        raise UsageError(f"seeds = {seeds}: train at least once.")
    if not 0 < gamma < 1:
        raise UsageError(
            f"gamma = {gamma}: the ladder's answers are for a discount between 0 and 1, as your learner uses it."
        )
    for rung in rungs:
        began = time.monotonic()
        answers = []
        for seed in range(seeds):
            on_seed(rung, seed)
            answers.append(ask(train, rung, seed, steps or rung.steps, gamma, continuous, on_error))
            if answers[-1].error or answers[-1].unseen:
                break
        yield conclude(rung, answers, time.monotonic() - began)


def ask(
    train: Callable[..., Any],
    rung: Rung,
    seed: int,
    steps: int,
    gamma: float,
    continuous: bool,
    on_error: Literal["tell", "raise"] = "tell",
) -> Answer:
    """Train once, and compare the answers with the right ones."""
    made = 0

    def make_env() -> ProbeEnv:
        nonlocal made
        made += 1
        return ProbeEnv(rung, 1_000 * (seed + 1) + made, continuous)

    env = make_env()
    try:
        returned = train(**arguments_for(train, env, make_env, steps, seed, gamma))
    except UsageError:
        raise
    except Exception as error:
        if on_error == "raise":
            raise
        place = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{Path(place.filename).name}:{place.lineno}"
        return Answer(seed, 0, 0, error=f"{type(error).__name__}: {error} ({where})")
    return examine(returned, rung, seed, gamma, env)


def examine(returned: Any, rung: Rung, seed: int, gamma: float, env: ProbeEnv) -> Answer:
    """Compare what was returned with what is right."""
    act, value = read_policy(returned, env.action_space)
    if rung.asks == "actions":
        wanted = right_actions(rung, gamma)
        if not wanted:
            return Answer(seed, 0, 0, unseen=f"at gamma {gamma} its ways are as good as each other")
        given = {state: env.choice(act(env.observe(state))) for state in wanted}
        right = sum(given[state] == action for state, action in wanted.items())
        shown = ", ".join(f"{state}: {given[state]} (right: {action})" for state, action in wanted.items())
        return Answer(seed, right, len(wanted), _known_faults(rung, gamma, given, wanted), shown)
    if value is None:
        return Answer(
            seed, 0, 0, unseen="what was returned has no value to read; return (policy, value) to have it asked"
        )
    valued = state_values(rung, gamma)
    told = {state: value(env.observe(state)) for state in valued}
    right = sum(abs(told[state] - worth) <= TOLERANCE for state, worth in valued.items())
    shown = ", ".join(f"{state}: {told[state]:.2f} (right: {worth:.2f})" for state, worth in valued.items())
    return Answer(seed, right, len(valued), _known_value_faults(rung, gamma, told, valued), shown)


def conclude(rung: Rung, answers: Sequence[Answer], seconds: float) -> Climb:
    told = tuple(answers)
    correct = sum(answer.correct for answer in told)
    errors = [answer.error for answer in told if answer.error]
    unseen = [answer.unseen for answer in told if answer.unseen]
    if errors:
        status, finding = "raised", f"Training raised {errors[0]}."
    elif unseen:
        status, finding = "not_seen", f"{unseen[0][0].upper()}{unseen[0][1:]}."
    elif correct == len(told):
        status, finding = "climbed", ""
    else:
        wrong = [answer for answer in told if not answer.correct]
        common = [fault for fault in wrong[0].faults if all(fault in answer.faults for answer in wrong)]
        if common:
            causes = "; or ".join(FAULTS_IN_WORDS[fault] for fault in common)
            finding = f"It answers like a learner of which this is true: {causes}."
        else:
            finding = f"Look at {rung.suspect}."
        finding += f" Answers with seed {wrong[0].seed}: {wrong[0].shown}."
        status = "unsteady" if correct else "failed"
        if correct:
            finding = f"Right with {correct} of {len(told)} seeds: more steps, or it hangs on luck. {finding}"
    return Climb(rung.name, rung.question, status, told, finding, seconds)  # type: ignore[arg-type]


FAULTS_IN_WORDS = {
    **FAULTS,
    "blind": "it gives the same answer to every observation",
    "untrained": "its values have stayed where they began, near 0",
}


def _known_faults(rung: Rung, gamma: float, given: dict[str, int], wanted: dict[str, int]) -> tuple[str, ...]:
    if given == wanted:
        return ()
    found = []
    for fault in FAULTS:
        answers = right_actions(rung, gamma, fault)
        if all(state in answers and answers[state] == given[state] for state in wanted):
            found.append(fault)
    if len(wanted) > 1 and len(set(given.values())) == 1 and len(set(wanted.values())) > 1:
        found.append("blind")
    return _narrowed(rung, found)


def _known_value_faults(rung: Rung, gamma: float, told: dict[str, float], valued: dict[str, float]) -> tuple[str, ...]:
    if all(abs(told[state] - worth) <= TOLERANCE for state, worth in valued.items()):
        return ()
    if all(abs(worth) <= TOLERANCE for worth in told.values()):
        return ("untrained",)
    found = []
    for fault in FAULTS:
        answers = state_values(rung, gamma, fault)
        if all(abs(told[state] - answers[state]) <= TOLERANCE for state in valued):
            found.append(fault)
    if len(told) > 1 and max(told.values()) - min(told.values()) < TOLERANCE / 2:
        found.append("blind")
    return _narrowed(rung, found)


def _narrowed(rung: Rung, found: list[str]) -> tuple[str, ...]:
    """Where several faults would answer so, those that the rung was made for."""
    meant = [fault for fault in found if fault in rung.tells]
    return tuple(meant or found)
