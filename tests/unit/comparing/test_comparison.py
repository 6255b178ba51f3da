"""Runs are read from what the usual libraries leave behind, and compared by what varies: the run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from learnproof.cli import main
from learnproof.comparing.ranking import (
    compare,
    interquartile_mean,
    late_score,
    probability_of_improvement,
    whole_score,
)
from learnproof.comparing.sources import Group, RunCurve, read_group
from learnproof.errors import UsageError


def curve(level: float, environment: str = "CartPole-v1", steps: int = 1_000) -> RunCurve:
    places = np.arange(1, 101) * steps / 100
    return RunCurve(f"run {level}", "learnproof", environment, places, np.linspace(0, level, 100))


def group(name: str, levels: list[float], **options: Any) -> Group:
    return Group(name, tuple(curve(level, **options) for level in levels))


def write_monitor(path: Path, returns: list[float], start: float = 0.0, env_id: str = "CartPole-v1") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [f"#{json.dumps({'t_start': start, 'env_id': env_id})}", "r,l,t"]
    lines += [f"{value},10,{start + index}" for index, value in enumerate(returns)]
    path.write_text("\n".join(lines) + "\n")


def test_the_interquartile_mean_leaves_out_both_ends() -> None:
    assert interquartile_mean(np.array([-100.0, 1, 2, 3, 4, 5, 6, 900])) == pytest.approx(3.5)
    assert interquartile_mean(np.array([1.0, 2.0, 9.0])) == pytest.approx((1 * 1 / 12 + 2 * 4 / 12 + 9 * 1 / 12) * 2)
    assert interquartile_mean(np.array([7.0])) == 7


def test_probability_of_improvement_counts_ties_half() -> None:
    assert probability_of_improvement(np.array([1.0, 2.0]), np.array([1.0, 0.0])) == pytest.approx(3.5 / 4)


def test_a_runs_score_is_its_late_part() -> None:
    run = curve(99.0)
    assert late_score(run, 0.1) == pytest.approx(np.mean(run.returns[run.steps >= 10 + 0.9 * 990]))
    assert whole_score(run) == pytest.approx(run.returns[1:].mean())


def test_a_better_method_is_found_and_equal_ones_are_not_told_apart() -> None:
    found = compare([group("good", [90.0, 95, 93, 97, 99]), group("bad", [50.0, 55, 52, 51, 58])])[0]
    assert [row.group for row in found.final] == ["good", "bad"]
    assert found.duels[0].probability == 1
    assert found.duels[0].decided
    generator = np.random.default_rng(0)
    wrong = 0
    for _ in range(40):
        levels = generator.normal(50, 10, (2, 10))
        wrong += compare([group("a", list(levels[0])), group("b", list(levels[1]))])[0].duels[0].decided
    assert wrong <= 6


def test_one_run_has_no_interval_and_few_are_noted() -> None:
    found = compare([group("alone", [50.0]), group("few", [40.0, 41.0], steps=100)])[0]
    assert found.final[0].low is None
    assert found.duels[0].low is None
    said = " ".join(found.notes)
    assert "one run only" in said
    assert "narrower than it should be" in said
    assert "not trained for equally many steps" in said


def test_environments_are_kept_apart() -> None:
    a = Group("a", (curve(1.0, "One-v0"), curve(2.0, "Two-v0")))
    b = Group("b", (curve(3.0, "One-v0"), curve(4.0, "Two-v0")))
    assert [found.environment for found in compare([a, b])] == ["One-v0", "Two-v0"]
    with pytest.raises(UsageError, match="several environments"):
        compare([a, Group("c", (curve(3.0, ""),))])


def test_monitor_files_of_one_run_are_merged_by_time(tmp_path: Path) -> None:
    write_monitor(tmp_path / "0.monitor.csv", [1.0, 3.0])
    write_monitor(tmp_path / "1.monitor.csv", [2.0, 4.0], start=0.5)
    run = read_group(tmp_path).runs[0]
    assert run.returns.tolist() == [1, 2, 3, 4]
    assert run.steps.tolist() == [10, 20, 30, 40]
    assert run.environment == "CartPole-v1"


def test_a_folder_of_runs_is_one_group(tmp_path: Path) -> None:
    for seed in range(3):
        write_monitor(tmp_path / "ppo" / f"seed{seed}" / "monitor.csv", [float(seed)] * 5)
    assert len(read_group(tmp_path / "ppo").runs) == 3


def test_tensorboard_files_are_read(tmp_path: Path) -> None:
    writing = pytest.importorskip("torch.utils.tensorboard")
    writer = writing.SummaryWriter(str(tmp_path / "tb"))
    for step in range(20):
        writer.add_scalar("rollout/ep_rew_mean", step * 2.0, step * 100)
        writer.add_scalar("other", 1.0, step)
    writer.close()
    run = read_group(tmp_path / "tb").runs[0]
    assert run.returns.tolist() == [step * 2.0 for step in range(20)]
    assert run.steps[-1] == 1900
    with pytest.raises(UsageError, match="rollout/ep_rew_mean"):
        read_group(tmp_path / "tb", "absent")


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("", "no columns"),
        ("r,l,t\n", "no finished episode"),
        ("r,l,t\n1,two,3\n", "line 3"),
        ("a,b\n1,2\n", "no columns"),
        ("r,l,t\nnan,1,1\n", "no finite return"),
    ],
)
def test_bad_monitor_files_are_refused(tmp_path: Path, body: str, said: str) -> None:
    file = tmp_path / "monitor.csv"
    file.write_text(body)
    with pytest.raises(UsageError, match=said):
        read_group(file)


def test_the_command_says_who_is_better(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for seed in range(5):
        write_monitor(tmp_path / "good" / str(seed) / "monitor.csv", [100.0 + seed] * 20)
        write_monitor(tmp_path / "bad" / str(seed) / "monitor.csv", [10.0 + seed] * 20)
    out = tmp_path / "told.json"
    assert main(["compare", str(tmp_path / "bad"), str(tmp_path / "good"), "--json", str(out)]) == 0
    printed = capsys.readouterr().out
    assert "A run of good beats one of bad with probability 100 %" in printed
    assert json.loads(out.read_text())[0]["final"][0]["iqm"] == pytest.approx(102)
    assert main(["compare", str(tmp_path / "bad")]) == 2
    assert main(["compare", str(tmp_path / "bad"), str(tmp_path / "nothing")]) == 2
