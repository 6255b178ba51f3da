"""A running training: plain lines in a log, one table in a terminal."""

from __future__ import annotations

import io
import subprocess
import sys
from collections.abc import Callable

import pytest
from rich.console import Console

from learnproof.show.progress import CHECKS, Display, LiveDisplay, Pace, PlainDisplay, Status, open_display

STATUS = Status(
    step=5_000,
    mean_return=212.34,
    evaluations=1,
    evaluation_best=321.5,
    entropy=0.512,
    learning_rate=3e-4,
    checks={"weights_changing": True, "gradients_flowing": False},
)


class Clock:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def plain(clock: Callable[[], float]) -> tuple[Display, io.StringIO]:
    stream = io.StringIO()
    return open_display(10_000, "CartPole-v1, ppo", Console(file=stream, width=80), clock), stream


def live(clock: Callable[[], float], width: int = 80, **options: object) -> tuple[Display, io.StringIO]:
    stream = io.StringIO()
    environment = {"TERM": "xterm-256color", **options.pop("environ", {})}  # type: ignore[dict-item]
    console = Console(file=stream, force_terminal=True, width=width, height=30, _environ=environment)
    return open_display(10_000, "CartPole-v1, ppo", console, clock), stream


def table_of(display: Display, width: int = 80) -> str:
    """The table as it stands, without colours."""
    console = Console(file=io.StringIO(), width=width, color_system=None)
    with console.capture() as captured:
        console.print(display)
    return captured.get()


def test_not_a_terminal_gives_plain_lines_with_every_figure() -> None:
    clock = Clock()
    display, stream = plain(clock)
    assert isinstance(display, PlainDisplay)
    with display:
        display.update(STATUS)
    lines = stream.getvalue().splitlines()
    assert "\x1b" not in stream.getvalue()
    assert lines[0] == "CartPole-v1, ppo"
    assert lines[1].startswith("checks in this order: weights, gradients, entropy, loss, performance (✓ holds,")
    assert lines[-1] == (
        "step 5,000 of 10,000 (50 %) · return 212.3 · best evaluation 321.5 · entropy 0.512 "
        "· learning rate 3e-4 · checks ✓✗···"
    )


def test_a_log_gets_a_line_every_few_seconds_and_not_for_each_update() -> None:
    clock = Clock()
    display, stream = plain(clock)
    with display:
        for step in range(1_000):
            clock.now += 0.011
            display.update(Status(step=step))
        before = len(stream.getvalue().splitlines())
    assert before == 2 + 2
    assert stream.getvalue().splitlines()[-1].startswith("step 999 of")


def test_each_evaluation_gets_its_line_at_once() -> None:
    display, stream = plain(Clock())
    with display:
        for step in range(100):
            display.update(Status(step=step, evaluations=step // 25))
        evaluated = [line for line in stream.getvalue().splitlines() if line.startswith("step")]
    assert [line.split()[1] for line in evaluated] == ["25", "50", "75"]


def test_lines_are_never_wrapped_and_always_flushed() -> None:
    class Flushed(io.StringIO):
        flushes = 0

        def flush(self) -> None:
            self.flushes += 1

    stream = Flushed()
    with open_display(10, "x" * 150, Console(file=stream, width=40)) as display:
        display.say("a long warning " * 10, kind="warning")
    lines = stream.getvalue().splitlines()
    assert len(lines) == 2
    assert stream.flushes >= len(lines)


def test_what_is_said_stays_and_names_its_kind() -> None:
    for display, stream in (plain(Clock()), live(Clock())):
        with display:
            display.say("entropy has not moved", kind="warning")
            display.say("all is well")
        assert "warning: entropy has not moved" in stream.getvalue()
        assert "info" not in stream.getvalue()


def test_foreign_text_cannot_act_on_the_terminal() -> None:
    display, stream = plain(Clock())
    with display:
        display.say("\x1b[2Jgone [bold]kept[/bold]", kind="error")
        display.phase("\x1b[2Jphase")
    assert "\x1b" not in stream.getvalue()
    assert "[bold]kept[/bold]" in stream.getvalue()


def test_a_phase_is_said_once_and_its_count_only_now_and_then() -> None:
    clock = Clock()
    display, stream = plain(clock)
    with display:
        for done in range(100):
            clock.now += 0.125
            display.phase(f"proving: trained policy {done}/100")
        display.phase("")
        display.phase("proving: random policy 0/100")
    said = [line for line in stream.getvalue().splitlines() if line.startswith("proving")]
    assert said == [
        "proving: trained policy 0/100",
        "proving: trained policy 40/100",
        "proving: trained policy 80/100",
        "proving: random policy 0/100",
    ]


def test_a_terminal_shows_one_table_with_every_figure() -> None:
    clock = Clock()
    display, stream = live(clock)
    assert isinstance(display, LiveDisplay)
    with display:
        display.update(Status(step=1_000))
        clock.now += 10
        display.update(STATUS)
        display.phase("proving: trained policy on 100 fresh seeds 40/100")
        table = table_of(display)
    for text in ("CartPole-v1, ppo", "50 %", "5,000 of 10,000", "400 steps/s", "12 s", "212.3", "321.5", "0.512"):
        assert text in table
    for text in ("3e-4", "✓ weights", "✗ gradients", "· entropy", "· loss", "· performance", "fresh seeds 40/100"):
        assert text in table
    assert all(len(line) <= 80 for line in table.splitlines())
    assert stream.getvalue().endswith("\x1b[?25h")


@pytest.mark.parametrize("width", [10, 24, 45, 63, 64, 200])
def test_the_table_fits_any_width(width: int) -> None:
    display, _ = live(Clock(), width)
    with display:
        display.update(STATUS)
        table = table_of(display, width)
    assert all(len(line) <= width for line in table.splitlines())


def test_what_is_not_known_yet_is_shown_as_not_known() -> None:
    display, _ = live(Clock())
    with display:
        display.update(Status(step=0))
        table = table_of(display)
    assert "0 of 10,000" in table
    assert "– steps/s" in table
    assert table.count("·") == len(CHECKS)


def test_work_without_training_shows_its_phases_only() -> None:
    for display, stream in (plain(Clock()), live(Clock())):
        with display:
            display.phase("proving: trained policy 0/100")
        assert "proving: trained policy" in stream.getvalue()
        assert "checks" not in stream.getvalue()
        assert "10,000" not in stream.getvalue()


def test_the_table_is_redrawn_at_most_four_times_a_second() -> None:
    clock = Clock()
    display, stream = live(clock)
    with display:
        before = stream.getvalue().count("╭")
        for step in range(1_000):
            clock.now += 0.002
            display.update(Status(step=step))
        assert 7 <= stream.getvalue().count("╭") - before <= 8


def test_no_color_means_no_colour_and_a_dumb_terminal_means_plain_lines() -> None:
    coloured, stream = live(Clock())
    with coloured:
        coloured.say("red", kind="error")
    assert "31m" in stream.getvalue()
    colourless, stream = live(Clock(), environ={"NO_COLOR": "1"})
    with colourless:
        colourless.say("red", kind="error")
    assert "31m" not in stream.getvalue()
    dumb, _ = live(Clock(), environ={"TERM": "dumb"})
    assert isinstance(dumb, PlainDisplay)


def test_time_left_follows_the_recent_pace_and_a_resume_does_not_spoil_it() -> None:
    clock = Clock()
    pace = Pace(clock)
    assert pace.steps_per_second is None
    for step in range(50_000, 60_000, 100):
        pace.note(step)
        clock.now += 1
    assert pace.steps_per_second == pytest.approx(100)
    assert pace.seconds_left(70_000) == pytest.approx(101)
    for step in range(60_000, 100_000, 1_000):
        pace.note(step)
        clock.now += 1
    assert pace.steps_per_second == pytest.approx(1_000)
    assert pace.seconds_left(50_000) == 0


def test_the_display_imports_neither_numbers_nor_pictures() -> None:
    program = (
        "import sys, learnproof.show.progress; "
        "print([name for name in ('numpy', 'torch', 'matplotlib', 'jinja2', 'pydantic') if name in sys.modules])"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert ended.stdout.strip() == "[]"


def test_the_stage_of_a_curriculum_is_shown_where_there_is_one() -> None:
    for stage, shown in (("2 of 3", True), (None, False)):
        display, stream = plain(Clock())
        with display:
            display.update(Status(step=10, stage=stage))
        assert ("stage 2 of 3" in stream.getvalue()) is shown
        table, _ = live(Clock())
        table.update(Status(step=10, stage=stage))
        assert ("2 of 3" in table_of(table)) is shown
