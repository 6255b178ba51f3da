"""`with learnproof.watch(...)`: the same eyes in one's own loop, and nothing left behind afterwards."""

import pytest
import torch

import learnproof
from learnproof.errors import UsageError
from learnproof.evidence import Evidence
from learnproof.evidence.watched import LossSeen, ModuleSeen, OptimizerSeen, OptimizerTotals


def train(model, optimizer, updates=12):
    generator = torch.Generator().manual_seed(1)
    for _ in range(updates):
        x = torch.randn((8, 4), generator=generator)
        loss = (model(x).squeeze(1) - x.sum(1)).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def made(seed=0):
    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
    return model, torch.optim.Adam(model.parameters(), lr=1e-2)


def test_a_block_is_watched_and_judged(tmp_path):
    model, optimizer = made()
    with learnproof.watch(model, optimizer, out=tmp_path / "run") as proof:
        train(model, optimizer)
    assert proof.verdict is not None
    assert proof.verdict.verdict == "unproven"
    assert not proof
    evidence = Evidence.read(tmp_path / "run")
    assert evidence.of(OptimizerSeen)[0].n_owned == 4
    assert evidence.of(OptimizerTotals)[0].steps == 12
    assert len(evidence.of(LossSeen)) == 12
    assert evidence.of(ModuleSeen)[0].numbers == 4 * 8 + 8 + 8 + 1
    assert evidence.stopped is not None


def test_nothing_need_be_given(tmp_path):
    model, optimizer = made()
    with learnproof.watch(out=tmp_path / "run"):
        train(model, optimizer)
    evidence = Evidence.read(tmp_path / "run")
    assert evidence.of(OptimizerTotals)[0].steps == 12
    assert any(name.startswith("model.") for name in evidence.of(OptimizerSeen)[0].owns)


def test_afterwards_every_original_is_back_in_its_place(tmp_path):
    before = originals()
    model, optimizer = made()
    with learnproof.watch(model, optimizer, out=tmp_path / "run"):
        assert originals() != before
        train(model, optimizer)
    assert originals() == before
    train(model, optimizer)
    with learnproof.watch(model, optimizer, out=tmp_path / "again"):
        train(model, optimizer)
    assert Evidence.read(tmp_path / "again").of(OptimizerTotals)[0].steps == 12
    assert originals() == before


def originals():
    module = torch.nn.Module
    return (
        module.__call__, module.__init__, torch.optim.Optimizer.__init__, torch.optim.Optimizer.zero_grad,
        torch.autograd._engine_run_backward, torch.distributions.Categorical.log_prob, torch.compile,
    )  # fmt: skip


def test_an_error_in_the_block_passes_through_and_what_was_seen_is_kept(tmp_path):
    model, optimizer = made()
    proof = learnproof.watch(model, optimizer, out=tmp_path / "run")

    def fail():
        with proof:
            train(model, optimizer, updates=3)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert proof.verdict is not None
    stopped = Evidence.read(tmp_path / "run").stopped
    assert stopped is not None
    assert "ZeroDivisionError" in stopped.reason


def test_weights_are_the_same_watched_and_not(tmp_path):
    bare, bare_optimizer = made()
    train(bare, bare_optimizer)
    model, optimizer = made()
    with learnproof.watch(model, optimizer, out=tmp_path / "run"):
        train(model, optimizer)
    for a, b in zip(bare.parameters(), model.parameters(), strict=True):
        assert torch.equal(a, b)


def test_blocks_cannot_be_nested(tmp_path):
    with (
        learnproof.watch(out=tmp_path / "a"),
        pytest.raises(UsageError, match="nested"),
        learnproof.watch(out=tmp_path / "b"),
    ):
        pass


def test_a_learning_rate_of_0_is_called_broken(tmp_path):
    model, _ = made()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    with learnproof.watch(model, optimizer, out=tmp_path / "run") as proof:
        train(model, optimizer)
    assert proof.verdict is not None
    assert proof.verdict.verdict == "broken"
