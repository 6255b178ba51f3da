"""What a watcher saw of a stranger's loop, put in order for the checks. Nothing here accuses.

view      Seen: optimizers and what they own, losses, cycles, followers, environments
losses    one backward pass: its log-probabilities, regressions, ratios, by row of the batch
rollouts  the transitions of a long cycle, step after step, with what the loss made of them
pooling   rollouts of a few steps, put together
tokens    losses on a language model's tokens, and the rewards that explain their weights
token_rollouts  sequences of a language model as rollouts, where a value is learnt for each token
bootstrap how a temporal-difference target was made: the definitions that fit it
returns   how a return or an advantage was made: the definitions that fit it
"""

from .losses import Loss, Policy, Regression
from .view import Seen, seen

__all__ = ["Loss", "Policy", "Regression", "Seen", "seen"]
