"""Output never stops the program: closed pipes, full disks, poor encodings."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

from learnproof.show.terminal import ASCII_GLYPHS, Glyphs, SurvivingStream, glyphs_for, is_live, open_console

PROGRAM = """
import sys
from pathlib import Path
from learnproof.show.progress import Status, open_display
with open_display(1_000, "a run") as display:
    for step in range(1_000):
        display.update(Status(step=step, evaluations=step))
Path(sys.argv[1]).write_text("trained to the end")
"""


def run_program(tmp_path: Path, stdout: int | io.IOBase) -> tuple[int, str, str]:
    """Exit code, what the program left on disk, and its stderr."""
    done = tmp_path / "done.txt"
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(done)], stdout=stdout, stderr=subprocess.PIPE, text=True, timeout=60
    )
    return ended.returncode, done.read_text() if done.exists() else "", ended.stderr


def test_a_reader_that_has_gone_does_not_end_the_training(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        assert run_program(tmp_path, writing) == (0, "trained to the end", "")
    finally:
        os.close(writing)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_behind_stdout_does_not_end_the_training(tmp_path: Path) -> None:
    with open("/dev/full", "w") as full:
        assert run_program(tmp_path, full) == (0, "trained to the end", "")


def test_a_program_without_stdout_is_displayed_to_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    console = open_console()
    console.print("to nobody")
    assert not is_live(console)


def test_a_closed_stream_is_silent_and_an_open_one_is_not() -> None:
    stream = io.StringIO()
    surviving = SurvivingStream(stream)
    surviving.write("heard")
    assert stream.getvalue() == "heard"
    stream.close()
    assert surviving.write("not heard") == len("not heard")
    surviving.flush()
    assert not surviving.isatty()


def test_signs_fit_the_encoding_of_the_output() -> None:
    plain = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    rich = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    assert glyphs_for(open_console(plain)) == ASCII_GLYPHS
    assert glyphs_for(open_console(rich)) == Glyphs()


def test_text_that_the_output_cannot_encode_is_replaced_and_not_refused() -> None:
    raw = io.BytesIO()
    console = open_console(io.TextIOWrapper(raw, encoding="ascii"))
    console.print("caf\u00e9 \u2713")
    assert raw.getvalue() == b"caf? ?\n"


def test_a_pipe_gets_no_escape_codes_even_where_colour_is_forced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    stream = io.StringIO()
    open_console(stream).print("red", style="bold red")
    assert stream.getvalue() == "red\n"
