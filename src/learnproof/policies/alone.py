"""The policy of one agent by itself: what is left of a shared network when nobody needs a critic any more.

    policy(observation)                     an agent's own observation -> its action
    policy([observations of a team])        a batch of them -> a batch of actions
    policy({"agent_0": observation, ...})   what a PettingZoo environment shows -> what it takes

It reads no state of the team: the critic's part of a row is left away, of the network and of the normalisation alike.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from torch import Tensor

from ..envs.agents import OWN, STATE
from .actor import NetworkActor
from .networks import ActorCritic, PolicyNetwork
from .normalization import ObservationNormalizer
from .spaces import ObservationLayout


class PolicyAlone(PolicyNetwork):
    """The policy's tower and head of an actor-critic, without the critic; the weights stay the same tensors."""

    def __init__(self, network: ActorCritic) -> None:
        super().__init__(None)
        self.policy = network.policy
        self.head = network.head

    def policy_params(self, observation: Tensor) -> Tensor:
        out: Tensor = self.policy(observation)
        return out


class AgentPolicy(NetworkActor):
    """Made from the actor that a run trained; `agents` are the names of a team's agents."""

    def __init__(self, trained: NetworkActor, agents: tuple[str, ...]) -> None:
        network, whole = trained.network, trained.observations.space
        assert isinstance(network, ActorCritic)
        assert isinstance(whole, spaces.Dict)
        own: gym.Space[Any] = whole.spaces[OWN]
        layout = ObservationLayout(own)
        super().__init__(PolicyAlone(network), layout, trained.actions, _first(trained.normalizer, layout.size))
        self.agents = agents

    def seen(self, observation: Any) -> Any:
        """Rows as the environment shows them hold the team's state too; what an agent sees is its own part."""
        if isinstance(observation, dict) and set(observation) == {OWN, STATE}:
            return observation[OWN]
        return observation

    def __call__(self, observation: Any) -> Any:
        named = isinstance(observation, Mapping) and set(observation) <= set(self.agents)
        if not named:
            return super().__call__(self.seen(observation))
        return {agent: super(AgentPolicy, self).__call__(own) for agent, own in observation.items()}


def _first(normalizer: ObservationNormalizer | None, size: int) -> ObservationNormalizer | None:
    """The normalisation of a row's first columns."""
    if normalizer is None:
        return None
    own = ObservationNormalizer(size)
    moments = normalizer.moments
    own.moments.load(
        {"mean": moments.mean[:size], "variance": moments.variance[:size], "count": np.asarray(moments.count)}
    )
    return own
