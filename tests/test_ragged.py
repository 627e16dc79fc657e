"""Heads of unequal length: the cut, the caches, and decoding on them, against the naive twin."""

import random
from collections.abc import Sequence

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from baselines.full import FullKV
from baselines.snapkv import SnapKV
from echokv import Prefill, Selection, Session, Stretch, UsageError, advance, decode, decode_rows
from echokv.blocks import Block
from echokv.buckets import alike
from echokv.selection import cut, top_k
from tests.models import ARCHITECTURES
from tests.policies import as_lists, close, shared_prefill, trace
from tests.twin_model import decode as twin_decode

LENGTH = 200
architectures = pytest.mark.parametrize("name", ARCHITECTURES)


def chosen(p: Prefill, sizes: Sequence[int], heads: int | None = None, seed: int = 0) -> Selection:
    """Tokens at random; each head in turn takes the next of the sizes."""
    generator, heads = torch.Generator().manual_seed(seed), heads or p.groups
    scores = [torch.rand(heads, LENGTH, generator=generator, dtype=torch.float64) for _ in range(p.layers)]
    turn = [sizes[place % len(sizes)] for place in range(p.layers * heads)]
    return cut(scores, [[turn[layer * heads : (layer + 1) * heads] for layer in range(p.layers)]])[0]


def rows_of(p: Prefill) -> list[Selection]:
    """Ragged and equal, per KV head and per query head, few tokens and all of them."""
    return [
        chosen(p, [3, 90, 17, 40, 64], seed=1),
        FullKV().select(p, None),
        chosen(p, [0, 0, 31, LENGTH], seed=2),
        chosen(p, [5, 1, 130, 0, 12, 63, 64], heads=p.heads, seed=3),
        SnapKV().select(p, 48),
        chosen(p, [0], seed=4),
        chosen(p, [150, 2, 9], heads=p.heads, seed=5),
        chosen(p, [LENGTH], heads=p.heads),
    ]


def naive_cut(scores: list[list[float]], sizes: Sequence[int]) -> tuple[list[list[int]], int]:
    """Kept positions of each head of a layer, and heads in which an equal score was left out."""
    kept, ties = [], 0
    for head, size in zip(scores, sizes, strict=True):
        order = sorted(range(len(head)), key=lambda token: (-head[token], token))
        kept.append(sorted(order[:size]))
        ties += 0 < size < len(head) and head[order[size - 1]] == head[order[size]]
    return kept, ties


@st.composite
def cuts(draw: st.DrawFn) -> tuple[list[list[list[float]]], list[list[list[int]]]]:
    """Scores of some layers, with many ties and infinities, and how many to keep of each head, several times."""
    layers, heads, length = draw(st.integers(1, 3)), draw(st.integers(1, 3)), draw(st.integers(1, 9))
    value = st.integers(0, 3).map(float) | st.sampled_from([float("inf"), float("-inf")])
    row = st.lists(value, min_size=length, max_size=length)
    scores = draw(st.lists(st.lists(row, min_size=heads, max_size=heads), min_size=layers, max_size=layers))
    size = st.integers(0, length)
    keep = st.lists(st.lists(size, min_size=heads, max_size=heads), min_size=layers, max_size=layers)
    return scores, draw(st.lists(keep, min_size=1, max_size=3))


@given(cuts())
def test_the_cut_is_the_naive_one(drawn: tuple[list[list[list[float]]], list[list[list[int]]]]) -> None:
    scores, keeps = drawn
    for made, keep in zip(cut([torch.tensor(layer) for layer in scores], keeps), keeps, strict=True):
        expected = [naive_cut(layer, sizes) for layer, sizes in zip(scores, keep, strict=True)]
        assert as_lists(made) == [kept for kept, _ in expected]
        assert made.ties == sum(ties for _, ties in expected)
        assert made.kept == keep
        assert made.entries == sum(map(sum, keep))
        for layer, heads in enumerate(as_lists(made)):
            held = [[token in head for token in range(made.length)] for head in heads]
            assert made.held(layer).tolist() == held


def test_layers_are_cut_together_or_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    scores, keep = [torch.rand(2, 50) for _ in range(5)], [[7, 7 + layer] for layer in range(5)]
    together = cut(scores, [keep])[0]
    monkeypatch.setattr("echokv.scores.LOGITS", 250)  # two layers at a time
    assert as_lists(cut(scores, [keep])[0]) == as_lists(together)


@pytest.mark.parametrize("layer", [0, 2])
def test_nan_is_told(layer: int) -> None:
    scores = [torch.rand(2, 50) for _ in range(3)]
    scores[layer][1, 49] = torch.nan
    with pytest.raises(UsageError, match="scores contain NaN"):
        cut(scores, [[[3, 3]] * 3, [[0, 1]] * 3])
    with pytest.raises(UsageError, match="scores contain NaN"):
        top_k(scores[layer], 1)


@architectures
def test_evicted_means_masked_head_by_head(name: str) -> None:
    """A batch of ragged rows equals, row by row, full attention with the evicted keys of each head at -inf."""
    p, whole = shared_prefill(name, LENGTH), trace(name, LENGTH)
    selections = rows_of(p)
    sessions = [Session(p, selection, record=True) for selection in selections]
    counts = [11 - row for row in range(len(sessions))]
    answers = decode_rows(sessions, counts)
    for selection, session, count, answer in zip(selections, sessions, counts, answers, strict=True):
        tokens, queries = twin_decode(whole, as_lists(selection), count)
        assert answer == tokens
        for mine, other in zip(session.queries, queries, strict=True):
            close(mine, other)


def test_rows_that_leave_and_come_back_change_nothing() -> None:
    """Past the buffers' first size, in any order, with a cache that is moved."""
    p = shared_prefill("llama", LENGTH)
    selections = rows_of(p)

    limits = [(4, 60), (1, 61), (3, 40), (2, 50), (4, 45), (1, 58), (2, 37), (3, 33)]

    def fed(batches: Sequence[Sequence[int]]) -> list[Session]:
        sessions = [Session(p, selection, record=True) for selection in selections]
        for which in range(2):
            for batch in batches:
                advance(*(Stretch(sessions[row], limits[row][which]) for row in batch))
            sessions[2].move(selections[0])
        return sessions

    alone = fed([[row] for row in range(len(selections))])
    order = list(range(len(selections)))
    for seed in range(3):
        random.Random(seed).shuffle(order)
        for mine, other in zip(fed([order]), alone, strict=True):
            assert (mine.fed, mine.next_token) == (other.fed, other.next_token)
            for part, same in zip(
                [*mine.queries, *mine.tail_keys, *mine.tail_values],
                [*other.queries, *other.tail_keys, *other.tail_values],
                strict=True,
            ):
                close(part, same)


def test_heads_without_a_prompt_token_decode() -> None:
    p = shared_prefill("llama", LENGTH)
    nothing = chosen(p, [0])
    assert nothing.entries == nothing.bytes(p) == 0
    assert decode(p, nothing, 6) == twin_decode(trace("llama", LENGTH), as_lists(nothing), 6)[0]


def test_padding_at_most_doubles_a_cache() -> None:
    p = shared_prefill("llama", LENGTH)
    selections = [one for one in rows_of(p) if one.heads == p.groups]
    block = Block([Session(p, selection) for selection in selections], 8)
    for number, layer in enumerate(block.layers):
        kept = sum(sum(selection.kept[number]) for selection in selections)
        stored = sum(bucket.keys.shape[0] * (bucket.keys.shape[1] - 8) for bucket in layer.buckets)
        assert kept <= stored < 2 * kept


@given(st.lists(st.integers(0, 40), min_size=1, max_size=30), st.integers(0, 60))
def test_units_of_like_size_are_worked_on_together(kept: list[int], waste: int) -> None:
    together = alike(kept, waste)
    assert sorted(unit for units in together for unit in units) == list(range(len(kept)))
    sizes = [[kept[unit] for unit in units] for units in together]
    longest = [max(some) for some in sizes]
    assert longest == sorted(longest, reverse=True)
    for some, most in zip(sizes, longest, strict=True):
        assert most <= 2 * min(some)
        assert sum(most - n for n in some) <= waste
    for some, most, less in zip(sizes, longest, sizes[1:], strict=False):
        # The next smaller ones would have been too small, or too many.
        n = max(less)
        assert most > 2 * n or sum(most - one for one in some) + (most - n) * less.count(n) > waste
        assert min(some) > n


def test_equal_lengths_are_one_product_in_their_own_order() -> None:
    p = shared_prefill("llama", LENGTH)
    block = Block([Session(p, SnapKV().select(p, budget)) for budget in (64, 100, 127)], 8)
    for layer in block.layers:
        assert [len(bucket.units) for bucket in layer.buckets] == [3 * p.groups]
        assert layer.order is None


def test_what_is_stored_is_counted() -> None:
    """Bytes are those of a list of each head's own tensors."""
    p = shared_prefill("qwen2", LENGTH)
    for selection in rows_of(p):
        own = [
            p.keys[layer][head // (selection.heads // p.groups)][kept]
            for layer, heads in enumerate(selection.positions())
            for head, kept in enumerate(heads)
        ]
        assert selection.bytes(p) == sum(2 * part.numel() * part.element_size() for part in own)
