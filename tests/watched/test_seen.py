"""What the watcher must have seen of each healthy script: counts as the script made them, and the losses as written."""

from collections import defaultdict
from functools import cache

import numpy as np
import pytest
from watched_runs import NAMES, batch_of, debug_text, evidence_of, losses_with_batches, watched

from learnproof.evidence.watched import (
    EnvironmentSeen,
    EnvironmentTotals,
    FollowerMoved,
    FollowerSeen,
    FollowerStorage,
    FollowerTotals,
    LossSeen,
    ModuleSeen,
    OptimizerSeen,
    OptimizerStep,
    OptimizerTotals,
    Reach,
    SchedulerSeen,
    Watched,
)

pytestmark = pytest.mark.slow

OPTIMIZERS = {
    "ppo_clean": ["Adam"],
    "a2c_classes": ["RMSprop", "Adam"],
    "dqn_functions": ["Adam"],
    "dqn_polyak": ["Adam"],
    "sac": ["Adam", "Adam", "Adam"],
    "reinforce": ["Adam"],
    "transformer_pg": ["AdamW"],
    "sb3_ppo": ["Adam"],
    "sb3_sac": ["Adam", "Adam", "Adam"],
    "supervised": ["SGD"],
    "ppo_continuous_native": ["Adam"],
}
ENVIRONMENTS = {
    "ppo_clean": ("CartPole-v1", 4, "next_step"),  # a vector that was made of functions carries no spec
    "a2c_classes": ("CartPole-v1", 1, None),
    "dqn_functions": ("CartPole-v1", 1, None),
    "dqn_polyak": ("CartPole-v1", 1, None),
    "sac": ("Pendulum-v1", 1, None),
    "reinforce": ("CartPole-v1", 1, None),
    "ppo_continuous_native": ("Pendulum-v1", 4, "same_step"),
}
FOLLOWERS = {
    "dqn_functions": {"target": "qnet"},
    "dqn_polyak": {"target": "online"},
    "sac": {"q1_target": "q1", "q2_target": "q2"},
    "sb3_sac": {"critic_target": "critic"},
    "transformer_pg": {"reference": "model"},
}
ON_POLICY = ("ppo_clean", "ppo_continuous_native", "sb3_ppo", "a2c_classes", "reinforce")
PPO = ("ppo_clean", "ppo_continuous_native", "sb3_ppo")
OFF_POLICY = ("dqn_functions", "dqn_polyak", "sac", "sb3_sac")
WITHOUT_ENVIRONMENT = ("transformer_pg", "supervised")
SETTLED_CYCLE = 3
"""From here on it is known whether cycles are long or short; the first ones may be guessed wrongly."""


def seen(script, kind):
    return evidence_of(script).of(kind)


def facts_of(script):
    return watched(script).facts


def totals_of(script):
    """The last words; earlier ones are said for runs that never come to them."""
    return seen(script, Watched)[-1]


def optimizers(script):
    """The first introduction of each optimizer, by index."""
    first = {}
    for event in seen(script, OptimizerSeen):
        first.setdefault(event.index, event)
    return [first[index] for index in sorted(first)]


def reached(script, index):
    return set(next(reach.parameters for reach in seen(script, Reach) if reach.index == index))


def tops(loss):
    """(outermost node, coefficient) of each term."""
    return [(term["structure"][0], term["coefficient"]) for term in loss.terms]


def coefficient_of(loss, node, reductions=None):
    found = [
        term["coefficient"]
        for term in loss.terms
        if term["structure"][0] == node and (reductions is None or term["reductions"] == reductions)
    ]
    assert len(found) == 1, tops(loss)
    return found[0]


def term_of(loss, node):
    return next(term for term in loss.terms if term["structure"][0] == node)


def constants(loss, batch, role):
    return [batch[f"k{i}"] for i, constant in enumerate(loss.constants) if constant["role"] == role]


def read_losses(script):
    """Losses whose batch was kept, with it."""
    found = losses_with_batches(evidence_of(script))
    assert found, "no loss was kept with its batch"
    return found


def losses_that_reach(script, *prefixes):
    """Losses that reach, of all that some loss reaches, exactly the parameters under these names."""
    wanted = {
        name
        for reach in seen(script, Reach)
        for name in reach.parameters
        if any(f".{prefix}." in f".{name}." for prefix in prefixes)
    }
    found = [(loss, batch) for loss, batch in read_losses(script) if wanted]
    return [(loss, batch) for loss, batch in found if reached(script, loss.reach) == wanted]


@cache
def rows_met(script):
    """Identities of all rows that an environment gave or that a network was silently asked about."""
    met = set()
    evidence = evidence_of(script)
    for kind in ("transitions", "calls"):
        for sample in evidence.samples(kind):
            for name, array in sample.arrays.items():
                if name in ("observation", "next_observation", "final_observation") or name.endswith(".rows"):
                    met.update(array.tolist())
    for _, batch in read_losses(script):
        met.update(batch.get("t.observation", np.zeros(0)).tolist())
    return met


def share_met(script, rows):
    met = rows_met(script)
    return np.mean([row in met for row in rows.tolist()])


# ---------------------------------------------------------------------- of every script


@pytest.mark.parametrize("script", NAMES)
def test_the_watcher_stayed_well(script):
    totals = totals_of(script)
    assert totals.errors == {}, debug_text(script)
    assert totals.shut == {}
    assert totals.dropped_events == 0
    not_seen = ["environment"] if script in WITHOUT_ENVIRONMENT else []
    assert [event.what for event in evidence_of(script).not_seen] == not_seen
    assert evidence_of(script).stopped is not None


@pytest.mark.parametrize("script", NAMES)
def test_optimizers_are_met_with_what_they_own(script):
    met, facts = optimizers(script), facts_of(script)
    assert [optimizer.kind for optimizer in met] == OPTIMIZERS[script]
    assert [optimizer.n_owned for optimizer in met] == list(facts["owned"].values())
    for optimizer in met:
        assert len(optimizer.owns) == len(set(optimizer.owns)) == optimizer.n_owned


@pytest.mark.parametrize("script", NAMES)
def test_every_optimizer_step_is_counted(script):
    facts = facts_of(script)
    counted = {totals.optimizer: totals.steps for totals in seen(script, OptimizerTotals)}
    assert counted == dict(enumerate(facts["optimizer_steps"].values()))
    assert all(totals.without_backward == 0 for totals in seen(script, OptimizerTotals))
    whole = totals_of(script)
    assert whole.updates == sum(facts["optimizer_steps"].values())
    assert whole.backwards == facts.get("backwards", whole.updates)


@pytest.mark.parametrize("script", NAMES)
def test_the_last_learning_rate_is_the_scripts(script):
    last = {step.optimizer: step for step in seen(script, OptimizerStep)}
    for totals, rate in zip(seen(script, OptimizerTotals), facts_of(script)["learning_rate"].values(), strict=True):
        assert totals.rate_lowest == pytest.approx(rate, rel=1e-6)
        assert last[totals.optimizer].learning_rates[0] >= totals.rate_lowest * (1 - 1e-6)


@pytest.mark.parametrize("script", NAMES)
def test_measured_steps_go_down_a_freshly_cleared_gradient(script):
    steps = seen(script, OptimizerStep)
    assert len(steps) >= 60
    assert all(step.cleared == 1 for step in steps)
    assert all(step.backwards >= 1 for step in steps)
    assert all(step.without_gradient == [] for step in steps)
    assert all(step.grad_norm > 0 and step.step_sum > 0 for step in steps)
    assert np.mean([step.descent < 0 for step in steps]) > 0.6


@pytest.mark.parametrize("script", NAMES)
def test_losses_are_read_without_a_false_alarm(script):
    losses = seen(script, LossSeen)
    assert len(losses) >= 8
    for loss in losses:
        assert loss.accumulates
        assert loss.shape == [[]]
        assert not loss.truncated
        assert not loss.compiled
        assert loss.broadcasts == []
        assert loss.both_sides == []
        assert loss.n_terms == len(loss.terms)


@pytest.mark.parametrize("script", NAMES)
def test_the_first_loss_of_every_window_keeps_its_batch(script):
    """A window has a budget of bytes; what no longer fits comes later in it."""
    first = {}
    for loss in seen(script, LossSeen):
        first.setdefault(loss.cycle, loss)
    assert [cycle for cycle, loss in first.items() if loss.file is None] == []


@pytest.mark.parametrize("script", NAMES)
def test_gradients_were_cleared_before_each_loss(script):
    accumulate = facts_of(script).get("accumulate", 1)
    by_update = defaultdict(list)
    for loss in seen(script, LossSeen):
        by_update[loss.update].append(loss.gradient_before)
    owned_by_others = {"sac", "sb3_sac"}  # the actor's loss leaves gradients in the critics, cleared only by their own
    for before in by_update.values():
        assert len(before) == accumulate
        assert before[0] == 0 or script in owned_by_others
        assert all(held > 0 for held in before[1:])


@pytest.mark.parametrize("script", NAMES)
def test_each_optimizer_has_a_loss_that_reaches_all_it_owns(script):
    sets = [set(reach.parameters) for reach in seen(script, Reach)]
    for optimizer in optimizers(script):
        assert any(set(optimizer.owns) <= reach for reach in sets)
    everything = {name for optimizer in optimizers(script) for name in optimizer.owns}
    assert set.union(*sets) == everything


@pytest.mark.parametrize("script", NAMES)
def test_episodes_and_returns_are_the_scripts(script):
    facts, episodes = facts_of(script), evidence_of(script).episodes
    assert len(episodes) == facts["episodes"]
    np.testing.assert_allclose([e.return_ for e in episodes], facts["episode_returns"], rtol=0, atol=1e-4)
    assert totals_of(script).env_steps == facts["env_steps"]
    assert sum(environment.steps for environment in seen(script, EnvironmentTotals)) == facts["env_steps"]
    assert sum(environment.episodes for environment in seen(script, EnvironmentTotals)) == facts["episodes"]


@pytest.mark.parametrize("script", NAMES)
def test_only_time_limits_end_pendulum_and_only_falls_end_short_cartpoles(script):
    for episode in evidence_of(script).episodes:
        if script in ("sac", "sb3_sac", "ppo_continuous_native"):
            assert (episode.length, episode.terminated) == (200, False)
        else:
            assert episode.length == episode.return_
            assert episode.terminated == (episode.length < 500)


@pytest.mark.parametrize("script", sorted(ENVIRONMENTS))
def test_the_environment_is_introduced_once(script):
    (environment,) = seen(script, EnvironmentSeen)
    name, copies, autoreset = ENVIRONMENTS[script]
    assert (environment.id, environment.copies, environment.autoreset) == (name, copies, autoreset)
    assert environment.vector == (copies > 1)


@pytest.mark.parametrize(("script", "copies"), [("sb3_ppo", 4), ("sb3_sac", 1)])
def test_an_sb3_vector_is_introduced_once(script, copies):
    (environment,) = seen(script, EnvironmentSeen)
    assert (environment.kind, environment.form) == ("DummyVecEnv", "sb3")
    assert (environment.copies, environment.vector, environment.autoreset) == (copies, True, "same_step")


@pytest.mark.parametrize("script", WITHOUT_ENVIRONMENT)
def test_no_environment_is_imagined(script):
    assert seen(script, EnvironmentSeen) == []
    assert evidence_of(script).episodes == []


@pytest.mark.parametrize(
    ("script", "kinds"), [("reinforce", ["ExponentialLR"]), ("supervised", ["CosineAnnealingLR"]), ("ppo_clean", [])]
)
def test_schedulers_are_met(script, kinds):
    assert [scheduler.kind for scheduler in seen(script, SchedulerSeen)] == kinds
    assert all(scheduler.optimizer == 0 for scheduler in seen(script, SchedulerSeen))
    (totals,) = seen(script, OptimizerTotals)
    assert totals.rate_changes > 10
    assert totals.rate_highest > totals.rate_lowest


@pytest.mark.parametrize("script", ["ppo_continuous_native", "a2c_classes", "dqn_functions", "transformer_pg"])
def test_a_constant_rate_is_constant(script):
    for totals in seen(script, OptimizerTotals):
        assert totals.rate_highest == totals.rate_lowest


@pytest.mark.parametrize(
    ("script", "names"),
    [
        ("ppo_clean", {"agent"}),
        ("a2c_classes", {"actor", "critic"}),
        ("dqn_functions", {"qnet"}),
        ("dqn_polyak", {"online"}),
        ("sac", {"actor", "q1", "q2", "log_alpha"}),
        ("reinforce", {"policy"}),
        ("transformer_pg", {"model"}),
        ("supervised", {"model"}),
        ("ppo_continuous_native", {"net"}),
    ],
)
def test_parameters_carry_the_names_of_the_scripts_variables(script, names):
    owned = {name.split(".")[0] for optimizer in optimizers(script) for name in optimizer.owns}
    assert owned == names


@pytest.mark.parametrize("script", ["sb3_ppo", "sb3_sac"])
def test_no_parameter_is_called_after_self(script):
    for optimizer in optimizers(script):
        assert not any(name.split(".")[0] == "self" for name in optimizer.owns)


# ---------------------------------------------------------------------- followers


@pytest.mark.parametrize("script", NAMES)
def test_followers_are_those_of_the_script_and_no_others(script):
    followers = seen(script, FollowerSeen)
    found = {f.name.rpartition(".")[2]: f.leader.rpartition(".")[2] for f in followers}
    assert found == FOLLOWERS.get(script, {})
    assert len(followers) == len(found)


@pytest.mark.parametrize("script", sorted(FOLLOWERS))
def test_followers_begin_as_equal_copies_of_their_own(script):
    for follower in seen(script, FollowerSeen):
        assert follower.shared == 0
        assert follower.equal
        assert follower.follower == follower.leader_now
        assert follower.update == 0
    assert seen(script, FollowerStorage) == []


@pytest.mark.parametrize("script", sorted(FOLLOWERS))
def test_moves_of_followers_are_counted(script):
    """The move after the last optimizer step may stay unseen: there is no later step to see it at."""
    expected = facts_of(script)["target_updates"]
    totals = seen(script, FollowerTotals)
    assert len(totals) == len(FOLLOWERS[script])
    for follower in totals:
        assert expected - 1 <= follower.moves <= expected
        assert follower.shared in (0, None)  # None where the networks were gone before the end


@pytest.mark.parametrize("script", ["dqn_polyak", "sac", "sb3_sac"])
def test_the_polyak_rate_can_be_recovered(script):
    """A target is mixed from the weights that its leader had then, which are those after the step before."""
    tau = facts_of(script)["tau"]
    for follower in seen(script, FollowerSeen):
        moves = [move for move in seen(script, FollowerMoved) if move.follower == follower.index]
        assert len(moves) >= 64
        step = np.array([np.subtract(move.after, move.before) for move in moves]).ravel()
        distance = np.array([np.subtract(move.leader_before, move.before) for move in moves]).ravel()
        assert step @ distance / (distance @ distance) == pytest.approx(tau, rel=0.01)
        assert np.abs(step - tau * distance).max() <= 0.02 * np.abs(step).max()


def test_a_hard_copy_is_seen_whole():
    facts = facts_of("dqn_functions")
    moves = seen("dqn_functions", FollowerMoved)
    assert len(moves) >= facts["target_updates"] - 1
    for number, move in enumerate(moves, start=1):
        assert move.after == move.leader_before
        assert move.after != move.before
        assert move.update == number * facts["copy_every"]


def test_a_frozen_reference_never_moves():
    assert seen("transformer_pg", FollowerMoved) == []
    (totals,) = seen("transformer_pg", FollowerTotals)
    assert totals.moves == 0
    assert not totals.equal


# ---------------------------------------------------------------------- on-policy


@pytest.mark.parametrize("script", PPO)
def test_windows_open_ever_more_seldom_and_see_every_minibatch(script):
    facts = facts_of(script)
    per_cycle = defaultdict(list)
    for loss in seen(script, LossSeen):
        per_cycle[loss.cycle].append(loss.update)
    planned = {cycle for cycle in (0, 1, 2, 3, 5, 8, 13, 21) if cycle < facts["updates"]}
    assert set(per_cycle) == planned
    for cycle, updates in per_cycle.items():
        first = cycle * facts["updates_per_rollout"]
        assert updates == list(range(first, first + facts["updates_per_rollout"]))


@pytest.mark.parametrize("script", PPO)
def test_transitions_and_calls_belong_to_the_cycles_that_were_inspected(script):
    cycles = {loss.cycle for loss in seen(script, LossSeen)}
    for kind in ("transitions", "calls"):
        assert {sample.event.update for sample in evidence_of(script).samples(kind)} == cycles


@pytest.mark.parametrize("script", PPO)
def test_the_ratio_is_one_on_the_first_minibatch_only(script):
    facts = facts_of(script)
    later = []
    for loss, batch in read_losses(script):
        (ratio,) = constants(loss, batch, "ratio")
        if loss.update % facts["updates_per_rollout"] == 0:
            np.testing.assert_allclose(ratio, 1.0, atol=1e-5)
        else:
            later.append(np.abs(ratio - 1.0).max())
    assert np.mean(np.array(later) > 1e-4) > 0.9


@pytest.mark.parametrize("script", PPO)
def test_the_clip_range_is_read(script):
    clip = facts_of(script)["clip"]
    for loss in seen(script, LossSeen):
        assert any(limits == pytest.approx([1 - clip, 1 + clip]) for limits in loss.clips if None not in limits)


@pytest.mark.parametrize(
    ("script", "surrogate", "sign", "value", "entropy", "entropy_reductions"),
    [
        ("ppo_clean", "MaximumBackward0", 1.0, "PowBackward0", "MulBackward0", ["mean", "sum"]),
        ("sb3_ppo", "MinimumBackward0", -1.0, "MseLossBackward0", "MulBackward0", ["mean", "sum"]),
        ("ppo_continuous_native", "MinimumBackward0", -1.0, "MaximumBackward0", "LogBackward0", ["mean", "sum"]),
    ],
)
def test_the_three_terms_of_ppo(script, surrogate, sign, value, entropy, entropy_reductions):
    """An entropy bonus is + coefficient x sum p log p, or - coefficient x log of a Gaussian's width."""
    facts = facts_of(script)
    bonus = facts["entropy_coefficient"] * (-1.0 if entropy == "LogBackward0" else 1.0)
    for loss in seen(script, LossSeen):
        assert loss.n_terms == 3
        assert coefficient_of(loss, surrogate) == pytest.approx(sign)
        assert coefficient_of(loss, value) == pytest.approx(facts["value_coefficient"])
        assert coefficient_of(loss, entropy, entropy_reductions) == pytest.approx(bonus)
        assert len(loss.entropies) == 1
        assert loss.entropies[0]["mean"] > 0


def test_ppo_terms_reach_the_networks_they_are_about():
    for loss in seen("ppo_clean", LossSeen):
        actor = {name for name in reached("ppo_clean", loss.reach) if name.startswith("agent.actor.")}
        critic = {name for name in reached("ppo_clean", loss.reach) if name.startswith("agent.critic.")}
        assert (len(actor), len(critic)) == (6, 6)
        assert reached("ppo_clean", term_of(loss, "MaximumBackward0")["reach"]) == actor
        assert reached("ppo_clean", term_of(loss, "MulBackward0")["reach"]) == actor
        assert reached("ppo_clean", term_of(loss, "PowBackward0")["reach"]) == critic


def test_a_shared_trunk_is_reached_by_both_terms_and_the_width_by_the_entropy():
    script = "ppo_continuous_native"
    for loss in seen(script, LossSeen):
        trunk = {name for name in reached(script, loss.reach) if ".trunk." in name}
        assert len(trunk) == 4
        assert trunk < reached(script, term_of(loss, "MinimumBackward0")["reach"])
        assert trunk < reached(script, term_of(loss, "MaximumBackward0")["reach"])
        assert reached(script, term_of(loss, "LogBackward0")["reach"]) == {"net.log_std"}


def test_value_clipping_is_read():
    width = facts_of("ppo_continuous_native")["value_clip"]
    for loss in seen("ppo_continuous_native", LossSeen):
        assert any(limits == pytest.approx([-width, width]) for limits in loss.clips if None not in limits)


@pytest.mark.parametrize(
    ("script", "role"), [("ppo_clean", "difference"), ("ppo_continuous_native", "difference"), ("sb3_ppo", "target")]
)
def test_the_value_target_is_found_beside_the_value(script, role):
    """From target or difference, and the value that the network gave, the value loss comes out as the script had it."""
    for loss, batch in read_losses(script):
        position, constant = next((i, c) for i, c in enumerate(loss.constants) if c["role"] == role)
        kept = batch[f"k{position}"]
        values = [
            batch[f"c{i}.output"].reshape(-1) for i in constant["calls"] if batch[f"c{i}.output"].size == kept.size
        ]
        assert values, "no call of the value network stands beside its target"
        target = kept if role == "target" else values[-1] - constant["sign"] * kept.reshape(-1)
        assert target.shape == values[-1].shape
        assert np.isfinite(target).all()
        assert target.std() > 0


@pytest.mark.parametrize("script", PPO)
def test_the_gradient_of_log_probs_is_minus_the_advantage(script):
    """On the first minibatch the ratio is one, so that dL/dlog_prob = -advantage / rows whatever the loss looks like."""
    facts = facts_of(script)
    checked = 0
    for loss, batch in read_losses(script):
        (score,) = loss.log_probs
        gradient = batch["p0.gradient"].reshape(-1)
        assert gradient.shape == batch["p0.value"].reshape(-1).shape
        if loss.update % facts["updates_per_rollout"]:
            continue
        weights = constants(loss, batch, "weight")
        assert weights
        sign = -1.0 if script != "ppo_clean" else 1.0
        np.testing.assert_allclose(gradient, sign * weights[0].reshape(-1) / len(gradient), atol=1e-6)
        assert score["terms"]
        checked += 1
    assert checked >= 3


@pytest.mark.parametrize("script", ON_POLICY)
def test_rows_of_a_loss_are_rows_that_were_played(script):
    shares = []
    for loss, batch in read_losses(script):
        rows = [batch[f"c{i}.rows"] for i in range(len(loss.calls))]
        assert rows, "a loss without the call it came from"
        shares += [share_met(script, part) for part in rows]
    assert np.mean(shares) >= 0.95
    assert min(shares) >= 0.9


@pytest.mark.parametrize("script", ON_POLICY)
def test_actions_in_a_loss_are_actions_that_were_played(script):
    played = defaultdict(set)
    evidence = evidence_of(script)
    for sample in evidence.samples("transitions"):
        for row, action in zip(sample["observation"].tolist(), sample["action"].tolist(), strict=True):
            played[row].add(tuple(action))
    compared = 0
    for loss, batch in read_losses(script):
        if not loss.log_probs or "p0.rows" not in batch:
            continue
        actions = batch["p0.action"].reshape(len(batch["p0.rows"]), -1).astype(np.float32)
        for row, action in zip(batch["p0.rows"].tolist(), actions.tolist(), strict=True):
            if row in played:
                compared += 1
                assert tuple(action) in played[row]
    assert compared > 100 or script == "ppo_continuous_native"  # there the network sees normalised observations


def test_steps_that_only_reset_are_marked():
    for sample in evidence_of("ppo_clean").samples("transitions"):
        order = np.lexsort((sample["time"], sample["copy"]))
        copies, resets = sample["copy"][order], sample["resets"][order]
        ended = (sample["terminated"] | sample["truncated"])[order]
        after_an_end = np.flatnonzero(ended[:-1] & (copies[1:] == copies[:-1])) + 1
        assert resets[after_an_end].all()
        assert (sample["reward"][order][resets] == 0).all()
        assert not ended[resets].any()


def test_same_step_resets_leave_the_final_observation():
    cut = 0
    for sample in evidence_of("ppo_continuous_native").samples("transitions"):
        truncated = sample["truncated"]
        assert not sample["terminated"].any()
        assert not sample["resets"].any()
        assert (sample["final_observation"][truncated] != 0).all()
        assert (sample["final_observation"][~truncated] == 0).all()
        assert (sample["final_observation"][truncated] != sample["next_observation"][truncated]).all()
        cut += truncated.sum()
    assert cut > 0


@pytest.mark.parametrize("script", PPO)
def test_a_window_holds_the_whole_rollout(script):
    facts = facts_of(script)
    steps = facts["env_steps"] // facts["updates"]
    for sample in evidence_of(script).samples("transitions"):
        assert len(sample["reward"]) >= 4 * (steps - 1)
        assert len(np.unique(sample["time"])) * 4 == len(sample["reward"])


def test_the_two_losses_of_a2c():
    script, facts = "a2c_classes", facts_of("a2c_classes")
    policy_losses, value_losses = losses_that_reach(script, "actor"), losses_that_reach(script, "critic")
    assert len(policy_losses) >= 16
    assert abs(len(policy_losses) - len(value_losses)) <= 1
    for loss, batch in policy_losses:
        assert loss.n_terms == 2
        assert coefficient_of(loss, "MulBackward0", ["mean"]) == pytest.approx(-1.0)
        assert coefficient_of(loss, "MulBackward0", ["mean", "sum"]) == pytest.approx(facts["entropy_coefficient"])
        (advantage,) = [w for w in constants(loss, batch, "weight") if w.ndim == 1]
        np.testing.assert_allclose(batch["p0.gradient"], -advantage / len(advantage), atol=1e-6)
        assert "actor" in {call["module"] for call in loss.calls}
    for loss, batch in value_losses:
        assert tops(loss) == [("MseLossBackward0", 1.0)]
        (target,) = constants(loss, batch, "target")
        assert "critic" in {call["module"] for call in loss.calls}, "the call came before the actor's step"
        position = next(i for i, call in enumerate(loss.calls) if call["module"] == "critic")
        value = batch[f"c{position}.output"].reshape(-1)
        assert np.mean((value - target) ** 2) == pytest.approx(loss.value, rel=1e-4)


def test_the_targets_of_a2c_are_n_step_returns():
    """Every reward is 1, so that two successive returns of a segment tie gamma down."""
    gamma = facts_of("a2c_classes")["gamma"]
    value_losses = losses_that_reach("a2c_classes", "critic")
    assert value_losses
    for loss, batch in value_losses:
        (target,) = constants(loss, batch, "target")
        np.testing.assert_allclose(target[:-1], 1.0 + gamma * target[1:], rtol=1e-5)


def test_the_loss_of_reinforce_weighs_log_probs_with_normalised_returns():
    gamma = facts_of("reinforce")["gamma"]
    lengths = {}
    for episode in evidence_of("reinforce").episodes:
        lengths[episode.update] = episode.length
    losses = read_losses("reinforce")
    assert len(losses) >= 8
    for loss, batch in losses:
        assert tops(loss) == [("MulBackward0", -1.0)]
        assert loss.terms[0]["reductions"] == ["sum"]
        steps = lengths[loss.update]
        to_go = (1 - gamma ** np.arange(steps, 0, -1)) / (1 - gamma)
        expected = (to_go - to_go.mean()) / to_go.std(ddof=1)
        (weight,) = constants(loss, batch, "weight")
        np.testing.assert_allclose(weight, expected, atol=1e-3)
        assert len(loss.log_probs) == 1
        np.testing.assert_allclose(batch["p0.gradient"], -weight, atol=1e-6)
        assert len(batch["p0.rows"]) == steps
        assert share_met("reinforce", batch["p0.rows"]) >= 0.9
        assert loss.value == pytest.approx(-(batch["p0.value"] * weight).sum(), abs=1e-3)


# ---------------------------------------------------------------------- off-policy


def settled(script, *names):
    found = [(loss, batch) for loss, batch in losses_that_reach(script, *names) if loss.cycle >= SETTLED_CYCLE]
    assert len(found) >= 12
    return found


def silent_output(loss, batch, name):
    """Answer of a module that was asked without a gradient just before the loss."""
    asked = [batch[f"n{i}.output"] for i, call in enumerate(loss.silent) if call["module"] == name]
    return asked[-1]


@pytest.mark.parametrize(
    ("script", "names"),
    [
        ("dqn_functions", ["qnet"]),
        ("dqn_polyak", ["online"]),
        ("sac", ["q1", "q2"]),
        ("sb3_sac", ["critic"]),
    ],
)
def test_batches_are_traced_back_to_transitions(script, names):
    losses = settled(script, *names)
    assert len(losses) >= 12
    for _, batch in losses:
        assert len(batch["c0.rows"]) == facts_of(script)["batch"]
        assert len(batch["t.row"]) >= 0.95 * len(batch["c0.rows"])
        np.testing.assert_array_equal(batch["c0.rows"][batch["t.row"]], batch["t.observation"])
        if script.startswith("dqn"):
            assert (batch["t.reward"] == 1.0).all()
            assert set(np.unique(batch["t.action"])) <= {0.0, 1.0}
        else:
            assert (batch["t.reward"] <= 0).all()
            assert batch["t.reward"].std() > 0.1
            assert not batch["t.terminated"].any()


def test_dqn_targets_are_those_of_the_transitions():
    gamma = facts_of("dqn_functions")["gamma"]
    losses = settled("dqn_functions", "qnet")
    ends = 0
    for loss, batch in losses:
        assert tops(loss) == [("SmoothL1LossBackward0", 1.0)]
        (target,) = constants(loss, batch, "target")
        best = silent_output(loss, batch, "target").max(axis=1)[batch["t.row"]]
        going = 1.0 - batch["t.terminated"]
        np.testing.assert_allclose(
            target.reshape(-1)[batch["t.row"]], batch["t.reward"] + gamma * going * best, rtol=1e-5, atol=1e-5
        )
        ends += batch["t.terminated"].sum()
    assert ends > 0


def test_double_dqn_asks_the_online_network_which_action():
    gamma = facts_of("dqn_polyak")["gamma"]
    losses = settled("dqn_polyak", "online")
    for loss, batch in losses:
        assert tops(loss) == [("MseLossBackward0", 1.0)]
        (target,) = constants(loss, batch, "target")
        best = silent_output(loss, batch, "online").argmax(axis=1)
        value = silent_output(loss, batch, "target")[np.arange(len(best)), best][batch["t.row"]]
        expected = batch["t.reward"] + gamma * (1.0 - batch["t.terminated"]) * value
        np.testing.assert_allclose(target.reshape(-1)[batch["t.row"]], expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("script", "name"), [("dqn_functions", "qnet"), ("dqn_polyak", "online")])
def test_the_actions_of_a_q_loss_are_the_indices(script, name):
    for loss, batch in settled(script, name):
        (index,) = constants(loss, batch, "index")
        np.testing.assert_array_equal(index.reshape(-1)[batch["t.row"]], batch["t.action"][:, 0])
        assert [call["module"] for call in loss.calls][:1] == [name]
        q = batch["c0.output"]
        (position,) = [i for i, constant in enumerate(loss.constants) if constant["role"] == "target"]
        np.testing.assert_allclose(
            batch[f"k{position}.partner"].reshape(-1), np.take_along_axis(q, index.reshape(-1, 1), 1)[:, 0], rtol=1e-6
        )


@pytest.mark.parametrize(("script", "critics", "scale"), [("sac", ["q1", "q2"], 1.0), ("sb3_sac", ["critic"], 0.5)])
def test_twin_critics_regress_on_one_target(script, critics, scale):
    losses = settled(script, *critics)
    assert losses
    slopes = []
    for loss, batch in losses:
        assert tops(loss) == [("MseLossBackward0", scale), ("MseLossBackward0", scale)]
        first, second = constants(loss, batch, "target")
        np.testing.assert_array_equal(first, second)
        table = np.column_stack([batch["t.reward"], np.ones(len(batch["t.row"]))])
        slopes.append(np.linalg.lstsq(table, first.reshape(-1)[batch["t.row"]], rcond=None)[0][0])
    # the target is the reward plus what comes after, which is the worse the worse the reward was
    assert 0.5 < np.median(slopes) < 20


def test_sac_targets_are_reward_plus_the_smaller_target_critic():
    """What is left is the entropy part, gamma x alpha x log-probability: small, and the same for no other choice."""
    gamma = facts_of("sac")["gamma"]
    losses = settled("sac", "q1", "q2")
    assert losses
    for loss, batch in losses:
        (target, _) = constants(loss, batch, "target")
        pair = silent_output(loss, batch, "q1_target"), silent_output(loss, batch, "q2_target")
        rows = batch["t.row"]
        left = {
            choose.__name__: target.reshape(-1)[rows] - batch["t.reward"] - gamma * choose(*pair).reshape(-1)[rows]
            for choose in (np.minimum, np.maximum)
        }
        assert np.abs(left["minimum"]).max() < gamma * facts_of("sac")["alpha_at_start"] * 10
        if np.abs(pair[0] - pair[1]).mean() > 1:
            assert left["minimum"].std() < left["maximum"].std()


def test_the_sac_actor_gains_from_entropy_and_from_the_smaller_critic():
    """log_prob of a squashed Gaussian = -(u - mean)^2 / 2 variance - log width - log(1 - tanh^2 u)."""
    batch_size = facts_of("sac")["batch"]
    losses = losses_that_reach("sac", "actor", "q1", "q2")
    assert len(losses) >= 12
    for loss, batch in losses:
        alpha = coefficient_of(loss, "DivBackward0")
        assert alpha > 0
        assert sorted(tops(loss)) == [
            ("DivBackward0", pytest.approx(alpha)),
            ("LogBackward0", pytest.approx(-alpha)),
            ("LogBackward0", pytest.approx(-alpha)),
            ("MinimumBackward0", pytest.approx(-1.0)),
        ]
        assert len(loss.log_probs) == 1
        np.testing.assert_allclose(batch["p0.gradient"].reshape(-1), np.full(batch_size, alpha / batch_size), rtol=1e-4)
    first = min((loss for loss, _ in losses), key=lambda loss: loss.update)
    assert coefficient_of(first, "DivBackward0") == pytest.approx(facts_of("sac")["alpha_at_start"], rel=1e-5)


def test_the_sb3_sac_actor_gains_from_entropy_and_from_the_smaller_critic():
    losses = losses_that_reach("sb3_sac", "actor", "critic")
    assert len(losses) >= 12
    for loss, batch in losses:
        assert coefficient_of(loss, "MinBackward0") == pytest.approx(-1.0)
        alpha = coefficient_of(loss, "DivBackward0")
        assert alpha > 0
        others = [c for node, c in tops(loss) if node not in ("MinBackward0", "DivBackward0")]
        assert others == pytest.approx([-alpha, -alpha])
        assert loss.log_probs, "log_prob was computed before the steps of the temperature and the critic"
        assert batch["p0.gradient"].size == facts_of("sb3_sac")["batch"]


@pytest.mark.parametrize(("script", "name"), [("sac", "log_alpha"), ("sb3_sac", "log_ent_coef")])
def test_the_temperature_has_a_loss_of_its_own(script, name):
    losses = losses_that_reach(script, name)
    assert len(losses) >= 12
    for loss, batch in losses:
        assert tops(loss) == [("MulBackward0", -1.0)]
        (weight,) = constants(loss, batch, "weight")
        assert weight.size == facts_of(script)["batch"]
    assert [optimizer.owns for optimizer in optimizers(script)][2] == [name]


# ---------------------------------------------------------------------- without an environment


def test_group_relative_loss_of_the_transformer():
    script, facts = "transformer_pg", facts_of("transformer_pg")
    share, beta = 1.0 / facts["accumulate"], facts["kl_coefficient"]
    losses = read_losses(script)
    assert len(losses) >= 2 * 16
    for loss, batch in losses:
        assert loss.n_terms == 3
        assert coefficient_of(loss, "MulBackward0") == pytest.approx(-share)
        assert coefficient_of(loss, "ExpBackward0") == pytest.approx(share * beta)
        (rest,) = [c for node, c in tops(loss) if node not in ("MulBackward0", "ExpBackward0")]
        assert rest == pytest.approx(share * beta)
        (advantage,) = [w for w in constants(loss, batch, "weight") if w.shape == (32, 1)]
        np.testing.assert_allclose(advantage.reshape(-1, 8).mean(1), 0.0, atol=1e-5)
        assert loss.log_probs[0]["shape"][:2] == [32, 11]
        assert "model" in {call["module"] for call in loss.calls}
    assert all(step.backwards == facts["accumulate"] for step in seen(script, OptimizerStep))


def test_the_gradient_of_gathered_log_probs_leaves_the_prompt_alone():
    for _, batch in read_losses("transformer_pg"):
        per_token = np.abs(batch["p0.gradient"].reshape(32, 11)).sum(0)
        assert (per_token[:2] == 0).all()
        assert (per_token[2:] > 0).all()


def test_the_transformer_learned():
    """Else the rest would be said of a script that is not healthy."""
    rewards = facts_of("transformer_pg")["mean_rewards"]
    assert np.mean(rewards[-5:]) > 2 * np.mean(rewards[:5])


def test_the_classifier_is_seen_with_its_frozen_part():
    script, facts = "supervised", facts_of("supervised")
    (module,) = seen(script, ModuleSeen)
    frozen = [name for name, _, trains in module.parameters if not trains]
    assert len(frozen) == facts["frozen"]
    assert all(".backbone." in name for name in frozen)
    for reach in seen(script, Reach):
        assert set(frozen).isdisjoint(reach.parameters)
    for loss in seen(script, LossSeen):
        assert tops(loss) == [("NllLossBackward0", 1.0)]
        batch = batch_of(evidence_of(script), loss)
        (label,) = constants(loss, batch, "label")
        assert label.max() <= 4
        assert len(label) in (64, 1200 % 64)
        assert "model" in {call["module"] for call in loss.calls}


def test_a_network_with_dropout_is_not_asked_again():
    for _, batch in read_losses("supervised"):
        assert not any(name.endswith(".after") for name in batch)


@pytest.mark.parametrize("script", ["ppo_clean", "dqn_polyak"])
def test_plain_networks_are_asked_again_after_the_step(script):
    changed = []
    for loss, batch in read_losses(script):
        assert loss.calls
        if "c0.after" in batch:
            changed.append(np.abs(batch["c0.after"] - batch["c0.output"]).max())
    assert len(changed) >= 16
    assert np.mean(np.array(changed) > 0) > 0.95
