"""Callbacks for other people's trainers: they join at the start of training and judge at its end."""

import sys

import pytest

import learnproof
from learnproof.errors import MissingExtra
from learnproof.evidence import Evidence
from learnproof.evidence.watched import EnvironmentTotals, LossSeen, OptimizerTotals


def test_sb3_training_is_watched_from_its_first_to_its_last_step(tmp_path):
    sb3 = pytest.importorskip("stable_baselines3")
    model = sb3.PPO("MlpPolicy", "CartPole-v1", n_steps=64, batch_size=32, n_epochs=2, seed=0, device="cpu")
    callback = learnproof.callbacks.for_sb3(out=tmp_path / "run")
    model.learn(192, callback=callback)
    assert callback.proof.verdict is not None
    evidence = Evidence.read(tmp_path / "run")
    assert [totals.steps for totals in evidence.of(OptimizerTotals)] == [3 * 2 * 2]
    assert sum(totals.steps for totals in evidence.of(EnvironmentTotals)) == 192
    assert evidence.of(LossSeen)
    again = learnproof.callbacks.for_sb3(out=tmp_path / "again")
    model.learn(64, callback=again)
    assert [totals.steps for totals in Evidence.read(tmp_path / "again").of(OptimizerTotals)] == [2 * 2]


@pytest.mark.parametrize(("name", "package"), [("for_hf", "transformers"), ("for_lightning", "lightning")])
def test_a_missing_package_is_named_with_its_extra(monkeypatch, name, package):
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.setitem(sys.modules, f"{package}.pytorch", None)
    with pytest.raises(MissingExtra, match=rf"learnproof\[{'hf' if package == 'transformers' else package}\]"):
        getattr(learnproof.callbacks, name)()
