"""about.json says where a run comes from, and no secret gets into it."""

from __future__ import annotations

import json
import platform
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from learnproof.runs.about import describe_run, git_revision, package_version
from learnproof.runs.redaction import redact_arguments, redact_place, redact_text, redact_tree

REVISION = "0123456789abcdef0123456789abcdef01234567"


def test_versions_host_command_and_seed_are_told(tmp_path):
    about = describe_run(7, ["learnproof", "train", "CartPole-v1"], tmp_path)
    assert about["versions"]["python"] == platform.python_version()
    assert about["versions"]["numpy"] == np.__version__
    assert about["seed"] == 7
    assert about["command"] == ["learnproof", "train", "CartPole-v1"]
    assert about["host"]["cores"] >= 1
    assert json.loads(json.dumps(about)) == about
    assert about == describe_run(7, ["learnproof", "train", "CartPole-v1"], tmp_path)


def test_a_package_that_is_not_installed_has_no_version():
    assert package_version("no-such-package-at-all") is None


def test_the_room_starts_without_torch_or_an_extra():
    code = (
        "import sys, pathlib, learnproof.runs, learnproof.runs.about as a; a.describe_run(0, [], pathlib.Path());"
        "print([m for m in ('torch', 'numba', 'gymnasium', 'fsspec', 'tensorboard', 'wandb') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def make_git(folder: Path, head: str) -> Path:
    git = folder / ".git"
    git.mkdir(parents=True)
    (git / "HEAD").write_text(head)
    return git


def test_the_revision_of_a_branch_a_packed_branch_and_a_detached_head(tmp_path):
    git = make_git(tmp_path / "a", "ref: refs/heads/main\n")
    (git / "packed-refs").write_text(f"# pack-refs\n{REVISION} refs/heads/main\n")
    (tmp_path / "a" / "below").mkdir()
    assert git_revision(tmp_path / "a" / "below") == REVISION
    (git / "refs" / "heads").mkdir(parents=True)
    (git / "refs" / "heads" / "main").write_text("f" * 40 + "\n")
    assert git_revision(tmp_path / "a") == "f" * 40
    make_git(tmp_path / "b", REVISION)
    assert git_revision(tmp_path / "b") == REVISION


def test_the_revision_of_a_worktree(tmp_path):
    git = make_git(tmp_path / "main", "ref: refs/heads/main\n")
    (git / "refs" / "heads").mkdir(parents=True)
    (git / "refs" / "heads" / "side").write_text(REVISION)
    inner = git / "worktrees" / "side"
    inner.mkdir(parents=True)
    (inner / "HEAD").write_text("ref: refs/heads/side\n")
    (inner / "commondir").write_text("../..\n")
    (tmp_path / "side").mkdir()
    (tmp_path / "side" / ".git").write_text(f"gitdir: {inner}\n")
    assert git_revision(tmp_path / "side") == REVISION


@pytest.mark.parametrize("head", ["", "ref: refs/heads/none", "rubbish", "ref: ../../../etc/hostname"])
def test_a_git_folder_without_a_commit_gives_no_revision(tmp_path, head):
    make_git(tmp_path, head)
    assert git_revision(tmp_path) is None


def test_a_git_folder_that_is_spoilt_gives_no_revision(tmp_path):
    (tmp_path / ".git").write_text("gitdir: /nowhere/at/all")
    assert git_revision(tmp_path) is None
    assert git_revision(Path("/")) is None


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        (["--hub-token", "abc123"], ["--hub-token", "***"]),
        (["--wandb.api_key=abc123"], ["--wandb.api_key=***"]),
        (["--password", "-pw"], ["--password", "***"]),
        (["AWS_SECRET_ACCESS_KEY=abc"], ["AWS_SECRET_ACCESS_KEY=***"]),
        (["--checkpoint.mirror", "ftp://me:pw@host/x"], ["--checkpoint.mirror", "ftp://***@host/x"]),
        (["--checkpoint.mirror=https://host/x?sig=abc"], ["--checkpoint.mirror=https://host/x?***"]),
        (["hf_abcdefghijklmnop"], ["***"]),
    ],
)
def test_what_looks_like_a_secret_is_not_written_down(given, shown):
    assert redact_arguments(given) == shown


@pytest.mark.parametrize(
    "arguments",
    [
        ["learnproof", "train", "CartPole-v1", "--seed", "3", "--ppo.learning_rate", "3e-4"],
        ["--checkpoint.mirror", "s3://bucket/runs", "--out=runs/keyboard-v1"],
        ["--thoughts.max_tokens", "30", "--token", "--seed"],
        ["--env.kwargs", "n_agents", "3", "--author", "x@y.org"],
    ],
)
def test_what_is_no_secret_stays_readable(arguments):
    assert redact_arguments(arguments) == arguments


def test_settings_are_redacted_by_key_and_by_text():
    tree = {"api_key": "abc", "mirror": "ftp://a:b@h/x", "n": [1, "AKIAABCDEFGHIJKLMNOP"], "seed": 1}
    assert redact_tree(tree) == {"api_key": "***", "mirror": "ftp://***@h/x", "n": [1, "***"], "seed": 1}


def test_pieces_of_a_url_are_hidden_wherever_they_stand():
    url = "ftp://some.user:p%40ssword@host/x?signature=deadbeef"
    message = f"login failed for some.user with p@ssword at {url} (signature deadbeef) on host"
    assert redact_place(message, url) == "login failed for *** with *** at ftp://***@host/x?*** (signature ***) on host"
    assert redact_place("nothing at /plain/path", "/plain/path") == "nothing at /plain/path"
    assert redact_text("a=b and c:d@e") == "a=b and c:d@e"
