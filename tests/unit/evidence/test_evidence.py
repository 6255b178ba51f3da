"""Evidence reads back as it was written, is cut back exactly, stays bounded, and refuses what is not evidence."""

import json
import math

import numpy as np
import pytest

from learnproof.errors import EvidenceError
from learnproof.evidence import Episode, Evidence, Fault, Inspection, Recorder, RunStarted, Update
from learnproof.evidence.events import ModuleChange
from learnproof.evidence.reader import from_json
from learnproof.evidence.recorder import cut_back

STARTED = RunStarted(
    producer="test", algorithm="ppo", environment="Toy-v0", seed=1, metric="return", n_envs=2,
    constants={"gamma": 0.99}, parameters={"policy.weight": 6},
)  # fmt: skip


def episode(step):
    return Episode(step=step, env=0, return_=float(step), length=3, terminated=True, metrics={"speed": 0.5})


def update(index, **changes):
    module = ModuleChange(weight_norm=1.0, weight_change=0.1, weight_step=0.1, grad_norm=0.2, learning_rate=1e-3)
    lists = {
        key: [0.5]
        for key in (
            "loss",
            "policy_loss",
            "value_loss",
            "entropy",
            "grad_norm",
            "grad_norm_max",
            "approx_kl",
            "clip_fraction",
        )
    }
    numbers = dict.fromkeys(
        ("explained_variance", "advantage_mean", "advantage_std", "weight_change", "weight_step"), 0.1
    )
    body = {"index": index, "step": 8, "optimizer_steps": 4, "learning_rate": 1e-3, **lists, **numbers, **changes}
    return Update(modules={"policy": module}, **body)


def inspection(step=0):
    return Inspection(kind="gradient_step", update=0, optimizer_step=step)


def written(tmp_path, *events, **options):
    recorder = Recorder(tmp_path, **options)
    for event in (STARTED, *events):
        recorder.write(event)
    recorder.close()
    return tmp_path / "evidence.jsonl"


def test_events_read_back_as_they_were_written(tmp_path):
    events = [episode(3), update(0), Fault(step=4, kind="not_finite", where="loss", summary="NaN")]
    written(tmp_path, *events)
    evidence = Evidence.read(tmp_path)
    assert evidence.run == STARTED
    assert evidence.episodes == [events[0]]
    assert evidence.updates == [events[1]]
    assert evidence.faults == [events[2]]


def test_numbers_that_are_not_finite_survive_as_valid_json(tmp_path):
    path = written(tmp_path, update(0, loss=[math.nan, math.inf, -math.inf], explained_variance=math.nan))
    strict = [json.loads(line, parse_constant=lambda word: pytest.fail(word)) for line in path.read_text().splitlines()]
    assert strict[1]["loss"] == ["nan", "inf", "-inf"]
    loss = Evidence.read(tmp_path).updates[0].loss
    assert math.isnan(loss[0])
    assert loss[1:] == [math.inf, -math.inf]


def test_batches_read_back_by_role_and_a_changed_one_is_refused(tmp_path):
    recorder = Recorder(tmp_path)
    recorder.write(STARTED)
    recorder.write_sample(inspection(), {"advantage": np.arange(4.0), "row": np.arange(4)})
    recorder.close()
    (sample,) = Evidence.read(tmp_path).samples("gradient_step")
    assert sample["advantage"].tolist() == [0, 1, 2, 3]
    assert sample.event.roles == ["advantage", "row"]
    file = tmp_path / "samples" / sample.event.file
    body = bytearray(file.read_bytes())
    body[-1] ^= 1
    file.write_bytes(bytes(body))
    with pytest.raises(EvidenceError, match="digest"):
        list(Evidence.read(tmp_path).samples("gradient_step"))


def test_past_its_cap_the_recorder_keeps_the_event_and_drops_the_batch(tmp_path):
    recorder = Recorder(tmp_path, max_bytes=3000)
    recorder.write(STARTED)
    for step in range(5):
        recorder.write_sample(inspection(step), {"reward": np.zeros(100)})
    recorder.close()
    evidence = Evidence.read(tmp_path)
    assert len(evidence.inspections) == 5
    assert 0 < len(list(evidence.samples("gradient_step"))) < 5
    assert sum(f.stat().st_size for f in (tmp_path / "samples").iterdir()) <= 3000


def test_statistics_only_keeps_no_batches(tmp_path):
    recorder = Recorder(tmp_path, keep_samples=False)
    recorder.write(STARTED)
    recorder.write_sample(inspection(), {"observation": np.zeros(100)})
    recorder.close()
    assert list((tmp_path / "samples").iterdir()) == []
    assert Evidence.read(tmp_path).inspections[0].file is None


def test_cutting_back_forgets_later_lines_and_batches_and_nothing_else(tmp_path):
    recorder = Recorder(tmp_path)
    recorder.write(STARTED)
    recorder.write_sample(inspection(1), {"reward": np.zeros(3)})
    recorder.sync()
    position, digest = recorder.position, recorder.digest
    recorder.write(episode(9))
    recorder.write_sample(inspection(2), {"reward": np.zeros(3)})
    recorder.close()
    cut_back(tmp_path, position)
    again = Recorder(tmp_path)
    assert (again.position, again.digest) == (position, digest)
    evidence = Evidence.read(tmp_path)
    assert evidence.episodes == []
    assert [event.optimizer_step for event in evidence.inspections] == [1]
    assert len(list((tmp_path / "samples").iterdir())) == 1


def test_cutting_back_further_than_the_file_reaches_is_refused(tmp_path):
    path = written(tmp_path)
    with pytest.raises(EvidenceError, match="cut or replaced"):
        cut_back(tmp_path, path.stat().st_size + 1)


def test_a_line_half_written_by_a_killed_run_is_left_out(tmp_path):
    path = written(tmp_path, episode(1))
    with open(path, "ab") as file:
        file.write(b'{"event":"episode","st')
    assert len(Evidence.read(tmp_path).episodes) == 1


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "run_started"),
        (b"not json\n", "Line 1"),
        (b'{"event":"episode"}\n', "Line 1"),
        (b'{"event":"run_started","version":99}\n', "Line 1"),
        (b"[" * 100_000 + b"\n", "Line 1"),
        (b"x" * 2_000_000 + b"\n", "longer than"),
    ],
)
def test_what_is_not_evidence_is_refused_with_its_line(tmp_path, content, words):
    (tmp_path / "evidence.jsonl").write_bytes(content)
    with pytest.raises(EvidenceError, match=words):
        Evidence.read(tmp_path)


def test_evidence_of_another_form_is_refused_by_its_version(tmp_path):
    body = {**STARTED.to_json(), "version": 99}
    (tmp_path / "evidence.jsonl").write_text(json.dumps(body) + "\n")
    with pytest.raises(EvidenceError, match="form 99"):
        Evidence.read(tmp_path)


def test_a_batch_name_that_climbs_out_is_refused(tmp_path):
    (tmp_path / "secret-1-1.safetensors").write_bytes(b"x")
    recorder = Recorder(tmp_path)
    recorder.write(STARTED)
    recorder.write(Inspection(kind="rollout", update=0, optimizer_step=0, file="../secret-1-1.safetensors", sha256="0"))
    recorder.close()
    with pytest.raises(EvidenceError, match="not the name"):
        list(Evidence.read(tmp_path).samples("rollout"))


def test_an_event_of_a_newer_writer_is_passed_over():
    assert from_json({"event": "something_new", "a": 1}) is None


@pytest.mark.parametrize("figures", [5, [], [1.0, 2.0], ["a", 1.0, 1.0, 1.0]])
def test_a_watched_step_of_another_form_is_refused(tmp_path, figures):
    body = {
        "event": "optimizer_step", "update": 0, "optimizer": 0, "step": 0, "cycle": 0, "env_steps": 0, "learning_rates": [0.1],
        "backwards": 1, "cleared": 1, "without_gradient": [], "inspected": True, "parameters": {"weight": figures},
    }  # fmt: skip
    with pytest.raises(ValueError, match="parameters"):
        from_json(body)
    body["parameters"] = {"weight": [1.0, 2.0, 3.0, "nan"]}
    assert from_json(body) is not None


@pytest.mark.parametrize("event", [STARTED, episode(3), update(0), update(1, loss=[math.nan, 1.0]), inspection()])
def test_a_line_is_the_json_of_its_event_finite_or_not(event):
    assert event.to_line() == json.dumps(event.to_json(), separators=(",", ":")).encode() + b"\n"


def test_what_is_no_evidence_has_no_line():
    with pytest.raises(TypeError, match="no place in the evidence"):
        update(0, explained_variance=object()).to_line()
