"""learning_progress.png: made from whatever evidence there is, always the same for the same."""

from __future__ import annotations

import io
import subprocess
import sys
import warnings
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pytest
from PIL import Image
from sample_run import healthy, sparse, verdict

from learnproof.evidence import Evidence
from learnproof.show.plots import draw_learning_progress, learning_progress_png


def pixels(png: bytes) -> np.ndarray:  # type: ignore[type-arg]
    return np.asarray(Image.open(io.BytesIO(png)).convert("RGB"))


def test_the_picture_is_a_png_of_a_readable_size(tmp_path: Path) -> None:
    path = tmp_path / "learning_progress.png"
    draw_learning_progress(healthy(), verdict("proven"), path)
    with Image.open(path) as picture:
        assert picture.format == "PNG"
        assert picture.width >= 1_200
        assert picture.height >= 700
    assert [found.name for found in tmp_path.iterdir()] == ["learning_progress.png"]


def test_equal_evidence_gives_equal_bytes_and_other_evidence_does_not() -> None:
    first = learning_progress_png(healthy(), verdict("proven"))
    assert learning_progress_png(healthy(), verdict("proven")) == first
    assert learning_progress_png(healthy(), verdict("broken")) != first
    assert learning_progress_png(healthy(seed=8), verdict("proven")) != first
    assert b"tIME" not in first


@pytest.mark.parametrize("name", list(sparse()))
def test_sparse_evidence_is_drawn_without_a_warning(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert learning_progress_png(sparse()[name], None)[:8] == b"\x89PNG\r\n\x1a\n"


@pytest.mark.parametrize("metric", ["return", "roas"])
def test_the_last_panel_shows_the_metric_of_the_run(metric: str) -> None:
    evidence = healthy(metric=metric)
    without = Evidence(run=evidence.run, episodes=evidence.episodes, updates=evidence.updates)
    full, less = pixels(learning_progress_png(evidence, None)), pixels(learning_progress_png(without, None))
    rows, columns = np.nonzero((full != less).any(axis=2))
    assert rows.min() > full.shape[0] // 2, "evaluations belong into the lower row"
    assert columns.min() > full.shape[1] * 0.6, "and there into the last panel"


@pytest.mark.parametrize(
    "hostile", ["$\\frac{", "<script>alert(1)</script>", "名前🙂", "\x1b[31m\x00", "x" * 5_000, ""]
)
def test_foreign_names_are_drawn_as_text_without_a_warning(hostile: str) -> None:
    evidence = healthy(environment=hostile, algorithm=hostile, metric=hostile)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        learning_progress_png(evidence, verdict(hostile))


def test_values_of_the_wrong_type_are_left_out() -> None:
    evidence = healthy(max_entropy="text", constants="text", metric=["no", "name"])
    evidence.updates[3] = type(evidence.updates[3])(**{**vars(evidence.updates[3]), "loss": "text", "step": None})
    evidence.episodes[3] = type(evidence.episodes[3])(**{**vars(evidence.episodes[3]), "metrics": 5, "return_": "x"})
    learning_progress_png(evidence, {"performance": "text", "findings": 3, "verdict": None})


def test_the_users_own_style_neither_matters_nor_is_changed() -> None:
    expected = learning_progress_png(healthy(), None)
    with mpl.rc_context({"font.size": 30, "axes.facecolor": "red", "text.usetex": True, "savefig.dpi": 20}):
        assert learning_progress_png(healthy(), None) == expected
        assert mpl.rcParams["font.size"] == 30


def test_drawing_needs_no_pyplot() -> None:
    program = "import sys, learnproof.show.plots; print('matplotlib.pyplot' in sys.modules, 'torch' in sys.modules)"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert ended.stdout.strip() == "False False"
