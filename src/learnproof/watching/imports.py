"""Attaches the senses the moment a library has been imported, whenever the script does that, or at once if it is there."""

from __future__ import annotations

import atexit
import importlib.util
import os
import sys
from collections.abc import Callable
from typing import Any

from . import session as sessions
from .session import Session

_registered: list[bool] = []


def attach_when_imported(session: Session) -> None:
    waiting: dict[str, Callable[[Session], None]] = {
        "torch": _attach_torch,
        "gymnasium": _attach_gymnasium,
        "gym": _attach_gym,
        "stable_baselines3.common.vec_env.base_vec_env": _attach_sb3,
    }
    for name in list(waiting):
        if name in sys.modules:
            _attach(session, name, waiting.pop(name))
    if waiting:
        sys.meta_path.insert(0, _Finder(session, waiting))
    if not _registered:
        _registered.append(True)
        atexit.register(_at_exit)
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=sessions.in_forked_child)


def _at_exit() -> None:
    if sessions.CURRENT is not None:
        sessions.CURRENT.end("the process ended", play=not sessions.CURRENT.worker)


def _attach(session: Session, name: str, attach: Callable[[Session], None]) -> None:
    def call() -> None:
        attach(session)

    sessions.guarded(name, call)()
    if session.errors.get(name):
        session.not_seen(name, "its form is not one that the watcher knows")


def _attach_torch(session: Session) -> None:
    from . import (
        backward,
        baselines,
        calls,
        clipping,
        lineage,
        loading,
        modes,
        optimizers,
        placebo,
        playing,
        schedulers,
    )

    session.torch = sys.modules["torch"]
    session.unseen = modes.unseen(session.torch)
    try:
        import numpy

        session.numpy = numpy
    except ImportError:
        session.not_seen("batches", "NumPy is not installed beside torch: counters only")
    for room in (placebo, playing, optimizers, schedulers, lineage, loading, backward, calls, baselines, clipping):
        room.attach(session)
    session.open_window()


def _attach_gymnasium(session: Session) -> None:
    from . import environments

    environments.attach(session, sys.modules["gymnasium"])


def _attach_gym(session: Session) -> None:
    from . import environments

    environments.attach(session, sys.modules["gym"])


def _attach_sb3(session: Session) -> None:
    from . import environments

    environments.attach_vec_env(session, sys.modules["stable_baselines3.common.vec_env.base_vec_env"].VecEnv)


class _Finder:
    """First in sys.meta_path; answers only for the awaited names, until each has been imported."""

    def __init__(self, session: Session, waiting: dict[str, Callable[[Session], None]]) -> None:
        self.session = session
        self.waiting = waiting
        self.asking: set[str] = set()

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name not in self.waiting or name in self.asking:
            return None
        self.asking.add(name)
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self.asking.discard(name)
        if spec is not None and spec.loader is not None:
            kind = type(type(spec.loader).__name__, (_Loader,), {})  # whoever only asks sees the name that he expects
            spec.loader = kind(spec.loader, self, name)
        return spec

    def imported(self, name: str) -> None:
        attach = self.waiting.pop(name, None)
        if not self.waiting and self in sys.meta_path:
            sys.meta_path.remove(self)
        if attach is not None:
            _attach(self.session, name, attach)


class _Loader:
    """The real loader, with one more thing to do afterwards; the module itself ends up with the real one."""

    def __init__(self, real: Any, finder: _Finder, name: str) -> None:
        self._real = real
        self._finder = finder
        self._name = name

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def create_module(self, spec: Any) -> Any:
        return self._real.create_module(spec)

    def exec_module(self, module: Any) -> None:
        module.__spec__.loader = self._real
        module.__loader__ = self._real
        self._real.exec_module(module)
        self._finder.imported(self._name)


# the import machinery takes its own frames out of the traceback of a failed import, and ours with them under this name
_Loader.exec_module.__code__ = _Loader.exec_module.__code__.replace(co_filename="<frozen importlib._bootstrap>")
