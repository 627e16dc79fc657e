"""Acceptance tests of scores, selections and budgets: the library against the naive twin, in float64.

Decoding has its own file, test_acceptance_decoding.py, and lookahead test_acceptance_lookahead.py.
"""

from dataclasses import replace
from typing import Any

import pytest
import torch

from baselines.full import FullKV
from baselines.h2o import H2O
from baselines.laq import LAQ
from baselines.pyramidkv import PyramidKV
from baselines.snapkv import SnapKV
from baselines.streaming_llm import StreamingLLM
from echokv import EchoKV, UsageError, prefill, scores
from echokv.columns import column_sums, summed_attention
from echokv.scores import attention_mass
from tests import twin
from tests.models import ARCHITECTURES, build, prompt, tiny
from tests.policies import ALL, EVERYTHING, POLICIES, VARIANTS, as_lists, close, compare, shared_prefill, trace

LENGTH = 200
BUDGET = 96
GRANULARITIES = ("kv_head", "query_head")
architectures = pytest.mark.parametrize("name", ARCHITECTURES)
granularities = pytest.mark.parametrize("granularity", GRANULARITIES)
policies = pytest.mark.parametrize("policy", POLICIES)


# 2. Scores and selections equal the twin's


@policies
@granularities
@architectures
def test_scores_and_selections(name: str, granularity: str, policy: str) -> None:
    window = 8 if policy == "pyramidkv" else 32
    turn = 2 * (BUDGET - window)  # PyramidKV: layers differ from here, bounded by L for 4 lengths
    for length in (window, window + 1, BUDGET - 1, BUDGET, BUDGET + 1, turn - 1, turn, turn + 3, 300):
        naive = POLICIES[policy].twin(trace(name, length), BUDGET, granularity=granularity)
        press = POLICIES[policy].press(granularity=granularity)
        compare(press, shared_prefill(name, length), BUDGET, naive)


@pytest.mark.parametrize("policy", ["h2o_all", "snapkv", "pyramidkv", "echokv"])
def test_scores_and_selections_of_a_long_prompt(policy: str) -> None:
    naive = POLICIES[policy].twin(trace("qwen2", 1000), BUDGET)
    compare(POLICIES[policy].press(), shared_prefill("qwen2", 1000), BUDGET, naive)


@pytest.mark.parametrize("policy", VARIANTS)
@granularities
def test_scores_and_selections_of_each_switch(policy: str, granularity: str) -> None:
    for name, length in (("qwen3", LENGTH), ("qwen2", BUDGET + 1)):
        naive = VARIANTS[policy].twin(trace(name, length), BUDGET, granularity=granularity)
        press = VARIANTS[policy].press(granularity=granularity)
        compare(press, shared_prefill(name, length), BUDGET, naive)


def test_a_float32_model_is_scored_in_float32() -> None:
    p = prefill(build("llama").float(), torch.tensor(prompt(LENGTH)), EVERYTHING)
    for policy in ("h2o_all", "snapkv", "pyramidkv"):
        naive = POLICIES[policy].twin(trace("llama", LENGTH), BUDGET)
        for mine, other in zip(POLICIES[policy].press().scores(p, BUDGET), naive.scores, strict=True):
            assert mine.dtype == torch.float32
            close(mine, other, 1e-4)


# 3. Budget accounting


@policies
@granularities
def test_stored_entries_are_what_the_budget_says(policy: str, granularity: str) -> None:
    p, press = shared_prefill("llama", LENGTH), POLICIES[policy].press(granularity=granularity)
    budgets = twin.pyramid_budgets(LENGTH, 3, BUDGET, 8) if policy == "pyramidkv" else [BUDGET] * 3
    heads = {"kv_head": 2, "query_head": 8}[granularity]
    selection = press.select(p, BUDGET)
    assert press.layer_budgets(BUDGET, p) == budgets
    assert [tuple(layer.shape) for layer in selection.indices] == [(heads, budget) for budget in budgets]
    assert all(layer.dtype == torch.int64 for layer in selection.indices)
    assert selection.entries == heads * sum(budgets)


def test_stored_bytes() -> None:
    p = shared_prefill("llama", LENGTH)
    for heads, granularity in ((2, "kv_head"), (8, "query_head")):
        selection = SnapKV(granularity=granularity).select(p, BUDGET)
        assert selection.bytes(p) == 3 * heads * BUDGET * 2 * 16 * 8  # a key and a value of 16 float64
    assert FullKV().select(p, None).bytes(p) == sum(t.numel() * 8 for t in (*p.keys, *p.values))


# layers, window, budget, first layer, last layer, mean: the published formula worked out by hand
TABLE = [
    (32, 8, 128, 242, 25, 133.5), (32, 8, 256, 492, 27, 259.5), (32, 8, 512, 991, 61, 526.0),
    (32, 32, 128, 220, 65, 142.5), (28, 8, 128, 242, 26, 134.0), (28, 8, 256, 492, 33, 262.5),
    (28, 8, 512, 991, 46, 518.5),
]  # fmt: skip


@pytest.mark.parametrize(("layers", "window", "budget", "first", "last", "mean"), TABLE)
def test_pyramid_budgets(layers: int, window: int, budget: int, first: int, last: int, mean: float) -> None:
    press, p = PyramidKV(window=window), shared_prefill(f"layers{layers}", 1010)
    kept = [layer.shape[1] for layer in press.select(p, budget).indices]
    assert (kept[0], kept[-1], sum(kept) / layers) == (first, last, mean)
    assert kept == twin.pyramid_budgets(8000, layers, budget, window)
    exact = replace(press, total="exact").layer_budgets(budget, p)
    assert sum(exact) == layers * budget
    assert exact == sorted(exact, reverse=True)
    assert (exact[0], min(exact) > window) == (first, True)


def test_a_pyramid_of_one_layer_is_flat() -> None:
    p = shared_prefill("layers1", LENGTH)
    assert [PyramidKV(total=total).layer_budgets(40, p) for total in ("floor", "exact")] == [[40], [40]]


@pytest.mark.parametrize(
    ("press", "budget"),
    [
        (StreamingLLM(), 4), (H2O(), 32), (H2O(queries="window"), 32), (SnapKV(), 32), (SnapKV(), -1),
        (PyramidKV(), 8), (LAQ(), 32), (LAQ(workspace=64, stage2_window=8), 8), (EchoKV(), 0),
        (EchoKV(stage2_window=8), 8),
    ],
)  # fmt: skip
def test_a_budget_without_meaning_is_refused(press: Any, budget: int) -> None:
    for length in (BUDGET, 5):
        with pytest.raises(UsageError, match=r"\d"):
            press.select(shared_prefill("llama", length), budget)


@pytest.mark.parametrize(
    ("make", "fields"),
    [
        (SnapKV, {"window": 0}), (H2O, {"window": 0}), (StreamingLLM, {"n_sink": -1}),
        (LAQ, {"workspace": 32}), (EchoKV, {"bootstrap": "window", "workspace": 32}),
        (EchoKV, {"workspace": 0}), (EchoKV, {"steps": 1}), (EchoKV, {"steps": 0}), (EchoKV, {"anchors": 0}),
        (EchoKV, {"refresh_at": (8,)}), (EchoKV, {"refresh_at": (5, 2)}), (EchoKV, {"stage2_window": -1}),
        (SnapKV, {"kernel": 4}), (SnapKV, {"pooling": "mean"}), (H2O, {"granularity": "head"}),
        (PyramidKV, {"beta": 0}), (PyramidKV, {"total": "round"}), (LAQ, {"eos": "never"}),
        (LAQ, {"mask": "offical"}),
    ],
)  # fmt: skip
def test_a_setting_without_meaning_is_refused(make: Any, fields: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=list(fields)[-1]):
        make(**fields).select(shared_prefill("llama", LENGTH), BUDGET)


# 7. Grouped queries


@pytest.mark.parametrize("policy", ALL)
def test_without_groups_both_granularities_agree(policy: str) -> None:
    p = shared_prefill("ungrouped", LENGTH)
    by_group, by_head = (ALL[policy].press(granularity=granularity) for granularity in GRANULARITIES)
    assert as_lists(by_group.select(p, BUDGET)) == as_lists(by_head.select(p, BUDGET))


@policies
def test_the_order_of_heads_inside_a_group_is_irrelevant(policy: str) -> None:
    order = [2, 0, 3, 1, 5, 7, 6, 4]
    model = build("llama")
    for layer in model.model.layers:
        weight, output = layer.self_attn.q_proj.weight, layer.self_attn.o_proj.weight
        weight.copy_(torch.cat([weight.split(16)[head] for head in order]))
        output.copy_(torch.cat([output.split(16, 1)[head] for head in order], 1))
    original = shared_prefill("llama", LENGTH)
    permuted = prefill(model, torch.tensor(prompt(LENGTH)), EVERYTHING)
    close(permuted.logits, original.logits)
    for granularity in GRANULARITIES:
        press = POLICIES[policy].press(granularity=granularity)
        kept, other = (as_lists(press.select(p, BUDGET)) for p in (original, permuted))
        heads = order if granularity == "query_head" else range(2)
        assert other == [[layer[head] for head in heads] for layer in kept]


# 8. Chunks


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_scores_on_a_gpu_equal_those_on_a_cpu(dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(0)
    queries, keys = (torch.randn(n, m, 128, generator=generator).to(dtype) for n, m in ((8, 32), (2, 3000)))
    seen = torch.arange(2969, 3001)
    exact = attention_mass(queries.double(), keys.double(), 128**-0.5, seen)
    close(attention_mass(queries.cuda(), keys.cuda(), 128**-0.5, seen).cpu().double(), exact, 1e-4)


@pytest.mark.parametrize("threads", [1, 2, 16])
@pytest.mark.parametrize("chunk", [1, 7, 64, LENGTH, None])
def test_scores_do_not_depend_on_the_chunk(chunk: int | None, threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor on the number of threads, nor on how many logits are held at a time."""
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    monkeypatch.setattr(scores, "LOGITS", scores.LOGITS if chunk is None else chunk)
    whole = trace("mistral", LENGTH)
    for queries, keys in zip(whole.queries, whole.keys, strict=True):
        for seen in ([LENGTH] * 9, list(range(LENGTH - 8, LENGTH + 1))):
            last = queries[:, -9:]
            mass = attention_mass(last, keys, 0.25, torch.tensor(seen))
            close(mass, [twin.attention_sums(last[head], keys[head // 4], seen) for head in range(8)])
        seen = list(range(1, LENGTH + 1))
        exact = [twin.attention_sums(queries[head], keys[head // 4], seen) for head in range(8)]
        close(column_sums(queries, keys, 0.25, chunk), exact)
        close(summed_attention(queries[None], keys[None], keys[None], 0.25, chunk)[1], exact)


# 14. Determinism and ties (13: windows of 0 are refused, or among the switches of 2)


@policies
def test_a_second_run_keeps_the_same(policy: str) -> None:
    press, ids = POLICIES[policy].press(), torch.tensor(prompt(LENGTH))
    runs = [press.select(prefill(tiny("qwen3"), ids, press.needs), BUDGET) for _ in range(2)]
    assert as_lists(runs[0]) == as_lists(runs[1])
    assert runs[0].ties == runs[1].ties


@pytest.mark.parametrize("policy", ["h2o_window", "snapkv", "echokv"])
def test_of_equal_scores_the_lower_index_stays(policy: str) -> None:
    """Keys of zero get equal attention: beside the protected ones the first tokens stay; ties are counted."""
    model = build("llama")
    for layer in model.model.layers:
        layer.self_attn.k_proj.weight.zero_()
    press = POLICIES[policy].press()
    selection = press.select(prefill(model, torch.tensor(prompt(LENGTH)), press.needs), 40)
    last = [] if policy == "echokv" else list(range(LENGTH - 32, LENGTH))
    assert as_lists(selection) == [[[*range(40 - len(last)), *last]] * 2] * 3
    assert selection.ties == 6
    assert H2O(queries="all").select(shared_prefill("llama", LENGTH), 40).ties == 0
