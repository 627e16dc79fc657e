"""The policies beside the paper's against their naive twins, and against examples worked out by hand."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from baselines.cake import CAKE, allot
from baselines.chunkkv import ChunkKV
from baselines.critical_snapkv import CriticalSnapKV
from baselines.expected_attention import ExpectedAttention
from baselines.keydiff import KeyDiff
from baselines.knorm import Knorm
from baselines.lagkv import LagKV
from baselines.random import Random
from baselines.snapkv import SnapKV
from baselines.tova import TOVA
from echokv import Lookahead, UsageError
from echokv.selection import top_k
from tests import twin_rivals
from tests.models import prompt, tiny
from tests.policies import Policy, as_lists, compare, shared_prefill, trace
from tests.twin_model import forward, greedy, join

BUDGET = 96
RIVALS = {
    "tova": Policy(TOVA, twin_rivals.tova, {}),
    "tova_last": Policy(TOVA, twin_rivals.tova, {"protect_last": True}),
    "keydiff": Policy(KeyDiff, twin_rivals.keydiff, {}),
    "knorm": Policy(Knorm, twin_rivals.knorm, {}),
    "lagkv": Policy(LagKV, twin_rivals.lagkv, {"lag": 16}),
    "lagkv_no_sink": Policy(LagKV, twin_rivals.lagkv, {"lag": 9, "n_sink": 0}),
    "expected": Policy(ExpectedAttention, twin_rivals.expected_attention, {"future": 16}),
    "expected_epsilon": Policy(
        ExpectedAttention, twin_rivals.expected_attention, {"n_sink": 0, "epsilon": 0.02, "future": 3}
    ),
    "critical": Policy(CriticalSnapKV, twin_rivals.critical_snapkv, {}),
    "critical_budget": Policy(CriticalSnapKV, twin_rivals.critical_snapkv, {"counts": "budget", "window": 8}),
    "critical_second": Policy(
        CriticalSnapKV, twin_rivals.critical_snapkv, {"first": 0.0, "pooling": "avg", "kernel": 5, "epsilon": 0.01}
    ),
    "cake": Policy(CAKE, twin_rivals.cake, {"window": 8}),
    "cake_taus": Policy(CAKE, twin_rivals.cake, {"window": 4, "tau1": 1.6, "tau2": 0.6, "gamma": 5.0, "kernel": 1}),
}


@pytest.mark.parametrize("policy", RIVALS)
@pytest.mark.parametrize("granularity", ["kv_head", "query_head"])
def test_scores_and_selections(policy: str, granularity: str) -> None:
    for name, length in (("llama", BUDGET), ("qwen3", BUDGET + 1), ("qwen2", 150)):
        naive = RIVALS[policy].twin(trace(name, length), BUDGET, granularity=granularity)
        compare(RIVALS[policy].press(granularity=granularity), shared_prefill(name, length), BUDGET, naive)


@pytest.mark.parametrize("granularity", ["kv_head", "query_head"])
@pytest.mark.parametrize("chunk", [1, 7, 10])
def test_chunks(granularity: str, chunk: int) -> None:
    press = ChunkKV(window=8, chunk=chunk, granularity=granularity)  # type: ignore[arg-type]
    for length in (BUDGET, BUDGET + 1, 150):
        kept = press.select(shared_prefill("qwen2", length), BUDGET)
        naive = twin_rivals.chunkkv(trace("qwen2", length), BUDGET, window=8, chunk=chunk, granularity=granularity)
        assert as_lists(kept) == naive.kept
        assert kept.ties == 0


def test_the_last_chunk_is_cut_to_its_first_tokens() -> None:
    assert twin_rivals.chunk_choice([1, 5, 3, 4, 0, 9, 2], chunk=2, count=5) == [0, 2, 3, 4, 5]
    (order,) = ChunkKV(chunk=2)._order(torch.tensor([[1.0, 5, 3, 4, 0, 9, 2]]))
    assert sorted(order[:5].tolist()) == [0, 2, 3, 4, 5]


def test_keydiff_by_hand() -> None:
    for keys, scores, kept, tied in (
        ([(1, 0), (1, 0), (0, 1), (-1, 0)], [-0.7071, -0.7071, -0.7071, 0.7071], [0, 3], 1),
        ([(3, 0), (1, 1), (0, 2), (-1, 0)], [-0.3827, -0.9239, -0.9239, 0.3827], [0, 3], 0),
    ):
        own = _scores(KeyDiff(), keys=torch.tensor([keys], dtype=torch.float64))
        assert own[0].tolist() == pytest.approx(scores, abs=1e-4)
        indices, ties = top_k(own, 2)
        assert (indices.tolist(), ties) == ([kept], tied)


def test_lagkv_by_hand() -> None:
    tokens = torch.tensor([[(0, 0), (0, 0), (1, 3), (0, 0), (1, 1), (0, 4), (2, 1)]], dtype=torch.float64)
    press = LagKV(n_sink=1, lag=2)
    first, second = press._surprise(tokens, 3)[0].tolist()
    assert first == pytest.approx([0.1956, 0.8044], abs=1e-4)
    assert second == pytest.approx([0.4706, 0.5294], abs=1e-4)
    own = _scores(press, keys=tokens, values=tokens)
    assert own.tolist() == [[torch.inf, 0, 1, 0, 1, torch.inf, torch.inf]]
    assert top_k(own, 5)[0].tolist() == [[0, 2, 4, 5, 6]]


def test_lagkv_takes_a_constant_channel_for_nothing() -> None:
    tokens = torch.zeros(1, 12, 3, dtype=torch.float64)
    tokens[..., 0] = torch.arange(12)
    assert _scores(LagKV(n_sink=0, lag=4), keys=tokens, values=tokens).isfinite()[:, :8].all()


def test_lagkv_refuses_a_budget_that_its_end_fills() -> None:
    with pytest.raises(UsageError, match="at least 260"):
        LagKV().check(128)
    assert LagKV(lag=32).check(128) == 128


@pytest.mark.parametrize(
    ("shares", "most", "official", "exact"),
    [
        ([5, 15], 12, [8, 12], [8, 12]),
        ([6.67, 13.33], 30, [7, 13], [7, 13]),
        ([1, 2, 17], 8, [6, 6, 8], [6, 6, 8]),
        ([0, 6, 14], 7, [4, 7, 7], [6, 7, 7]),  # the second layer cannot use its half of 7
        ([0, 6.9, 13.1], 7, [4, 7, 7], [6, 7, 7]),
        ([10, 10], 9, [9, 9], [9, 9]),
        ([1.6, 1.7, 1.7, 6], 4, [3, 3, 1, 4], [3, 2, 2, 4]),  # two clipped and two by rounding, spread one by one
    ],
)
def test_layers_share_what_others_cannot_use(
    shares: list[float], most: int, official: list[int], exact: list[int]
) -> None:
    total = round(sum(shares))
    assert allot(shares, total, most, exact=True) == exact
    assert allot(shares, total, most, exact=False) == official
    assert twin_rivals.shared_out(shares, total, most) == allot(shares, total, most, exact=False)


def test_cake_stores_what_the_budget_says_where_asked_for_it() -> None:
    p = shared_prefill("llama", 150)
    for budget in (20, 96, 140):
        kept = CAKE(window=8, total="exact").select(p, budget)
        assert kept.entries == budget * 2 * 3
        sizes = CAKE(window=8, total="exact").layer_budgets(budget, p)
        assert min(sizes) >= 8
        assert max(sizes) <= 150


def test_cake_that_cascades_gives_nothing_back() -> None:
    p, differ = shared_prefill("layers32", 150), 0
    press, most = CAKE(window=8, total="cascading"), 150 - 8
    wanted = [one for some in press.watched(p) for one in (some.entropy * some.restlessness).tolist()]
    for budget in range(20, 140, 3):
        total, held = (budget - 8) * 32, list[int]()
        for n in range(1, 33):
            shares = [one / sum(wanted[:n]) * total for one in wanted[:n]]
            allotted = twin_rivals.shared_out(shares, total, most)
            held = [min(pair) for pair in zip([*held, most], allotted, strict=True)]
        assert press.layer_budgets(budget, p) == [size + 8 for size in held]
        differ += press.layer_budgets(budget, p) != CAKE(window=8).layer_budgets(budget, p)
    assert differ


def test_random_is_the_seed_s_and_nobody_else_s() -> None:
    p, other = shared_prefill("llama", 150), shared_prefill("qwen2", 150)
    kept = as_lists(Random().select(p, BUDGET))
    assert kept == as_lists(Random().select(other, BUDGET))
    assert kept != as_lists(Random(seed=1).select(p, BUDGET))
    heads = [tuple(head) for layer in kept for head in layer]
    assert len(set(heads)) == len(heads)
    smaller = as_lists(Random().select(p, 20))
    assert all(set(a) <= set(b) for x, y in zip(smaller, kept, strict=True) for a, b in zip(x, y, strict=True))


def test_random_keeps_every_position_equally_often() -> None:
    drawn = torch.zeros(60)
    p = shared_prefill("llama", 60)
    for seed in range(400):
        for layer in Random(seed=seed).select(p, 15).indices:
            drawn += layer.flatten().bincount(minlength=60)
    share = drawn / (400 * 6)  # of 2,400 draws each keeps a quarter; five standard errors are 0.044
    assert (share - 0.25).abs().max() < 0.045


def test_the_oracle_chooses_by_the_queries_of_the_full_cache() -> None:
    length, steps = 150, 6
    p = shared_prefill("qwen2", length)
    start = at = forward(tiny("qwen2"), prompt(length))
    queries = []
    for _ in range(steps):
        at = forward(tiny("qwen2"), [greedy(at.logits)], at)
        queries.append(at.queries)
    press = Lookahead(steps=steps, workspace=10**6)
    assert as_lists(press.select(p, BUDGET)) == twin_rivals.oracle(start, join(queries), BUDGET)


def _scores(press: Any, **parts: torch.Tensor) -> torch.Tensor:
    """Scores of a prefill of one layer that has nothing but these keys and values."""
    keys = parts["keys"]
    values = parts.get("values", keys)
    filled = SimpleNamespace(
        keys=[keys], values=[values], length=keys.shape[1], groups=len(keys), heads=len(keys), layers=1
    )  # fmt: skip
    scores: torch.Tensor = press.score(filled)[0]
    return scores


def test_expected_attention_by_hand() -> None:
    one = torch.ones(1, 1, dtype=torch.float64)
    keys = torch.tensor([[[0.0], [1.0], [-1.0]]], dtype=torch.float64)
    shares = ExpectedAttention.expected(2 * one, one[None], keys, 1.0)
    assert shares[0].tolist() == pytest.approx([0.0746, 0.9088, 0.0166], abs=1e-4)


@pytest.mark.parametrize("name", ["yarn", "llama3", "ungrouped"])
def test_expected_attention_on_other_rotations(name: str) -> None:
    naive = twin_rivals.expected_attention(trace(name, 120), BUDGET, future=8)
    compare(ExpectedAttention(future=8), shared_prefill(name, 120), BUDGET, naive)


def test_moments_are_those_of_the_queries_before_rope() -> None:
    p, start = shared_prefill("qwen3", 150), trace("qwen3", 150)
    for (mean, covariance), raw in zip(p.query_moments(4), start.raw, strict=True):
        own = raw[:, 4:]
        torch.testing.assert_close(mean, own.mean(1), rtol=1e-9, atol=1e-9)
        for head in range(len(own)):
            torch.testing.assert_close(covariance[head], own[head].T.cov(correction=0), rtol=1e-9, atol=1e-9)


def test_moments_that_were_not_recorded_are_told() -> None:
    with pytest.raises(UsageError, match=r"Needs\(moments=frozenset\(\{7\}\)\)"):
        ExpectedAttention(n_sink=7).select(shared_prefill("llama", 150), BUDGET)


def test_two_stages_by_hand() -> None:
    scores = twin_rivals.critical([8, 4, 2, 1], [1, 1, 5, 20], rows=1, sure=1, epsilon=1e-4)
    assert scores == [torch.inf, pytest.approx(4.0001), pytest.approx(10.0005), pytest.approx(20.002)]


def test_critical_with_a_whole_first_stage_is_snapkv() -> None:
    p = shared_prefill("qwen2", 150)
    assert as_lists(CriticalSnapKV(first=1.0).select(p, BUDGET)) == as_lists(SnapKV().select(p, BUDGET))


def test_all_heads_of_tova_and_chunkkv_keep_the_same() -> None:
    p = shared_prefill("qwen2", 150)
    for press in (TOVA(), ChunkKV(window=8), replace(TOVA(), granularity="query_head")):
        for layer in press.select(p, BUDGET).indices:
            assert (layer == layer[:1]).all()
