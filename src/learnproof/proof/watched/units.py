"""Are a memory's actions in the units in which the actor speaks of them to its critic?

An actor that ends in tanh speaks of -1 to 1, and the environment may take -3 to 3. Either is stored, as long as the critic is fitted to the same
one that the actor asks it about; fitted to the other, it is asked about actions that mean something else there.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..seen import Seen
from .actors import actor_losses

UNIT, NEAR_THE_END, OFTEN = 1.0005, 0.98, 0.01
"""Where tanh ends; the numbers beyond NEAR_THE_END, and their share from which it is an end that they come to."""
FEWEST_NUMBERS = 1_000
OTHER_BOUND = 0.05
"""Difference of the environment's bound from 1 from which its units are others."""
BEYOND, SHARE = 1.05, 0.05
"""Share of the actions, late in training, that the actor could not speak of; a few of the beginning are drawn by chance."""


@dataclass(frozen=True)
class OtherUnits:
    asked: float
    """Largest number that the actor asks its critic about."""
    stored: float
    """Largest number that the critic is fitted to."""
    share: float
    """Of those numbers, late in training, that are beyond what the actor asks about."""


def stored_in_other_units(seen: Seen) -> OtherUnits | None:
    bound = seen.action_bound
    if bound is None or bound < 1 + OTHER_BOUND:
        return None
    asked = [
        np.abs(action).reshape(-1)
        for loss, _ in actor_losses(seen)
        for position in range(len(loss.event.calls))
        if (action := loss.arrays.get(f"c{position}.action")) is not None
    ]
    numbers = np.concatenate(asked) if asked else np.empty(0)
    if len(numbers) < FEWEST_NUMBERS or numbers.max() > UNIT or (numbers > NEAR_THE_END).mean() < OFTEN:
        return None
    fitted = _fitted_late(seen)
    if len(fitted) < FEWEST_NUMBERS or (share := float((fitted > BEYOND).mean())) < SHARE:
        return None
    return OtherUnits(float(numbers.max()), float(fitted.max()), share)


def _fitted_late(seen: Seen) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Numbers of actions of the second half of the run that critics are fitted to, where they are those that the environment was given."""
    half = max((loss.event.env_steps for loss in seen.training_losses), default=0) / 2
    found = []
    for loss in seen.training_losses:
        taken, rows, time = (loss.arrays.get(f"t.{name}") for name in ("action", "row", "time"))
        for regression in loss.regressions:
            stored = None if regression.call is None else loss.arrays.get(f"c{regression.call}.action")
            if (
                stored is None
                or taken is None
                or rows is None
                or time is None
                or len(stored) <= int(rows.max(initial=0))
            ):
                continue
            late = time > half
            own = stored[rows][late].astype(np.float64)
            if own.shape == taken[late].shape and np.allclose(own, taken[late], rtol=1e-5, atol=1e-6):
                found.append(np.abs(own).reshape(-1))
    return np.concatenate(found) if found else np.empty(0)
