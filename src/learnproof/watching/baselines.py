"""Rewards of a loop without an environment: tensors whose mean or sum was taken, because a baseline is a mean of rewards.

A language model's rewards come from the script's own rules. Whatever they are, their mean or their sum is taken soon after: to subtract
it, to leave each one out of it, to normalise, to keep a moving average, to log it. In a window, while no environment has been
stepped, short tensors without gradient whose mean or sum is asked for are copied; which of them the loss was made of
is decided by the judge, who finds the one that explains its weights.
"""

from __future__ import annotations

from typing import Any

from .patches import Patches, leave_no_trace
from .session import Session, reading

ASKED = ("mean", "sum")
FEWEST = 4
MOST = 4_096
KEPT = 16


def attach(session: Session) -> None:
    watcher = session.senses["baselines"] = Baselines(session)
    session.window_doors.append(watcher)


class Baselines:
    def __init__(self, session: Session) -> None:
        self.session = session
        self.kept: list[Any] = []
        self.replaced: dict[str, Any] = {}
        self.patches = Patches()

    def move_to(self, child: Session) -> None:
        self.session = child
        self.kept = []
        child.senses["baselines"] = self
        child.window_doors.append(self)

    def stop(self) -> None:
        self.close_window()

    def open_window(self) -> None:
        session = self.session
        calls = session.senses.get("calls")
        if session.env_steps or self.replaced or calls is None or calls.compiles or calls.seeks_anomalies:
            return
        for name in ASKED:
            self._replace(session.torch.Tensor, name, calls.is_compiling)
        tracing = getattr(session.torch.jit, "_trace", None)
        if tracing is not None:
            self.patches.replace(tracing, "_create_interpreter_name_lookup_fn", self._tracing)

    def _tracing(self, original: Any) -> Any:
        """A tracer names values after the variables of whoever calls torch, which must not be ours: where one begins, we go."""

        def create(*arguments: Any, **options: Any) -> Any:
            self.close_window()
            return original(*arguments, **options)

        return create

    def _replace(self, kind: Any, name: str, aside: Any) -> None:
        if name in vars(kind):  # somebody else has put his own there
            return
        original, watcher = getattr(kind, name), self

        def asked(tensor: Any, *arguments: Any, **options: Any) -> Any:
            if not aside():
                watcher.asked(tensor)
            try:
                return original(tensor, *arguments, **options)
            except BaseException as error:
                leave_no_trace(error)
                raise

        asked.__name__, asked.__doc__ = name, original.__doc__
        setattr(kind, name, asked)
        self.replaced[name] = asked

    def close_window(self) -> None:
        self.patches.undo()
        kind = self.session.torch.Tensor
        for name, ours in self.replaced.items():
            if vars(kind).get(name) is ours:
                delattr(kind, name)
        if self.replaced:
            self.replaced, self.kept = {}, []

    @reading("baselines")
    def asked(self, tensor: Any) -> None:
        if tensor.requires_grad or not tensor.is_floating_point() or tensor.dim() > 2:
            return
        if not FEWEST <= tensor.numel() <= MOST:
            return
        copied = tensor.detach().reshape(-1).float().cpu().numpy().copy()
        if any(len(known) == len(copied) and bool((known == copied).all()) for known in self.kept):
            return
        self.kept.append(copied)
        del self.kept[:-KEPT]

    def forget(self) -> None:
        self.kept = []
