"""Policies that run tokens against a prefill, against twins that run them too."""

import math
from typing import Any

import pytest
import torch

from baselines.dapq import DapQ
from echokv import Needs, UsageError, decode, prefill
from echokv.probe import probe
from tests import twin_rivals
from tests.models import prompt, tiny
from tests.policies import compare, shared_prefill, trace
from tests.twin_model import forward

BUDGET = 40


def ids_of(length: int, first: int = 4, last: int = 28) -> list[int]:
    own = prompt(length)
    return [*own[:first], *own[length - last :]]


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"granularity": "query_head", "pooling": "max"},
        {"denominator": "prompt"},
        {"weights": "last", "window": 8},
        {"weights": "last", "denominator": "prompt", "pooling": "avg", "kernel": 5},
    ],
)
def test_scores_and_selections(fields: dict[str, Any]) -> None:
    for name, length in (("qwen3", BUDGET), ("llama", BUDGET + 1), ("qwen2", 90), ("yarn", 70)):
        naive = twin_rivals.dapq(trace(name, length), BUDGET, ids_of(length), **fields)
        compare(DapQ(**fields), shared_prefill(name, length), BUDGET, naive)


def test_what_a_probe_consists_of() -> None:
    p = shared_prefill("llama", 90)
    own = list(prompt(90))
    assert DapQ(n_first=2, n_last=3).probe_ids(p) == [*own[:2], *own[87:]]
    assert DapQ(n_first=2, n_last=0).probe_ids(p) == own[:2]
    assert DapQ(content="last", n_last=2, n_first=1).probe_ids(p) == [own[89]] * 3
    drawn = DapQ(content="random").probe_ids(p)
    assert (len(drawn), drawn) == (32, DapQ(content="random").probe_ids(p))
    assert drawn != DapQ(content="random", seed=1).probe_ids(p)
    short = shared_prefill("llama", 9)
    assert len(DapQ().probe_ids(short)) == 4 + 9


def test_a_probe_before_the_header_sees_what_is_before_it() -> None:
    """Behind a prompt without its last 6 tokens the same probe sees the same, but for the tokens it is made of."""
    whole, cut = shared_prefill("qwen2", 90), trace("qwen2", 90)
    press = DapQ(header=6)
    start = forward(tiny("qwen2"), prompt(90)[:84])
    naive = twin_rivals.dapq(start, 20, press.probe_ids(whole))
    for mine, other, keys in zip(press.scores(whole, 20), naive.scores, cut.keys, strict=True):
        torch.testing.assert_close(mine[:, :84], torch.tensor(other, dtype=keys.dtype), rtol=1e-9, atol=1e-9)
        assert mine[:, 84:].isposinf().all()


def test_a_probe_leaves_nothing() -> None:
    ids = torch.tensor(prompt(90))
    p, untouched = (prefill(tiny("llama"), ids, Needs()) for _ in range(2))
    kept = DapQ().select(p, BUDGET)
    for mine, other in zip(
        [*p.keys, *p.values, p.logits], [*untouched.keys, *untouched.values, untouched.logits], strict=True
    ):
        assert torch.equal(mine, other)
    assert decode(p, kept, 5) == decode(untouched, kept, 5)


def test_a_probe_by_hand() -> None:
    keys = torch.tensor([[[0.0], [math.log(2)], [math.log(4)]]], dtype=torch.float64)
    ones, zeros = torch.ones(1, 2, 1, dtype=torch.float64), torch.zeros(1, 2, 1, dtype=torch.float64)
    assert DapQ().mass(ones, keys, zeros, 1.0)[0].tolist() == pytest.approx([0.2361, 0.4722, 0.9444], abs=1e-4)
    last = DapQ(weights="last").mass(ones, keys, zeros, 1.0)[0].tolist()
    assert last == pytest.approx([1 / 9, 2 / 9, 4 / 9])
    alone = DapQ(denominator="prompt").mass(ones, keys, zeros, 1.0)[0].tolist()
    assert alone == pytest.approx([2 / 7, 4 / 7, 8 / 7])


def test_a_probe_beyond_the_positions_is_refused_or_shortened() -> None:
    p = shared_prefill("llama", 2030)
    with pytest.raises(UsageError, match="a probe of 32 tokens behind 2030 exceeds the model's 2048 positions"):
        DapQ().select(p, BUDGET)
    shortened = DapQ(overflow="shrink")
    assert shortened.probe_ids(p) == ids_of(2030)[:18]
    assert shortened.select(p, BUDGET).entries == 3 * 2 * BUDGET


def test_an_empty_probe_is_refused() -> None:
    with pytest.raises(UsageError, match="n_first or n_last must be at least 1"):
        DapQ(n_first=0, n_last=0)


def test_probes_see_each_other_in_order() -> None:
    """One run of five tokens leaves the queries that five runs of growing length end with."""
    p = shared_prefill("qwen3", 60)
    tokens, found = [5, 9, 9, 2, 77], []
    for n in range(1, 6):
        probe(p, tokens[:n], lambda layer, queries, keys: found.append((layer, queries)))
    layers = p.layers
    whole = [queries for _, queries in found[-layers:]]
    for n in range(1, 6):
        for layer, queries in found[(n - 1) * layers : n * layers]:
            torch.testing.assert_close(queries[:, -1], whole[layer][:, n - 1], rtol=1e-9, atol=1e-9)
