"""Rewards of a loop without an environment: tensors whose mean was taken, because a baseline is a mean of rewards.

A language model's rewards come from the script's own rules. Whatever they are, their mean is taken soon after: to subtract it, to
normalise, to keep a moving average, to log it. In a window, while no environment has been stepped, short tensors without
gradient whose mean is asked for are copied; which of them the loss was made of is decided by the judge, who finds the one
that explains its weights.
"""

from __future__ import annotations

from typing import Any

from .session import Session, reading

FEWEST = 4
MOST = 4_096
KEPT = 8


def attach(session: Session) -> None:
    watcher = session.senses["baselines"] = Baselines(session)
    session.window_doors.append(watcher)


class Baselines:
    def __init__(self, session: Session) -> None:
        self.session = session
        self.kept: list[Any] = []
        self.replaced: Any = None

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
        if session.env_steps or self.replaced is not None or calls is None or calls.compiles or calls.seeks_anomalies:
            return
        kind = session.torch.Tensor
        if "mean" in vars(kind):  # somebody else has put his own there
            return
        original, watcher, aside = kind.mean, self, calls.is_compiling

        def mean(tensor: Any, *arguments: Any, **options: Any) -> Any:
            if not aside():
                watcher.asked(tensor)
            return original(tensor, *arguments, **options)

        mean.__doc__ = original.__doc__
        self.replaced = mean
        kind.mean = mean

    def close_window(self) -> None:
        if self.replaced is None:
            return
        kind = self.session.torch.Tensor
        if vars(kind).get("mean") is self.replaced:
            del kind.mean
        self.replaced = None
        self.kept = []

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
