"""How sure a score is, and whether two methods differ on the same examples.

Everything takes strata: one array of per-example values a task. A single task is one stratum; the average over
tasks is the unweighted mean of the strata's means, whatever their sizes, as in the papers' tables. Resampling
stays within a stratum and is seeded, so that a table is the same each time it is made.

Sources: bootstrap percentile interval, Efron and Tibshirani 1993, chapter 13; sign-flip (paired permutation)
test, Fisher 1935, its Monte Carlo p-value (b + 1) / (m + 1), Davison and Hinkley 1997, section 4.2; correction
for many comparisons, Holm 1979.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist

import numpy as np

Values = np.ndarray  # float64 [n]
Strata = Sequence[Values]

RESAMPLES = 2000
FLIPS = 10_000
MOST_FLIPS = 100_000  # so that a clear difference can survive the correction for some hundred comparisons
EXACT = 13  # up to so many non-zero differences, all sign patterns are gone through
_CHUNK = 2_000_000  # random numbers held at a time


@dataclass(frozen=True)
class Estimate:
    """A mean with its standard error and its 95% bootstrap interval; NaN where one value cannot tell."""

    mean: float
    error: float
    low: float
    high: float


@dataclass(frozen=True)
class Difference(Estimate):
    """The mean of paired differences; `p` is two-sided: signs are exchangeable if the methods are equal."""

    p: float


def plain(strata: Strata) -> Estimate:
    """Return the mean of the strata's means and its standard error; no interval, which takes resampling.

    Args:
        strata: per-example values, float `[n]` each; the sizes may differ.

    Raises:
        ValueError: no stratum, or an empty one.
    """
    if not strata or any(len(values) == 0 for values in strata):
        raise ValueError("a mean needs at least one value in every stratum")
    mean, error = float(np.mean([values.mean() for values in strata])), math.nan
    if all(len(values) > 1 for values in strata):
        error = math.sqrt(sum(values.var(ddof=1) / len(values) for values in strata)) / len(strata)
    return Estimate(mean, error, math.nan, math.nan)


def estimate(strata: Strata, seed: int = 0) -> Estimate:
    """Return `plain` with the interval. Raises ValueError as it."""
    found = plain(strata)
    if math.isnan(found.error):
        return found
    random = np.random.default_rng(seed)
    means = np.mean([_resampled_means(values, random) for values in strata], axis=0)
    low, high = np.quantile(means, [0.025, 0.975])
    return replace(found, low=float(low), high=float(high))


def difference(left: Strata, right: Strata, seed: int = 0) -> Difference:
    """Return left minus right, where the two are scores of the same examples in the same order.

    Raises:
        ValueError: the two are not paired, or a stratum is empty.
    """
    differences = [one - other for one, other in zip(left, right, strict=True)]
    found = estimate(differences, seed)
    return Difference(found.mean, found.error, found.low, found.high, sign_flip(differences, seed))


def sign_flip(differences: Strata, seed: int = 0) -> float:
    """Return the two-sided p-value of the mean of the strata's means under random signs of the differences.

    Exact for up to `EXACT` non-zero differences. Beyond that random signs: `FLIPS` of them, and `MOST_FLIPS` if
    fewer than ten reach the observed mean.
    """
    weighted = [values / (len(values) * len(differences)) for values in differences]
    terms = np.concatenate(weighted)
    terms = terms[terms != 0]
    if len(terms) == 0:
        return 1.0
    # Means that are equal on paper differ in the last bits by the order of adding.
    reached = abs(terms.sum()) - 1e-12 * np.abs(terms).sum()
    if len(terms) <= EXACT:
        patterns = (np.arange(2 ** len(terms))[:, None] >> np.arange(len(terms))) & 1
        return float(np.mean(np.abs(_sums(2 * patterns - 1, terms)) >= reached))
    random = np.random.default_rng(seed)
    flips, hits = FLIPS, _hits(terms, reached, FLIPS, random)
    if hits < 10:
        hits += _hits(terms, reached, MOST_FLIPS - FLIPS, random)
        flips = MOST_FLIPS
    return (hits + 1) / (flips + 1)


def holm(ps: Sequence[float]) -> list[float]:
    """Return Holm's adjusted p-values in the given order; NaN marks a comparison that was not made."""
    made = sorted((p, place) for place, p in enumerate(ps) if not math.isnan(p))
    adjusted, highest = [math.nan] * len(ps), 0.0
    for rank, (p, place) in enumerate(made):
        highest = max(highest, min(1.0, p * (len(made) - rank)))
        adjusted[place] = highest
    return adjusted


def detectable(error: float, power: float = 0.8, alpha: float = 0.05) -> float:
    """Return the smallest true difference that a two-sided test finds with this power, given its standard error."""
    return (NormalDist().inv_cdf(1 - alpha / 2) + NormalDist().inv_cdf(power)) * error


def times_needed(effect: float, error: float, power: float = 0.8, alpha: float = 0.05) -> float:
    """Return how many times the examples at hand are needed to detect `effect`; infinite for no effect."""
    return (detectable(error, power, alpha) / effect) ** 2 if effect else math.inf


def _resampled_means(values: Values, random: np.random.Generator) -> Values:
    drawn = random.integers(0, len(values), size=(RESAMPLES, len(values)), dtype=np.int32)
    return np.asarray(values[drawn].mean(axis=1))


def _hits(terms: Values, reached: float, flips: int, random: np.random.Generator) -> int:
    """Count the random sign patterns whose sum is at least as far from 0 as the observed one."""
    hits, total = 0, terms.sum()
    most = max(1, _CHUNK // len(terms))
    for start in range(0, flips, most):
        rows = min(most, flips - start)
        packed = np.frombuffer(random.bytes(rows * math.ceil(len(terms) / 8)), dtype=np.uint8)
        signs = np.unpackbits(packed.reshape(rows, -1), axis=1)[:, : len(terms)]
        hits += int(np.count_nonzero(np.abs(2 * _sums(signs, terms) - total) >= reached))
    return hits


def _sums(rows: np.ndarray, terms: Values) -> Values:
    """`rows @ terms`, in one thread: for a product this thin, BLAS would wake all of them and be slower."""
    return np.asarray(np.einsum("ij,j->i", rows, terms))
