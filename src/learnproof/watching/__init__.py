"""The eyes: what a training loop does, seen from inside its own interpreter and written down; nothing is judged here.

This package runs in a stranger's process, beside whatever torch, NumPy and Gymnasium are installed there (or are not). It
imports the standard library and what it finds, and nothing else of learnproof; it is loaded by path, so that learnproof
need not be installed there. It is written for Python 3.9 and later, and tried on 3.11 with torch 2.4.1, 2.13.0 and 2.15.0.

Three rules hold everywhere:

    nothing is changed    no random number is drawn, no gradient touched, no forward pass repeated that could have an effect,
                          no object of the script asked what it would have to compute, or kept when the script lets it go
    nothing is raised     a sense that fails is written down as not seen, and after a few failures is shut
    nothing grows         every list, file and picture of the past has a bound (session.py lists them)

How it sees, from the cheapest:

    optimizers.py     every step and clearing is counted; some are measured
    schedulers.py     schedules of learning rates, and what one that waits for a plateau is told
    lineage.py        networks that follow others: eight numbers of each are read at every step
    clipping.py       which gradients were clipped, and when
    loading.py        modules that are loaded with their own tensors
    environments.py   every step of the outermost environment: returns, lengths, ends; journal.py and transitions.py remember them
    backward.py       where a loss meets the engine; graph.py reads its graph on inspected updates (nodes.py, terms.py), keeping.py writes it down
    aliases.py        observations that the script changes on their way, called by what the environment returned
    written.py        networks and log-probabilities without modules and distributions, read from the graph
    calls.py          calls of modules and distributions, only while a window is open
    classes.py        which classes of environments are listened to
    homemade.py       environments that belong to no library, found where the script holds them
    baselines.py      without an environment: tensors whose mean or sum was taken, for one of them holds the rewards
    playing.py        after the script has ended: its greedy policy once more, with its first and its last weights
    placebo.py        only where a control run is asked for: learning made impossible
    plan.py           when windows open: by counts of cycles and updates, never by the clock

`begin(folder)` starts a session in this process; inject/sitecustomize.py does the same in a process that is told to by its
environment, before any other import.
"""

from __future__ import annotations

from typing import Any

__all__ = ["begin", "current"]


def begin(folder: str) -> Any:
    """Start watching this process, or return the session that already does."""
    from . import session

    return session.begin(folder)


def current() -> Any:
    """The session of this process, or None."""
    from . import session

    return session.CURRENT
