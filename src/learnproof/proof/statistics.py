"""The statistics behind the verdict: small pure functions, arrays in, numbers out.

Whatever draws random numbers takes its generator, so that the same evidence always gets the same verdict. The error rate
of each test under its null hypothesis is simulated in tests/unit/proof/test_statistics.py. The distributions come from
scipy.special: scipy.stats has the same ones and takes most of a second to import.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import bdtrc, ndtr, ndtri, stdtr

Array = np.ndarray[Any, Any]

DRAWS = 9_999
"""Random sign patterns or resamples: the smallest p-value is then 1 / 10,000."""
EXACT_UP_TO = 14
"""Differences up to which all 2**n sign patterns are enumerated instead of drawn."""
CHUNK_NUMBERS = 2_000_000
"""Random numbers held at once (16 MB)."""
BET = 0.9
"""Largest stake of `betting_p_value`: twelve wrong ones in a row reach p = 0.0005; a clear right one costs a factor of ten."""
SMALL = 0.5
"""Numbers below this share of the usual size so far are bet on less, in proportion."""
FEWEST_AT_AN_END = 5
DIFFERENCES_FROM = 80
"""Points from which `ends_test` takes differences of neighbours for the noise."""
NOISE_FREEDOM = 8
"""Degrees of freedom, at either end, from which the spread within policies is taken for the noise."""
STEP_PARTS = (20, 10, 4)
STEP_FROM = 300
"""Points from which `step_test` speaks: of fewer, its 30 late blocks do not tell a strong autocorrelation from noise."""
TREND_POINTS = 60
"""Blocks into which a long series is averaged before its trend is tested."""


def sign_flip_test(differences: Sequence[float] | Array, generator: np.random.Generator, draws: int = DRAWS) -> float:
    """One-sided p-value of "the mean of these paired differences is above 0".

    If there were no effect, each difference could as well have had the other sign: the p-value is the share of sign
    patterns whose sum is at least the observed one. Exact for differences that are symmetric under the null (two
    policies that are the same one, on the same seed, are), and needs no normality.
    """
    values = np.asarray(differences, dtype=np.float64)
    values = values[values != 0]
    if values.size == 0:
        return 1.0
    threshold = values.sum() - 1e-12 * np.abs(values).sum()
    if values.size <= EXACT_UP_TO:
        patterns = np.arange(2**values.size)[:, None] >> np.arange(values.size) & 1
        return float(np.mean((1 - 2 * patterns) @ values >= threshold))
    reached = 0
    for count in _chunks(draws, values.size):
        signs = generator.integers(0, 2, size=(count, values.size), dtype=np.int8) * 2 - 1
        reached += int(np.sum(signs @ values >= threshold))
    return (1 + reached) / (1 + draws)


def skewness_corrected_test(differences: Sequence[float] | Array) -> float:
    """One-sided p-value of "the mean is above 0", by Student's t after Hall's correction for skewness.

    Where a few large losses balance many small wins, the sign-flip test takes the wins for an effect twice as often as it
    says (0.12 instead of 0.05 for 100 lognormal losses); this one does not (0.06). Hall's cubic is monotone, so
    a clearer lead never looks less clear.
    """
    values = np.asarray(differences, dtype=np.float64)
    mean = float(values.mean()) if values.size else 0.0
    spread = float(values.std(ddof=1)) if values.size > 1 else 0.0
    if spread <= 1e-12 * abs(mean) or spread == 0:
        return 0.0 if mean > 0 and values.size > 1 else 1.0
    skewness = float(np.mean(((values - mean) / spread) ** 3))
    lead = mean / spread
    corrected = lead + skewness * lead**2 / 3 + skewness**2 * lead**3 / 27 + skewness / (6 * values.size)
    return float(stdtr(values.size - 1, -math.sqrt(values.size) * corrected))


def welch_test(first: Sequence[float] | Array, second: Sequence[float] | Array) -> float:
    """One-sided p-value of "the second mean is above the first", for independent numbers of unequal spread (Welch)."""
    a, b = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    if a.size < 2 or b.size < 2:
        return 1.0
    parts = a.var(ddof=1) / a.size, b.var(ddof=1) / b.size
    lead = float(b.mean() - a.mean())
    error = math.sqrt(sum(parts))
    if error == 0:
        return 0.0 if lead > 0 else 1.0
    freedom = sum(parts) ** 2 / (parts[0] ** 2 / (a.size - 1) + parts[1] ** 2 / (b.size - 1))
    return float(stdtr(freedom, -lead / error))


def sign_test(yes: int, no: int) -> float:
    """One-sided: how likely are at least so many yes among so many answers, if a coin gave them? Ties are left out before."""
    return float(bdtrc(yes - 1, yes + no, 0.5)) if yes else 1.0


def smallest_sample_for(level: float) -> int:
    """Differences below which no sign-flip test can reach `level`, however clear they are."""
    return math.ceil(-math.log2(level))


def bca_interval(
    sample: Sequence[float] | Array, confidence: float, generator: np.random.Generator, draws: int = DRAWS
) -> tuple[float, float]:
    """Bootstrap interval of the mean, bias-corrected and accelerated (BCa).

    BCa and not percentile-t: both correct for skewed scores, but percentile-t divides by the spread of each resample,
    which is 0 where most scores are equal (a task that is solved on nearly every seed), and its ends become infinite.
    """
    values = np.asarray(sample, dtype=np.float64)
    mean = float(values.mean())
    if values.size < 2 or np.all(values == values[0]):
        return mean, mean
    means = np.concatenate(
        [
            values[generator.integers(0, values.size, size=(count, values.size))].mean(axis=1)
            for count in _chunks(draws, values.size)
        ]
    )
    below = (np.sum(means < mean) + 0.5 * np.sum(means == mean)) / draws
    bias = ndtri(np.clip(below, 0.5 / draws, 1 - 0.5 / draws))
    centred = values - mean
    acceleration = np.sum(centred**3) / (6 * np.sum(centred**2) ** 1.5)
    ends = []
    for tail in ((1 - confidence) / 2, (1 + confidence) / 2):
        shifted = bias + ndtri(tail)
        ends.append(ndtr(bias + shifted / (1 - acceleration * shifted)))
    low, high = np.quantile(means, ends)
    return float(low), float(high)


def betting_p_value(numbers: Sequence[float] | Array) -> float:
    """Anytime-valid p-value of "these numbers tend to be negative", in the order in which they came.

    A gambler starts with 1 and bets that each next number is negative. He is told its size first, and stakes the share
    BET of what he has, less where the number is small against those before it. If negative is at most as likely as positive,
    whatever the size and whatever happened before, his fortune is a supermartingale: it ever reaches 1/p with
    probability at most p (Ville). One may therefore look after every update and accuse at the first crossing without
    raising the rate of false accusations. A 0 is no bet.
    """
    values = np.asarray(numbers, dtype=np.float64)
    values = values[values != 0]
    sizes = np.abs(values)
    usual = _running_median(sizes)
    stakes = BET * np.minimum(1.0, sizes / (SMALL * usual))
    fortune = np.cumsum(np.log1p(-stakes * np.sign(values)))
    return float(np.exp(-np.max(fortune, initial=0.0)))


def bets_needed(level: float) -> int:
    """Clearly negative numbers in a row after which `betting_p_value` reaches `level`."""
    return math.ceil(-math.log(level) / math.log1p(BET))


def holm_levels(p_values: Sequence[float], rate: float) -> list[float]:
    """The level at which each p-value may be judged so that all together err with probability at most `rate` (Holm).

    The smallest is judged at rate / k; only if it is rejected the next at rate / (k - 1), and so on.
    """
    levels = [rate] * len(p_values)
    level, accepted = rate, False
    for place, position in enumerate(np.argsort(p_values, kind="stable")):
        if not accepted:
            level = rate / (len(p_values) - place)
        levels[position] = level
        accepted = accepted or p_values[position] > level
    return levels


@dataclass(frozen=True)
class Trend:
    slope: float
    """Theil-Sen: the median of all pairwise slopes, per point of the series that was given."""
    p_value: float
    """One-sided, of "it rises"; 1 - p_value is that of "it falls"."""
    effective_points: float
    """How many independent points the series is worth."""


def trend_test(series: Sequence[float] | Array) -> Trend:
    """Mann-Kendall test for a rising series whose neighbouring points resemble each other.

    Training curves are autocorrelated, which makes the plain test see trends in a random walk round nothing. The series
    is averaged into at most TREND_POINTS blocks, and the variance of the statistic is enlarged by the number of points
    over the number of effective points: n (1 - r) / (1 + r), with r the first autocorrelation of what remains round a line
    that may bend (a + b t + c log t: most of what is learnt is learnt early), corrected for its bias in short series. Round a
    straight line the bend itself would count as resemblance: of 53 episodes from 12 to 36 that rise at first and then stay, half
    were not seen. Simulated at 0.025 without a trend it errs in 1.5 to 2.6 of 100 cases with no autocorrelation, and of 30, 53 and
    100 points in 3.7, 2.5 and 2.6 with 0.5, in 8.2, 5.9 and 2.3 with 0.9.
    """
    points = block_means(series, TREND_POINTS)
    count = points.size
    if count < 4:
        return Trend(0.0, 0.5, float(count))
    first, second = np.triu_indices(count, 1)
    steps = points[second] - points[first]
    slope = float(np.median(steps / (second - first)))
    time = (np.arange(count) + 0.5) / count
    bend = np.stack([np.ones(count), time, np.log(time)], axis=1)
    rest = points - bend @ np.linalg.lstsq(bend, points, rcond=None)[0]
    rounding = 1e-9 * float(np.abs(points).max())
    effective = effective_sample_size(np.where(np.abs(rest) > rounding, rest, 0.0), fitted=3)
    variance = count * (count - 1) * (2 * count + 5) / 18 * count / effective
    score = float(np.sum(np.sign(steps)))
    z = (score - np.sign(score)) / math.sqrt(variance)
    return Trend(slope * count / len(series), float(ndtr(-z)), effective)


def rise_test(series: Sequence[float] | Array, policies: Sequence[int | None] | None = None) -> Trend:
    """A rising series, whether it rises all along (trend_test), at once and then stays (step_test, of long ones) or in a curve that
    bends (ends_test; policies_test, where it is known which policy played each point). Two to four looks, each at its share of the
    level."""
    trend = trend_test(series)
    looks = [trend.p_value, ends_test(series)]
    if len(series) >= STEP_FROM:
        looks.append(step_test(series))
    if policies is not None and None not in policies:
        by_policy = policies_test(series, np.array(policies))
        looks += [] if by_policy is None else [by_policy]
    return Trend(trend.slope, min(1.0, len(looks) * min(looks)), trend.effective_points)


def ends_test(series: Sequence[float] | Array) -> float:
    """One-sided p-value of "the last quarter is above the first" (Welch), allowing for neighbours that resemble each other.

    Simulated for 80 to 2,000 points, it errs as often as it says or less with autocorrelations up to 0.7, and up to twice as often with 0.9.
    Of 30 points an autocorrelation can be seen only roughly: with 0.5, the test at 0.025 errs in 5 of 100 cases.
    """
    values = np.asarray(series, dtype=np.float64)
    size = values.size // 4
    if size < FEWEST_AT_AN_END:
        return 1.0
    ends = (values[:size], values[-size:])
    powers, correlation = _noise_by_differences(ends) if values.size >= DIFFERENCES_FROM else _noise_round_means(ends)
    worth = size * (1 - correlation) / (1 + correlation)
    parts = [power / worth for power in powers]
    lead, error = float(ends[1].mean() - ends[0].mean()), math.sqrt(sum(parts))
    if error == 0:
        return 0.0 if lead > 0 else 1.0
    freedom = sum(parts) ** 2 / sum(part**2 / max(worth - 1, 1.0) for part in parts)
    return float(stdtr(max(freedom, 1.0), -lead / error))


def policies_test(series: Sequence[float] | Array, policies: Array) -> float | None:
    """One-sided p-value of "the policies of the last quarter play better than those of the first" (Welch).

    Points of one policy are draws from one distribution, whatever its neighbours are like: their spread round its mean is the noise, and
    resemblance of neighbours is none. None where fewer than NOISE_FREEDOM points at either end have another of the same policy.
    """
    values = np.asarray(series, dtype=np.float64)
    size = values.size // 4
    if size < FEWEST_AT_AN_END:
        return None
    means, parts, freedoms = [], [], []
    for end in (slice(0, size), slice(values.size - size, values.size)):
        own = values[end]
        _, groups = np.unique(policies[end], return_inverse=True)
        counts = np.bincount(groups)
        own_freedom = int((counts - 1).sum())
        if own_freedom < NOISE_FREEDOM:
            return None
        rest = own - (np.bincount(groups, own) / counts)[groups]
        means.append(float(own.mean()))
        parts.append(float(rest @ rest) / own_freedom / size)
        freedoms.append(own_freedom)
    error = math.sqrt(sum(parts))
    if error == 0:
        return 0.0 if means[1] > means[0] else 1.0
    freedom = sum(parts) ** 2 / sum(part**2 / own for part, own in zip(parts, freedoms, strict=True))
    return float(stdtr(freedom, -(means[1] - means[0]) / error))


def _noise_by_differences(ends: tuple[Array, Array]) -> tuple[list[float], float]:
    """Power of the noise at either end, and its first autocorrelation, by what points one and two places apart differ by.

    A curve that bends, as learning curves do, leaves long waves round any line, which would count as the noise's own; a slow rise hardly
    adds to differences. Of an autocorrelation r, those over two places have 1 + r times the power of those over one; r is
    taken a standard error higher than found.
    """
    near = [float(np.mean(np.diff(end) ** 2)) / 2 for end in ends]
    far = [float(np.mean((end[2:] - end[:-2]) ** 2)) / 2 for end in ends]
    found = (
        sum(far) / sum(near) - 1 if sum(near) > 0 else 0.0
    )  # by power: an end that stands still has a drift and hardly any noise
    correlation = min(max(found + 1 / math.sqrt(2 * ends[0].size), 0.0), 0.95)
    return [power / (1 - correlation) for power in near], correlation


def _noise_round_means(ends: tuple[Array, Array]) -> tuple[list[float], float]:
    """The same round the mean of either end, which says more of a few points and takes a rise inside of an end for noise."""
    products = power = 0.0
    for end in ends:
        rest = end - end.mean()
        products += float(rest[1:] @ rest[:-1])
        power += float(rest @ rest)
    raw = products / power if power else 0.0
    return [float(end.var(ddof=1)) for end in ends], min(max(raw + (1 + 4 * raw) / ends[0].size, 0.0), 0.95)


def step_test(series: Sequence[float] | Array) -> float:
    """One-sided p-value of "it began lower than it ended", for a series that would be stationary if nothing were learnt.

    The first 1/20, 1/10 and 1/4 are each compared with the last half (Welch, corrected for three looks). Spread and
    autocorrelation come from the last half, less its straight line, for a run that has learnt stands still or rises slowly
    there; the spread of the beginning counts where it is larger, by successive differences, which a rise does not enlarge.
    """
    points = block_means(series, TREND_POINTS)
    if len(series) < STEP_FROM:
        return 1.0
    late = points[points.size // 2 :]
    places = np.arange(late.size) - (late.size - 1) / 2
    rest = late - late.mean() - places * float(places @ late) / float(places @ places)
    effective = effective_sample_size(rest)
    p_values = []
    for part in STEP_PARTS:
        early = points[: points.size // part]
        spread = max(float(rest @ rest) / (late.size - 2), float(np.mean(np.diff(early) ** 2)) / 2)
        worth = early.size * effective / late.size
        error = math.sqrt(spread * (1 / effective + 1 / max(worth, 1.0)))
        lead = float(late.mean() - early.mean())
        if error == 0:
            p_values.append(0.0 if lead > 0 else 1.0)
        else:
            p_values.append(float(stdtr(max(effective - 1, 1.0), -lead / error)))
    return min(1.0, len(STEP_PARTS) * min(p_values))


def effective_sample_size(series: Sequence[float] | Array, fitted: int = 2) -> float:
    """Independent points that a stationary series is worth, by its first autocorrelation; never more than it has. `fitted` numbers were
    taken from the series before (its mean and slope, say), which makes neighbours look less alike than they are."""
    values = np.asarray(series, dtype=np.float64)
    values = values - values.mean()
    power = float(values @ values)
    if values.size < 4 or power == 0:
        return float(values.size)
    raw = float(values[1:] @ values[:-1]) / power
    correlation = min(max(raw + (fitted - 1 + (fitted + 2) * raw) / values.size, 0.0), 0.99)
    return float(max(1.0, values.size * (1 - correlation) / (1 + correlation)))


def block_means(series: Sequence[float] | Array, blocks: int) -> Array:
    """Means of `blocks` runs of neighbours of nearly equal length, or the series itself where it is shorter."""
    values = np.asarray(series, dtype=np.float64)
    if values.size <= blocks:
        return values
    edges = np.linspace(0, values.size, blocks + 1).astype(int)
    return np.add.reduceat(values, edges[:-1]) / np.diff(edges)


def sample_size_needed(
    differences: Sequence[float] | Array, level: float, power: float = 0.8, smallest: int = 1
) -> int | None:
    """Differences like these that a one-sided test at `level` needs to succeed with probability `power`.

    None where the mean is not above 0: no number of further ones would help if they are like these.
    """
    values = np.asarray(differences, dtype=np.float64)
    mean = float(values.mean()) if values.size else 0.0
    if mean <= 0:
        return None
    spread = float(values.std(ddof=1)) if values.size > 1 else 0.0
    needed = float((ndtri(1 - level) + ndtri(power)) * spread / mean) ** 2
    return max(smallest, smallest_sample_for(level), math.ceil(min(needed, 1e9)))


def _running_median(values: Array) -> Array:
    """The median of each value and all before it."""
    ordered: list[float] = []
    medians = np.empty(values.size)
    for position, value in enumerate(values):
        bisect.insort(ordered, float(value))
        medians[position] = (ordered[position // 2] + ordered[(position + 1) // 2]) / 2
    return medians


def _chunks(draws: int, width: int) -> Iterator[int]:
    size = max(1, CHUNK_NUMBERS // width)
    for start in range(0, draws, size):
        yield min(size, draws - start)
