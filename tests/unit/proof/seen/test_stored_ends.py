"""Last steps of episodes in a memory: where they should be among the rows drawn and none is, that is named."""

from types import SimpleNamespace

import numpy as np
import pytest
from made_losses import follows, made_loss, made_view

from learnproof.proof.seen.losses import Loss, Regression
from learnproof.proof.watched.memory import MemoryTrue
from learnproof.proof.watched.stored_ends import missing_ends

ROWS, BATCHES, TRAINING, EVALUATION = 32, 40, 0, 1
PER_BATCH = 2


def drawn(update: int, last_steps: int = 0, cut: int = 0, rows: int = ROWS) -> Loss:
    """A batch with so many steps that ended an episode, and so many that a time limit cut."""
    rng = np.random.default_rng(update)
    steps = 4_000 + 10 * update
    names = rng.integers(1, 2**60, rows).astype(np.uint64)
    arrays = {
        "t.row": np.arange(rows),
        "t.time": rng.integers(0, steps, rows),
        "t.stream": np.full(rows, TRAINING),
        "t.terminated": np.arange(rows) < last_steps,
        "t.truncated": np.arange(rows) >= rows - cut,
        "t.action": np.zeros((rows, 1), np.float32),
        "c0.rows": names,
        "n0.ahead": np.zeros(rows, np.int64),
        "n0.output": rng.normal(size=(rows, 3)).astype(np.float32),
    }
    loss = made_loss(arrays, PER_BATCH * update, steps, silent=[{"module": "target", "shape": [rows, 3]}])
    numbers = np.zeros(rows)
    loss.__dict__["policies"] = []
    loss.__dict__["regressions"] = [Regression(numbers, numbers, None, names, None, "q", 0, (0,), True)]
    return loss


def episodes(stream: int = TRAINING, length: int = 20, terminated: bool = True, first_update: int = 0):
    return [
        SimpleNamespace(stream=stream, update=first_update + number // 4, length=length, terminated=terminated)
        for number in range(200)
    ]


def seen(losses, played, steps=1):
    """Targets are explained by rewards of so many steps."""
    explained = [SimpleNamespace(explanations=[SimpleNamespace(steps=steps)], module="q")]
    return made_view(
        losses,
        followers=[follows("target", "q")],
        evidence=SimpleNamespace(episodes=played, of=lambda _: []),
        notes={"bootstraps": explained},
    )


def without_last_steps(**options):
    return [drawn(update, **options) for update in range(BATCHES)]


def test_a_memory_without_a_single_last_step_is_named_where_episodes_end_often():
    found = MemoryTrue().look(seen(without_last_steps(), episodes()))
    assert found.status == "fail"
    assert f"None of {ROWS * BATCHES} rows" in found.summary
    assert found.figures["last_steps_expected"] == pytest.approx(ROWS * BATCHES / 20)
    assert found.cause
    assert found.advice


def test_steps_that_a_time_limit_cut_are_no_ends_of_the_task():
    assert MemoryTrue().look(seen(without_last_steps(cut=2), episodes())).status == "fail"


def healthy():
    one = [drawn(update, last_steps=int(update == 7)) for update in range(BATCHES)]
    return {
        "one last step among all rows": seen(one, episodes()),
        "as many as there should be": seen([drawn(update, last_steps=2) for update in range(BATCHES)], episodes()),
        "episodes that only a time limit ends": seen(without_last_steps(), episodes(terminated=False)),
        "long episodes": seen(without_last_steps(), episodes(length=100)),
        "ends of another environment": seen(without_last_steps(), [*episodes(EVALUATION), *episodes(terminated=False)]),
        "no episode before the batches": seen(without_last_steps(), episodes(first_update=PER_BATCH * BATCHES)),
        "targets over several steps": seen(without_last_steps(), episodes(), steps=3),
        "few rows": seen([drawn(update, rows=16) for update in range(BATCHES)], episodes()),
    }


@pytest.mark.parametrize("case", list(healthy()))
def test_where_none_needs_to_be_there_nothing_is_said(case):
    view = healthy()[case]
    assert missing_ends(view, view.training_losses) is None
    assert MemoryTrue().look(view).status == "pass"


def test_targets_that_nothing_explains_may_be_of_several_steps_and_are_left_alone():
    view = seen(without_last_steps(), episodes())
    view.notes["bootstraps"] = [SimpleNamespace(explanations=[], module="q")]
    assert missing_ends(view, view.training_losses) is None
