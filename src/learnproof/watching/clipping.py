"""Gradient clipping: of which parameters, and whether there were gradients of a loss still to be stepped."""

from __future__ import annotations

from typing import Any

from .patches import Patches, leave_no_trace
from .session import Session, reading, sense

FUNCTIONS = ("clip_grad_norm_", "clip_grad_value_")
LOOKED_AT = 4
"""Numbers of a gradient by which it is known again."""


def attach(session: Session) -> None:
    session.senses["clipping"] = Clipping(session)


class Clipping:
    def __init__(self, session: Session) -> None:
        self.session = session
        self.patches = Patches()
        self.in_time = 0
        """Calls between a backward pass and the step that used it."""
        self.too_late = 0
        """Calls after the step, before another backward pass: they clip what nobody will use."""
        self.waiting = 0
        """Calls after a step, as long as neither another step nor a backward pass has come: a second optimizer may use them."""
        self.nothing = 0
        """Calls that were given no parameter at all: a generator that was used up, say."""
        self.looked_at = 0
        """Calls of inspected steps, between a backward pass and the step."""
        self.barren = 0
        """Those of them in which none of the parameters had a gradient."""
        self.clipped: set[int] = set()
        """ids of the parameters clipped since the last step."""
        self.backwards_at_step = 0
        self.used: dict[int, list[float]] = {}
        """id of a parameter -> numbers of the gradient that an inspected step has used."""
        self.again = False
        """Such a gradient was clipped once more, and no step has come since."""
        self.of_others = 0
        """Inspected steps before which nothing was clipped but gradients of other weights, which had been used already."""
        utils = session.torch.nn.utils
        for name in FUNCTIONS:
            original = getattr(utils, name, None)
            for owner in (utils, getattr(utils, "clip_grad", utils)):
                if getattr(owner, name, None) is original:
                    self.patches.replace(owner, name, self._clipping)

    def move_to(self, child: Session) -> None:
        self.session = child
        self.in_time = self.too_late = self.nothing = self.looked_at = self.barren = 0
        child.senses["clipping"] = self

    def stop(self) -> None:
        self.patches.undo()

    def _clipping(self, original: Any) -> Any:
        def clip(parameters: Any, *arguments: Any, **options: Any) -> Any:
            parameters = self.met(parameters)
            try:
                return original(parameters, *arguments, **options)
            except BaseException as error:
                leave_no_trace(error)
                raise

        return clip

    def met(self, parameters: Any) -> Any:
        """Counts, and hands on what it was given: a generator can be read only once."""
        if hasattr(parameters, "grad"):
            self.count([parameters])
            return parameters
        listed = parameters if isinstance(parameters, (list, tuple)) else list(parameters)
        self.count(listed)
        return listed

    @sense("clipping")
    def count(self, parameters: Any) -> None:
        self.settle()
        if self.session.inspecting:
            self.look_again(parameters)
        self.nothing += not parameters
        self.clipped.update(map(id, parameters))
        if self.session.backwards > self.backwards_at_step:
            self.in_time += 1
        else:
            self.waiting += 1

    def settle(self) -> None:
        """A backward pass has come since: what was clipped before it was clipped too late."""
        if self.waiting and self.session.backwards > self.backwards_at_step:
            self.too_late += self.waiting
            self.waiting = 0
            self.clipped.clear()

    @reading("clipping")
    def look_again(self, parameters: Any) -> None:
        first = next((p for p in parameters if p.grad is not None), None)
        if parameters and self.session.backwards > self.backwards_at_step:
            self.looked_at += 1
            self.barren += first is None
        self.again |= first is not None and self.used.get(id(first)) == _numbers(first.grad)

    def before_step(self, optimizer: Any) -> None:
        self.settle()
        self.in_time += self.waiting
        self.waiting = 0
        if self.session.inspecting:
            self.look_at(optimizer)

    @reading("clipping")
    def look_at(self, optimizer: Any) -> None:
        owned = [p for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
        if self.again and owned and not any(id(p) in self.clipped for p in owned):
            self.of_others += 1
        self.again = False
        self.used.update((id(p), _numbers(p.grad)) for p in owned[:1])

    def after_step(self) -> None:
        self.backwards_at_step = self.session.backwards
        self.clipped.clear()

    def last_words(self) -> None:
        self.too_late += self.waiting
        self.waiting = 0
        if self.in_time or self.too_late:
            self.session.say(
                "clipping_totals", last=True, in_time=self.in_time, too_late=self.too_late, nothing=self.nothing,
                of_others=self.of_others, looked_at=self.looked_at, barren=self.barren,
            )  # fmt: skip


def _numbers(gradient: Any) -> list[float]:
    flat = gradient.detach().reshape(-1)
    return flat[:: max(1, flat.numel() // LOOKED_AT)][:LOOKED_AT].tolist()  # type: ignore[no-any-return]
