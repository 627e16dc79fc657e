"""Ada-KV against a naive twin, and against examples worked out by hand."""

from math import floor, inf
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from baselines.ada import Ada, AdaEchoKV, AdaPyramidKV, AdaSnapKV, share
from baselines.critical_ada_snapkv import CriticalAdaSnapKV
from baselines.critical_snapkv import output_norms
from baselines.pyramidkv import PyramidKV
from baselines.snapkv import SnapKV
from echokv import Prefill, UsageError, decode
from tests import twin, twin_rivals
from tests.models import ARCHITECTURES
from tests.policies import as_lists, shared_prefill, trace
from tests.twin_model import decode as twin_decode

LENGTH = 200
GRANULARITIES = ["kv_head", "query_head"]
A = [[9, 8, 7, 6, 1, 0], [5, 4, 3, 2, 1.5, 0.5]]
B = [[9, 8, 7, 6, 5, 4], [3, 2, 1, 0.5, 0.4, 0.3]]


class Given(Ada):
    """Scores are given, and the last two tokens protected."""

    def score(self, prefill: Prefill, budget: int | None = None) -> Any:
        scores: Any = prefill
        return [torch.tensor([[*head, inf, inf] for head in scores], dtype=torch.float64)]

    def layer_budgets(self, budget: int, prefill: Prefill) -> list[int]:
        return [budget]


def shared_out(scores: list[list[float]], alpha: float, rule: Any = "interpolate") -> list[int]:
    press: Any = Given(alpha=alpha, rule=rule)
    (sizes,) = press.head_budgets(press.score(scores), 5, scores)
    return [size - 2 for size in sizes]


@pytest.mark.parametrize(
    ("scores", "alpha", "official", "exact"),
    [
        (A, 0.0, [4, 2], [4, 2]),
        (A, 0.2, [3, 2], [4, 2]),
        (A, 0.5, [3, 2], [4, 2]),
        (A, 1.0, [3, 3], [3, 3]),
        (B, 0.0, [6, 0], [6, 0]),
        (B, 0.2, [5, 0], [5, 1]),
        (B, 0.5, [4, 1], [5, 1]),
        (B, 1.0, [3, 3], [3, 3]),
    ],
)
def test_by_hand(scores: list[list[float]], alpha: float, official: list[int], exact: list[int]) -> None:
    """Of 8 tokens the last two are protected, and 5 - 2 are left to each of two heads."""
    assert shared_out(scores, alpha) == official
    assert shared_out(scores, alpha, "exact") == exact


def test_halves_go_to_the_even_number() -> None:
    assert share([5, 5, 2], [4, 4, 4], 0.5, exact=False) == [4, 4, 3]
    assert share([5, 5, 2], [4, 4, 4], 0.5, exact=True) == [5, 4, 3]


def test_equal_scores_fill_the_lower_head_first() -> None:
    assert shared_out([[1.0] * 6, [1.0] * 6], 0.0) == [6, 0]
    assert shared_out([[0.0] * 6, [1.0] * 3 + [0.0] * 3], 0.0) == [3, 3]


@given(
    st.lists(st.integers(0, 50), min_size=1, max_size=8),
    st.sampled_from([0.0, 0.05, 0.2, 0.3, 0.5, 0.7, 1.0]),
)
def test_exact_shares_lose_nothing(won: list[int], alpha: float) -> None:
    heads = len(won)
    won[0] += -sum(won) % heads
    even = sum(won) // heads
    sizes = share(won, [even] * heads, alpha, exact=True)
    assert sum(sizes) == sum(won)
    for size, n in zip(sizes, won, strict=True):
        target = n * (1 - alpha) + even * alpha
        assert floor(target - 1e-9) <= size <= floor(target + 1e-9) + 1


def naive(prompt: Any, budget: int, window: int, alpha: float, granularity: str, budgets: list[int]) -> Any:
    """Kept positions and sizes, by sorting (score, head, token) triples of every layer."""
    scores = twin.window_score(prompt, window, granularity, "max", 7)
    kept = []
    for layer, size in zip(scores, budgets, strict=True):
        own = size - window
        triples = [
            (-score, head, token)
            for head, row in enumerate(layer)
            for token, score in enumerate(row)
            if token < prompt.length - window
        ]
        best = sorted(triples)[: own * len(layer)]
        heads = []
        for head, row in enumerate(layer):
            won = sum(one[1] == head for one in best)
            heads.append(twin.top(row, window + round(won * (1 - alpha) + floor(own * alpha))))
        kept.append(heads)
    return kept


@pytest.mark.parametrize("granularity", GRANULARITIES)
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_selections_and_answers_equal_the_twins(name: str, granularity: Any) -> None:
    p, whole = shared_prefill(name, LENGTH), trace(name, LENGTH)
    alpha = 0.2 if granularity == "kv_head" else 0.5
    for press in (AdaSnapKV(granularity=granularity), AdaPyramidKV(granularity=granularity, beta=5)):
        selection = press.select(p, 64)
        budgets = press.layer_budgets(64, p)
        assert as_lists(selection) == naive(whole, 64, press.window, alpha, granularity, budgets)
        assert len({n for layer in selection.kept for n in layer}) > 2  # heads differ
        assert decode(p, selection, 6) == twin_decode(whole, as_lists(selection), 6)[0]
    assert as_lists(press.select(p, LENGTH)) == twin.everything(whole)


@pytest.mark.parametrize("granularity", GRANULARITIES)
@pytest.mark.parametrize(("ada", "plain"), [(AdaSnapKV, SnapKV), (AdaPyramidKV, PyramidKV)])
def test_all_of_it_safe_is_the_plain_method(ada: Any, plain: Any, granularity: str) -> None:
    p = shared_prefill("qwen2", LENGTH)
    for rule in ("interpolate", "exact", "safeguard"):
        mine = ada(alpha=1, rule=rule, granularity=granularity).select(p, 64)
        assert as_lists(mine) == as_lists(plain(granularity=granularity).select(p, 64))


@pytest.mark.parametrize("granularity", GRANULARITIES)
def test_exact_budgets_store_what_the_plain_method_does(granularity: Any) -> None:
    p = shared_prefill("llama", LENGTH)
    for budget in (40, 64, 111):
        mine = AdaSnapKV(rule="exact", granularity=granularity).select(p, budget)
        heads = p.groups if granularity == "kv_head" else p.heads
        assert [sum(layer) for layer in mine.kept] == [heads * budget] * p.layers
        assert min(min(layer) for layer in mine.kept) >= 32


@pytest.mark.parametrize(
    ("scores", "alpha", "sizes"),
    [(A, 0.2, [4, 2]), (A, 0.8, [4, 2]), (A, 1.0, [3, 3]), (B, 0.5, [6, 0]), (B, 0.8, [4, 2]), (B, 1.0, [3, 3])],
)
def test_the_safeguard_by_hand(scores: list[list[float]], alpha: float, sizes: list[int]) -> None:
    assert shared_out(scores, alpha, "safeguard") == sizes


@pytest.mark.parametrize("granularity", GRANULARITIES)
def test_the_safeguard_stores_what_the_plain_method_does(granularity: Any) -> None:
    p = shared_prefill("qwen3", LENGTH)
    for budget, alpha in ((40, 0.0), (64, 0.2), (111, 0.9)):
        mine = AdaSnapKV(rule="safeguard", alpha=alpha, granularity=granularity).select(p, budget)
        heads = p.groups if granularity == "kv_head" else p.heads
        assert [sum(layer) for layer in mine.kept] == [heads * budget] * p.layers
        assert min(min(layer) for layer in mine.kept) >= max(32, int(budget * alpha))


def test_heads_share_by_what_a_lookahead_asked_for() -> None:
    p = shared_prefill("qwen2", LENGTH)
    mine = AdaEchoKV(workspace=100, rule="exact", alpha=0.2).select(p, 64)
    scores = AdaEchoKV(workspace=100).scores(p, 64)
    for layer, kept, row in zip(scores, mine.positions(), mine.kept, strict=True):
        assert [head.tolist() for head in kept] == [
            twin.top(own.tolist(), n) for own, n in zip(layer, row, strict=True)
        ]
        assert sum(row) == 64 * p.groups
    assert len({n for layer in mine.kept for n in layer}) > 2


@pytest.mark.parametrize("rule", ["interpolate", "exact", "safeguard"])
@pytest.mark.parametrize("granularity", GRANULARITIES)
def test_two_stages_within_the_heads_shares(granularity: Any, rule: Any) -> None:
    p, whole = shared_prefill("qwen2", LENGTH), trace("qwen2", LENGTH)
    fields: dict[str, Any] = {"granularity": granularity, "window": 8}
    press = CriticalAdaSnapKV(rule=rule, alpha=0.5, **fields)
    mine = press.select(p, 64)
    assert mine.kept == AdaSnapKV(rule=rule, alpha=0.5, **fields).select(p, 64).kept
    sums = twin.window_score(whole, 8, granularity, "max", 7)
    for layer, (sizes, kept) in enumerate(zip(mine.kept, mine.positions(), strict=True)):
        norms = output_norms(press, p)[layer].tolist()
        for head, (size, own) in enumerate(zip(sizes, kept, strict=True)):
            before = sums[layer][head][: LENGTH - 8]
            sure = max(int(0.5 * (size - 8)), 32 - 8 if rule == "safeguard" else 0)
            rows = 8 * len(whole.queries[layer]) // len(sums[layer])
            scores = twin_rivals.critical(before, norms[head], rows, sure, 1e-4)
            assert own.tolist() == twin.top(scores + [inf] * 8, size)


@pytest.mark.parametrize("alpha", [-0.1, 1.5])
def test_a_share_out_of_range_is_refused(alpha: float) -> None:
    with pytest.raises(UsageError, match=r"AdaSnapKV\.alpha is .*; it must be from 0 to 1"):
        AdaSnapKV(alpha=alpha)
