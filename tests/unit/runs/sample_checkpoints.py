"""A small shelf of checkpoints for the tests of this room, and a forger who keeps digests consistent."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from learnproof.runs.checkpoint import Checkpoint, Shelf
from learnproof.runs.tensorfile import Array, layout_of

KIND = {"algorithm": "ppo", "env": "CartPole-v1"}


def sample_tensors(step: int) -> dict[str, dict[str, Array]]:
    rng = np.random.default_rng(step)
    return {
        "weights": {"policy.0.weight": rng.normal(size=(8, 4)).astype("f4"), "policy.0.bias": np.zeros(8, "f4")},
        "optimizer": {"count": np.array(step, "i8"), "moment": rng.normal(size=40), "seen": rng.random(5) < 0.5},
    }


def sample_state(step: int) -> dict[str, Any]:
    return {"step": step, "best": float("-inf"), "generator": {"state": str(2**100 + step)}, "history": [1.5, None]}


def write_sample(shelf: Shelf, step: int) -> Path:
    return shelf.write(step, sample_state(step), sample_tensors(step), KIND)


def sample_shelf(run: Path, steps: tuple[int, ...] = (10, 20), keep: int = 5) -> Shelf:
    shelf = Shelf(run / "checkpoints", keep)
    for step in steps:
        write_sample(shelf, step)
    return shelf


def read_all(checkpoint: Checkpoint) -> tuple[dict[str, Any], dict[str, dict[str, Array]]]:
    """As a resume does it: the state, and each group against what is expected."""
    expected = sample_tensors(checkpoint.step)
    return checkpoint.state(), {g: checkpoint.tensors(g, layout_of(expected[g])) for g in expected}


def assert_is_sample(checkpoint: Checkpoint) -> None:
    state, tensors = read_all(checkpoint)
    assert state == sample_state(checkpoint.step)
    for group, arrays in sample_tensors(checkpoint.step).items():
        assert tensors[group].keys() == arrays.keys()
        for name, array in arrays.items():
            np.testing.assert_array_equal(tensors[group][name], array, strict=True)


def snapshot(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def forge(folder: Path, change: Callable[[dict[str, Any]], None] | None = None) -> None:
    """Write a MANIFEST.json whose digests are right for whatever lies in the folder now."""
    manifest = folder / "MANIFEST.json"
    body = json.loads(manifest.read_bytes())
    del body["digest"]
    for name in body["files"]:
        path = folder / name
        if path.is_file() and not path.is_symlink() and path.stat().st_size < 10**8:
            data = path.read_bytes()
            body["files"][name] = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        elif os.path.lexists(path):
            body["files"][name] = {"bytes": os.lstat(path).st_size, "sha256": "0" * 64}
    if change:
        change(body)
    seal(manifest, body)


def seal(manifest: Path, body: dict[str, Any]) -> None:
    def canonical(tree: dict[str, Any]) -> bytes:
        return json.dumps(tree, sort_keys=True, separators=(",", ":")).encode() + b"\n"

    manifest.write_bytes(canonical({**body, "digest": hashlib.sha256(canonical(body)).hexdigest()}))
