"""Target networks: do they start equal to the network they follow, lag behind it, move, and share nothing with it? And do
weights that are loaded come from elsewhere?

Only followers that a temporal-difference loss asked about the future are judged; snapshots, references and averages kept
beside a model may stand still, or follow, as they like.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...evidence.watched import FollowerMoved, FollowerSeen, Loaded
from ..check import Finding
from ..seen import Seen
from ..seen.bootstrap import bootstraps
from ..seen.view import Follower
from .actors import actor_losses
from .base import ENOUGH, SeenCheck, some

ROUNDED, FAR = 1e-5, 0.3
"""Shares of their size by which weights differ: by rounding, where equal ones were blended; and after a first step, only if they were not
equal before it."""
PATIENCE_UPDATES = 1_000
PATIENCE_STEPS = 10_500
"""Optimizer and environment steps without any move after which a target counts as never synchronised. SB3's DQN copies its
target every 10,000 environment steps; a few thousand is usual."""
PATIENCE_BESIDE_AN_ACTOR = 3_000
"""Optimizer steps, of actor and critics together: those who train an actor through a critic move its target all along."""
PATIENCE_WHERE_ASKED = 3_000
"""The same where the script asks for the target's weights at every step: it means to change them all along."""
HARD = 0.999
"""A move by this share of the distance is a copy."""
EVERY = 0.9
OFTEN = 0.2
"""Share of looks at which the trained network was moved by something else than its optimizer; twin critics with a delay: a third."""
MIN_MOVES = 20
MIN_DISTILLED = 3
SOFT, RARELY, LONG_RUN = 0.1, 0.05, 2_000
"""A soft update moves by less than a tenth; made at fewer than a twentieth of so many steps, it is made too seldom."""


@dataclass(frozen=True)
class Motion:
    share: float
    """Of the distance to the leader that a move covers: 1 for a copy, 0.005 for a usual soft update."""
    error: float
    """How far moves stray from the line to the leader, over their size."""
    moves: int


def _apart(met: FollowerSeen) -> float:
    """Over their size, on the numbers that were looked at."""
    one, other = np.array(met.follower), np.array(met.leader_now)
    size = max(float(np.linalg.norm(one)), float(np.linalg.norm(other)), 1e-30)
    return float(np.linalg.norm(one - other)) / size


class TargetNetworks(SeenCheck):
    name = "target_networks"
    question = "Do target networks start equal, lag behind, move, and share nothing with the network they follow?"
    family = "mechanism-health"

    def lacks(self, seen: Seen) -> str:
        if itself_as_target(seen):
            return ""
        if not seen.followers:
            return "no network follows another one"
        return "" if targets(seen) else "no following network is asked about the future by a loss"

    def look(self, seen: Seen) -> Finding:
        itself = itself_as_target(seen)
        if itself is not None:
            name, module = itself
            return self.finding(
                "fail",
                f"What the script calls {name} is {module} itself, which the optimizer trains: targets move with every step.",
                {"name": name, "network": module},
                where=name,
                cause="The network was assigned and not copied: two names for one object.",
                advice="Build the target with copy.deepcopy(network), and synchronise it with load_state_dict.",
            )
        there = targets(seen)
        stayed = [each for each in there if each.totals is None or each.totals.steps >= MIN_MOVES]
        findings = [self._one(seen, follower) for follower in stayed or there]
        order = {"fail": 0, "undecided": 1, "pass": 2}
        return min(findings, key=lambda finding: order[finding.status])

    def _one(self, seen: Seen, follower: Follower) -> Finding:
        met, now, totals = follower.met, follower.storage, follower.totals
        motion = _motion(follower.moves)
        steps = totals.steps if totals is not None else 0
        moves = totals.moves if totals is not None else len(follower.moves)
        env_steps = seen.totals.env_steps if seen.totals is not None else 0
        figures = {
            "network": follower.name, "follows": met.leader, "tensors": met.tensors, "shared": now.shared,
            "equal_when_met": met.equal, "steps": steps, "moves": moves,
            "share_of_the_distance": None if motion is None else motion.share,
        }  # fmt: skip
        where = f"{follower.name}, which follows {met.leader}"
        shared = max(now.shared, 0 if totals is None or totals.shared is None else totals.shared)
        if shared:
            return self.finding(
                "fail",
                f"{follower.name} shares {shared} of its {met.tensors} tensors with {met.leader}: what the target says moves with "
                "every step of the network that is drawn to it.",
                figures,
                where=where,
                cause="It is the same object, was made with a shallow copy or load_state_dict(assign=True), or a part (a feature "
                "extractor) was handed to both.",
                advice="Build it with copy.deepcopy(network).",
            )
        if not met.equal and met.update <= 1 and _apart(met) > (FAR if met.update else ROUNDED):
            return self.finding(
                "fail",
                f"{follower.name} did not equal {met.leader} when training began: the first targets come from random weights.",
                figures,
                where=where,
                cause="Its weights were initialised apart and not copied before the first update.",
                advice="Call target.load_state_dict(network.state_dict()) before training.",
            )
        if moves == 0 and totals is not None and totals.pulls >= MIN_MOVES and totals.pulls >= OFTEN * totals.looks:
            return self.finding(
                "fail",
                f"{follower.name} never moved, and {met.leader} was moved between its own steps {totals.pulls} of {totals.looks} times: "
                "the network that trains is drawn to its target.",
                {**figures, "looks": totals.looks, "pulls": totals.pulls},
                where=where,
                cause="Source and destination of the soft update are exchanged.",
                advice="Blend the network into the target: target = tau * network + (1 - tau) * target.",
            )
        siblings = [
            other.name
            for other in targets(seen)
            if other.totals is not None
            and other.name != follower.name
            and other.totals.moves >= MIN_MOVES
            and MIN_MOVES * other.totals.steps <= steps * other.totals.moves
        ]
        if moves == 0 and siblings:
            return self.finding(
                "fail",
                f"{follower.name} did not move in {steps} optimizer steps, though {some(siblings)} did.",
                figures,
                where=where,
                cause="The synchronisation leaves this network out.",
                advice="Synchronise every target network at the same place.",
            )
        if moves == 0 and totals is not None and steps >= PATIENCE_WHERE_ASKED and totals.asked >= EVERY * steps:
            return self.finding(
                "fail",
                f"The weights of {follower.name} were asked for {totals.asked} times in {steps} optimizer steps, and it never moved.",
                {**figures, "asked": totals.asked},
                where=where,
                cause="New weights are made of a copy of its state_dict() at every step, and never loaded into it.",
                advice="Call target.load_state_dict(blended), or blend in place: target.mul_(1 - tau).add_(tau * network).",
            )
        if moves == 0:
            beside_an_actor = steps >= PATIENCE_BESIDE_AN_ACTOR and len(actor_losses(seen)) >= ENOUGH
            long = beside_an_actor or (steps >= PATIENCE_UPDATES and env_steps >= PATIENCE_STEPS)
            return self.finding(
                "fail" if long else "undecided",
                f"{follower.name} did not move in {steps} optimizer steps ({env_steps} environment steps).",
                figures,
                where=where,
                cause="The synchronisation is never reached (nested under another interval), copies from itself, or has no effect."
                if long
                else "",
                advice="Copy the weights every few hundred to few thousand steps, or softly at each one."
                if long
                else "If no line copies the weights, add one; if one does, its interval is longer than this run.",
            )
        if motion is None:
            return self.finding("undecided", f"{follower.name} moved while {met.leader} stood where it was.", figures)
        if motion.error > 0.2 and motion.moves >= 3:
            return self.finding(
                "fail",
                f"{follower.name} moves, but not toward {met.leader}: its moves stray {motion.error:.0%} from the line to it.",
                figures,
                where=where,
                cause="It is copied from another network, or trained by an optimizer of its own.",
                advice="Synchronise it from the network that its targets are for.",
            )
        if 0.5 < motion.share < HARD and motion.moves >= 3:
            return self.finding(
                "fail",
                f"{follower.name} goes {motion.share:.1%} of the way to {met.leader} at every move: it does not lag.",
                figures,
                where=where,
                cause="The soft update has its weights reversed: tau and 1 - tau are exchanged.",
                advice="target = tau * network + (1 - tau) * target, with tau near 0.005.",
            )
        if motion.share >= HARD and steps >= MIN_MOVES and moves >= EVERY * steps:
            return self.finding(
                "fail",
                f"{follower.name} was copied from {met.leader} at {moves} of {steps} optimizer steps: it never lags.",
                figures,
                where=where,
                cause="The copy stands outside of the condition on its interval, or tau is 1.",
                advice="Copy every few hundred steps, or use a small tau.",
            )
        if motion.share < SOFT and steps >= LONG_RUN and moves < RARELY * steps and motion.share * moves < 1:
            return self.finding(
                "fail",
                f"{follower.name} was moved {moves} times in {steps} steps, by {motion.share:.2g} of the distance each time: it has hardly "
                "left where it began.",
                figures,
                where=where,
                cause="A soft update, meant for every step, stands under a condition that is seldom true (the end of an episode, say).",
                advice="Make the soft update after every optimizer step, or copy the weights whole.",
            )
        if totals is not None and totals.statistics == [False, True]:
            return self.finding(
                "fail",
                f"The running statistics of {met.leader} moved, those of {follower.name} never did.",
                figures,
                where=where,
                cause="Only parameters are synchronised; means and variances of batch normalisation are buffers.",
                advice="Copy the buffers too, e.g. with load_state_dict, or loop over module.buffers().",
            )
        how = "copied" if motion.share >= HARD else f"moved by {motion.share:.2g} of the distance"
        return self.finding(
            "pass",
            f"{follower.name} started equal to {met.leader}, shares nothing with it, and was {how} {moves} times in {steps} steps.",
            figures,
        )


class RestoresSomething(SeenCheck):
    name = "restores_something"
    question = "Do weights that are loaded come from elsewhere than the module they are loaded into?"
    family = "mechanism-health"

    def lacks(self, seen: Seen) -> str:
        return "" if _loaded_itself(seen) else "no module was loaded with its own tensors"

    def look(self, seen: Seen) -> Finding:
        found = _loaded_itself(seen)
        names = sorted({event.module for event in found})
        return self.finding(
            "fail",
            f"{', '.join(names)} was loaded with its own tensors ({len(found)} times seen): nothing was restored or copied.",
            {"times": len(found), "modules": names, "updates": [event.update for event in found][:8]},
            where=names[0],
            cause="state_dict() hands out the living tensors: weights kept as 'the best' went on training, or a target network was "
            "loaded from itself.",
            advice="Keep copy.deepcopy(model.state_dict()), and load the target from the network that it follows.",
        )


def _loaded_itself(seen: Seen) -> list[Loaded]:
    return [event for event in seen.evidence.of(Loaded) if event.process == seen.process]


def itself_as_target(seen: Seen) -> tuple[str, str] | None:
    """A name of a target that stands for a network which trains and which values the future in the losses, and that network."""
    named = seen.trained_under("target targ tgt")
    if not named:
        return None
    futures = [
        {network for e in each.explanations for network in e.networks} for each in bootstraps(seen) if each.explanations
    ]
    late = futures[len(futures) // 2 :]

    def behind(network: str) -> str | None:
        return next((name for name, m in named.items() if network == m or network.startswith(m + ".")), None)

    alone = [networks for networks in late if all(behind(network) for network in networks)]
    if len(late) < ENOUGH or len(alone) <= 0.9 * len(late):
        return None
    name = behind(min(alone[0]))
    return None if name is None else (name, named[name])


def targets(seen: Seen) -> list[Follower]:
    """Followers that losses with transitions of a memory asked, without gradient."""
    known: list[Follower] | None = seen.notes.get("targets")
    if known is None:
        known = seen.notes["targets"] = _find_targets(seen)
    return known


def _find_targets(seen: Seen) -> list[Follower]:
    asked = {
        str(about.get("module"))
        for loss in seen.training_losses
        if loss.event.transitions_of is not None and loss.regressions
        for about in loss.event.silent
    }
    found = [
        follower
        for follower in seen.followers
        if any(_is_asked(follower, name) for name in asked) and not _is_distilled(seen, follower)
    ]
    apart = [follower for follower in found if follower.met.shared < follower.met.tensors]
    return apart or found  # a shallow copy is called by its original's name: it is asked where no other one is


def _is_distilled(seen: Seen, follower: Follower) -> bool:
    """Whether its own answers are what another network is drawn to (random network distillation): such a one stands still."""
    count = 0
    for loss in seen.training_losses:
        for position, about in enumerate(loss.event.silent):
            output = loss.arrays.get(f"n{position}.output") if _is_asked(follower, str(about.get("module"))) else None
            if output is not None and any(
                regression.target.size == output.size
                and np.allclose(regression.target, output.reshape(-1), rtol=1e-4, atol=1e-6)
                for regression in loss.regressions
            ):
                count += 1
                break
        if count >= MIN_DISTILLED:
            return True
    return False


def _is_asked(follower: Follower, name: str) -> bool:
    """By its own name, a part's or a whole's; one that shares weights with its leader may have been called by the leader's."""
    own = [follower.name, *([follower.met.leader] if follower.met.shared else [])]
    return any(name == each or name.startswith(each + ".") or each.startswith(name + ".") for each in own)


def _motion(moves: list[FollowerMoved]) -> Motion | None:
    """Moves on the line to the leader, as the leader stood before or after the step beside the move, whichever fits."""
    if not moves:
        return None
    best: Motion | None = None
    for which in ("leader_before", "leader_after"):
        change = np.concatenate([np.subtract(m.after, m.before) for m in moves])
        distance = np.concatenate([np.subtract(getattr(m, which), m.before) for m in moves])
        power = float(distance @ distance)
        size = float(np.linalg.norm(change))
        if power == 0 or size == 0:
            continue
        share = float(change @ distance) / power
        error = float(np.linalg.norm(change - share * distance)) / size
        if best is None or error < best.error:
            best = Motion(share, error, len(moves))
    return best
