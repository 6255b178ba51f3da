"""Where a loss meets the autograd engine: every backward pass is counted, those of inspected updates are read.

Before the engine runs, the graph is read (graph.py) and probes are laid on the nodes of log-probabilities and of modules'
outputs; while it runs, they catch the gradient that flows there; after the optimizer's step, modules that can be asked
again without effect are asked again on the same input. All of it is one `loss` event and one batch:

    c<i>.*  a graded call in the loss: rows, output, gradient (dL/doutput), after (the output after the step), and the action
            beside the observation, where there was one
    n<i>.*  a silent call since the last step (a target network, say): rows, output, and by how many steps its rows lie
            ahead of the transitions (transitions.py)
    s<i>.*  a log-probability without gradient since the last step: value, action
    p<i>.*  a log-probability in the loss: value, action, gradient (dL/dlog_prob), rows
    k<i>    a constant, k<i>.partner what stood against it; where no module's call tells: k<i>.rows, k<i>.gradient of that
    r<i>    in a loop without environment: tensors whose mean was taken (baselines.py)
    t.*     the transitions that rows of this loss began, where they are known: t.row counts in the array that the event
            names as transitions_of
"""

from __future__ import annotations

import re
import weakref
from typing import Any

from . import graph, written
from .calls import SILENT_PER_LOSS, Calls
from .keeping import Keeping, Pending
from .kept_calls import FEWEST_MERGED, Entry, Joined, Score, merge_calls
from .modes import standing_aside
from .nodes import shape_of, walk
from .patches import Patches, leave_no_trace
from .places import calling_line
from .session import Session, reading, sense
from .terms import Term

CALLS_PER_LOSS = 12
SCORES_PER_LOSS = 8
PENDING = 8
REACHED_NAMES = 2_000
FOLLOWERS_NAMES = re.compile(r"(^|_)(target|targ|tgt|ref|reference)(s|\d)?(_|$)")
CALLED = 64
"""Names of followers that are told at most."""


def attach(session: Session) -> None:
    session.senses["backward"] = Backward(session)


class Backward:
    def __init__(self, session: Session) -> None:
        self.session = session
        self.patches = Patches()
        self.pending: list[Pending] = []
        self.reaches: dict[Any, int] = {}
        self.dropped = 0
        self.called: dict[str, Any] = {}
        """Name of a target or a reference -> the module that it stood for when last told."""
        self.names_told_at = -1
        torch = session.torch
        self.stand_aside = standing_aside(torch)
        self.keeping = Keeping(session)
        hooks = getattr(torch.autograd.graph, "saved_tensors_hooks", None)
        if hooks is not None:
            self.patches.replace(hooks, "__enter__", self._hooking)
        if not self.patches.replace(torch.autograd, "_engine_run_backward", self._running):
            for name in ("backward", "grad"):
                self.patches.replace(torch.autograd, name, self._running)

    def move_to(self, child: Session) -> None:
        self.session = child
        self.keeping = Keeping(child)
        self.pending, self.reaches = [], {}
        child.senses["backward"] = self

    def stop(self) -> None:
        self.patches.undo()

    def _hooking(self, original: Any) -> Any:
        def __enter__(hooks: Any) -> Any:
            if self.session.saved_can_be_read:
                self.session.saved_can_be_read = False
                self.session.not_seen(
                    "constants",
                    "the script packs saved tensors (checkpointing, say): reading them would compute them again",
                )
            return original(hooks)

        return __enter__

    def _running(self, original: Any) -> Any:
        def run(outputs: Any, *arguments: Any, **options: Any) -> Any:
            session = self.session
            session.backwards += 1
            pending = None
            if not self.stand_aside():
                if session.inspecting or (session.seeking.active and self.is_sought()):
                    pending = self.read(outputs, options)
                elif session.plan.records(session.updates):
                    self.keep_loss(outputs)
            try:
                return original(outputs, *arguments, **options)
            except BaseException as error:
                leave_no_trace(error)
                raise
            finally:
                if pending is not None:
                    self.release(pending)

        return run

    @reading("seeking")
    def is_sought(self) -> bool:
        return self.session.seeking.finds()

    @reading("loss")
    def keep_loss(self, outputs: Any) -> None:
        first = _roots(self.session.torch, outputs)[:1]
        keep = first and first[0].numel() == 1
        self.session.senses["optimizers"].last_loss = first[0].detach() if keep else None

    # ------------------------------------------------------------------ before the engine runs

    @reading("graph")
    def read(self, outputs: Any, options: Any) -> Pending | None:
        session, torch = self.session, self.session.torch
        if session.numpy is None:
            return None
        tensors = _roots(torch, outputs)
        roots = [tensor.grad_fn for tensor in tensors if tensor.grad_fn is not None]
        self.keep_loss(outputs)
        if len(self.pending) >= PENDING:
            self.dropped += 1
            return None
        reading = graph.read(torch, roots, session.saved_can_be_read)
        session.plan.seen_graph(len(reading.nodes))
        if reading.compiled:
            session.not_seen("terms", "a part of the loss is compiled: its terms and constants cannot be seen")
        if roots and shape_of(roots[0], 0) is None:
            session.not_seen("shapes", "this version of torch does not tell the shapes of a graph (2.5 and later do)")
        if reading.truncated:
            session.not_seen(
                "whole graph", f"a loss has more than {graph.NODES_WALKED} nodes: only the nearest were read"
            )
        pending = Pending(reading)
        calls: Calls = session.senses["calls"]
        in_graph = [call for call in calls.graded if call.node in reading.members]
        pending.calls = _spread(merge_calls(torch, in_graph), CALLS_PER_LOSS)
        pending.silent = calls.silent_now()[-SILENT_PER_LOSS:]
        pending.means_of = list(session.senses["baselines"].kept)
        pending.silent_scores = calls.silent_scores_now()[-SCORES_PER_LOSS:]
        in_loss = [s for s in calls.scores if s.node is not None and s.node in reading.members]
        pending.scores = [s for s in in_loss if s.what == "log_prob"]
        if not pending.scores and session.saved_can_be_read:
            pending.scores = self._written_scores(reading)
        session.senses["optimizers"].tell_optimizers()
        self._tell_followers_names()
        if len(pending.scores) > SCORES_PER_LOSS or _as_acted(pending.scores):
            pending.scores = (
                [_merged(torch, pending.scores)] if _mergeable(pending.scores) else pending.scores[:SCORES_PER_LOSS]
            )
        pending.body = self._body(pending, tensors, options)
        pending.entropies = [s for s in in_loss if s.what == "entropy"][:SCORES_PER_LOSS]
        if session.saved_can_be_read:
            self._written_predictions(pending)
        self._lay_probes(pending)
        reading.let_go()
        self.pending.append(pending)
        return pending

    def _tell_followers_names(self) -> None:
        """What the script calls a target or a reference: where that is the network that trains, nothing else tells that another was
        meant."""
        if self.names_told_at == self.session.updates or len(self.called) >= CALLED:
            return
        self.names_told_at = self.session.updates
        for name, module in self.session.names.called_like(self.session.torch, FOLLOWERS_NAMES):
            known = self.called.get(name)
            if known is None or known() is not module:
                self.called[name] = weakref.ref(module)
                self.session.say("called", name=name, module=self.session.names.of_module(module))

    def _written_scores(self, reading: graph.Reading) -> list[Score]:
        """Log-probabilities that no distribution computed, as scores like any other."""
        session = self.session
        found = []
        for each in written.log_probs(session.torch, reading.nodes, SCORES_PER_LOSS):
            entry = None if each.rows is None else Entry(each.rows, session.widths, session.aliases)
            kind = "log_softmax" if each.sign > 0 else "cross_entropy"
            score = Score(kind, "log_prob", entry, each.action, each.value, None, session.env_steps, session.updates)
            score.node, score.shape = each.node, each.shape
            found.append(score)
        return found

    def _written_predictions(self, pending: Pending) -> None:
        """Of regressions that no module's call explains: the prediction, and the rows behind it."""
        torch, reading = self.session.torch, pending.reading
        for constant in reading.constants:
            if constant.role not in ("target", "difference"):
                continue
            if any(node in constant.direct for call in pending.calls for node in call.nodes):
                continue
            node = reading.members.get(constant.beside_number)
            if constant.partner is None:
                answer = written.answer_of(torch, node)
                constant.partner = (
                    None if answer is None or answer.numel() != constant.value.numel() else answer.clone()
                )
            rows = written.input_of(torch, node)
            if rows is not None and len(rows) == constant.value.numel():
                constant.inputs = rows.clone()

    def _body(self, pending: Pending, tensors: list[Any], options: Any) -> dict[str, Any]:
        session, reading = self.session, pending.reading
        if not session.names.knows(reading.parameters):
            session.names.learn(session.torch)
        names = [session.names.of_parameter(p) for p in reading.parameters]
        held = [p.grad for p in reading.parameters if p.grad is not None and not p.grad.is_sparse]
        with session.torch.no_grad():
            before = float(session.torch.stack([g.float().norm() for g in held]).norm()) if held else 0.0
        return {
            "update": session.updates,
            "cycle": session.cycle,
            "backward": session.backwards,
            "earlier": session.backwards - session.backwards_at_step - 1,
            "env_steps": session.env_steps,
            "place": calling_line(session.torch),
            "sought": session.seeking.active,
            "accumulates": bool(options.get("accumulate_grad", True)),
            "shape": [list(t.shape) for t in tensors][:4],
            "value": float(tensors[0].detach()) if tensors and tensors[0].numel() == 1 else None,
            "gradient_before": before,
            "reach": self._reach(names),
            "nodes": len(reading.nodes),
            "truncated": reading.truncated,
            "compiled": reading.compiled,
            "broadcasts": reading.broadcasts,
            "both_sides": self._both_sides(pending),
            "clips": reading.clips,
            "softmax_twice": reading.softmax_twice,
            "softmax_over_rows": reading.softmax_over_rows,
            "ratios_to_themselves": reading.ratios_to_themselves,
            "means_squared": reading.means_squared,
            "added_without_gradient": len(reading.added),
            "terms": [self._term(term) for term in reading.terms[:16]],
            "n_terms": len(reading.terms),
        }

    def _both_sides(self, pending: Pending) -> list[str]:
        """Regressions whose target has a gradient; inside a log-probability, (sample - mean)^2 is none."""
        inside: set[Any] = set()
        for score in pending.scores:
            first = score.node[0] if isinstance(score.node, list) else score.node
            inside.update(walk([pending.reading.members[first]], 300))
        return [node.name() for node in pending.reading.both_sides if node not in inside][:8]

    def _term(self, term: Term) -> dict[str, Any]:
        names = sorted(
            {
                self.session.names.of_parameter(node.variable)
                for node in term.nodes
                if node.name() == "torch::autograd::AccumulateGrad"
            }
        )
        return {
            "coefficient": term.coefficient,
            "reductions": term.reductions,
            "shape": None if term.shape is None else list(term.shape),
            "structure": term.structure,
            "reach": self._reach(names),
        }

    def _reach(self, names: list[str]) -> int:
        """Number of a set of parameters; the set itself is written the first time."""
        key = tuple(sorted(set(names)))
        known = self.reaches.get(key)
        if known is None:
            known = self.reaches[key] = len(self.reaches)
            self.session.say("reach", index=known, parameters=list(key[:REACHED_NAMES]), n=len(key))
        return known

    def _lay_probes(self, pending: Pending) -> None:
        for position, call in enumerate(pending.calls):
            for part, node in enumerate(call.nodes):
                self._probe(pending, f"c{position}/{part}" if len(call.nodes) > 1 else f"c{position}", node)
        for position, score in enumerate(pending.scores):
            for part, node in enumerate(score.node if isinstance(score.node, list) else [score.node]):
                key = f"p{position}/{part}" if isinstance(score.node, list) else f"p{position}"
                self._probe(pending, key, node)
        for position, entropy in enumerate(pending.entropies):
            self._probe(pending, f"e{position}", entropy.node)
        for position, constant in enumerate(pending.reading.constants):
            if constant.inputs is not None and constant.beside_number in pending.reading.members:
                self._probe(pending, f"k{position}", constant.beside_number)
            elif constant.role == "inverse_ratio" and constant.node in pending.reading.members:
                self._probe(pending, f"k{position}", constant.node)
        if not pending.scores:
            for position, node in enumerate(pending.reading.gathers[:SCORES_PER_LOSS]):
                self._probe(pending, f"g{position}", node)

    def _probe(self, pending: Pending, key: str, node: Any) -> None:
        gradients = pending.gradients

        @reading("graph")
        def caught(grad_inputs: Any, grad_outputs: Any) -> None:
            gradient = grad_outputs[0] if grad_outputs else None
            if gradient is not None and gradient.numel() <= graph.NUMBERS_PER_CONSTANT:
                gradients[key] = gradient.detach().clone()

        pending.handles.append(pending.reading.members[node].register_hook(caught))

    # ------------------------------------------------------------------ after the engine, after the step

    @sense("graph")
    def release(self, pending: Pending) -> None:
        for handle in pending.handles:
            handle.remove()
        pending.handles = []

    def after_step(self) -> None:
        if self.pending:
            pending, self.pending = self.pending, []  # another thread may step at the same time
            self._write_all(pending)
        self.session.senses["calls"].forget_graded()
        self.session.senses["optimizers"].last_loss = None

    @reading("loss")
    def _write_all(self, losses: list[Pending]) -> None:
        for pending in losses:
            self.keeping.write(pending)

    def last_words(self) -> None:
        if self.dropped:
            self.session.not_seen("some losses", f"{self.dropped} backward passes came before their optimizer's step")


def _roots(torch: Any, outputs: Any) -> list[Any]:
    several = outputs if isinstance(outputs, (tuple, list)) else (outputs,)
    return [tensor for tensor in several if torch.is_tensor(tensor)]


def _spread(items: list[Any], most: int) -> list[Any]:
    if len(items) <= most:
        return items
    return [items[round(i * (len(items) - 1) / (most - 1))] for i in range(most)]


def _as_acted(scores: list[Score]) -> bool:
    """Of several steps of a rollout, each scored for all its environments when they acted."""
    times = {score.acted for score in scores}
    return len(scores) >= FEWEST_MERGED and len(times) == len(scores) and all(s.result.dim() == 1 for s in scores)


def _mergeable(scores: list[Score]) -> bool:
    return all(s.result.numel() == scores[0].result.numel() and s.kind == scores[0].kind for s in scores)


def _merged(torch: Any, scores: list[Score]) -> Score:
    """Many log-probabilities of one row each (a loop over an episode) as one score with many nodes."""
    result = torch.stack([s.result.reshape(-1) for s in scores]).reshape(-1)
    merged = Score(scores[0].kind, "log_prob", None, None, result, None, scores[-1].time, scores[-1].update)
    merged.drawn_with_graph = all(score.drawn_with_graph for score in scores)
    merged.node = [s.node for s in scores]
    merged.times = [s.acted for s in scores for _ in range(s.result.numel())]
    if all(s.entry is not None for s in scores):
        merged.entry = Joined([s.entry for s in scores])
    if all(s.value is not None for s in scores):
        merged.value = torch.stack([s.value.reshape(-1) for s in scores])
    return merged
