"""When to look closely: decided by counts alone, so that two equal runs are looked at alike.

A *cycle* is what a training loop repeats: some environment steps, then some optimizer steps. On-policy cycles are long (a
rollout, then its updates), off-policy ones short (a step or a few, then an update or a few); a loop without an environment
has cycles of one optimizer step. A *window* is one cycle, seen with everything switched on.

    long cycles     windows at 0, 1, 2, 3, 5, 8, 13, 21, then every 32nd; in each, the first 40 updates are inspected
    short cycles    the first 16, then every 64th; all updates in it
                    (a long one too, where its batches turn out to be drawn from a memory: updates in bursts)
    no environment  the first 16 updates, then every 16th: they are few and dear, and nothing else tells of them

Every 32nd is not always the same of the 32: the place moves on by one each time, so that what a loop does every second, third or
fourth cycle (an actor that is trained less often than its critic) falls into some windows and not into others.

From the 32nd window of a kind on, the spacing doubles with every doubling of the count of cycles, so that a run of any
length has its windows spread over all of it.

The cost of a window is known in units that do not depend on the machine: nodes of the graph walked and numbers copied. Where
one update costs more than its share (a graph of thousands of nodes), the spacing doubles until it fits.
"""

from __future__ import annotations

LONG_CYCLE_STEPS = 16
"""Environment steps from which a cycle counts as long."""
LONG_SPACING = 32
LONG_FIRST = (0, 1, 2, 3, 5, 8, 13, 21)
SHORT_FIRST = 16
SHORT_SPACING = 64
ALONE_SPACING = 16
UPDATES_PER_WINDOW = 40
WINDOWS_PER_OCTAVE = 32
PLACES = 5
AFFORDABLE_NODES = 2_000
"""Graph nodes of one update that the spacing above allows for; twice as many double it."""


class Plan:
    def __init__(self) -> None:
        self.stretch = 1
        """Factor on the spacing, a power of two; grows where inspection is dear."""

    def opens(self, cycle: int, long: bool, alone: bool = False) -> bool:
        """`alone`: no environment has been stepped."""
        spacing = (LONG_SPACING if long else ALONE_SPACING if alone else SHORT_SPACING) * self.stretch
        spacing <<= (cycle // (spacing * WINDOWS_PER_OCTAVE)).bit_length()
        if cycle < spacing:
            return cycle in LONG_FIRST if long else cycle < SHORT_FIRST
        return cycle % spacing == (cycle // spacing) % PLACES

    def records(self, update: int) -> bool:
        """Whether a step outside of windows is measured: each of the first 64, then 32 in every doubling."""
        return update % (self.stretch << (update // 64).bit_length()) == 0

    def seen_graph(self, nodes: int) -> None:
        while nodes > AFFORDABLE_NODES * self.stretch and self.stretch < 1024:
            self.stretch *= 2
