"""One session per process: what is known so far, the counters, and the rule that a sense never hurts the script.

    session.say(kind, ...)        one event
    @sense("graph")               a function that sees: its errors are counted, never raised, and too many of them shut it
    @reading("graph")             the same for one that reads tensors: nobody who counts what torch does counts it
    session.cycle_begins()        environment steps have begun after updates: the moment to open or close a window

What is kept in memory, at most: 65,536 transitions of about 100 bytes and their observations up to 16 MB (transitions.py), 1 MB of steps that wait (journal.py), the calls of one window up to
64 MB (calls.py), two copies of sampled weights up to 16 MB each (optimizers.py), eight numbers per following network.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from .aliases import Aliases
from .names import Names
from .plan import LONG_CYCLE_STEPS, UPDATES_PER_WINDOW, Plan
from .seeking import Seeking
from .writer import FORM, Writer

CURRENT: Session | None = None
F = TypeVar("F", bound=Callable[..., Any])
PARENT = "LEARNPROOF_WATCH_PARENT"
"""Set in the environment by the first watched process, for those that it starts."""
HELD_EVENTS = 1_000
ERRORS_ALLOWED = 5
"""Failures after which a sense is shut for the rest of the run."""


class Session:
    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.owner = os.getpid()
        self.writer = Writer(folder)
        self.plan = Plan()
        self.seeking = Seeking(self)
        self._seek = guarded("seeking", self.seeking.cycle_begins)
        self.names = Names()
        self.lock = threading.RLock()
        self.torch: Any = None
        self.unseen: Callable[[], Any] = contextlib.nullcontext
        """Makes contexts for reading tensors (modes.py)."""
        self.saved_can_be_read = True
        """False once the script packs what autograd saves: unpacking would run its code."""
        self.numpy: Any = None
        self.joined = "torch" in sys.modules
        """Whether the script was already under way when watching began."""
        self.worker = is_worker()
        """A process that another watched one started. What it plays is the parent's affair (a vector environment counts
        its own episodes), so that it stays silent until it takes an optimizer step itself."""
        self.trains = False
        self.held: list[Any] = []
        self.started = False
        self.ended = False
        self.errors: dict[str, int] = {}
        self.shut: dict[str, str] = {}
        self.told: dict[str, str] = {}

        self.updates = 0
        """Optimizer steps so far, all optimizers."""
        self.backwards = 0
        self.backwards_at_step = 0
        """As many backward passes there had been at the last optimizer step."""
        self.cycle = 0
        self.env_steps = 0
        """Calls of step on an outermost environment."""
        self.widths = (0, 0)
        """Numbers of a flat observation and of a continuous action, once they are known."""
        self.cycle_steps = 0
        """Those since the last update."""
        self.cycle_updates = 0
        self.long_lately = True
        """Whether the last whole cycle was long; before there is one, long is the cautious guess."""
        self.draws = False
        """Batches are drawn from a memory, though many steps are made between updates: cycles are then treated as short ones."""
        self.last_cycle_updates = 0
        self.windows = 0
        self.inspected = 0
        self.window = False
        self.early = False
        """The window is open for the next cycle already: its first act comes before its first environment step."""
        self.window_doors: list[Any] = []
        """Things with open_window and close_window: the dear senses."""
        self.senses: dict[str, Any] = {}
        self.aliases = Aliases()

    # ------------------------------------------------------------------ saying

    def say(self, event: str, /, last: bool = False, **body: Any) -> None:
        """Write an event; the first one opens the file and introduces the run."""
        if self.ended or os.getpid() != self.owner:
            return
        with self.lock:
            if self.worker and not self.trains:
                if len(self.held) < HELD_EVENTS:
                    self.held.append((event, last, body))
                return
            if not self.started:
                self.started = True
                self.writer.open()
                self.writer.event("run_started", self._introduction())
                for held_kind, held_last, held_body in self.held:
                    self.writer.event(held_kind, held_body, held_last)
                self.held.clear()
            self.writer.event(event, body, last)

    def not_seen(self, what: str, reason: str) -> None:
        """Once per thing: it could not be looked at, and why."""
        if what not in self.told:
            self.told[what] = reason
            self.say("not_seen", last=True, what=what, reason=reason)

    def _introduction(self) -> dict[str, Any]:
        versions = {"python": ".".join(str(part) for part in sys.version_info[:3])}
        for name in ("torch", "numpy", "gymnasium", "gym", "stable_baselines3"):
            module = sys.modules.get(name)
            if module is not None:
                versions[name] = str(getattr(module, "__version__", "unknown"))
        return {
            "version": FORM, "producer": "watch", "algorithm": "unknown", "environment": "unknown", "seed": 0,
            "metric": "return", "n_envs": 0, "constants": {}, "parameters": {}, "marked": "inferred",
            "process": 0 if not self.writer.suffix else self.owner, "versions": versions,
        }  # fmt: skip

    def introduce(self, things: tuple[Any, ...]) -> None:
        """Modules and optimizers that somebody names, or that were made before watching began."""
        for thing in things:
            guarded("introductions", self._introduce)(thing)

    def _introduce(self, thing: Any) -> None:
        if self.torch is None:
            return
        if isinstance(thing, self.torch.nn.Module):
            self.names.module_found(thing)
        elif hasattr(thing, "param_groups"):
            self.senses["optimizers"].met(thing)

    # ------------------------------------------------------------------ cycles and windows

    def cycle_begins(self) -> None:
        """The first environment step after an update, or, without environments, the end of an update."""
        if self.window and not self.early:
            self.close_window()
        self.long_lately = self.long
        self.last_cycle_updates = self.cycle_updates
        self.cycle += 1
        self.cycle_steps = 0
        self.cycle_updates = 0
        self.early = False
        if self.plan.opens(self.cycle, self.long_lately, alone=self.env_steps == 0):
            self.open_window()
        elif self.window:
            self.close_window()
        if self.seeking.active or self.seeking.is_due():
            self._seek()

    def open_window(self) -> None:
        if self.window or self.torch is None:
            return
        self.seeking.end()
        self.window = True
        self.windows += 1
        self.writer.begin_window()
        for door in self.window_doors:
            door.open_window()

    def close_window(self) -> None:
        if not self.window:
            return
        self.window = False
        for door in self.window_doors:
            door.close_window()
        if self.started and self.windows & (self.windows - 1) == 0:
            self.say("watched", **self.totals())  # for a run that will not live to say its last words

    @property
    def long(self) -> bool:
        """Whether this cycle is a long one, as far as it has gone: a rollout and its updates."""
        return self.cycle_steps > LONG_CYCLE_STEPS and not self.draws

    @property
    def keeps_calls(self) -> bool:
        """Whether a backward pass that is still to come may be read."""
        return self.inspecting or self.early or self.seeking.active

    @property
    def inspecting(self) -> bool:
        """Whether the next backward passes are read closely."""
        return self.window and not self.early and self.cycle_updates < UPDATES_PER_WINDOW

    def update_done(self) -> None:
        """After every optimizer step."""
        if self.inspecting:
            self.inspected += 1
        self.trains = True
        self.backwards_at_step = self.backwards
        self.updates += 1
        self.cycle_updates += 1
        if self.env_steps == 0:
            self.cycle_begins()
            return
        if self.window and not self.early and self.cycle_updates >= UPDATES_PER_WINDOW:
            self.close_window()
        if not self.window and 0 < self.last_cycle_updates <= self.cycle_updates:
            self._open_early()

    def _open_early(self) -> None:
        """As many updates as last time have been made: the next cycle may begin, and begins with the policy acting."""
        if self.plan.opens(self.cycle + 1, self.long):
            self.open_window()
            self.early = self.window

    # ------------------------------------------------------------------ the end

    def end(self, reason: str, play: bool = False) -> None:
        """Last words: totals, and what could not be seen. Called at exit, or by whoever began the session. `play` where the
        script is over, so that its policy can be played again without anybody noticing."""
        if self.ended or os.getpid() != self.owner:
            return
        try:
            self.seeking.end()
            self.close_window()
            if play and "playing" in self.senses:
                self.senses["playing"].play()
            for name, sense in self.senses.items():
                words = getattr(sense, "last_words", None)
                if words is not None:
                    guarded(name, words, reads=True)()
            self._say_what_was_absent()
            if self.started:
                self.say("watched", last=True, **self.totals())
                self.say("run_stopped", last=True, step=self.env_steps, rule="script", reason=reason)
        finally:
            self.ended = True
            self.writer.close()
            for organ in self.senses.values():
                organ.stop()

    def _say_what_was_absent(self) -> None:
        if self.torch is None and not self.started:
            return
        if self.updates == 0:
            self.not_seen("optimizer steps", "no torch optimizer took a step in this process")
        if self.env_steps == 0:
            self.not_seen("environment", "no Gymnasium or SB3 environment was stepped in this process")

    def totals(self) -> dict[str, Any]:
        return {
            "updates": self.updates, "backwards": self.backwards, "cycles": self.cycle, "env_steps": self.env_steps,
            "windows": self.windows, "inspected": self.inspected, "dropped_events": self.writer.dropped_events,
            "dropped_samples": self.writer.dropped_samples, "errors": dict(self.errors), "shut": dict(self.shut),
        }  # fmt: skip


def guarded(name: str, function: F, reads: bool = False) -> F:
    """`function` under the rule of a sense: it may fail, and nobody but the evidence hears of it."""

    @functools.wraps(function)
    def look(*arguments: Any, **options: Any) -> Any:
        session = CURRENT
        if session is None or name in session.shut:
            return None
        try:
            if not reads:
                return function(*arguments, **options)
            with session.unseen():
                return function(*arguments, **options)
        except Exception as error:
            _failed(session, name, error)
            return None

    return look  # type: ignore[return-value]


def sense(name: str) -> Callable[[F], F]:
    return lambda function: guarded(name, function)


def reading(name: str) -> Callable[[F], F]:
    return lambda function: guarded(name, function, reads=True)


def _failed(session: Session, name: str, error: Exception) -> None:
    if os.environ.get("LEARNPROOF_WATCH_DEBUG"):
        import traceback

        with open(os.path.join(session.folder, "debug.txt"), "a") as file:
            traceback.print_exc(file=file)
    count = session.errors[name] = session.errors.get(name, 0) + 1
    if count >= ERRORS_ALLOWED and name not in session.shut:
        session.shut[name] = f"{type(error).__name__}: {str(error)[:200]}"
        session.not_seen(name, f"failed {count} times, the last time with {session.shut[name]}")


def is_worker() -> bool:
    parent = os.environ.setdefault(PARENT, str(os.getpid()))
    return parent != str(os.getpid())


def begin(folder: str) -> Session:
    global CURRENT
    if CURRENT is not None and CURRENT.owner == os.getpid() and not CURRENT.ended:
        return CURRENT
    from . import imports

    session = CURRENT = Session(folder)
    imports.attach_when_imported(session)
    return session


def in_forked_child() -> None:
    """A worker made by fork: it takes the originals back, and becomes a session of its own if it ever trains."""
    global CURRENT
    parent = CURRENT
    if parent is None:
        return
    parent.seeking.end()
    parent.close_window()
    parent.writer.file = None  # the descriptor stays the parent's
    child = Session(parent.folder)
    child.torch, child.unseen, child.numpy, child.senses = parent.torch, parent.unseen, parent.numpy, {}
    CURRENT = child
    for sense_ in parent.senses.values():
        sense_.move_to(child)
