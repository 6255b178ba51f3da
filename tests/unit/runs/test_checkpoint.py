"""Checkpoints come back as written, the newest stay, and a flipped bit is refused with the one before offered."""

from __future__ import annotations

import json
import os
import random
import shutil

import numpy as np
import pytest
from sample_checkpoints import (
    KIND,
    assert_is_sample,
    forge,
    read_all,
    sample_shelf,
    sample_state,
    sample_tensors,
    seal,
    snapshot,
    write_sample,
)

from learnproof.errors import (
    CheckpointDamaged,
    CheckpointError,
    CheckpointMismatch,
    CheckpointVersion,
    DiskFull,
)
from learnproof.runs import atomic, manifest
from learnproof.runs.checkpoint import Shelf
from learnproof.runs.tensorfile import layout_of


def test_everything_comes_back_as_it_was_written(tmp_path):
    checkpoint = sample_shelf(tmp_path).newest()
    assert checkpoint.step == 20
    assert checkpoint.kind == KIND
    assert checkpoint.groups == ["optimizer", "weights"]
    checkpoint.verify()
    assert_is_sample(checkpoint)


def test_numbers_that_are_not_finite_survive_in_the_state(tmp_path):
    shelf = Shelf(tmp_path / "best", 1)
    shelf.write(0, {"a": float("nan"), "b": float("inf")}, {})
    state = shelf.newest().state()
    assert np.isnan(state["a"])
    assert state["b"] == float("inf")


def test_equal_checkpoints_have_equal_bytes_and_digests(tmp_path):
    one, two = sample_shelf(tmp_path / "a", (10,)), sample_shelf(tmp_path / "b", (10,))
    assert snapshot(one.folder) == snapshot(two.folder)
    assert one.newest().digest == two.newest().digest
    two.write(10, {"step": 11}, sample_tensors(10), KIND)
    assert one.newest().digest != two.newest().digest


def test_an_empty_shelf_has_no_newest(tmp_path):
    shelf = Shelf(tmp_path / "checkpoints", 5)
    assert shelf.newest() is None
    assert shelf.steps() == []
    assert shelf.newest_whole() == (None, [])
    with pytest.raises(CheckpointError, match=r"no checkpoint of step 3 .* none"):
        shelf.open(3)


def test_a_shelf_keeps_the_newest_and_no_fewer_than_one(tmp_path):
    shelf = sample_shelf(tmp_path, tuple(range(0, 80, 10)), keep=3)
    assert shelf.steps() == [50, 60, 70]
    assert sorted(os.listdir(shelf.folder)) == ["step-000000050", "step-000000060", "step-000000070"]
    with pytest.raises(ValueError, match="at least one"):
        Shelf(tmp_path, 0)


def test_steps_past_a_thousand_million_sort_by_number(tmp_path):
    assert sample_shelf(tmp_path, (999_999_999, 10_000_000_000)).steps() == [999_999_999, 10_000_000_000]


def test_a_step_written_again_replaces_the_older_one(tmp_path):
    shelf = sample_shelf(tmp_path)
    shelf.write(20, {"again": True}, {"weights": {}})
    assert shelf.steps() == [10, 20]
    assert shelf.newest().state() == {"again": True}
    assert shelf.newest().groups == ["weights"]


def test_a_run_that_goes_back_forgets_the_future(tmp_path):
    shelf = sample_shelf(tmp_path, (10, 20, 30, 40))
    shelf.forget_after(20)
    assert shelf.steps() == [10, 20]
    best = sample_shelf(tmp_path / "other", (10, 40), keep=1)
    write_sample(best, 20)
    assert best.steps() == [20]


def test_a_single_checkpoint_set_aside_for_its_successor_still_counts(tmp_path):
    shelf = sample_shelf(tmp_path, (10,), keep=1)
    os.rename(shelf.folder / "step-000000010", shelf.folder / ".step-000000010.replaced")
    assert shelf.steps() == [10]
    assert_is_sample(shelf.newest())


@pytest.mark.parametrize("group", ["../up", "A", "a.b", "", "a" * 65])
def test_a_group_that_could_not_be_read_back_is_not_written(tmp_path, group):
    with pytest.raises(ValueError, match="cannot name a group"):
        Shelf(tmp_path / "checkpoints", 1).write(0, {}, {group: {}})


def test_too_large_a_state_is_refused_before_anything_is_written(tmp_path):
    shelf = sample_shelf(tmp_path)
    before = snapshot(shelf.folder)
    with pytest.raises(CheckpointError, match="1,000,000 is the limit"):
        shelf.write(30, {"a": "x" * 1_000_000}, {})
    with pytest.raises(ValueError, match="64 files"):
        shelf.write(30, {}, {f"g{i}": {} for i in range(64)})
    with pytest.raises(ValueError, match="step is -1"):
        shelf.write(-1, {}, {})
    assert snapshot(shelf.folder) == before


def test_another_network_is_a_mismatch_that_names_the_first_differences(tmp_path):
    checkpoint = sample_shelf(tmp_path).newest()
    expected = layout_of(sample_tensors(20)["weights"])
    expected["policy.0.weight"] = ((8, 5), np.dtype("f4"))
    with pytest.raises(CheckpointMismatch, match=r"policy.0.weight is float32 \[8, 4\], wanted float32 \[8, 5\]"):
        checkpoint.tensors("weights", expected)
    with pytest.raises(CheckpointMismatch, match="no group 'replay', only optimizer, weights"):
        checkpoint.tensors("replay", {})
    many = {f"x{i}": ((1,), np.dtype("f4")) for i in range(9)}
    with pytest.raises(CheckpointMismatch, match="and 8 more"):
        checkpoint.tensors("weights", many)


def test_another_kind_is_a_mismatch(tmp_path):
    checkpoint = sample_shelf(tmp_path).newest()
    checkpoint.expect_kind(KIND)
    with pytest.raises(CheckpointMismatch, match="env is 'CartPole-v1', wanted 'Acrobot-v1'"):
        checkpoint.expect_kind({**KIND, "env": "Acrobot-v1"})


def test_a_layout_can_be_asked_for_and_taken_as_it_is(tmp_path):
    checkpoint = sample_shelf(tmp_path).newest()
    assert dict(checkpoint.layout("optimizer")) == layout_of(sample_tensors(20)["optimizer"])
    assert checkpoint.tensors("optimizer", checkpoint.layout("optimizer"))["count"] == 20


@pytest.mark.slow
def test_500_flipped_bits_are_all_refused_and_the_previous_checkpoint_is_offered(tmp_path):
    shelf = sample_shelf(tmp_path)
    folder = shelf.folder / "step-000000020"
    rng = random.Random(0)
    files = sorted(folder.iterdir())
    sizes = [path.stat().st_size for path in files]
    chosen = [(path, bit) for path in files for bit in (0, path.stat().st_size * 8 - 1)]
    while len(chosen) < 500:
        path = rng.choices(files, sizes)[0]
        chosen.append((path, rng.randrange(path.stat().st_size * 8)))
    for number, (path, bit) in enumerate(chosen):
        good = path.read_bytes()
        bad = bytearray(good)
        bad[bit // 8] ^= 1 << bit % 8
        path.write_bytes(bad)
        with pytest.raises(CheckpointDamaged) as told:
            read_all(shelf.newest())
        assert f"step 10, is whole: learnproof resume {tmp_path} --step 10" in str(told.value), (path.name, bit)
        if number < 100:
            with pytest.raises(CheckpointDamaged):
                shelf.newest().verify()
        path.write_bytes(good)
    assert_is_sample(shelf.newest())


def test_every_byte_of_the_manifest_matters(tmp_path):
    shelf = sample_shelf(tmp_path, (10,))
    path = shelf.folder / "step-000000010" / "MANIFEST.json"
    good = path.read_bytes()
    for position in range(len(good)):
        bad = bytearray(good)
        bad[position] ^= 1 << position % 8
        path.write_bytes(bad)
        with pytest.raises(CheckpointDamaged, match=r"MANIFEST\.json"):
            shelf.newest()
    for bad in (good + b" ", good + b"\n", good[:-1], b"", b" " + good):
        path.write_bytes(bad)
        with pytest.raises(CheckpointDamaged):
            shelf.newest()


@pytest.mark.parametrize("name", ["weights.safetensors", "state.json", "MANIFEST.json"])
def test_a_file_that_is_missing_or_cut_is_damage(tmp_path, name):
    shelf = sample_shelf(tmp_path)
    path = shelf.folder / "step-000000020" / name
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(CheckpointDamaged, match="--step 10"):
        shelf.newest()
    path.unlink()
    with pytest.raises(CheckpointDamaged, match=r"missing.*--step 10"):
        shelf.newest()


def test_a_checkpoint_under_another_step_is_damage(tmp_path):
    shelf = sample_shelf(tmp_path)
    os.rename(shelf.folder / "step-000000020", shelf.folder / "step-000000030")
    with pytest.raises(CheckpointDamaged, match="that of step 20"):
        shelf.newest()


def test_the_nearest_whole_checkpoint_is_offered_and_damaged_ones_are_not(tmp_path):
    shelf = sample_shelf(tmp_path, (10, 20, 30))
    for step in (20, 30):
        (shelf.folder / f"step-0000000{step}" / "state.json").write_text("{}")
    with pytest.raises(CheckpointDamaged, match=r"before it, step 10, is whole: learnproof resume .* --step 10"):
        shelf.newest()
    whole, problems = shelf.newest_whole()
    assert whole.step == 10
    assert ["step 30" in str(problems[0]), "step 20" in str(problems[1])] == [True, True]
    write_sample(shelf, 20)
    (shelf.folder / "step-000000010" / "state.json").write_text("{}")
    with pytest.raises(CheckpointDamaged, match="A later checkpoint, step 20, is whole"):
        shelf.open(10)
    shutil.rmtree(shelf.folder / "step-000000020")
    with pytest.raises(CheckpointDamaged, match=r"No other checkpoint in .* is whole"):
        shelf.open(10)
    assert shelf.newest_whole()[0] is None


def test_the_command_offered_can_be_pasted_even_with_spaces_in_the_path(tmp_path):
    shelf = sample_shelf(tmp_path / "my runs")
    (shelf.folder / "step-000000020" / "state.json").unlink()
    with pytest.raises(CheckpointDamaged, match=r"resume '.*/my runs' --step 10"):
        shelf.newest()


def test_damage_in_best_offers_no_resume(tmp_path):
    shelf = Shelf(tmp_path / "best", 1)
    write_sample(shelf, 10)
    (shelf.folder / "step-000000010" / "state.json").unlink()
    with pytest.raises(CheckpointDamaged) as told:
        shelf.newest()
    assert "resume" not in str(told.value)


@pytest.mark.parametrize("version", [0, 99, -1, "1", 1.0, True, None])
def test_another_version_of_the_form_is_refused_before_anything_else_is_read(tmp_path, version):
    shelf = sample_shelf(tmp_path, (10,))
    folder = shelf.folder / "step-000000010"
    (folder / "state.json").unlink()  # reading on would stumble over this
    seal(
        folder / "MANIFEST.json",
        {"format": manifest.FORMAT, "version": version, "learnproof": "7.7", "something": ["else"]},
    )
    with pytest.raises(CheckpointVersion, match=rf"form {version}, written by learnproof 7.7.*Nothing of it was read"):
        shelf.newest()


def test_an_older_version_is_carried_over_where_a_migration_is_registered(tmp_path, monkeypatch):
    shelf = sample_shelf(tmp_path, (10,))

    def to_version_0(body):
        body["version"] = 0
        body["at_step"] = body.pop("step")

    def from_version_0(body):
        return {**{k: v for k, v in body.items() if k != "at_step"}, "step": body["at_step"], "version": 1}

    forge(shelf.folder / "step-000000010", to_version_0)
    with pytest.raises(CheckpointVersion):
        shelf.newest()
    step = manifest.Migration(from_version_0, lambda state: {**state, "migrated": True})
    monkeypatch.setitem(manifest.MIGRATIONS, 0, step)
    checkpoint = shelf.newest()
    assert checkpoint.state() == {**sample_state(10), "migrated": True}
    checkpoint.verify()


def test_a_full_disk_in_the_middle_of_a_checkpoint_keeps_the_previous_one(tmp_path, monkeypatch):
    shelf = sample_shelf(tmp_path)
    before = snapshot(shelf.folder)
    write, left = os.write, 2_000

    def nearly_full(descriptor, data):
        nonlocal left
        if left < len(data):
            raise OSError(28, "No space left on device")
        left -= len(data)
        return write(descriptor, data)

    monkeypatch.setattr(atomic.os, "write", nearly_full)
    with pytest.raises(DiskFull, match="What was there before is still there"):
        shelf.write(30, {}, {"weights": {"w": np.zeros(100)}, "replay": {"r": np.zeros(5_000)}})
    monkeypatch.undo()
    assert snapshot(shelf.folder) == before
    assert_is_sample(shelf.newest())


def test_the_manifest_says_nothing_that_depends_on_the_clock_or_the_machine(tmp_path):
    body = json.loads((sample_shelf(tmp_path).newest().folder / "MANIFEST.json").read_bytes())
    assert sorted(body) == ["digest", "files", "format", "kind", "learnproof", "step", "version"]
