"""Action heads (policies/heads.py): every one of them is a product of one-dimensional distributions, and they are gone through one by one,
all rows of each.

`dimensions` [K, 4] has a line for each of them: its kind, its column of the action, its first parameter, and

    CATEGORICAL   how many choices: so many parameters, the logits
    BERNOULLI     -                 one parameter, the logit of the upper end
    GAUSSIAN      where its log-deviation lies in the flat vector; one parameter, the mean
    BETA          its second parameter; both shapes are 1 + softplus of a parameter

`bounds` [A, 2] has the lower end and the width of each column. This arithmetic is done in float64, whatever the network's type: there is little
of it, and sums of logarithms want it.
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
def softplus_and_slope(x: float) -> tuple[float, float]:
    """log(1 + e^x), and its derivative: the sigmoid."""
    small = math.exp(-abs(x))
    return max(x, 0.0) + math.log1p(small), (1.0 if x >= 0.0 else small) / (1.0 + small)


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
def unit_of(action: float, low: float, span: float) -> float:
    """Where between its bounds an action lies, as far from both ends as a Beta needs."""
    return min(max((action - low) / span, BETA_EDGE), 1.0 - BETA_EDGE)


# ---------------------------------------------------------------------- log-probability and entropy

MARKS = 5
"""Numbers that a dimension remembers of each row for its derivatives."""


@kernel
def tell(
    params: Array,
    action: Array,
    dimensions: Array,
    bounds: Array,
    vector: Array,
    log_prob: Array,
    entropy: Array,
    chances: Array,
    marks: Array,
) -> None:
    """Of each row [R], summed over dimensions: the log-probability of its action, and the entropy.

    What the derivatives need is left behind: the probabilities of choices in `chances` [R, P], other numbers in `marks` [K, MARKS, R].
    """
    log_prob[:] = 0.0
    entropy[:] = 0.0
    for k in range(dimensions.shape[0]):
        kind, column, first, other = dimensions[k, 0], dimensions[k, 1], dimensions[k, 2], dimensions[k, 3]
        low, span = bounds[column, 0], bounds[column, 1]
        if kind == CATEGORICAL:
            tell_choices(params, action[:, column], first, other, log_prob, entropy, chances, marks[k])
        elif kind == BERNOULLI:
            tell_switches(params[:, first], action[:, column], low, span, log_prob, entropy, marks[k])
        elif kind == GAUSSIAN:
            tell_numbers(params[:, first], action[:, column], vector[other] + 0.0, log_prob, entropy)
        else:
            tell_shares(params[:, first], params[:, other], action[:, column], low, span, log_prob, entropy, marks[k])


@kernel
def tell_choices(
    params: Array,
    action: Array,
    first: int,
    count: int,
    log_prob: Array,
    entropy: Array,
    chances: Array,
    marks: Array,
) -> None:
    """log p_i = logit_i - log Σ exp logit;  H = -Σ p log p."""
    for row in range(params.shape[0]):
        largest = params[row, first] + 0.0
        for place in range(first + 1, first + count):
            largest = max(largest, params[row, place] + 0.0)
        total = 0.0
        for place in range(first, first + count):
            share = math.exp(params[row, place] - largest)
            chances[row, place] = share
            total += share
        norm, spread = largest + math.log(total), 0.0
        for place in range(first, first + count):
            chance = chances[row, place] / total
            chances[row, place] = chance
            spread -= chance * (params[row, place] - norm)
        log_prob[row] += params[row, first + int(action[row])] - norm
        entropy[row] += spread
        marks[0, row], marks[1, row] = norm, spread


@kernel
def tell_switches(
    logit: Array, action: Array, low: float, span: float, log_prob: Array, entropy: Array, marks: Array
) -> None:
    """log p(up) = -softplus(-logit);  log p(down) = -softplus(logit)."""
    for row in range(logit.shape[0]):
        log_down, chance = softplus_and_slope(logit[row] + 0.0)
        log_up, log_down = logit[row] - log_down, -log_down
        up = (action[row] - low) / span
        log_prob[row] += up * log_up + (1.0 - up) * log_down
        entropy[row] -= chance * log_up + (1.0 - chance) * log_down
        marks[0, row] = chance


@kernel
def tell_numbers(mean: Array, action: Array, log_std: float, log_prob: Array, entropy: Array) -> None:
    """A Gaussian: log p = -z²/2 - log std - log(2π)/2 with z = (action - mean) / std."""
    inverse = math.exp(-log_std)
    for row in range(mean.shape[0]):
        scaled = (action[row] - mean[row]) * inverse
        log_prob[row] -= 0.5 * scaled * scaled + log_std + HALF_LOG_TWO_PI
        entropy[row] += log_std + HALF_LOG_TWO_PI + 0.5


@kernel
def tell_shares(
    first: Array,
    second: Array,
    action: Array,
    low: float,
    span: float,
    log_prob: Array,
    entropy: Array,
    marks: Array,
) -> None:
    """A Beta: log p = (a - 1) log u + (b - 1) log(1 - u) - log B(a, b) - log span."""
    log_span = math.log(span)
    for row in range(first.shape[0]):
        a, slope_a = softplus_and_slope(first[row] + 0.0)
        b, slope_b = softplus_and_slope(second[row] + 0.0)
        a, b = a + 1.0, b + 1.0
        psi_a, psi_b, psi_both = digamma(a), digamma(b), digamma(a + b)
        log_beta = math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)
        unit = unit_of(action[row], low, span)
        log_prob[row] += (a - 1) * math.log(unit) + (b - 1) * math.log1p(-unit) - log_beta - log_span
        entropy[row] += log_beta - (a - 1) * psi_a - (b - 1) * psi_b + (a + b - 2) * psi_both + log_span
        marks[0, row], marks[1, row] = a, b
        marks[2, row], marks[3, row] = slope_a, slope_b
        marks[4, row] = psi_both


# ---------------------------------------------------------------------- and their derivatives


@kernel
def pull_params(
    params: Array,
    action: Array,
    dimensions: Array,
    bounds: Array,
    vector: Array,
    marks: Array,
    to_log_prob: Array,
    to_entropy: float,
    into: Array,
    gradient: Array,
) -> None:
    """From d loss / d log-probability [R] and d loss / d entropy, which is the same for every row, d loss / d parameter: written over `into`
    [R, P], where `tell` left its `chances`. Log-deviations, which are weights of their own, have theirs added to `gradient`."""
    for k in range(dimensions.shape[0]):
        kind, column, first, other = dimensions[k, 0], dimensions[k, 1], dimensions[k, 2], dimensions[k, 3]
        low, span = bounds[column, 0], bounds[column, 1]
        if kind == CATEGORICAL:
            pull_choices(params, action[:, column], first, other, marks[k], to_log_prob, to_entropy, into)
        elif kind == BERNOULLI:  # d log p / d logit = up - p;  d H / d logit = -logit p (1 - p)
            for row in range(params.shape[0]):
                chance, up = marks[k, 0, row], (action[row, column] - low) / span
                spread = params[row, first] * chance * (1.0 - chance)
                into[row, first] = to_log_prob[row] * (up - chance) - to_entropy * spread
        elif kind == GAUSSIAN:  # d log p / d mean = z / std;  d log p / d log_std = z² - 1;  d H / d log_std = 1
            inverse, total = math.exp(-(vector[other] + 0.0)), 0.0
            for row in range(params.shape[0]):
                scaled = (action[row, column] - params[row, first]) * inverse
                into[row, first] = to_log_prob[row] * scaled * inverse
                total += to_log_prob[row] * (scaled * scaled - 1.0) + to_entropy
            gradient[other] += total
        else:
            pull_shares(action[:, column], first, other, low, span, marks[k], to_log_prob, to_entropy, into)


@kernel
def pull_choices(
    params: Array,
    action: Array,
    first: int,
    count: int,
    marks: Array,
    to_log_prob: Array,
    to_entropy: float,
    into: Array,
) -> None:
    """d log p_i / d logit_j = (i = j) - p_j;  d H / d logit_j = -p_j (log p_j + H)."""
    for row in range(params.shape[0]):
        norm, spread, pull = marks[0, row], marks[1, row], to_log_prob[row] + 0.0
        for place in range(first, first + count):
            into[row, place] *= -pull - to_entropy * (params[row, place] - norm + spread)
        into[row, first + int(action[row])] += pull


@kernel
def pull_shares(
    action: Array,
    first: int,
    second: int,
    low: float,
    span: float,
    marks: Array,
    to_log_prob: Array,
    to_entropy: float,
    into: Array,
) -> None:
    """d log p / d a = log u - psi(a) + psi(a + b);  d H / d a = (a + b - 2) psi'(a + b) - (a - 1) psi'(a)."""
    for row in range(action.shape[0]):
        a, b, both = marks[0, row], marks[1, row], marks[4, row]
        unit, pull = unit_of(action[row], low, span), to_log_prob[row] + 0.0
        to_a, to_b = pull * (math.log(unit) - digamma(a) + both), pull * (math.log1p(-unit) - digamma(b) + both)
        if to_entropy != 0.0:
            shared = (a + b - 2) * trigamma(a + b)
            to_a += to_entropy * (shared - (a - 1) * trigamma(a))
            to_b += to_entropy * (shared - (b - 1) * trigamma(b))
        into[row, first], into[row, second] = to_a * marks[2, row], to_b * marks[3, row]


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
