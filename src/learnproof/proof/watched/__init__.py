"""Checks of a loop that was watched, not declared: one file per family.

    ownership   which loss reaches which weights, which optimizer holds them, are gradients cleared
    lineage     target networks: start equal, lag, move, share nothing
    returns     returns and advantages of rollouts, recomputed from what the environment returned
    bootstrap   temporal-difference targets, recomputed from rewards, ends and the networks' own answers
    memory      rows of a replay memory against what the environment did
    units       a memory's actions are in the units in which the actor speaks of them
    ratio       new and old log-probabilities before the first step
    direction   what a step does: advantageous actions gain, predictions near their targets
    actors      an actor that is trained through a critic raises the critic's answer
    signs       entropy, temperature
    shapes      accidental broadcasts, log-probabilities per dimension, probabilities where logits belong
    sampling    actions were drawn from the distribution that scores them
    rates       learning rates that are 0, or below it; clipping that comes too late or leaves weights out
    dependence  the policy looks at its observation, credit reaches past one step
    exploration which actions were tried early on: advice
    language    masks, references and ratios of a language model's policy gradient
    answers     what a language model is rewarded for is an answer to its question
    performance the script's policy played again, or the returns of training alone

All of them read `proof.seen`. An accusation needs several updates that agree; what was seen too seldom is undecided.
"""

from ..check import Check
from .actors import ActorClimbs
from .bootstrap import BootstrapRecomputed
from .dependence import CreditReachesOn, PolicyLooks
from .direction import PolicyDirection, ValueDirection
from .ends import EndsTold
from .exploration import ActionsVary
from .labels import LabelsDirection
from .language import ReferenceApart, TokensMasked
from .lineage import RestoresSomething, TargetNetworks
from .memory import MemoryTrue
from .ownership import LossesReachWeights, WeightsOwned
from .rates import ClippingActs, LearningRateAlive
from .ratio import RatioIsOne
from .returns import ReturnsRecomputed
from .sampling import SampledAsScored
from .shapes import DistributionsFit, NoAccidentalBroadcast
from .signs import CriticApart, EntropySign
from .stepping import GradientsCleared, OptimizersFed, OptimizersStep
from .temperature import TemperatureApart

WATCHED_CHECKS: tuple[Check, ...] = (
    LossesReachWeights(),
    WeightsOwned(),
    OptimizersStep(),
    OptimizersFed(),
    GradientsCleared(),
    LearningRateAlive(),
    ClippingActs(),
    TargetNetworks(),
    RestoresSomething(),
    MemoryTrue(),  # before the targets that are made of its rows: where they are wrong, those are
    ReturnsRecomputed(),
    BootstrapRecomputed(),
    EndsTold(),
    RatioIsOne(),
    PolicyDirection(),
    ValueDirection(),
    LabelsDirection(),
    ActorClimbs(),
    EntropySign(),
    CriticApart(),
    TemperatureApart(),
    NoAccidentalBroadcast(),
    DistributionsFit(),
    SampledAsScored(),
    PolicyLooks(),
    CreditReachesOn(),
    ActionsVary(),
    TokensMasked(),
    ReferenceApart(),
)

__all__ = ["WATCHED_CHECKS"]
