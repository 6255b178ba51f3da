"""Optimizers as they are made, stepped and cleared, and what a step does to the weights.

Every step costs a few counters. Steps that the plan names, and those inside a window, are measured: the norm of each
gradient (of the whole tensor), and, on at most 4,096 evenly spaced numbers of each tensor, weight and step norms and the
inner product of gradient and step, which is below 0 where the step goes down the loss. One transfer from the device each.

    optimizer        made or met: class, groups, the parameters it owns
    module           a network: its parameters, shapes, whether they are meant to train
    optimizer_step   measured: learning rates, backward passes and clearings since its last step, figures per parameter
"""

from __future__ import annotations

import weakref
from typing import Any

from .glances import is_a
from .patches import Patches, leave_no_trace
from .places import calling_line
from .session import Session, reading, sense

NUMBERS_PER_TENSOR = 4_096
NUMBERS_IN_ALL = 4_000_000
FIGURES_PER_STEP = 64
"""Parameters told apart in one event; of a larger network, as many as this, evenly spaced, and the total."""
NAMES_PER_OPTIMIZER = 2_000


LOOKED_AT = 16
"""Parameters of an optimizer, and numbers of each, by which it is seen whether anything moves them."""
CLEARED_OFTEN = 8
"""Times that an optimizer is cleared without a step, from which on (and then each time they have doubled) it is looked at."""


def attach(session: Session) -> None:
    session.senses["optimizers"] = Optimizers(session)


class Known:
    """What is remembered of one optimizer."""

    def __init__(self, index: int, optimizer: Any) -> None:
        self.index = index
        self.optimizer = weakref.ref(optimizer)
        self.steps = 0
        self.last_update = 0
        """session.updates at its last step."""
        self.cleared = 0
        self.backwards_before = 0
        """session.backwards at its last step."""
        self.without_backward = 0
        self.rate: Any = None
        self.rate_changes = 0
        self.rate_lowest = float("inf")
        self.rate_highest = float("-inf")
        self.n_owned = 0
        self.starts: dict[int, Any] = {}
        """id of a parameter -> its numbers at its first measured step, those that are looked at."""
        self.started: tuple[Any, Any] = (None, None)
        """(ids of parameters, those numbers of all of them in a row), as they were asked for last."""
        self.segments: tuple[Any, Any] = (None, None)
        """(sizes, to which part each number of such a row belongs)."""
        self.place = ""
        """The line that made it."""
        self.first_look: list[Any] = []
        """A few numbers of its first weights, when it was made."""
        self.idle: dict[str, Any] = {}
        """What was seen of it as long as it had taken no step; it may be gone when the script ends."""


class Measured:
    """One step under measurement, between its two hooks."""

    def __init__(self, known: Known, names: list[str], tensors: list[Any], per_tensor: int) -> None:
        self.known = known
        self.names = names
        self.tensors = tensors
        self.per_tensor = per_tensor
        self.sizes: list[int] = []
        self.before: Any = None
        self.slope: Any = None
        self.grad_norms: Any = None
        self.body: dict[str, Any] = {}


class Optimizers:
    def __init__(self, session: Session) -> None:
        self.session = session
        self.known: dict[int, Known] = {}
        self.met_so_far = 0
        self.untold: list[Known] = []
        self.measured: Measured | None = None
        self.modules_told: dict[str, int] = {}
        self.named_at = -1
        self.last_loss: Any = None
        """Of the last backward pass before a measured step: value without its graph."""
        self.patches = Patches()
        torch = session.torch
        from torch.optim.optimizer import (
            Optimizer,
            register_optimizer_step_post_hook,
            register_optimizer_step_pre_hook,
        )

        self.is_tensor = torch.is_tensor
        self.handles = [
            register_optimizer_step_pre_hook(self.before_step),
            register_optimizer_step_post_hook(self.after_step),
        ]
        self.patches.replace(Optimizer, "__init__", self._making)
        self.patches.replace(Optimizer, "zero_grad", self._clearing)
        self.patches.replace(torch.nn.Module, "__init__", self._module_making)
        self.patches.replace(torch.nn.Module, "__setstate__", self._module_making)

    def move_to(self, child: Session) -> None:
        """In a forked worker: the hooks stay, the memory starts anew."""
        self.session = child
        self.known.clear()
        self.untold = []
        self.measured = None
        child.senses["optimizers"] = self

    def stop(self) -> None:
        self.patches.undo()
        for handle in self.handles:
            handle.remove()

    # ------------------------------------------------------------------ made

    def _making(self, original: Any) -> Any:
        def __init__(optimizer: Any, *arguments: Any, **options: Any) -> None:
            try:
                original(optimizer, *arguments, **options)
            except BaseException as error:
                leave_no_trace(error)
                raise
            self.met(optimizer, made=True)

        return __init__

    def _module_making(self, original: Any) -> Any:
        names = self.session.names

        def made(module: Any, *arguments: Any, **options: Any) -> None:
            try:
                original(module, *arguments, **options)
            except BaseException as error:
                leave_no_trace(error)
                raise
            names.module_made(module)

        return made

    @sense("optimizers")
    def met(self, optimizer: Any, made: bool = False) -> Known | None:
        """Introduce an optimizer: when it is made, or at its first step if that was before we watched."""
        known = self.known.get(id(optimizer))
        if known is not None and not made:
            return known
        session = self.session
        known = self.known[id(optimizer)] = Known(self.met_so_far, optimizer)
        known.backwards_before = session.backwards
        known.place = calling_line(session.torch) if made else ""
        if made:
            self._look_first(known, optimizer)
        self.met_so_far += 1
        self.untold.append(known)
        return known

    @reading("optimizers")
    def _look_first(self, known: Known, optimizer: Any) -> None:
        known.first_look = [_spaced(p, LOOKED_AT) for p in _parameters(optimizer)[:LOOKED_AT]]

    def tell_optimizers(self) -> None:
        """Introduce those that are new, when the first loss or step comes: by then their networks have variables."""
        if not self.untold:
            return
        untold, self.untold = self.untold, []
        self.session.names.learn(self.session.torch)
        self.tell_modules()
        for known in untold:
            optimizer = known.optimizer()
            if optimizer is not None:
                self._tell_optimizer(optimizer, known)

    def owned_ids(self) -> set[int]:
        """ids of the parameters that some optimizer met so far owns, as its groups are now."""
        alive = (known.optimizer() for known in self.known.values())
        return {id(p) for o in alive if o is not None for group in o.param_groups for p in group["params"]}

    def _tell_optimizer(self, optimizer: Any, known: Known) -> None:
        session = self.session
        groups, owned = [], []
        for group in optimizer.param_groups:
            owned += [session.names.of_parameter(p) for p in group["params"]]
            groups.append({key: _number(value) for key, value in group.items() if _number(value) is not None})
            groups[-1]["parameters"] = len(group["params"])
        known.n_owned = len(owned)
        session.say(
            "optimizer",
            index=known.index,
            kind=type(optimizer).__name__,
            place=known.place,
            groups=groups,
            owns=owned[:NAMES_PER_OPTIMIZER],
            n_owned=len(owned),
        )

    def tell_modules(self) -> None:
        """Write down networks that are new since the last look."""
        session = self.session
        if session.names.made == self.named_at:
            return
        self.named_at = session.names.made
        session.names.name_parameters()
        for module in session.names.outermost():
            name = session.names.of_module(module)
            if self.modules_told.get(name) == id(module):
                continue
            self.modules_told[name] = id(module)
            parameters = [
                [session.names.of_parameter(p), list(p.shape), bool(p.requires_grad)]
                for p in list(module.parameters())[:NAMES_PER_OPTIMIZER]
            ]
            session.say(
                "module",
                name=name,
                kind=type(module).__name__,
                parameters=parameters,
                numbers=sum(p.numel() for p in module.parameters()),
            )

    # ------------------------------------------------------------------ cleared

    def _clearing(self, original: Any) -> Any:
        known = self.known

        def zero_grad(optimizer: Any, *arguments: Any, **options: Any) -> Any:
            own = known.get(id(optimizer))
            if own is not None:
                own.cleared += 1
                if not own.steps and own.cleared >= CLEARED_OFTEN and own.cleared & (own.cleared - 1) == 0:
                    self.look_at_idle(own, optimizer)
            try:
                return original(optimizer, *arguments, **options)
            except BaseException as error:
                leave_no_trace(error)
                raise

        return zero_grad

    # ------------------------------------------------------------------ stepped

    def before_step(self, optimizer: Any, arguments: Any, options: Any) -> None:
        known = self.known.get(id(optimizer)) or self.met(optimizer)
        if known is None:
            return
        session = self.session
        if known.steps == 0:
            session.senses["playing"].before_first_step(optimizer)
        clipping = session.senses.get("clipping")
        if clipping is not None:
            clipping.before_step(optimizer)
        known.steps += 1
        known.last_update = session.updates
        rate = optimizer.param_groups[0].get("lr")
        if rate is not known.rate and type(rate) is float:
            known.rate_changes += rate != known.rate
            known.rate = rate
            known.rate_lowest = min(known.rate_lowest, rate)
            known.rate_highest = max(known.rate_highest, rate)
        if session.backwards == known.backwards_before:
            known.without_backward += 1
        measured = session.inspecting or session.plan.records(session.updates)
        if measured and not session.senses["backward"].stand_aside():
            session.senses["lineage"].before_step()
            self._measure_before(optimizer, known)
        known.backwards_before = session.backwards
        known.cleared = 0

    def after_step(self, optimizer: Any, arguments: Any, options: Any) -> None:
        session = self.session
        if self.measured is not None:
            self._measure_after()
            self.measured = None
        for name in ("lineage", "backward", "clipping"):
            follower = session.senses.get(name)
            if follower is not None:
                follower.after_step()
        session.update_done()

    @reading("steps")
    def _measure_before(self, optimizer: Any, known: Known) -> None:
        session, torch = self.session, self.session.torch
        self.tell_optimizers()
        owned = [p for group in optimizer.param_groups for p in group["params"]]
        if len(owned) != known.n_owned:  # add_param_group, or a list changed from outside
            self._tell_optimizer(optimizer, known)
        moving = [p for p in owned if p.grad is not None and not p.grad.is_sparse and p.is_floating_point()]
        body: dict[str, Any] = {
            "update": session.updates,
            "optimizer": known.index,
            "step": known.steps - 1,
            "cycle": session.cycle,
            "env_steps": session.env_steps,
            "learning_rates": [_number(group.get("lr")) for group in optimizer.param_groups],
            "backwards": session.backwards - known.backwards_before,
            "cleared": known.cleared,
            "without_gradient": [session.names.of_parameter(p) for p in owned if p.grad is None][:FIGURES_PER_STEP],
            "inspected": session.inspecting,
            "unclipped": self._unclipped(owned),
        }
        if not moving:
            session.say("optimizer_step", parameters={}, loss=None, **body)
            return
        per_tensor = max(1, min(NUMBERS_PER_TENSOR, NUMBERS_IN_ALL // len(moving)))
        with torch.no_grad():
            measured = Measured(known, [session.names.of_parameter(p) for p in moving], moving, per_tensor)
            before = [_spaced(p, per_tensor) for p in moving]
            measured.sizes = [len(part) for part in before]
            measured.before = torch.cat(before)
            measured.slope = torch.cat([_spaced(p.grad, per_tensor) for p in moving])
            measured.grad_norms = torch.stack([p.grad.detach().float().norm() for p in moving])
        measured.body = body
        self.measured = measured

    def _unclipped(self, owned: list[Any]) -> list[str]:
        clipped = self.session.senses["clipping"].clipped if "clipping" in self.session.senses else set()
        moving = [p for p in owned if p.grad is not None]
        left = [p for p in moving if id(p) not in clipped]
        if not clipped or len(left) == len(moving):
            return []
        return [self.session.names.of_parameter(p) for p in left][:FIGURES_PER_STEP]

    @reading("steps")
    def _measure_after(self) -> None:
        measured, torch = self.measured, self.session.torch
        if measured is None:
            return
        with torch.no_grad():
            after = torch.cat([_spaced(p, measured.per_tensor) for p in measured.tensors])
            moved = after - measured.before
            away = after - self._starts(measured)
            sums = self._sums(
                measured, [measured.before**2, moved**2, away**2, moved * measured.slope]
            )  # of all tensors at once: one by one they would cost more than the step
            loss = None if self.last_loss is None else self.last_loss.double().reshape(1)
            flat = torch.cat(
                [measured.grad_norms.double(), sums[:3].sqrt().flatten(), sums[3]]
                + ([] if loss is None else [loss.to(sums.device)])
            )
        numbers = flat.tolist()
        count = len(measured.names)
        chosen = _chosen(count, FIGURES_PER_STEP)
        norms, weights, steps, away, descents = (numbers[i * count : (i + 1) * count] for i in range(5))
        scales = [(p.numel() / max(1, size)) ** 0.5 for p, size in zip(measured.tensors, measured.sizes)]
        figures = {measured.names[i]: [norms[i], weights[i], steps[i], descents[i]] for i in chosen}
        self.session.say(
            "optimizer_step",
            parameters=figures,
            distances={measured.names[i]: away[i] * scales[i] for i in chosen},
            grad_norm=sum(norm * norm for norm in norms) ** 0.5,
            step_sum=sum(steps),
            descent=sum(descents),
            loss=numbers[-1] if loss is not None else None,
            **measured.body,
        )

    def _starts(self, measured: Measured) -> Any:
        """Where the measured numbers stood when each was measured first."""
        known = measured.known
        ids = [id(tensor) for tensor in measured.tensors]
        if known.started[0] != (ids, measured.sizes):
            for key, before in zip(ids, measured.before.split(measured.sizes)):
                start = known.starts.get(key)
                if start is None or len(start) != len(before):
                    known.starts[key] = before.clone()
            known.started = (ids, measured.sizes), self.session.torch.cat([known.starts[key] for key in ids])
        return known.started[1]

    def _sums(self, measured: Measured, rows: list[Any]) -> Any:
        """Sums over each tensor's part of a row, in double precision: [rows, tensors]."""
        torch, known = self.session.torch, measured.known
        if known.segments[0] != measured.sizes:
            parts = torch.repeat_interleave(torch.tensor(measured.sizes))
            known.segments = measured.sizes, parts.to(measured.before.device)
        sums = torch.zeros(len(rows), len(measured.sizes), dtype=torch.float64, device=measured.before.device)
        return sums.index_add_(1, known.segments[1], torch.stack(rows).double())

    # ------------------------------------------------------------------ the end

    def last_words(self) -> None:
        self.tell_optimizers()
        for known in self.known.values():
            self.session.say(
                "optimizer_totals",
                last=True,
                optimizer=known.index,
                steps=known.steps,
                last_update=known.last_update,
                without_backward=known.without_backward,
                rate_lowest=known.rate_lowest if known.steps and known.rate is not None else None,
                rate_highest=known.rate_highest if known.steps and known.rate is not None else None,
                rate_changes=known.rate_changes,
                **self._never_stepped(known),
            )

    @reading("optimizers")
    def look_at_idle(self, known: Known, optimizer: Any) -> None:
        known.idle = self._held(known, optimizer)

    def _never_stepped(self, known: Known) -> dict[str, Any]:
        """Of an optimizer that was made and took no step: what it holds, and whether something else moved its weights."""
        optimizer = known.optimizer()
        if known.steps:
            return {}
        if optimizer is None:
            return {**known.idle, "cleared": known.cleared} if known.idle else {}
        return self._held(known, optimizer)

    def _held(self, known: Known, optimizer: Any) -> dict[str, Any]:
        if not known.first_look:
            return {}
        parameters = _parameters(optimizer)
        now = [_spaced(p, LOOKED_AT) for p in parameters[:LOOKED_AT]]
        same = len(now) == len(known.first_look) and all(
            a.shape == b.shape and bool((a == b).all()) for a, b in zip(now, known.first_look)
        )
        return {"cleared": known.cleared, "holding": sum(p.grad is not None for p in parameters), "moved": not same}


def _parameters(optimizer: Any) -> list[Any]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def _spaced(tensor: Any, count: int) -> Any:
    """At most `count` numbers of a tensor, evenly spaced, as a flat float copy."""
    flat = tensor.detach().reshape(-1)
    if flat.is_complex():
        flat = flat.contiguous().view(flat.real.dtype)
    stride = -(-flat.numel() // count)
    return flat[::stride].float().clone() if stride > 1 else flat.float().clone()


def _chosen(count: int, most: int) -> list[int]:
    if count <= most:
        return list(range(count))
    return sorted({round(i * (count - 1) / (most - 1)) for i in range(most)})


def _number(value: Any) -> float | None:
    if is_a(value, bool):
        return None
    if is_a(value, (int, float)):
        return float(value)
    if hasattr(type(value), "numel") and value.numel() == 1:
        return float(value.detach())
    return None
