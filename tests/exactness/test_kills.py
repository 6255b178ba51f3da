"""A run that is killed and resumed ends in the same bytes as one that never was; the long form is benchmarks/crashes.py."""

import json

import pytest

from crashes import CASES, SHIPPED, THIRD_PARTY, digests, train_with_kills

pytestmark = pytest.mark.slow


def test_killed_and_resumed_a_shipped_environment_ends_in_the_same_bytes(tmp_path):
    train_with_kills(tmp_path / "calm", SHIPPED, 12_288, [])
    kills = ["mid-write:9", "random:0.4", "during-retention:2", "before-manifest:3", "after-rename:4"]
    hunted = train_with_kills(tmp_path / "hunted", SHIPPED, 12_288, kills)
    assert len(hunted.kills) == len(kills)
    assert digests(tmp_path / "hunted") == digests(tmp_path / "calm")


@pytest.mark.thorough
@pytest.mark.parametrize("algorithm", sorted(CASES.keys() - {"ppo"}))
def test_so_does_every_other_algorithm(tmp_path, algorithm):
    words = CASES[algorithm].words
    train_with_kills(tmp_path / "calm", words, 6144, [])
    hunted = train_with_kills(tmp_path / "hunted", words, 6144, ["mid-write:9", "random:0.4", "during-retention:2"])
    assert len(hunted.kills) == 3
    assert digests(tmp_path / "hunted") == digests(tmp_path / "calm")


def test_a_third_party_environment_restarts_its_episodes_and_says_so(tmp_path):
    train_with_kills(tmp_path / "run", THIRD_PARTY, 6144, ["during-retention:2"])
    lines = (tmp_path / "run" / "evidence.jsonl").read_text().splitlines()
    restarts = [event for event in map(json.loads, lines) if event["event"] == "environment_restarted"]
    assert restarts
    assert "CartPole-v1 has no snapshot()" in restarts[0]["reason"]
