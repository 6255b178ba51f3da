"""Schedules as they are made, and what one that waits for a plateau is told."""

import torch

import learnproof
from learnproof.evidence import Evidence
from learnproof.evidence.watched import PlateauTold, SchedulerSeen
from learnproof.watching.schedulers import MOST_TOLD, Told


def test_schedules_and_what_a_plateau_is_told_are_written_down(tmp_path):
    model = torch.nn.Linear(2, 1)
    with learnproof.watch(out=tmp_path / "run"):
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
        plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, mode="max", patience=2)
        torch.optim.lr_scheduler.StepLR(optimizer, 5)
        for number in range(12):
            optimizer.zero_grad()
            model(torch.ones(4, 2)).sum().backward()
            optimizer.step()
            plateau.step(torch.tensor(float(number)) if number % 2 else float(number))
    evidence = Evidence.read(tmp_path / "run")
    assert {event.kind for event in evidence.of(SchedulerSeen)} == {"ReduceLROnPlateau", "StepLR"}
    (told,) = evidence.of(PlateauTold)
    assert (told.mode, told.calls) == ("max", 12)
    assert told.numbers == list(range(12))
    assert told.updates == list(range(1, 13))
    assert torch.optim.lr_scheduler.ReduceLROnPlateau.step.__module__.startswith("torch")


def test_a_long_story_is_thinned_evenly():
    told = Told(0, "min")
    for number in range(10_000):
        told.add(number, float(number))
    assert MOST_TOLD <= len(told.numbers) < 2 * MOST_TOLD
    gaps = {b - a for a, b in zip(told.numbers, told.numbers[1:], strict=False)}
    assert len(gaps) == 1
    assert told.updates == told.numbers
    assert told.calls == 10_000
