"""Tensors whose mean or sum is taken in a window are copied; outside of it torch's own methods stand where they were."""

import contextlib
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from learnproof.watching import session as watching
from learnproof.watching.baselines import Baselines


@pytest.fixture
def baselines(monkeypatch):
    calls = SimpleNamespace(compiles=False, seeks_anomalies=False, is_compiling=lambda: False)
    session = SimpleNamespace(torch=torch, env_steps=0, senses={"calls": calls}, window_doors=[])
    monkeypatch.setattr(watching, "CURRENT", SimpleNamespace(shut={}, errors={}, unseen=contextlib.nullcontext))
    watcher = Baselines(session)
    watcher.open_window()
    yield watcher
    watcher.close_window()


@pytest.mark.parametrize("ask", [torch.Tensor.mean, torch.Tensor.sum], ids=["mean", "sum"])
def test_rewards_are_copied_whichever_is_asked(baselines, ask):
    rewards = torch.rand(8, 4)
    getattr(rewards, ask.__name__)(1, keepdim=True)
    assert [kept.tolist() for kept in baselines.kept] == [rewards.reshape(-1).tolist()]


def test_what_trains_and_what_is_no_number_is_left_alone(baselines):
    torch.rand(8, requires_grad=True).sum()
    torch.ones(8, dtype=torch.bool).sum()
    torch.rand(2).mean()
    assert baselines.kept == []


def test_an_error_looks_as_it_would_have_without_us(baselines):
    with pytest.raises(IndexError) as error:
        torch.rand(8).sum(dim=5)
    assert error.traceback[-1].path.name == "test_baselines.py"


def test_after_the_window_nothing_of_ours_is_left(baselines):
    baselines.close_window()
    assert "mean" not in vars(torch.Tensor)
    assert "sum" not in vars(torch.Tensor)
    assert float(torch.ones(4).sum()) == np.float32(4)
