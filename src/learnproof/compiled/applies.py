"""Which runs the compiled backend can take over, and why not the others."""

from __future__ import annotations

from ..config import Settings
from ..policies.actor import NetworkActor
from ..policies.networks import ActorCritic


def reason_against(settings: Settings, actor: NetworkActor) -> str:
    """What of this run only torch can do; empty where machine code takes it all."""
    network = actor.network
    if settings.algorithm not in ("ppo", "reinforce"):
        return f"algorithm = {settings.algorithm!r} is computed by torch"
    assert isinstance(network, ActorCritic)
    if settings.device != "cpu":
        return f"device = {settings.device!r} is not the CPU"
    if network.encoder is not None:
        return "images are read by convolutions"
    if network.memory is not None:
        return "policy.recurrent gives the policy a memory"
    if network.trunk is not None:
        return "policy.shared_trunk joins the towers that it computes apart"
    if settings.policy.layer_norm:
        return "policy.layer_norm normalises between layers"
    if settings.optimizer.kind != "adam" or settings.optimizer.grokfast:
        return "the optimizer is not plain adam"
    if settings.algorithm == "reinforce" and settings.reinforce.kl_coefficient:
        return "reinforce.kl_coefficient asks a second policy"
    return ""
