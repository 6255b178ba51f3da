"""The last steps of episodes are rare in a memory: batches are looked through for them until enough were read."""

from types import SimpleNamespace

import numpy as np
import pytest

from learnproof.watching.seeking import CYCLES_IN_A_ROW, MOST_READ, ONE_IN, WANTED, Seeking

DUE = CYCLES_IN_A_ROW * ONE_IN
LAST, OTHER = 77, 5


class Calls:
    """Of a network that was asked about these rows since the last step."""

    def __init__(self, rows: list[int]) -> None:
        self.open = False
        entry = SimpleNamespace(rows=lambda numpy: np.array(rows, np.uint64))
        self.graded = [SimpleNamespace(entry=entry, update=9, output=Answers((len(rows), 2)))]

    def begin_seeking(self) -> bool:
        self.open = True
        return True

    def end_seeking(self) -> None:
        self.open = False

    def forget(self) -> None:
        self.open = True


class Answers(np.ndarray):
    def dim(self) -> int:
        return self.ndim


def seeking(rows: list[int], cycle: int = DUE, cut: bool = True, **about: bool) -> Seeking:
    last_of = {"ended": {}, "cut": {LAST: None} if cut else {}}
    environments = SimpleNamespace(journal=SimpleNamespace(transitions=SimpleNamespace(last_of=last_of)))
    session = SimpleNamespace(
        senses={"calls": Calls(rows), "environments": environments}, window=False, long_lately=False, numpy=np, cycle=cycle,
        updates=9,
    )  # fmt: skip
    session.__dict__.update(about)
    found = Seeking(session)
    found.cycle_begins()
    return found


def test_a_batch_with_the_last_row_of_a_cut_episode_is_found():
    assert seeking([OTHER, LAST]).finds()
    assert not seeking([OTHER, OTHER + 1]).finds()


@pytest.mark.parametrize(
    "never",
    [
        {"cut": False},
        {"cycle": DUE - 1},
        {"cycle": 0},
        {"window": True},
        {"long_lately": True},
    ],
)
def test_nothing_is_kept_where_nothing_is_sought(never):
    found = seeking([OTHER, LAST], **never)
    assert not found.active
    assert not found.session.senses["calls"].open


def test_it_ends_when_enough_was_seen():
    found = seeking([OTHER, LAST])
    assert found.active
    found.saw(ended=0, cut=WANTED)
    assert not found.finds()
    found.cycle_begins()
    assert not found.active
    assert not found.session.senses["calls"].open


def test_it_ends_where_what_is_found_shows_nothing():
    found = seeking([OTHER, LAST])
    assert sum(found.finds() for _ in range(2 * MOST_READ)) == MOST_READ
    found.cycle_begins()
    assert not found.active
