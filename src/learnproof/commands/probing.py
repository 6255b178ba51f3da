"""Small problems whose right answers are known: `learnproof probe`."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tyro

from .command import FAILED, PROVEN_OR_DONE, UNPROVEN, Command


@dataclass(frozen=True)
class Probe:
    """Let a training function climb small problems whose right answers are known: learnproof probe my_agent:train

    The function is called with what it names of: env, make_env, steps, seed, gamma. It returns what chooses the actions: a
    function from an observation to an action, a Stable-Baselines3 model, or a pair of a policy and a value function. The rung
    that fails says what is broken. Exit code: 0 all climbed, 1 a rung failed, 3 not with every seed.
    """

    function: tyro.conf.Positional[str]
    """module:function or file.py:function, from the working folder."""
    rungs: tuple[str, ...] = ()
    """Only these rungs; default: all."""
    seeds: int = 3
    """Trainings per rung; a rung is climbed where all of them answer rightly."""
    steps: int | None = None
    """Steps that the function is told to train, instead of each rung's own (4,000 to 20,000)."""
    gamma: float = 0.99
    """The discount that the learner uses; the right answers depend on it."""
    continuous: bool = False
    """One continuous action in [-1, 1] instead of discrete ones, for learners such as SAC."""
    json: Path | None = None
    """Also write the results here."""


def probe(arguments: Probe) -> int:
    from ..probing.calling import find_function
    from ..probing.climbing import climb_ladder, ladder
    from ..runs.atomic import write_file
    from ..show.ladder import LadderSheet

    rungs = ladder(arguments.rungs)
    train = find_function(arguments.function)
    sheet = LadderSheet()
    climbs: list[dict[str, Any]] = []
    for climb in climb_ladder(
        train,
        rungs=rungs,
        seeds=arguments.seeds,
        steps=arguments.steps,
        gamma=arguments.gamma,
        continuous=arguments.continuous,
        on_seed=lambda rung, seed: sheet.note(rung.name, seed, arguments.seeds),
    ):
        climbs.append(climb.to_json())
        sheet.rung(climbs[-1])
    sheet.summary(climbs)
    if arguments.json is not None:
        write_file(arguments.json, json.dumps(climbs, indent=2).encode() + b"\n")
    statuses = {climb["status"] for climb in climbs}
    if statuses & {"failed", "raised"}:
        return FAILED
    return PROVEN_OR_DONE if "climbed" in statuses and "unsteady" not in statuses else UNPROVEN


COMMANDS = {"probe": Command(Probe, probe)}
