"""Calls of modules and distributions, while a window is open.

A call is kept by what it was given and what it answered. *Entry* is the input that came from outside of all modules: the
value head of a network is called on features, but what identifies its rows is the observation that the first module got.

    silent calls   without a gradient: the policy acting, values of a rollout, a target network. Numbers are kept.
    graded calls   with one: they end in a loss. The number of their graph node is kept too, so that they are found in it.
    scores         log_prob, entropy and sample of torch.distributions

Outside of windows the original functions are in their places and nothing of this runs. A script that uses torch.compile
is never touched here: the compiler would trace us.
"""

from __future__ import annotations

import threading
import weakref
from typing import Any

from .glances import held, is_a
from .homemade import HomeMade
from .identity import flat_rows
from .kept_calls import Call, Entry, Score, by_row
from .modes import standing_aside
from .nodes import number_of
from .patches import Patches, leave_no_trace, with_subclasses
from .seeking import LEAST_ROWS
from .session import Session, reading, sense

OUTPUT_NUMBERS = 65_536
INNER_NUMBERS = 8_192
"""The same for modules inside modules."""
SILENT_BYTES = 32_000_000
GRADED_CALLS = 4_096
GRADED_NUMBERS = 8_000_000
"""Numbers that kept calls were given and answered; the oldest are let go."""
LATENTS = 64
STEPS_A_CALL_WAITS = 3
SILENT_PER_LOSS = 24


def attach(session: Session) -> None:
    calls = Calls(session)
    session.senses["calls"] = calls
    session.window_doors.append(calls)


class Calls:
    def __init__(self, session: Session) -> None:
        self.session = session
        self.local = threading.local()
        self.patches = Patches()
        self.lasting = Patches()
        self.compiles = False
        """The script uses torch.compile."""
        self.seeks_anomalies = False
        """It has torch look for anomalies."""
        self.entry: Entry | None = None
        self.chain: tuple[Any, ...] = ()
        """Weak references to the modules whose output, as it is, the current call was given."""
        self.latents: dict[int, tuple[Any, Entry, tuple[Any, ...]]] = {}
        """Outputs of recent calls, the entry behind them, and the modules that lead from it to them."""
        self.graded: list[Call] = []
        self.graded_numbers = 0
        self.silent: list[Call] = []
        self.silent_bytes = 0
        self.silent_dropped = 0
        self.scores: list[Score] = []
        self.sampled: Any = weakref.WeakKeyDictionary()
        """Distribution -> what it was made of and the environment step, when it was first asked."""
        self.home_made = HomeMade(session)
        torch = session.torch
        self.original_call = vars(torch.nn.Module).get("__call__")
        self.is_compiling = standing_aside(torch)
        if hasattr(torch, "compile"):
            self.lasting.replace(torch, "compile", self._compiling)
        for kind in (torch.autograd.detect_anomaly, torch.autograd.set_detect_anomaly):
            self.lasting.replace(kind, "__init__", self._looking_for_anomalies)

    def move_to(self, child: Session) -> None:
        self.session = child
        self.home_made = HomeMade(child)
        self.forget()
        child.senses["calls"] = self
        child.window_doors.append(self)

    def stop(self) -> None:
        self.patches.undo()
        self.lasting.undo()

    def _compiling(self, original: Any) -> Any:
        def compile(*arguments: Any, **options: Any) -> Any:
            if not self.compiles:
                self.compiles = True
                self.patches.undo()
                self.session.not_seen(
                    "calls",
                    "the script uses torch.compile: inside compiled code there are no calls and no terms to see",
                )
            try:
                return original(*arguments, **options)
            except BaseException as error:
                leave_no_trace(error)
                raise

        return compile

    def _looking_for_anomalies(self, original: Any) -> Any:
        def __init__(mode: Any, *arguments: Any, **options: Any) -> None:
            if not self.seeks_anomalies:
                self.seeks_anomalies = True
                self.patches.undo()
                self.session.not_seen("calls", "torch looks for anomalies and would show our frames among the script's")
            original(mode, *arguments, **options)

        return __init__

    # ------------------------------------------------------------------ windows

    def open_window(self) -> None:
        if self.compiles or self.seeks_anomalies or "calls" in self.session.shut:
            return
        torch = self.session.torch
        if vars(torch.nn.Module).get("__call__") is not self.original_call:
            self.session.not_seen("calls", "somebody else has replaced nn.Module.__call__")
            return
        self.silent = [call for call in self.silent if self._is_new(call)]
        self.graded = [call for call in self.graded if self._is_new(call)]
        self.scores = [score for score in self.scores if self._is_new(score)]
        self.patches.replace(torch.nn.Module, "__call__", self._calling)
        self.patches.replace(torch.distributions.Distribution, "__init__", self._making)
        for kind in with_subclasses(torch.distributions.Distribution):
            for what in ("log_prob", "entropy", "sample", "rsample"):
                self.patches.replace(kind, what, self._scoring(what))

    def begin_seeking(self) -> bool:
        """Calls are kept as in a window, for a backward pass that may be read (seeking.py)."""
        self.open_window()
        return bool(self.patches)

    def end_seeking(self) -> None:
        self.patches.undo()
        self.forget()

    def close_window(self) -> None:
        self.patches.undo()
        self._write_silent()
        silent, graded, scores, latents = self.silent, self.graded, self.scores, self.latents
        self.forget()
        # the next cycle may have begun: its first act comes before its first environment step
        self.silent = [call for call in silent if self._is_new(call)]
        self.graded = [call for call in graded if self._is_new(call)]
        self.scores = [score for score in scores if self._is_new(score)]
        self.latents = latents if self.silent or self.graded else {}

    def _is_new(self, seen: Call | Score) -> bool:
        return seen.update == self.session.updates and seen.time == self.session.env_steps

    def forget(self) -> None:
        self.graded, self.graded_numbers = [], 0
        self.silent, self.silent_bytes = [], 0
        self.scores = []
        self.latents = {}
        self.entry = None

    def forget_graded(self) -> None:
        """After an optimizer step, calls that are some steps old: two losses may be made before the first step."""
        oldest = self.session.updates - STEPS_A_CALL_WAITS
        if self.graded and self.graded[0].update <= oldest:
            self.graded = [call for call in self.graded if call.update > oldest]
            self.graded_numbers = sum(_numbers(call) for call in self.graded)
        if self.scores and any(score.node is not None for score in self.scores):
            self.scores = [score for score in self.scores if score.node is None or score.update > oldest]

    # ------------------------------------------------------------------ modules

    def _calling(self, original: Any) -> Any:
        local, is_compiling, tensor = self.local, self.is_compiling, self.session.torch.Tensor

        def __call__(module: Any, *arguments: Any, **options: Any) -> Any:
            if is_compiling():
                return original(module, *arguments, **options)
            depth = getattr(local, "depth", 0)
            if depth == 0:
                self.home_made.before_call()
                self.enter(arguments, options)
            local.depth = depth + 1
            try:
                answer = original(module, *arguments, **options)
            except BaseException as error:
                leave_no_trace(error)
                raise
            finally:
                local.depth = depth
            if depth == 0 or module._modules or type(answer) is not tensor or answer.shape[-1:] == (1,):
                self.called(module, arguments, answer, depth)  # else a layer inside of a network
            return answer

        return __call__

    @reading("calls")
    def enter(self, arguments: Any, options: Any) -> None:
        tensor = _first_tensor(self.session.torch, (*arguments, *options.values()))
        self.chain = ()
        if tensor is None:
            self.entry = None
            return
        known = self.latents.get(id(tensor))
        if known is not None and known[0]() is tensor:
            self.entry, self.chain = known[1:]
        else:
            self.entry = Entry(
                tensor.detach(),
                self.session.widths,
                self.session.aliases,
                self._action_beside(tensor, arguments),
                self.session.env_steps,
            )

    def _action_beside(self, observation: Any, arguments: Any) -> Any:
        """The one other argument of an action's form; of two (a goal, say) nobody knows which it is."""
        width = self.session.widths[1]
        alike = [
            other.detach()
            for other in (arguments[1:] if width else ())
            if is_a(other, self.session.torch.Tensor) and other.shape == (len(observation), width)
        ]
        return alike[0] if len(alike) == 1 else None

    @reading("calls")
    def called(self, module: Any, arguments: Any, answer: Any, depth: int) -> None:
        torch, session = self.session.torch, self.session
        outputs = _tensors(torch, answer)
        entry = self.entry
        if not outputs or entry is None:
            return
        if depth == 0:
            chain = (*self.chain, weakref.ref(module))
            for output in outputs:
                self.latents.pop(id(output), None)  # the latest stand last
                self.latents[id(output)] = (weakref.ref(output), entry, chain)
            while len(self.latents) > LATENTS:
                del self.latents[next(iter(self.latents))]
        output = outputs[0]
        if depth and output.shape[-1:] != (1,) and not module._modules:
            return
        most = INNER_NUMBERS if depth else OUTPUT_NUMBERS
        if output.numel() > most or output.dim() == 0 or not output.is_floating_point():
            return
        if output.requires_grad:
            if session.keeps_calls:
                given = arguments[0].detach() if arguments and is_a(arguments[0], torch.Tensor) else None
                node = number_of(output.grad_fn)
                self._keep_graded(Call(module, entry, given, output.detach(), node, session.env_steps, session.updates))
        elif session.seeking.active and len(output) < LEAST_ROWS:
            return
        elif self.silent_bytes < SILENT_BYTES:
            kept = output.detach().float().cpu().numpy().copy()
            if not session.seeking.active:
                if session.aliases.asks:  # before anybody asks for its rows, which lets go of them
                    self._meet(entry)
                entry.rows(session.numpy)
            call = Call(module, entry, None, kept, None, session.env_steps, session.updates)
            call.chain = self.chain if depth == 0 else ()
            call.beside = _one_more_number(outputs)
            self.silent.append(call)
            self.silent_bytes += kept.nbytes + 200
        else:
            self.silent_dropped += 1

    def _meet(self, entry: Entry) -> None:
        """A network acts: is it given what the environment returned?"""
        environments = self.session.senses.get("environments")
        if environments is None or entry.value is None or entry.value.dim() < 2:
            return
        current = environments.shown(len(entry.value))
        if current is None or len(entry.value) != len(current):
            return
        given = flat_rows(self.session.numpy, entry.value, len(current))
        if given is not None:
            self.session.aliases.meet(self.session.numpy, current, given, environments.acted_on)

    def _keep_graded(self, call: Call) -> None:
        self.graded.append(call)
        self.graded_numbers += _numbers(call)
        while len(self.graded) > GRADED_CALLS or (self.graded_numbers > GRADED_NUMBERS and len(self.graded) > 16):
            self.graded_numbers -= _numbers(self.graded.pop(0))

    # ------------------------------------------------------------------ distributions

    def _making(self, original: Any) -> Any:
        is_compiling = self.is_compiling

        def __init__(distribution: Any, *arguments: Any, **options: Any) -> None:
            try:
                original(distribution, *arguments, **options)
            except BaseException as error:
                leave_no_trace(error)
                raise
            if not is_compiling():
                self.made(distribution)

        return __init__

    @sense("distributions")
    def made(self, distribution: Any) -> None:
        """It belongs to the network that was called last: others may be called before it is asked for anything."""
        self.sampled[distribution] = (self.entry, self.session.env_steps)

    def _scoring(self, what: str) -> Any:
        local, is_compiling = self.local, self.is_compiling

        def make(original: Any) -> Any:
            def score(distribution: Any, *arguments: Any, **options: Any) -> Any:
                if is_compiling():
                    return original(distribution, *arguments, **options)
                outermost = not getattr(local, "scoring", False)
                local.scoring = True
                try:
                    answer = original(distribution, *arguments, **options)
                except BaseException as error:
                    leave_no_trace(error)
                    raise
                finally:
                    if outermost:
                        local.scoring = False
                if not outermost:
                    return answer
                self.scored(distribution, what, arguments, answer)
                return answer

            return score

        return make

    @reading("distributions")
    def scored(self, distribution: Any, what: str, arguments: Any, answer: Any) -> None:
        torch, session = self.session.torch, self.session
        if not is_a(answer, torch.Tensor) or answer.numel() > OUTPUT_NUMBERS:
            return
        value = arguments[0] if what == "log_prob" and arguments and is_a(arguments[0], torch.Tensor) else None
        if answer.requires_grad and not session.keeps_calls:
            return
        entry, acted = self.sampled.setdefault(distribution, (self.entry, session.env_steps))
        score = Score(
            type(distribution).__name__,
            "sample" if what == "rsample" else what,
            entry,
            None if value is None or value.numel() > OUTPUT_NUMBERS else value.detach(),
            answer.detach(),
            number_of(answer.grad_fn),
            session.env_steps,
            session.updates,
        )
        score.acted = acted
        score.drawn_with_graph = value is not None and value.requires_grad
        self.scores.append(score)
        if len(self.scores) > 2 * GRADED_CALLS:
            del self.scores[: len(self.scores) - 2 * GRADED_CALLS]

    # ------------------------------------------------------------------ to disk

    def silent_now(self) -> list[Call]:
        """Calls without gradient that a loss may have used: those since the last environment step and the last optimizer
        step; in a short cycle, where nothing else keeps them, the last ones of the cycle too."""
        session = self.session
        if not session.long:
            return self.silent[-SILENT_PER_LOSS:]
        found = []
        for call in reversed(self.silent):
            if call.time != session.env_steps or call.update != session.updates:
                break
            found.append(call)
        return found[::-1]

    def silent_scores_now(self) -> list[Score]:
        """Log-probabilities of batches, without gradient, since the last optimizer step, where cycles are short."""
        session = self.session
        if session.long:
            return []
        return [
            score
            for score in self.scores
            if score.what == "log_prob"
            and score.node is None
            and score.update == session.updates
            and score.result.dim() > 0
            and len(score.result) > 1
        ]

    @reading("calls")
    def _write_silent(self) -> None:
        """The window's silent calls, module by module: when, on which rows, with which answer."""
        session, numpy = self.session, self.session.numpy
        if not self.silent or numpy is None or not session.long:
            return
        arrays: dict[str, Any] = {}
        modules: list[dict[str, Any]] = []
        for name, calls in self._by_module().items():
            prefix = f"m{len(modules)}."
            modules.append({"module": name, "calls": len(calls), "width": int(calls[0][1].shape[1])})
            arrays[prefix + "time"] = numpy.concatenate([numpy.full(len(o), c.time, numpy.int64) for c, o in calls])
            arrays[prefix + "rows"] = numpy.concatenate([c.entry.rows(numpy) for c, _ in calls])
            arrays[prefix + "output"] = numpy.concatenate([o for _, o in calls])
        log_probs = [s for s in self.scores if s.what == "log_prob" and s.node is None and s.result.dim() >= 1]
        if log_probs and len({tuple(s.result.shape[1:]) for s in log_probs}) == 1:
            arrays["log_prob.time"] = numpy.concatenate(
                [numpy.full(len(s.result), s.acted, numpy.int64) for s in log_probs]
            )
            arrays["log_prob.value"] = numpy.concatenate([s.result.float().cpu().numpy() for s in log_probs])
        if not arrays:
            return
        file, digest = session.writer.sample("calls", session.cycle, session.updates, arrays)
        session.say(
            "inspection", kind="calls", update=session.cycle, optimizer_step=session.updates, file=file, sha256=digest,
            roles=sorted(arrays), marked="inferred", modules=modules, dropped=self.silent_dropped,
        )  # fmt: skip

    def _by_module(self) -> dict[str, list[tuple[Call, Any]]]:
        found: dict[str, list[tuple[Call, Any]]] = {}
        for call in self.silent:
            if self._is_new(call):
                continue  # the next cycle's first act, by weights that this one's updates have moved
            module = call.module()
            rows = call.entry.rows(self.session.numpy)
            output = by_row(call.output, rows)
            if output.ndim > 1:
                output = output.reshape(len(output), -1)
            else:
                output = output.reshape(-1, 1) if len(output) == len(rows) > 1 else output.reshape(1, -1)
            if module is None or len(rows) != len(output):
                continue
            name = f"{self.session.names.of_module(module)}/{output.shape[1]}"
            found.setdefault(name, []).append((call, output))
        return found


def _numbers(call: Call) -> int:
    return int(call.output.numel()) + (0 if call.given is None else int(call.given.numel()))


def _first_tensor(torch: Any, values: Any) -> Any:
    for value in values:
        if is_a(value, torch.Tensor):
            return value
        if is_a(value, dict):
            inner = [item for item in dict.values(value) if is_a(item, torch.Tensor)]
            if inner and all(len(item) == len(inner[0]) for item in inner):
                return torch.cat([item.detach().reshape(len(item), -1).float() for item in inner], dim=1)
    return None


def _one_more_number(outputs: list[Any]) -> Any:
    """Behind the first of a module's answers, the next one that has one number for each row."""
    rows = len(outputs[0])
    for other in outputs[1:]:
        if other.is_floating_point() and other.dim() and len(other) == rows and other.numel() == rows:
            return other.detach().float().cpu().numpy().reshape(-1).copy()
    return None


def _tensors(torch: Any, answer: Any) -> list[Any]:
    if is_a(answer, torch.Tensor):
        return [answer]
    if is_a(answer, (tuple, list)):
        return [item for item in answer if is_a(item, torch.Tensor)]
    logits = held(answer, "logits")
    return [logits] if is_a(logits, torch.Tensor) else []
