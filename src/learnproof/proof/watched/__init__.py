"""Checks of a loop that was watched, not declared: one file per family.

    ownership   which loss reaches which weights, which optimizer holds them, are gradients cleared
    lineage     target networks: start equal, lag, move, share nothing
    targets     the numbers that losses are drawn to, recomputed from what the environment returned
    direction   what a step does: advantageous actions gain, predictions near their targets, actors climb their critics
    signs       entropy, temperature
    shapes      accidental broadcasts, log-probabilities per dimension, probabilities where logits belong
    rates       learning rates that are 0, or below it
    dependence  the policy looks at its observation, credit reaches past one step
    language    masks, references and ratios of a language model's policy gradient
    returns     performance from the returns of training alone

All of them read `proof.seen`. An accusation needs several updates that agree; what was seen too seldom is undecided.
"""

from ..check import Check
from .dependence import CreditReachesOn, PolicyLooks
from .direction import ActorClimbs, PolicyDirection, ValueDirection
from .language import ReferenceApart, TokensMasked
from .lineage import RestoresSomething, TargetNetworks
from .ownership import GradientsCleared, LossesReachWeights, OptimizersFed, WeightsOwned
from .rates import LearningRateAlive
from .shapes import DistributionsFit, NoAccidentalBroadcast, SampledAsScored
from .signs import CriticApart, EntropySign, TemperatureApart
from .targets import BootstrapRecomputed, RatioIsOne, ReturnsRecomputed

WATCHED_CHECKS: tuple[Check, ...] = (
    LossesReachWeights(),
    WeightsOwned(),
    OptimizersFed(),
    GradientsCleared(),
    LearningRateAlive(),
    TargetNetworks(),
    RestoresSomething(),
    ReturnsRecomputed(),
    BootstrapRecomputed(),
    RatioIsOne(),
    PolicyDirection(),
    ValueDirection(),
    ActorClimbs(),
    EntropySign(),
    CriticApart(),
    TemperatureApart(),
    NoAccidentalBroadcast(),
    DistributionsFit(),
    SampledAsScored(),
    PolicyLooks(),
    CreditReachesOn(),
    TokensMasked(),
    ReferenceApart(),
)

__all__ = ["WATCHED_CHECKS"]
