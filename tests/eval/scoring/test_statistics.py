"""Statistics against brute force: every sign pattern, every resample drawn one by one, scipy's own versions."""

from __future__ import annotations

import itertools
import math
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from eval.scoring import statistics

SCORES = st.lists(st.sampled_from([-1.0, -0.5, -0.1, 0.0, 0.1, 0.2, 1.0]), min_size=1, max_size=5)


def draw(n: int, mean: float = 0.0, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(mean, 1.0, n)


@settings(max_examples=50, deadline=None)
@given(st.lists(SCORES, min_size=1, max_size=2))
def test_the_exact_test_goes_through_every_sign_pattern(lists: list[list[float]]) -> None:
    def mean_of_means(signs: tuple[int, ...]) -> float:
        left = iter(signs)
        return sum(sum(next(left) * x for x in one) / len(one) for one in lists) / len(lists)

    patterns = list(itertools.product((1, -1), repeat=sum(map(len, lists))))
    observed = abs(mean_of_means(patterns[0]))
    expected = sum(abs(mean_of_means(signs)) >= observed - 1e-12 for signs in patterns) / len(patterns)
    assert statistics.sign_flip([np.array(one) for one in lists]) == pytest.approx(expected)


def test_random_signs_agree_with_scipy() -> None:
    values = draw(40, 0.3, seed=3)
    theirs = stats.permutation_test(
        (values,), np.mean, permutation_type="samples", n_resamples=20_000, rng=np.random.default_rng(1)
    )
    assert statistics.sign_flip([values]) == pytest.approx(theirs.pvalue, abs=0.01)


def test_a_clear_difference_gets_a_p_small_enough_for_many_comparisons() -> None:
    assert statistics.sign_flip([draw(200, 2.0)]) == pytest.approx(1 / (statistics.MOST_FLIPS + 1))
    assert statistics.sign_flip([np.zeros(200)]) == 1.0


def test_p_values_of_equal_methods_are_uniform() -> None:
    ps = [statistics.sign_flip([draw(20, seed=seed)], seed) for seed in range(200)]
    assert stats.kstest(ps, "uniform").pvalue > 0.01


def test_the_interval_agrees_with_one_by_one_resampling() -> None:
    strata = [draw(30, 1.0, seed=1), draw(60, 5.0, seed=2)]
    dice = random.Random(0)
    means = sorted(
        np.mean([np.mean(dice.choices(list(values), k=len(values))) for values in strata]) for _ in range(4000)
    )
    found = statistics.estimate(strata)
    assert found.mean == pytest.approx((strata[0].mean() + strata[1].mean()) / 2)
    assert found.low == pytest.approx(means[100], abs=0.03)
    assert found.high == pytest.approx(means[3900], abs=0.03)
    assert found.error == pytest.approx(np.std(means), rel=0.06)
    assert found == statistics.estimate(strata)
    assert found != statistics.estimate(strata, seed=1)


def test_the_interval_of_one_task_agrees_with_scipy() -> None:
    values = draw(80, 3.0)
    theirs = stats.bootstrap((values,), np.mean, method="percentile", rng=np.random.default_rng(0))
    found = statistics.estimate([values])
    assert found.low == pytest.approx(theirs.confidence_interval.low, abs=0.03)
    assert found.high == pytest.approx(theirs.confidence_interval.high, abs=0.03)
    assert found.error == pytest.approx(stats.sem(values))


def test_a_difference_is_that_of_the_pairs() -> None:
    left, right = draw(50, 1.0, seed=1), draw(50, 0.0, seed=2)
    found = statistics.difference([left], [right])
    alone = statistics.estimate([left - right])
    assert (found.mean, found.error, found.low, found.high) == (alone.mean, alone.error, alone.low, alone.high)
    assert found.p == statistics.sign_flip([left - right])
    with pytest.raises(ValueError, match="shape"):
        statistics.difference([left], [right[:-1]])


def test_one_value_has_no_spread_and_none_is_refused() -> None:
    found = statistics.estimate([np.array([4.0]), draw(9)])
    assert math.isnan(found.error)
    assert math.isnan(found.low)
    with pytest.raises(ValueError, match="at least one value"):
        statistics.estimate([np.array([])])


def test_holm() -> None:
    assert statistics.holm([0.01, 0.04, math.nan, 0.03]) == pytest.approx([0.03, 0.06, math.nan, 0.06], nan_ok=True)
    assert statistics.holm([0.9, 0.8]) == [1.0, 1.0]
    assert statistics.holm([]) == []


def test_the_detectable_effect_is_found_eight_times_in_ten() -> None:
    n = 100
    effect = statistics.detectable(1 / math.sqrt(n))
    samples = np.random.default_rng(0).normal(effect, 1.0, (4000, n))
    assert np.mean(stats.ttest_1samp(samples, 0, axis=1).pvalue < 0.05) == pytest.approx(0.8, abs=0.03)
    assert statistics.times_needed(effect, 1 / math.sqrt(n)) == pytest.approx(1)
    assert statistics.times_needed(effect / 2, 1 / math.sqrt(n)) == pytest.approx(4)
    assert statistics.times_needed(0.0, 1.0) == math.inf
