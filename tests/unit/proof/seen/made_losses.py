"""Losses as a watcher would have written them, made by hand."""

from types import SimpleNamespace
from typing import Any

from learnproof.evidence import Evidence, RunStarted
from learnproof.evidence.watched import LossSeen
from learnproof.proof.seen.losses import Loss


def nothing() -> Evidence:
    return Evidence(
        run=RunStarted(
            producer="watch", algorithm="unknown", environment="unknown", seed=0, metric="return", n_envs=0, constants={},
            parameters={}, marked="inferred",
        )
    )  # fmt: skip


def made_loss(arrays: dict[str, Any], update: int = 0, env_steps: int = 0, **about: Any) -> Loss:
    """A loss with these arrays; `about` are fields of its event."""
    event = LossSeen(
        **{
            "update": update, "cycle": update, "backward": update, "env_steps": env_steps, "accumulates": True, "shape": [[]],
            "value": 0.0, "gradient_before": 0.0, "reach": 0, "nodes": 1, "truncated": False, "compiled": False,
            "broadcasts": [], "both_sides": [], "clips": [], "terms": [], "n_terms": 0, "transitions_of": "c0.rows", **about,
        }
    )  # fmt: skip
    loss = Loss(event, nothing(), frozenset(), [])
    loss.__dict__["arrays"] = arrays
    return loss


def made_view(losses: list[Loss], **about: Any) -> SimpleNamespace:
    """What a check asks, with nothing seen but these losses and what `about` adds."""
    return SimpleNamespace(
        **{
            "training_losses": losses, "sought_losses": [], "rollouts": [], "pooled_rollouts": [], "by_cycle": {}, "on_policy": False,
            "on_policy_cycles": set(), "followers": [], "steps": [], "environments": {}, "action_bound": None, "limits_told": True,
            "owned": {}, "optimizers": {}, "process": 0, "notes": {}, "evidence": SimpleNamespace(episodes=[], of=lambda _: []),
            "trained_under": lambda words: {}, **about,
        }
    )  # fmt: skip


def follows(name: str, leader: str, update: int = 0, moves: int = 0, equal: bool = True) -> SimpleNamespace:
    """A network that follows another one, and was met before that update."""
    met = SimpleNamespace(name=name, leader=leader, update=update, equal=equal)
    return SimpleNamespace(name=name, met=met, moves=[SimpleNamespace()] * moves)
