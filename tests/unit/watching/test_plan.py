"""When windows open: dense at first, spread over the whole run, never more than their share."""

from learnproof.watching.plan import AFFORDABLE_NODES, Plan


def windows(cycles, long):
    plan = Plan()
    return [cycle for cycle in range(cycles) if plan.opens(cycle, long)]


def test_the_first_cycles_are_all_seen():
    assert windows(9, long=True) == [0, 1, 2, 3, 5, 8]
    assert windows(16, long=False) == list(range(16))


def test_long_runs_are_seen_to_their_end_at_a_falling_rate():
    for long in (True, False):
        seen = windows(1_000_000, long)
        assert seen[-1] > 900_000
        assert len(seen) < 700
        late = [cycle for cycle in seen if cycle > 500_000]
        assert len(late) >= 16


def test_what_happens_every_second_or_third_cycle_falls_into_some_windows():
    for long in (True, False):
        seen = windows(2_000, long)
        for period in (2, 3, 4):
            counts = [sum(cycle % period == place for cycle in seen) for place in range(period)]
            assert min(counts) >= len(seen) // (4 * period)


def test_measured_steps_are_dense_then_spread():
    plan = Plan()
    recorded = [update for update in range(1_000_000) if plan.records(update)]
    assert recorded[:64] == list(range(64))
    assert 300 < len(recorded) < 600
    assert recorded[-1] > 900_000


def test_a_large_graph_stretches_the_spacing_and_a_small_one_does_not():
    plan = Plan()
    plan.seen_graph(AFFORDABLE_NODES)
    assert plan.stretch == 1
    plan.seen_graph(4 * AFFORDABLE_NODES)
    assert plan.stretch == 4
    assert sum(plan.opens(cycle, False) for cycle in range(10_000)) < 70
