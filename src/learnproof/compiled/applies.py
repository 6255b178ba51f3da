"""Which runs the compiled backend can take over, and why not the others."""

from __future__ import annotations

import numpy as np

from ..config import Settings
from ..policies.actor import NetworkActor
from ..policies.greedy import QNetwork
from ..policies.networks import ActorCritic


def reason_against(settings: Settings, actor: NetworkActor) -> str:
    """What of this run only torch can do; empty where machine code takes it all."""
    network = actor.network
    if settings.device != "cpu":
        return f"device = {settings.device!r} is not the CPU"
    if network.encoder is not None:
        return "images are read by convolutions"
    if network.memory is not None:
        return "policy.recurrent gives the policy a memory"
    if isinstance(network, ActorCritic) and network.trunk is not None:
        return "policy.shared_trunk joins the towers that it computes apart"
    if settings.policy.layer_norm:
        return "policy.layer_norm normalises between layers"
    if settings.optimizer.kind != "adam" or settings.optimizer.grokfast:
        return "the optimizer is not plain adam"
    if isinstance(network, QNetwork) and network.value is not None:
        return "dqn.duelling has two heads on one trunk"
    if actor.observations.dtype != np.float32:
        return f"observations are {actor.observations.dtype}"
    if settings.algorithm == "reinforce" and settings.reinforce.kl_coefficient:
        return "reinforce.kl_coefficient asks a second policy"
    return ""
