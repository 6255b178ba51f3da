"""Rows of a replay memory against what the environment did: true ones pass, each way to spoil them is named."""

import numpy as np
import pytest
from made_losses import follows, made_loss, made_view

from learnproof.proof.seen.losses import Loss, Regression
from learnproof.proof.watched.memory import ELSEWHERE, ITSELF, MemoryTrue, _unlike

ROWS = 32
UNKNOWN_NEXT = -9


def drawn(update: int, spoil=None, gradient=None, silent=(("target_actor", 2), ("target", 1))) -> Loss:
    """A batch of a critic that takes actions, drawn from all steps so far."""
    rng = np.random.default_rng(update)
    steps = 4_000 + 10 * update
    action = rng.uniform(-1, 1, (ROWS, 2)).astype(np.float32)
    rows = rng.integers(1, 2**60, ROWS).astype(np.uint64)
    arrays = {
        "t.row": np.arange(ROWS),
        "t.time": rng.integers(0, steps, ROWS),
        "t.action": action,
        "c0.rows": rows,
        "c0.action": action.copy(),
        **{f"n{i}.ahead": np.zeros(ROWS, np.int64) for i in range(len(silent))},
        **{f"n{i}.output": rng.normal(size=(ROWS, width)).astype(np.float32) for i, (_, width) in enumerate(silent)},
    }
    if spoil is not None:
        spoil(arrays, rng)
    asked = [{"module": name, "shape": [ROWS, width]} for name, width in silent]
    loss = made_loss(arrays, update, steps, silent=asked)
    numbers = np.zeros(ROWS)
    loss.__dict__["policies"] = []
    loss.__dict__["regressions"] = [Regression(numbers, numbers, gradient, rows, None, "q", 0, (0,), True)]
    return loss


def finding(spoil=None, following=(("target", "q"),), **options):
    """`following` are networks with the fitted ones that they follow. How targets were made is another check's question."""
    losses = [drawn(update, spoil, **options) for update in range(80)]
    followers = [follows(name, leader) for name, leader in following]
    return MemoryTrue().look(made_view(losses, followers=followers, notes={"bootstraps": []}))


def test_true_rows_pass():
    assert finding().status == "pass"


def asked_for_many_actions(arrays, rng):
    """As CQL's penalty does: eight states, each for four actions, so that the rows are not those of the memory's draw."""
    arrays["t.observation"] = np.repeat(rng.integers(1, 2**60, ROWS // 4), 4).astype(np.uint64)


def of_single_states(arrays, rng):
    arrays["t.observation"] = rng.integers(1, 2**60, ROWS).astype(np.uint64)


@pytest.mark.parametrize(("states", "status"), [(of_single_states, "fail"), (asked_for_many_actions, "undecided")])
def test_states_that_stand_there_for_several_actions_are_no_rows_of_a_memory(states, status):
    def spoil(arrays, rng):
        stays(arrays, rng)
        states(arrays, rng)

    assert finding(spoil).status == status


def torn(arrays, rng):
    for key in ("n0.ahead", "n1.ahead"):
        arrays[key][:] = np.where(rng.random(ROWS) < 0.9, ELSEWHERE, 3)


def stays(arrays, rng):
    arrays["n0.ahead"][:] = arrays["n1.ahead"][:] = ITSELF


def actor_at_itself(arrays, rng):
    arrays["n0.ahead"][:] = ITSELF


def without_noise(arrays, rng):
    arrays["c0.action"] = arrays["c0.action"] + rng.normal(0, 0.1, (ROWS, 2)).astype(np.float32)


def one_array(arrays, rng):
    arrays["c0.rows"][:] = arrays["c0.rows"][0]


def no_longer_filled(arrays, rng):
    arrays["t.time"] = rng.integers(0, 1_500, ROWS)


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (torn, "belong to other rows"),
        (stays, "the state itself"),
        (actor_at_itself, "chosen in the state itself"),
        (without_noise, "another action than the environment"),
        (one_array, "one and the same observation"),
        (no_longer_filled, "nothing new"),
    ],
)
def test_each_way_to_spoil_them_is_named(spoil, says):
    found = finding(spoil)
    assert found.status == "fail"
    assert says in found.summary
    assert found.cause
    assert found.advice


def known_in_part(arrays, rng):
    for name in ("t.row", "t.time", "t.action"):
        arrays[name] = arrays[name][: ROWS // 4]


def unwritten(arrays, rng):
    known_in_part(arrays, rng)
    arrays["c0.rows"][ROWS // 4 :] = 77


def test_rows_that_were_never_written_are_named_unless_nothing_is_learnt_from_them():
    found = finding(unwritten, gradient=np.ones(ROWS))
    assert found.status == "fail"
    assert "no environment ever showed" in found.summary
    padding = np.where(np.arange(ROWS) < ROWS // 4, 1.0, 0.0)
    assert finding(unwritten, gradient=padding).status != "fail"


def test_strange_rows_of_many_kinds_are_no_fault():
    assert finding(known_in_part, gradient=np.ones(ROWS)).status != "fail"


def test_several_steps_ahead_is_no_fault():
    def several(arrays, rng):
        arrays["n0.ahead"][:] = arrays["n1.ahead"][:] = 2

    assert finding(several).status == "pass"


def test_an_actor_that_is_also_asked_about_the_state_itself_is_no_fault():
    def both(arrays, rng):
        arrays["n2.ahead"][:] = ITSELF

    silent = (("target_actor", 2), ("target", 1), ("actor", 2))
    assert finding(both, silent=silent).status == "pass"


ONE_ACTION = (("target_actor", 1), ("target", 1))


def test_an_actor_of_one_action_that_is_asked_about_the_state_itself_is_named():
    found = finding(actor_at_itself, silent=ONE_ACTION)
    assert found.status == "fail"
    assert "chosen in the state itself" in found.summary


def test_an_actor_of_one_action_that_is_asked_about_the_next_state_is_no_fault():
    assert finding(silent=ONE_ACTION).status == "pass"


@pytest.mark.parametrize(
    ("silent", "following"),
    [
        ((("target_actor", 1), ("target.0", 1)), (("target", "q"),)),  # a part of the follower answers
        ((("target_actor", 1), ("targets", 1)), (("targets.0", "q"),)),  # the follower is a part of what answers
        ((("target_actor", 2), ("target", 1)), ()),  # nobody knows whom the critic that is asked follows
    ],
)
def test_the_critic_is_told_from_the_actor_however_its_networks_are_put_together(silent, following):
    assert "chosen in the state itself" in finding(actor_at_itself, silent=silent, following=following).summary
    assert finding(silent=silent, following=following).status == "pass"


def test_where_no_critic_is_known_an_answer_of_one_number_is_no_actors():
    assert finding(actor_at_itself, silent=ONE_ACTION, following=()).status == "pass"


def test_rows_that_nobody_can_place_are_undecided():
    def disturbed(arrays, rng):
        arrays["n0.ahead"][:] = arrays["n1.ahead"][:] = -3

    assert finding(disturbed).status == "undecided"


@pytest.fixture
def done():
    return np.random.default_rng(0).uniform(-1, 1, (64, 2))


def test_the_same_action_and_one_on_another_scale_are_alike(done):
    assert _unlike(done, done) == 0
    assert _unlike(done * [2.0, 0.5] + [0.1, 0.0], done) == 0
    assert _unlike(done.astype(np.float32).astype(float), done) == 0


def test_an_action_before_its_noise_is_not(done):
    noise = np.random.default_rng(1).normal(0, 0.1, done.shape)
    assert _unlike(done + noise, done) > 0.95
    half = np.where(np.arange(64)[:, None] % 2 == 0, done, done + noise)
    assert 0.3 < _unlike(half, done) < 0.6


def test_actions_of_other_rows_are_not(done):
    assert _unlike(np.random.default_rng(2).permutation(done), done) > 0.9


def test_rows_at_the_edge_may_have_been_clipped(done):
    given = done * 2
    assert _unlike(given, np.clip(given, -1, 1)) < 0.2
    assert _unlike(np.ones((64, 1)), np.ones((64, 1))) is None


def test_what_a_model_imagines_from_real_states_is_no_row_of_the_memory():
    """In three rows of four another action than the one taken, and a next state that no environment returned."""

    def imagined(arrays, rng):
        made_up = np.arange(ROWS) % 4 != 0
        arrays["c0.action"][made_up] = rng.uniform(-1, 1, (int(made_up.sum()), 2))
        for name in ("n0.ahead", "n1.ahead"):
            arrays[name] = np.where(made_up, UNKNOWN_NEXT, 0)

    assert "another action" not in finding(imagined).summary
    assert finding(imagined).status != "fail"
