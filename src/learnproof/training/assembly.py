"""From settings to parts: the environment, the actor and the learner of a run, always the same for the same settings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import torch
from gymnasium.vector import VectorEnv

from ..algorithms.curiosity import Curiosity
from ..algorithms.dqn import DQN
from ..algorithms.learner import Learner
from ..algorithms.off_policy import OffPolicyLearner
from ..algorithms.on_policy import OnPolicyLearner
from ..algorithms.ppo import PPO
from ..algorithms.reinforce import REINFORCE
from ..algorithms.sac import SAC
from ..compiled.applies import reason_against
from ..config import Settings
from ..envs.agents import OWN, agent_rows
from ..envs.making import EnvironmentSource
from ..errors import SettingsError
from ..policies.actor import NetworkActor
from ..policies.encoders import make_encoder
from ..policies.greedy import QNetwork, make_greedy_head
from ..policies.heads import make_head
from ..policies.networks import ActorCritic, PolicyNetwork
from ..policies.normalization import ObservationNormalizer
from ..policies.soft import SoftPolicy, make_soft_head
from ..policies.spaces import ActionLayout, ObservationLayout
from ..seeding import derive_seed

LearnerType = type[PPO] | type[DQN] | type[SAC] | type[REINFORCE]


@dataclass(frozen=True)
class EnvironmentFacts:
    """What an environment says of itself, beyond its spaces."""

    metric: str
    """The per-episode figure that measures performance: "return" unless the environment names another."""
    action_heads: tuple[str, ...] | None
    """The head that fits each column of a Box action, where the environment knows."""
    per_agent: bool = False
    """Its rows are agents: of what they show, "state" is for the critic alone."""


def environment_facts(env: VectorEnv[Any, Any, Any]) -> EnvironmentFacts:
    instance: Any = env.unwrapped
    per_agent = agent_rows(env) is not None
    if not hasattr(instance, "metric") and getattr(instance, "envs", None):
        instance = instance.envs[0].unwrapped
    metric, heads = getattr(instance, "metric", "return"), getattr(instance, "action_heads", None)
    return EnvironmentFacts(metric, heads, per_agent)


def make_actor(settings: Settings, env: VectorEnv[Any, Any, Any]) -> NetworkActor:
    """An untrained actor for this environment; its first weights come from the run's seed."""
    facts = environment_facts(env)
    if facts.per_agent:
        check_per_agent(settings)
    return actor_for_spaces(
        settings, env.single_observation_space, env.single_action_space, facts.action_heads, facts.per_agent
    )


def check_per_agent(settings: Settings) -> None:
    """Agents that share a policy beside a central critic want an algorithm and networks that can be told apart so."""
    if settings.algorithm not in ("ppo", "reinforce"):
        raise SettingsError(
            f"algorithm = {settings.algorithm!r} has no critic that could see the whole team: agents that decide one by one are "
            "trained with ppo or reinforce."
        )
    if settings.policy.shared_trunk:
        raise SettingsError(
            "policy.shared_trunk would show the team's state to the policy, which must do without it: leave it out where "
            "agents decide one by one."
        )
    if settings.policy.recurrent:
        raise SettingsError(
            "policy.recurrent gives policy and critic one memory, and the critic's would show the team's state to the policy: leave it out where "
            "agents decide one by one."
        )


def actor_for_spaces(
    settings: Settings,
    observation_space: gym.Space[Any],
    action_space: gym.Space[Any],
    action_heads: tuple[str, ...] | None,
    per_agent: bool = False,
) -> NetworkActor:
    observations = ObservationLayout(observation_space)
    actions = ActionLayout(action_space)
    noise = torch.Generator().manual_seed(derive_seed(settings.seed, "first weights"))
    own = observations.size_of(OWN) if per_agent else None
    network = _network(settings, observations, actions, action_heads, noise, own).to(_device(settings.device))
    normalizer = ObservationNormalizer(observations.size) if settings.env.normalize_observations else None
    return NetworkActor(network, observations, actions, normalizer)


def _network(
    settings: Settings,
    observations: ObservationLayout,
    actions: ActionLayout,
    action_heads: tuple[str, ...] | None,
    noise: torch.Generator,
    policy_size: int | None,
) -> PolicyNetwork:
    policy = settings.policy
    _check_memory(settings)
    encoder = make_encoder(observations, policy.encoder, policy.activation, noise)
    if encoder is not None and policy_size is not None:
        raise SettingsError(
            "Agents that decide one by one cannot look at images yet: policy and critic would share what reads them, and the critic sees more. Set "
            "policy.encoder = 'none' to read them as plain numbers."
        )
    match settings.algorithm:
        case "dqn":
            greedy = make_greedy_head(actions, settings.dqn.epsilon_start)
            return QNetwork(observations.size, greedy, policy, settings.dqn.duelling, noise, encoder)
        case "sac":
            return SoftPolicy(observations.size, make_soft_head(actions), policy, noise, encoder)
    head = make_head(actions, policy.box_head, policy.log_std_init, action_heads)
    baseline = settings.reinforce.baseline_hidden if settings.algorithm == "reinforce" else None
    return ActorCritic(observations.size, head, policy, noise, baseline, encoder, policy_size)


def _check_memory(settings: Settings) -> None:
    if not settings.policy.recurrent:
        return
    if settings.algorithm in ("dqn", "sac"):
        raise SettingsError(
            f"policy.recurrent = true needs experience in the order in which it was made, and {settings.algorithm} draws single transitions from a "
            "memory. Use ppo or reinforce, or give the environment's observation the last few steps."
        )
    if settings.algorithm == "reinforce" and settings.reinforce.kl_coefficient:
        raise SettingsError(
            f"reinforce.kl_coefficient = {settings.reinforce.kl_coefficient:g} compares with the untrained policy, which would have to remember "
            "episodes of its own, and policy.recurrent = true keeps only one memory. Set one of the two to 0 or false."
        )


def make_learner(
    settings: Settings, actor: NetworkActor, learner_type: LearnerType | None = None, n_envs: int | None = None
) -> Learner:
    """`learner_type` stands in for the algorithm's own class: tests train broken ones."""
    s = settings
    kind: Any = learner_type or _compiled_type(settings, actor)
    if s.curiosity.coefficient and s.algorithm in ("dqn", "sac"):
        raise SettingsError(
            f"curiosity.coefficient = {s.curiosity.coefficient:g} pays for new states in each rollout, which {s.algorithm} does not learn "
            "from: use algorithm ppo or reinforce, or leave it out."
        )
    match s.algorithm:
        case "ppo":
            return _curious((kind or PPO)(actor, s.ppo, s.optimizer, s.seed), s, n_envs)
        case "reinforce":
            return _curious((kind or REINFORCE)(actor, s.reinforce, s.optimizer, s.seed), s, n_envs)
        case "dqn":
            return (kind or DQN)(actor, s.dqn, s.optimizer, s.seed, s.steps)
        case "sac":
            return (kind or SAC)(actor, s.sac, s.optimizer, s.policy, s.seed, s.steps)


def _compiled_type(settings: Settings, actor: NetworkActor) -> LearnerType | None:
    """The algorithm's class on the compiled backend, where that was asked for or can be used."""
    against = reason_against(settings, actor)
    if settings.backend == "compiled" and against:
        raise SettingsError(f"backend = 'compiled' cannot be used here: {against}. Use auto or torch.")
    if settings.backend == "torch" or against:
        return None
    from ..compiled import off_policy, on_policy
    from ..compiled.threads import set_threads

    set_threads(settings.threads)
    kinds: dict[str, LearnerType] = {
        "ppo": on_policy.CompiledPPO,
        "reinforce": on_policy.CompiledREINFORCE,
        "dqn": off_policy.CompiledDQN,
        "sac": off_policy.CompiledSAC,
    }
    return kinds[settings.algorithm]


def _curious(learner: OnPolicyLearner, s: Settings, n_envs: int | None) -> OnPolicyLearner:
    if s.curiosity.coefficient:
        size = learner.actor.observations.size
        learner.curiosity = Curiosity(size, n_envs or s.env.n_envs, s.learning.gamma, s.curiosity, s.seed)
    return learner


def set_pace(learner: Learner, batch_size: int, epochs: int, transitions: int) -> None:
    """How a learner takes the transitions that come next, where each call says it anew (episodes.py): `epochs` passes over them in
    minibatches of `batch_size`; of a memory, as many minibatches as that."""
    if isinstance(learner, OnPolicyLearner):
        learner.settings = learner.settings.model_copy(update={"minibatch_size": batch_size, "epochs": epochs})
        return
    assert isinstance(learner, OffPolicyLearner)
    size = learner.settings.replay_size
    if transitions > size:
        raise SettingsError(
            f"{transitions} transitions at once do not fit into a memory of {size}: the first ones would be forgotten before they are "
            "learnt from. Raise replay_size, or train more often."
        )
    pace = {
        "minibatch_size": min(batch_size, len(learner.replay) + transitions, size),
        "gradient_steps": epochs * -(-transitions // batch_size),
        "train_every": 1,
        "report_every": 1,
    }
    learner.settings = learner.settings.model_copy(update=pace)


def check_schedule(settings: Settings, can_evaluate: bool) -> None:
    """A plateau that nobody measures would be a constant under another name."""
    if settings.schedule.kind != "plateau" or (settings.evaluation.every_steps and can_evaluate):
        return
    missing = (
        "set evaluation.every_steps above 0"
        if can_evaluate
        else "give a second environment as evaluation_env, which this run has not"
    )
    raise SettingsError(
        f"schedule.kind = 'plateau' cuts the learning rate when evaluations stop improving: {missing}, or use linear."
    )


def make_training_env(settings: Settings, source: EnvironmentSource) -> VectorEnv[Any, Any, Any]:
    return source.training(settings.env.n_envs)


def set_up_torch(settings: Settings) -> None:
    """Threads as set, and subnormal numbers flushed to zero: once units die, a tenth of Adam's moments are subnormal,
    and arithmetic on those is many times slower."""
    torch.set_num_threads(settings.threads)
    torch.set_flush_denormal(True)


def _device(name: str) -> torch.device:
    try:
        device = torch.device(name)
        torch.empty(1, device=device)
        return device
    except (RuntimeError, AssertionError) as error:
        raise SettingsError(
            f"device = {name!r} cannot be used here: {str(error).splitlines()[0].rstrip('.')}. Use --device cpu."
        ) from None
