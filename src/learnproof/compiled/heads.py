"""Action heads (policies/heads.py) row by row: every one of them is a product of one-dimensional distributions.

`dimensions` [K, 4] has a line for each of them: its kind, its column of the action, its first parameter, and

    CATEGORICAL   how many choices: so many parameters, the logits
    BERNOULLI     -                 one parameter, the logit of the upper end
    GAUSSIAN      where its log-deviation lies in the flat vector; one parameter, the mean
    BETA          its second parameter; both shapes are 1 + softplus of a parameter

`bounds` [A, 2] has the lower end and the width of each column. A row's arithmetic is done in float64, whatever the network's type: there
is little of it, and sums of logarithms want it.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..policies.heads import BETA_EDGE, HALF_LOG_TWO_PI
from .kernel import finite, kernel

Array = np.ndarray[Any, Any]
CATEGORICAL, BERNOULLI, GAUSSIAN, BETA = 0, 1, 2, 3


# ---------------------------------------------------------------------- small functions


@kernel
def softplus(x: float) -> float:
    """log(1 + e^x)."""
    return max(x, 0.0) + math.log1p(math.exp(-abs(x)))


@kernel
def sigmoid(x: float) -> float:
    return 1.0 / (1.0 + math.exp(-x))


SHIFTED = 10.0
"""From here on the asymptotic series below are exact to 1e-13."""


@kernel
def digamma(x: float) -> float:
    """(log Γ)'. Up to SHIFTED by psi(x) = psi(x + 1) - 1/x, then log x - 1/2x - Σ B_2k / 2k x^2k."""
    below = 0.0
    while x < SHIFTED:
        below += 1.0 / x
        x += 1.0
    inverse = 1.0 / (x * x)
    series = inverse * (
        1 / 12
        - inverse * (1 / 120 - inverse * (1 / 252 - inverse * (1 / 240 - inverse * (1 / 132 - inverse * 691 / 32760))))
    )
    return math.log(x) - 0.5 / x - series - below


@kernel
def trigamma(x: float) -> float:
    """(log Γ)''. Up to SHIFTED by psi'(x) = psi'(x + 1) + 1/x², then 1/x + 1/2x² + Σ B_2k / x^(2k + 1)."""
    below = 0.0
    while x < SHIFTED:
        below += 1.0 / (x * x)
        x += 1.0
    inverse = 1.0 / (x * x)
    series = inverse * (
        1 / 6 - inverse * (1 / 30 - inverse * (1 / 42 - inverse * (1 / 30 - inverse * (5 / 66 - inverse * 691 / 2730))))
    )
    return (1.0 + series) / x + 0.5 * inverse + below


@kernel
def log_normaliser(params: Array, row: int, first: int, count: int, into: Array) -> tuple[float, float]:
    """log Σ exp of some logits, and the entropy of choosing by them; their probabilities are written in the same places of row `row` of `into`."""
    largest = params[row, first] + 0.0
    for place in range(first + 1, first + count):
        largest = max(largest, params[row, place] + 0.0)
    total = 0.0
    for place in range(first, first + count):
        share = math.exp(params[row, place] - largest)
        into[row, place] = share
        total += share
    norm = largest + math.log(total)
    entropy = 0.0
    for place in range(first, first + count):
        chance = into[row, place] / total
        into[row, place] = chance
        entropy -= chance * (params[row, place] - norm)
    return norm, entropy


@kernel
def unit_of(action: float, low: float, span: float) -> float:
    """Where between its bounds an action lies, as far from both ends as a Beta needs."""
    return min(max((action - low) / span, BETA_EDGE), 1.0 - BETA_EDGE)


# ---------------------------------------------------------------------- log-probability and entropy


@kernel
def log_prob_and_entropy(
    params: Array, row: int, action: Array, at: int, dimensions: Array, bounds: Array, vector: Array, chances: Array
) -> tuple[float, float]:
    """Of one row of `params`, and row `at` of `action`: sums over dimensions. The same row of `chances` is written over: the probabilities
    of choices."""
    log_prob, entropy = 0.0, 0.0
    for k in range(dimensions.shape[0]):
        kind, column, first, other = dimensions[k, 0], dimensions[k, 1], dimensions[k, 2], dimensions[k, 3]
        low, span = bounds[column, 0], bounds[column, 1]
        if kind == CATEGORICAL:
            norm, spread = log_normaliser(params, row, first, other, chances)
            log_prob += params[row, first + int(action[at, column])] - norm
            entropy += spread
        elif kind == BERNOULLI:
            up = (action[at, column] - low) / span
            logit = params[row, first] + 0.0
            log_up, log_down = -softplus(-logit), -softplus(logit)
            log_prob += up * log_up + (1.0 - up) * log_down
            chance = sigmoid(logit)
            entropy -= chance * log_up + (1.0 - chance) * log_down
        elif kind == GAUSSIAN:
            log_std = vector[other] + 0.0
            scaled = (action[at, column] - params[row, first]) * math.exp(-log_std)
            log_prob -= 0.5 * scaled * scaled + log_std + HALF_LOG_TWO_PI
            entropy += log_std + HALF_LOG_TWO_PI + 0.5
        else:
            a, b = 1.0 + softplus(params[row, first] + 0.0), 1.0 + softplus(params[row, other] + 0.0)
            unit = unit_of(action[at, column], low, span)
            log_beta = math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)
            log_prob += (a - 1) * math.log(unit) + (b - 1) * math.log1p(-unit) - log_beta - math.log(span)
            entropy += log_beta - (a - 1) * digamma(a) - (b - 1) * digamma(b) + (a + b - 2) * digamma(a + b)
            entropy += math.log(span)
    return log_prob, entropy


@kernel
def pull_params(
    params: Array,
    row: int,
    action: Array,
    at: int,
    dimensions: Array,
    bounds: Array,
    vector: Array,
    to_log_prob: float,
    to_entropy: float,
    into: Array,
    gradient: Array,
) -> None:
    """Of one row, from d loss / d (log-probability, entropy): d loss / d parameters, written over the same row of `into`; log-deviations, which are
    weights of their own, have theirs added to `gradient`."""
    for k in range(dimensions.shape[0]):
        kind, column, first, other = dimensions[k, 0], dimensions[k, 1], dimensions[k, 2], dimensions[k, 3]
        low, span = bounds[column, 0], bounds[column, 1]
        if kind == CATEGORICAL:  # d log p_i / d logit_j = (i = j) - p_j;  d H / d logit_j = -p_j (log p_j + H)
            norm, entropy = log_normaliser(params, row, first, other, into)
            chosen = first + int(action[at, column])
            for place in range(first, first + other):
                into[row, place] *= -to_log_prob - to_entropy * (params[row, place] - norm + entropy)
            into[row, chosen] += to_log_prob
        elif kind == BERNOULLI:  # d log p / d logit = up - p;  d H / d logit = -logit p (1 - p)
            up = (action[at, column] - low) / span
            logit = params[row, first] + 0.0
            chance = sigmoid(logit)
            into[row, first] = to_log_prob * (up - chance) - to_entropy * logit * chance * (1.0 - chance)
        elif kind == GAUSSIAN:  # d log p / d mean = z / std;  d log p / d log_std = z² - 1;  d H / d log_std = 1
            inverse = math.exp(-(vector[other] + 0.0))
            scaled = (action[at, column] - params[row, first]) * inverse
            into[row, first] = to_log_prob * scaled * inverse
            gradient[other] += to_log_prob * (scaled * scaled - 1.0) + to_entropy
        else:
            pull_beta(params, row, unit_of(action[at, column], low, span), first, other, to_log_prob, to_entropy, into)


@kernel
def pull_beta(
    params: Array, row: int, unit: float, first: int, second: int, to_log_prob: float, to_entropy: float, into: Array
) -> None:
    """d log p / d a = log u - psi(a) + psi(a + b);  d H / d a = (a + b - 2) psi'(a + b) - (a - 1) psi'(a);  da / d parameter = its sigmoid."""
    a, b = 1.0 + softplus(params[row, first] + 0.0), 1.0 + softplus(params[row, second] + 0.0)
    both, shared = digamma(a + b), (a + b - 2) * trigamma(a + b)
    to_a = to_log_prob * (math.log(unit) - digamma(a) + both) + to_entropy * (shared - (a - 1) * trigamma(a))
    to_b = to_log_prob * (math.log1p(-unit) - digamma(b) + both) + to_entropy * (shared - (b - 1) * trigamma(b))
    into[row, first] = to_a * sigmoid(params[row, first] + 0.0)
    into[row, second] = to_b * sigmoid(params[row, second] + 0.0)


# ---------------------------------------------------------------------- drawing


@kernel
def make_noise(params: Array, generator: np.random.Generator, parts: Array, dimensions: Array, noise: Array) -> None:
    """What the draws of all rows are made of, [N, A]: part after part of the head, as policies/heads.py asks its generator."""
    for part in range(parts.shape[0]):
        for row in range(params.shape[0]):
            for k in range(parts[part, 0], parts[part, 1]):
                kind, column, first, other = dimensions[k, 0], dimensions[k, 1], dimensions[k, 2], dimensions[k, 3]
                if kind == GAUSSIAN:
                    noise[row, column] = generator.standard_normal(dtype=np.float32)
                elif kind == BETA:
                    a, b = 1.0 + softplus(params[row, first] + 0.0), 1.0 + softplus(params[row, other] + 0.0)
                    noise[row, column] = generator.beta(a, b) if finite(a + b) else math.nan  # it would search for ever
                else:
                    noise[row, column] = generator.random(dtype=np.float32)


@kernel
def draw(params: Array, row: int, noise: Array, dimensions: Array, bounds: Array, vector: Array, action: Array) -> None:
    """The raw action of one row. `noise` [N, A] is uniform for choices, normal for Gaussians, and for a Beta the unit draw itself."""
    for k in range(dimensions.shape[0]):
        kind, column, first, other = dimensions[k, 0], dimensions[k, 1], dimensions[k, 2], dimensions[k, 3]
        low, span = bounds[column, 0], bounds[column, 1]
        if kind == CATEGORICAL:
            action[row, column] = draw_choice(params, row, first, other, noise[row, column])
        elif kind == BERNOULLI:
            action[row, column] = low + span * (1.0 if noise[row, column] < sigmoid(params[row, first] + 0.0) else 0.0)
        elif kind == GAUSSIAN:
            action[row, column] = params[row, first] + math.exp(vector[other] + 0.0) * noise[row, column]
        else:
            unit = noise[row, column] + 0.0
            if unit < BETA_EDGE:  # comparisons that leave NaN what it is
                unit = BETA_EDGE
            elif unit > 1.0 - BETA_EDGE:
                unit = 1.0 - BETA_EDGE
            action[row, column] = low + span * unit


@kernel
def draw_choice(params: Array, row: int, first: int, count: int, noise: float) -> int:
    """The first choice whose share of the probabilities, added up, passes the noise."""
    largest = params[row, first] + 0.0
    for place in range(first + 1, first + count):
        largest = max(largest, params[row, place] + 0.0)
    total = 0.0
    for place in range(first, first + count):
        total += math.exp(params[row, place] - largest)
    reached = 0.0
    for place in range(first, first + count - 1):
        reached += math.exp(params[row, place] - largest)
        if noise * total <= reached:
            return place - first
    return count - 1


@kernel
def likeliest(params: Array, row: int, dimensions: Array, bounds: Array, action: Array) -> None:
    """The deterministic action of one row: the likeliest choice; of a Gaussian and a Beta the mean."""
    for k in range(dimensions.shape[0]):
        kind, column, first, other = dimensions[k, 0], dimensions[k, 1], dimensions[k, 2], dimensions[k, 3]
        low, span = bounds[column, 0], bounds[column, 1]
        if kind == CATEGORICAL:
            best = first
            for place in range(first + 1, first + other):
                if params[row, place] > params[row, best]:
                    best = place
            action[row, column] = best - first
        elif kind == BERNOULLI:
            action[row, column] = low + span * (1.0 if params[row, first] > 0 else 0.0)
        elif kind == GAUSSIAN:
            action[row, column] = params[row, first]
        else:
            a, b = 1.0 + softplus(params[row, first] + 0.0), 1.0 + softplus(params[row, other] + 0.0)
            action[row, column] = low + span * (a / (a + b))
