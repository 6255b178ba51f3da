"""What the watcher writes is the evidence form, whole lines and bounded."""

import json

import numpy as np
from safetensors.numpy import load

from learnproof.evidence.events import EVIDENCE_VERSION
from learnproof.watching import writer
from learnproof.watching.writer import Writer, safetensors_bytes


def test_the_form_is_the_readers():
    assert writer.FORM == EVIDENCE_VERSION


def test_batches_are_safetensors():
    arrays = {
        "a": np.arange(6, dtype=np.float32).reshape(2, 3),
        "b": np.array([True, False]),
        "c": np.array([2**63 + 5], np.uint64),
        "empty": np.zeros((0, 4), np.int64),
    }
    read = load(safetensors_bytes(arrays))
    for name, array in arrays.items():
        assert np.array_equal(read[name], array)
        assert read[name].dtype == array.dtype


def test_the_first_process_takes_the_main_file_and_the_next_its_own(tmp_path):
    first, second = Writer(str(tmp_path)), Writer(str(tmp_path))
    assert first.open()
    assert not second.open()
    first.event("episode", {"return": float("nan")})
    second.event("episode", {"return": 1.0})
    assert json.loads((tmp_path / "evidence.jsonl").read_text())["return"] == "nan"
    (other,) = tmp_path.glob("evidence-*.jsonl")
    assert json.loads(other.read_text())["return"] == 1.0


def test_events_are_bounded_and_the_last_words_still_fit(tmp_path, monkeypatch):
    monkeypatch.setattr(writer, "MAX_EVENT_BYTES", 3_000)
    monkeypatch.setattr(writer, "RESERVED_BYTES", 1_000)
    out = Writer(str(tmp_path))
    out.open()
    for _ in range(100):
        out.event("episode", {"text": "x" * 50})
    assert out.dropped_events > 50
    assert (tmp_path / "evidence.jsonl").stat().st_size <= 2_000
    out.event("watched", {"updates": 1}, last=True)
    assert "watched" in (tmp_path / "evidence.jsonl").read_text().splitlines()[-1]


def test_batches_are_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr(writer, "MAX_SAMPLE_BYTES", 5_000)
    out = Writer(str(tmp_path))
    out.open()
    names = [out.sample("calls", i, i, {"a": np.zeros(200, np.float32)})[0] for i in range(10)]
    assert names[0] is not None
    assert names[-1] is None
    assert out.dropped_samples > 0
    assert sum(f.stat().st_size for f in (tmp_path / "samples").iterdir()) <= 6_000


def test_a_disk_that_is_gone_ends_the_writing_and_nothing_else(tmp_path):
    out = Writer(str(tmp_path))
    out.open()
    out.close()
    out.file = 10**6  # a descriptor that nobody has
    out.event("episode", {"return": 1.0})
    assert out.failed
    out.event("episode", {"return": 2.0})
    assert out.sample("calls", 0, 0, {"a": np.zeros(2)}) == (None, None)
