"""Target networks by how they move: usual ones pass, each way to leave one behind is named."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from learnproof.evidence.watched import FollowerMoved, FollowerSeen, FollowerTotals
from learnproof.proof.seen.view import Follower, _is_part_of
from learnproof.proof.watched.lineage import TargetNetworks

STEPS = 4_000


def follower(name: str, share: float, every: int, index: int = 0, **totals) -> Follower:
    """One that goes `share` of the way to its leader after every `every` of STEPS steps."""
    rng = np.random.default_rng(index)
    own, leader = np.zeros(8), np.zeros(8)
    moves = []
    for step in range(1, STEPS + 1):
        leader = leader + rng.normal(0, 0.01, 8)
        if every and step % every == 0:
            after = own + share * (leader - own)
            if len(moves) < 64:
                moves.append(
                    FollowerMoved(
                        follower=index, update=step, before=own.tolist(), after=after.tolist(),
                        leader_before=leader.tolist(), leader_after=leader.tolist(),
                    )
                )  # fmt: skip
            own = after
    met = FollowerSeen(
        index=index, update=0, name=name, leader=name.removesuffix("_target"), tensors=6, shared=0, equal=True,
        follower=[0.0] * 8, leader_now=[0.0] * 8,
    )  # fmt: skip
    counted = FollowerTotals(
        index=index,
        steps=STEPS,
        moves=STEPS // every if every else 0,
        last_move=STEPS,
        shared=0,
        equal=False,
        looks=100,
    )
    return Follower(met, met, moves, replace(counted, **totals))


def view(*followers: Follower, distilled: bool = False):
    silent = [{"module": each.name} for each in followers]
    drawn_to = SimpleNamespace(target=np.arange(8.0))
    arrays = {"n0.output": np.arange(8.0)[:, None] + (0 if distilled else 1)}
    loss = SimpleNamespace(
        event=SimpleNamespace(transitions_of="c0.rows", silent=silent), regressions=[drawn_to], arrays=arrays
    )
    seen = SimpleNamespace(
        followers=list(followers), training_losses=[loss] * 4, totals=SimpleNamespace(env_steps=STEPS), process=0,
        notes={"actor_losses": [], "bootstraps": []}, trained_under=lambda words: {},
    )  # fmt: skip
    return seen


def valued_by(*networks: str) -> list[SimpleNamespace]:
    return [SimpleNamespace(explanations=[SimpleNamespace(networks=networks)]) for _ in range(12)]


def test_a_target_that_is_the_network_itself_is_named():
    seen = view()
    seen.trained_under = lambda words: {"target_net": "agent.net"} if "target" in words else {}
    seen.notes["bootstraps"] = valued_by("agent.net")
    found = TargetNetworks().look(seen)
    assert found.status == "fail"
    assert "target_net is agent.net itself" in found.summary


def test_two_targets_that_are_the_critics_themselves_are_named():
    seen = view(follower("actor_target", 0.005, 1))
    seen.trained_under = lambda words: {"q1_target": "q1", "q2_target": "q2"}
    seen.notes["bootstraps"] = valued_by("q1", "q2")
    found = TargetNetworks().look(seen)
    assert found.status == "fail"
    assert "q1_target is q1 itself" in found.summary


@pytest.mark.parametrize("networks", [("target",), ("agent.net", "target")])
def test_a_name_alone_accuses_nobody(networks):
    """A policy that is called the target policy, say, while another network values the future."""
    seen = view(follower("target", 1.0, 250))
    seen.trained_under = lambda words: {"target_policy": "agent.net"}
    seen.notes["bootstraps"] = valued_by(*networks)
    assert TargetNetworks().look(seen).status == "pass"


def test_beside_an_actor_a_target_must_move_sooner():
    seen = view(follower("critic_target", 0.0, 0))
    assert TargetNetworks().look(seen).status == "undecided"
    seen.notes["actor_losses"] = [(None, -1.0)] * 8
    assert TargetNetworks().look(seen).status == "fail"


def finding(*followers: Follower):
    return TargetNetworks().look(view(*followers))


@pytest.mark.parametrize(("share", "every"), [(0.005, 1), (0.005, 2), (1.0, 500), (0.05, 100), (1.0, 3_000)])
def test_usual_ways_to_follow_pass(share, every):
    assert finding(follower("q_target", share, every)).status == "pass"


def test_running_statistics_that_follow_too_pass():
    assert finding(follower("q_target", 0.005, 1, statistics=[True, True])).status == "pass"


@pytest.mark.parametrize(
    ("followers", "says"),
    [
        ([follower("q_target", 0.005, 200)], "hardly left"),
        ([follower("q_target", 0.995, 1)], "does not lag"),
        ([follower("q_target", 1.0, 1)], "never lags"),
        ([follower("q_target", 0.0, 0, pulls=98)], "drawn to its target"),
        ([follower("q_target", 0.005, 1), follower("actor_target", 0.0, 0, 1)], "though q_target did"),
        ([follower("q_target", 0.005, 1, statistics=[False, True])], "running statistics"),
    ],
)
def test_each_way_to_leave_one_behind_is_named(followers, says):
    found = finding(*followers)
    assert found.status == "fail"
    assert says in found.summary
    assert found.cause
    assert found.advice


def test_one_that_was_let_go_before_it_could_move_accuses_nobody():
    """A run that goes on from a checkpoint makes its networks anew; the old ones may be met once more on their way out."""
    gone = follower("old_target", 0.0, 0, 1, steps=0)
    assert finding(follower("q_target", 0.005, 1), gone).status == "pass"
    seldom = follower("q_target", 1.0, 150)
    assert finding(seldom, follower("actor_target", 0.0, 0, 1, steps=2_000)).status != "fail"


def test_a_target_that_has_not_moved_yet_is_undecided():
    assert finding(follower("q_target", 0.0, 0)).status == "undecided"


def test_a_network_that_is_distilled_may_stand_still():
    still = follower("rnd_target", 0.0, 0)
    assert not TargetNetworks().lacks(view(still))
    assert TargetNetworks().lacks(view(still, distilled=True))


def shallow(name: str) -> Follower:
    copied = follower(name, 0.005, 1)
    return replace(copied, met=replace(copied.met, shared=6), storage=replace(copied.storage, shared=6))


def test_a_shallow_copy_is_named_unless_another_target_is_asked():
    found = finding(shallow("q_target"))
    assert found.status == "fail"
    assert "shares 6 of its 6" in found.summary
    assert finding(shallow("q_seen"), follower("q_target", 0.005, 1)).status == "pass"


@pytest.mark.parametrize(
    ("update", "apart", "status"), [(0, 1e-3, "fail"), (1, 1e-3, "pass"), (1, 1.5, "fail"), (2, 1.5, "pass")]
)
def test_a_target_met_after_the_first_step_may_lag_by_that_step(update, apart, status):
    usual = follower("critic_target", 0.01, 1)
    own = np.random.default_rng(0).normal(size=8)
    met = replace(usual.met, update=update, equal=False, follower=own.tolist(), leader_now=(own * (1 + apart)).tolist())
    assert TargetNetworks().look(view(replace(usual, met=met, storage=met))).status == status


def test_parts_of_a_network_that_follows_are_no_followers_of_their_own():
    met = follower("critic_target", 0.01, 1).met
    part = replace(met, index=1, update=1, name="critic_target.layer1", leader="critic.layer1")
    other = replace(met, index=2, update=1, name="critic_target.layer2", leader="actor.layer2")
    assert _is_part_of(part, met)
    assert not _is_part_of(other, met)
    assert not _is_part_of(met, part)
    assert not _is_part_of(met, met)


@pytest.mark.parametrize(
    ("totals", "status"),
    [
        ({"asked": STEPS}, "fail"),
        ({"asked": 8}, "undecided"),  # saved now and then
        ({"asked": 500, "steps": 500}, "undecided"),
    ],
)
def test_weights_that_are_asked_for_at_every_step_and_never_move_were_meant_to(totals, status):
    found = TargetNetworks().look(view(follower("q_target", 0.0, 0, **totals)))
    assert found.status == status


def test_a_target_that_is_asked_for_at_every_step_and_copied_seldom_passes():
    assert TargetNetworks().look(view(follower("q_target", 1.0, 250, asked=STEPS))).status == "pass"
