"""Memories that batches are drawn from: does a row hold what one step of the environment was?

A batch's observations are known by name, and with them the transitions that they began (watching/transitions.py). What the
networks were asked beside them is then compared: the next observation, the action that a critic was given, the state in
which the next action was chosen. A row that nobody can place is no accusation: scripts relabel goals and disturb images.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np

from ..check import Finding
from ..seen import Loss, Seen
from ..seen.losses import Array, is_stacked
from .actors import related
from .base import ENOUGH, FEW_ROWS, SeenCheck
from .stored_ends import missing_ends
from .units import stored_in_other_units

ITSELF, ELSEWHERE = -1, -2
"""As in watching/transitions.py."""
MIN_ROWS = 8
MOST = 0.9
TORN = 0.5
"""Share of a batch's rows that must be beside the wrong state; rows of one episode may meet each other by chance."""
SINGLE = 0.6
"""Share of different states in a batch of single draws, once there are some hundred in the memory."""
OTHER_ACTIONS = 0.2
BY_TURNS = 0.3
FAR_BEHIND, MANY_ROWS = 1_000, 512
"""Environment steps that the newest of so many rows may lag; a memory of all steps would show one of the last tenth among them
with near certainty."""


class MemoryTrue(SeenCheck):
    name = "memory_true"
    concerns = "values"
    question = "Do the rows that training draws from its memory hold what the environment did?"
    family = "mechanism-target"

    def lacks(self, seen: Seen) -> str:
        return (
            ""
            if _drawn(seen) or _aliased(seen) or _never_written(seen)[1]
            else "no batch was seen that is drawn from a memory whose transitions are known"
        )

    def look(self, seen: Seen) -> Finding:
        aliased = _aliased(seen)
        if len(aliased) >= ENOUGH:
            rows = aliased[0].rows
            return self.finding(
                "fail",
                f"In {len(aliased)} batches all {0 if rows is None else len(rows)} rows hold one and the same observation, another one in "
                "each batch.",
                {"batches": len(aliased)},
                where="storing in the memory",
                cause="The memory keeps references to one array that is written over at every step.",
                advice="Store copies: memory.append(obs.copy(), ...).",
            )
        unwritten, batches = _never_written(seen)
        if unwritten:
            return self.finding(
                "fail",
                f"{unwritten:.0%} of the rows of {batches} batches hold one and the same observation, which no environment ever showed.",
                {"batches": batches, "share_of_rows": unwritten},
                where="drawing from the memory",
                cause="Rows are drawn over the whole capacity of the memory, also those that nothing was written to yet.",
                advice="Draw indices below the number of rows stored so far.",
            )
        drawn = _drawn(seen)
        oldest = _no_longer_filled(drawn)
        torn = [loss for loss in drawn if _ahead(loss) < 1 - TORN and _share(loss, ELSEWHERE) > TORN]
        still = [loss for loss in drawn if _ahead(loss) < 1 - MOST and _share(loss, ITSELF) > MOST]
        misplaced = [loss for loss in drawn if _chosen_at_itself(seen, loss)]
        compared = [share for loss in drawn if (share := _other_actions(loss)) is not None]
        later = compared[len(compared) // 2 :]
        figures: dict[str, Any] = {
            "batches": len(drawn),
            "with_next_states_of_other_rows": len(torn),
            "with_the_state_itself_as_the_next": len(still),
            "with_next_actions_chosen_in_the_state_itself": len(misplaced),
            "rows_with_another_action": float(np.mean(compared)) if compared else None,
        }

        if oldest is not None:
            newest, steps = oldest
            return self.finding(
                "fail",
                f"The newest row in the last batches is of environment step {newest}, and {steps} steps have been made: nothing new is "
                "admitted to the memory.",
                {**figures, "newest_row": newest, "environment_steps": steps},
                where="storing in the memory",
                cause="A condition on what is stored is never true any more, or a full memory is not written over.",
                advice="Count what is admitted, and let new rows take the place of the oldest.",
            )

        ends = missing_ends(seen, drawn)
        if ends is not None:
            return self.finding(
                "fail",
                f"None of {ends.rows} rows drawn from the memory is the last step of an episode; about {ends.expected:.0f} of them should be, as "
                "often as episodes end.",
                {**figures, "rows": ends.rows, "last_steps_expected": ends.expected},
                where="storing in the memory",
                cause="The loop is left (break, continue) before the last step of an episode is stored, or a condition keeps it out.",
                advice="Store the transition first, then ask whether the episode is over.",
            )
        units = stored_in_other_units(seen)
        if units is not None:
            return self.finding(
                "fail",
                f"The critic is fitted to actions of up to {units.stored:.3g}, as the environment was given them, and the actor asks it about "
                f"actions of at most {units.asked:.3g}: {units.share:.0%} of the numbers stored are beyond what the actor can say.",
                {**figures, "largest_stored": units.stored, "largest_asked": units.asked},
                where="storing in the memory",
                cause="The action is stored after it was scaled to the environment's bounds, and the actor speaks of -1 to 1.",
                advice="Store the action as the actor gave it, or scale it inside of the actor.",
            )

        def enough(found: list[Loss]) -> bool:
            return len(found) >= max(ENOUGH, TORN * len(drawn))

        if enough(torn):
            return self.finding(
                "fail",
                f"In {len(torn)} of {len(drawn)} batches the next states belong to other rows: they did not follow the states that they "
                "stand beside.",
                figures,
                where="drawing from the memory",
                cause="The columns of the memory are drawn with different indices, written at different places, or shuffled apart.",
                advice="Draw one set of indices and read all columns with it.",
            )
        if enough(still):
            return self.finding(
                "fail",
                f"In {len(still)} of {len(drawn)} batches the next state is the state itself.",
                figures,
                where="storing in the memory",
                cause="obs = next_obs is done before the transition is stored, or one array is stored for both.",
                advice="Store (obs, action, reward, next_obs) first, then go on to next_obs.",
            )
        if enough(misplaced):
            return self.finding(
                "fail",
                f"In {len(misplaced)} of {len(drawn)} batches the action of the next state was chosen in the state itself.",
                figures,
                where="computation of targets",
                cause="The actor is asked with obs where next_obs belongs.",
                advice="Ask the actor for the next observation when the target is made.",
            )
        if len(later) >= ENOUGH and float(np.median(later)) > OTHER_ACTIONS:
            return self.finding(
                "fail",
                f"The critic is given another action than the environment was, in {np.median(later):.0%} of the rows.",
                figures,
                where="storing in the memory",
                cause="The action is stored before noise, scaling or clipping is put on it; or it belongs to another step.",
                advice="Store the action that was given to env.step.",
            )
        if len(drawn) < ENOUGH or not any(_ahead(loss) > MOST for loss in drawn):
            return self.finding("undecided", "What the networks were asked beside the batch is not known.", figures)
        return self.finding(
            "pass", f"The rows of {len(drawn)} batches hold states with the states that followed them.", figures
        )


def _drawn(seen: Seen) -> list[Loss]:
    """Losses with a regression on a batch whose transitions are known, and networks asked beside it."""
    return [
        loss
        for loss in seen.training_losses
        if loss.regressions
        and not loss.policies
        and len(loss.arrays.get("t.row", ())) >= MIN_ROWS
        and loss.cycle not in seen.on_policy_cycles
        and any(f"n{position}.ahead" in loss.arrays for position in range(len(loss.event.silent)))
        and not _repeated(loss)
    ]


def _repeated(loss: Loss) -> bool:
    """Each state stands there several times, for several actions (CQL's penalty, say): then it is not known which rows the loss was made of."""
    names = loss.arrays.get("t.observation")
    return names is not None and len(np.unique(names)) < SINGLE * len(names)


def _aliased(seen: Seen) -> list[Loss]:
    """Batches of one observation only, in a run in which there are many."""
    batches = [
        (loss, rows)
        for loss in seen.training_losses
        if loss.regressions and not loss.policies and loss.cycle not in seen.on_policy_cycles
        if loss.event.transitions_of is not None and (rows := loss.rows) is not None and len(rows) >= 2 * MIN_ROWS
    ]
    if len({int(name) for _, rows in batches for name in rows}) < 2 * MIN_ROWS:
        return []
    same = [loss for loss, rows in batches if len(np.unique(rows)) == 1]
    return same if len(same) > MOST * len(batches) else []


def _never_written(seen: Seen) -> tuple[float, int]:
    """Share of the rows that hold an observation which no environment showed, the same in all batches that have it, and the number of those
    batches. Padding has no gradient, and where no row of a batch is known nobody can tell what was shown."""
    known: set[int] = set()
    shares: dict[int, list[float]] = defaultdict(list)
    batches = 0
    for loss in seen.training_losses:
        place = loss.event.transitions_of
        rows = None if place is None else loss.arrays.get(place)
        regression = next((r for r in loss.regressions if r.gradient is not None), None)
        if rows is None or regression is None or loss.policies or loss.cycle in seen.on_policy_cycles:
            continue
        found = loss.arrays.get("t.row", np.empty(0, int))
        if not len(found) or regression.gradient is None or len(regression.gradient) != len(rows):
            continue
        batches += 1
        known |= set(rows[found].tolist())
        strange = np.ones(len(rows), bool)
        strange[found] = False
        names, counts = np.unique(rows[strange & (regression.gradient != 0)], return_counts=True)
        if len(names) and counts.max() >= FEW_ROWS:
            shares[int(names[counts.argmax()])].append(float(counts.max() / len(rows)))
    name, listed = max(shares.items(), key=lambda each: len(each[1]), default=(0, []))
    if name in known or len(listed) < max(ENOUGH, batches / 2):
        return 0.0, 0
    return float(np.mean(listed)), len(listed)


def _no_longer_filled(drawn: list[Loss]) -> tuple[int, int] | None:
    """The newest row of the last batches, and the environment steps by then, where the row is far behind."""
    last = drawn[-max(2 * ENOUGH, len(drawn) // 4) :]
    if len(last) < 2 * ENOUGH or sum(len(loss.arrays["t.time"]) for loss in last) < MANY_ROWS:
        return None
    if len({loss.event.env_steps for loss in last}) < BY_TURNS * len(last):
        return None  # updates without steps between them: a fixed set of data, with evaluations now and then
    newest = max(int(loss.arrays["t.time"].max()) for loss in last)
    steps = last[0].event.env_steps
    return (newest, steps) if steps - newest > max(FAR_BEHIND, steps / 2) else None


def _asked(loss: Loss) -> dict[int, Array]:
    """Silent call -> by how many steps its rows lie ahead."""
    return {
        position: loss.arrays[f"n{position}.ahead"]
        for position in range(len(loss.event.silent))
        if len(loss.arrays.get(f"n{position}.ahead", ())) >= MIN_ROWS
    }


def _ahead(loss: Loss) -> float:
    """Of the calls, the largest share of rows that lie ahead."""
    return max((float((steps >= 0).mean()) for steps in _asked(loss).values()), default=0.0)


def _share(loss: Loss, where: int) -> float:
    return max((float((steps == where).mean()) for steps in _asked(loss).values()), default=0.0)


def _chosen_at_itself(seen: Seen, loss: Loss) -> bool:
    """A critic that takes actions was asked about next states, and whoever chooses actions only about the states themselves."""
    if not any(key.endswith(".action") and key[0] == "c" for key in loss.arrays):
        return False
    outputs = {position: loss.arrays.get(f"n{position}.output") for position in _asked(loss)}
    answers = {position: output for position, output in outputs.items() if output is not None and output.ndim > 0}
    of_one_number = {
        position for position, output in answers.items() if output.size == len(output) or is_stacked(output.shape)
    }
    critics = _critics(seen, loss)
    known = {
        position
        for position in of_one_number
        if any(related(str(loss.event.silent[position].get("module")), name) for name in critics)
    }
    choosers: list[float] = []
    ahead = False
    for position in answers:
        steps = loss.arrays[f"n{position}.ahead"]
        if position in (known or of_one_number):
            ahead |= float((steps >= 0).mean()) > MOST
        else:
            choosers.append(float((steps >= 0).mean()) - float((steps == ITSELF).mean()))
    return ahead and bool(choosers) and max(choosers) < -MOST


def _critics(seen: Seen, loss: Loss) -> set[str]:
    """The networks that the loss fits, and those that follow them: an actor of one action says one number for each row too."""
    fitted = {regression.module for regression in loss.regressions if regression.module}
    following = {
        follower.name + name.removeprefix(follower.met.leader)
        for follower in seen.followers
        for name in fitted
        if name == follower.met.leader or name.startswith(follower.met.leader + ".")
    }
    return fitted | following


def _other_actions(loss: Loss) -> float | None:
    """Share of the rows in which the regressed critic was given another action than the environment, up to the scale of each
    column; rows at the edge of what the environment was given may have been clipped. Where states come again, two visits may
    have gone the same way by different whole numbers, but not by different forces."""
    rows, done = loss.arrays["t.row"], loss.arrays.get("t.action")
    if "t.repeats" in loss.arrays and (done is None or np.array_equal(done, np.round(done))):
        return None
    for regression in loss.regressions:
        given = None if regression.call is None else loss.arrays.get(f"c{regression.call}.action")
        if given is None or done is None or given.ndim != 2 or given.shape[1] != done.shape[1]:
            continue
        if len(given) <= int(rows.max()):
            continue
        real = _went_as_asked(loss, len(rows))
        return _unlike(given[rows][real].astype(np.float64), done[real].astype(np.float64))
    return None


def _went_as_asked(loss: Loss, count: int) -> Array:
    """Rows whose next state is asked about as the environment returned it; all where nobody is asked about next states. A model may imagine
    what another action leads to from a state that was really there."""
    asked = [steps >= 0 for steps in _asked(loss).values() if len(steps) == count]
    ahead = [each for each in asked if each.any()]
    return np.any(ahead, axis=0) if ahead else np.ones(count, bool)


def _unlike(given: Array, done: Array) -> float | None:
    inside = ((done > done.min(axis=0)) & (done < done.max(axis=0))).all(axis=1)
    if inside.sum() < MIN_ROWS:
        return None
    given, done = given[inside], done[inside]
    unlike = np.zeros(len(given), bool)
    for column in range(given.shape[1]):
        x, y = done[:, column], given[:, column]
        size = max(float(np.abs(y).max()), 1e-6)
        plain = np.abs(y - x) > 1e-4 * size
        slope, shift = _line(x, y)
        unlike |= plain & (np.abs(y - slope * x - shift) > 1e-4 * size)
    return float(unlike.mean())


def _line(x: Array, y: Array) -> tuple[float, float]:
    """Through the medians of pairs of rows: most of the rows decide, whatever the others are."""
    apart = np.abs(x[:, None] - x[None, :]) > 1e-6
    if not apart.any():
        return 1.0, 0.0
    first, second = np.nonzero(apart)
    slope = float(np.median((y[first] - y[second]) / (x[first] - x[second])))
    return slope, float(np.median(y - slope * x))
