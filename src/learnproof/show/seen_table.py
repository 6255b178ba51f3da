"""A run while somebody else trains it: what has been seen so far, as one table. Takes evidence; decides nothing.

`learnproof follow RUN` draws it again every second in a terminal, and prints it once where the output is no terminal.
"""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ..evidence import Evidence
from ..evidence.watched import EnvironmentSeen, FollowerMoved, FollowerSeen, LossSeen, OptimizerSeen, OptimizerStep
from .phrasing import figure, printable, whole

RECENT_EPISODES = 20


def seen_table(evidence: Evidence, findings: Sequence[tuple[str, str, str]], title: str) -> RenderableType:
    """`findings` are (status, check, summary) of those worth a line."""
    rows = Table.grid(padding=(0, 2))
    steps = evidence.of(OptimizerStep)
    for label, text in (
        ("environment", _environment(evidence)),
        ("episodes", _episodes(evidence)),
        *((f"optimizer {seen.index}", _optimizer(seen, steps)) for seen in _latest(evidence.of(OptimizerSeen))),
        *((f"follows {seen.leader}", _follower(seen, evidence)) for seen in evidence.of(FollowerSeen)),
        ("inspected", f"{whole(len(evidence.of(LossSeen)))} losses read, {whole(len(steps))} steps measured"),
        *(("not seen", f"{missing.what}: {missing.reason}") for missing in evidence.not_seen),
    ):
        rows.add_row(Text(printable(label, 40), style="dim"), Text(printable(text, 200)))
    lines = [Text(f"{status:9} {check}: {printable(summary, 300)}") for status, check, summary in findings]
    return Group(Text(printable(title, 200), style="bold"), rows, *lines)


def _environment(evidence: Evidence) -> str:
    seen = evidence.of(EnvironmentSeen)
    return ", ".join(f"{e.id or e.kind} x {e.copies}" for e in seen) or "none seen"


def _episodes(evidence: Evidence) -> str:
    if not evidence.episodes:
        return "none finished"
    recent = [episode.return_ for episode in evidence.episodes[-RECENT_EPISODES:]]
    return (
        f"{whole(len(evidence.episodes))}, the last {len(recent)} with mean return {figure(sum(recent) / len(recent))}, "
        f"at step {whole(evidence.episodes[-1].step)}"
    )


def _optimizer(seen: OptimizerSeen, steps: Sequence[OptimizerStep]) -> str:
    own = [step for step in steps if step.optimizer == seen.index]
    text = f"{seen.kind}, {whole(seen.n_owned)} tensors"
    if not own:
        return f"{text}, no step yet"
    last = own[-1]
    rate = next((rate for rate in last.learning_rates if rate is not None), None)
    parts = [f"step {whole(last.step + 1)}", f"gradient norm {figure(last.grad_norm)}"]
    parts += [f"learning rate {figure(rate)}"] if rate is not None else []
    parts += [f"loss {figure(last.loss)}"] if last.loss is not None else []
    return f"{text}, {', '.join(parts)}"


def _follower(seen: FollowerSeen, evidence: Evidence) -> str:
    moves = [move.update for move in evidence.of(FollowerMoved) if move.follower == seen.index]
    return f"{seen.name}, {f'moved last after update {whole(moves[-1])}' if moves else 'has not moved yet'}"


def _latest(seen: Sequence[OptimizerSeen]) -> list[OptimizerSeen]:
    """An optimizer is told again when its groups change."""
    return list({optimizer.index: optimizer for optimizer in seen}.values())
