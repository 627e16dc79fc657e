"""HeadKV: its budgets by hand, its selections against a naive twin, and files that it cannot take."""

import json
from itertools import chain, product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from baselines.headkv import HeadKV
from baselines.snapkv import SnapKV
from echokv import UsageError, decode
from tests import twin
from tests.models import ARCHITECTURES
from tests.policies import as_lists, shared_prefill, trace
from tests.twin_model import decode as twin_decode

LENGTH, BUDGET = 200, 40
EIGHTHS = [1 / 8, 1 / 8, 2 / 8, 4 / 8]


def scores_file(folder: Path, layers: int, heads: int) -> tuple[str, list[list[float]]]:
    """A file of two runs, and the shares that it means."""
    raw = [[(3 * layer + 5 * head) % 7 + 0.37 for head in range(heads)] for layer in range(layers)]
    content = {f"{i}-{h}": [raw[i][h] - 0.25, raw[i][h] + 0.25] for i, h in product(range(layers), range(heads))}
    path = folder / "heads.json"
    path.write_text(json.dumps(content))
    total = sum(map(sum, raw))
    return str(path), [[one / total for one in layer] for layer in raw]


@pytest.mark.parametrize(
    ("total", "surplus", "most", "expected"),
    [
        ("official", "lost", 99, [8, 8, 10, 15]),  # 7.5 and 7.5 go to the even number
        ("official", "lost", 12, [8, 8, 10, 12]),
        ("exact", "lost", 99, [8, 7, 10, 15]),
        ("exact", "shared", 10, [10, 10, 10, 10]),
        ("exact", "shared", 12, [8, 8, 12, 12]),  # 3 more for 7.5, 7.5, 10 by 1:1:2 are 8.25, 8.25, 11.5
    ],
)
def test_budgets_by_hand(total: Any, surplus: Any, most: int, expected: list[int]) -> None:
    press = HeadKV(heads="uniform", beta=2, total=total, surplus=surplus)
    assert press.share(EIGHTHS, 10, most) == expected


def test_surplus_goes_to_heads_of_no_importance_where_no_others_have_room() -> None:
    press = HeadKV(heads="uniform", beta=2, total="exact", surplus="shared")
    assert press.share([0.0, 1.0], 4, 4) == [4, 4]


@given(
    st.lists(st.floats(0, 10), min_size=1, max_size=40).filter(any),
    st.integers(1, 100), st.floats(1.001, 10), st.integers(0, 100),
)  # fmt: skip
def test_exact_totals_lose_nothing(importance: list[float], own: int, beta: float, room: int) -> None:
    shares = [one / sum(importance) for one in importance]
    press = HeadKV(heads="uniform", beta=beta, total="exact", surplus="shared")
    sizes = press.share(shares, own, own + room)
    assert sum(sizes) == own * len(sizes)
    assert all(0 <= size <= own + room for size in sizes)


@pytest.mark.parametrize("granularity", ["kv_head", "query_head"])
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_selections_and_answers_equal_the_twins(name: str, granularity: Any, tmp_path: Path) -> None:
    p, whole = shared_prefill(name, LENGTH), trace(name, LENGTH)
    path, shares = scores_file(tmp_path, p.layers, p.heads)
    press = HeadKV(importance=path, beta=1.5, granularity=granularity)
    own = BUDGET - 8
    pool = own // 1.5
    ratio = p.heads // p.groups if granularity == "kv_head" else 1
    kept = []
    for scores, layer in zip(twin.window_score(whole, 8, granularity, "max", 7), shares, strict=True):
        heads = [sum(layer[first : first + ratio]) for first in range(0, p.heads, ratio)]
        count = len(heads) * p.layers
        caps = [min(round(one * pool * count + own - pool), LENGTH - 8) for one in heads]
        kept.append([twin.top(row, cap + 8) for row, cap in zip(scores, caps, strict=True)])
    selection = press.select(p, BUDGET)
    assert as_lists(selection) == kept
    assert len({n for layer in selection.kept for n in layer}) > 2  # heads differ
    assert decode(p, selection, 6) == twin_decode(whole, kept, 6)[0]


@pytest.mark.parametrize("granularity", ["kv_head", "query_head"])
def test_equal_heads_are_snapkv(granularity: Any) -> None:
    p = shared_prefill("qwen2", LENGTH)
    snapkv = SnapKV(window=8, granularity=granularity).select(p, BUDGET)
    for fields in ({}, {"total": "exact", "surplus": "shared"}, {"groups": "mean"}, {"beta": 1.005}):
        press = HeadKV(heads="uniform", granularity=granularity, **fields)
        assert as_lists(press.select(p, BUDGET)) == as_lists(snapkv)
    more = HeadKV(heads="uniform", counts="budget", granularity=granularity).select(p, BUDGET - 8)
    assert as_lists(more) == as_lists(snapkv)


def test_shuffled_heads_have_the_same_budgets_elsewhere(tmp_path: Path) -> None:
    p = shared_prefill("llama", LENGTH)
    path, _ = scores_file(tmp_path, p.layers, p.heads)
    kept = {
        heads: HeadKV(importance=path, heads=heads, granularity="query_head").select(p, BUDGET).kept
        for heads in ("file", "shuffled")
    }
    assert kept["file"] != kept["shuffled"]
    assert sorted(chain(*kept["file"])) == sorted(chain(*kept["shuffled"]))


def test_the_mean_of_a_group(tmp_path: Path) -> None:
    p = shared_prefill("qwen2", LENGTH)
    path, shares = scores_file(tmp_path, p.layers, p.heads)
    press = HeadKV(importance=path, groups="mean", beta=2)
    each = press.share([one for layer in shares for one in layer], BUDGET - 8, LENGTH - 8)
    ratio = p.heads // p.groups
    means = [round(sum(each[first : first + ratio]) / ratio) + 8 for first in range(0, len(each), ratio)]
    assert list(chain(*press.select(p, BUDGET).kept)) == means


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (None, "No such file"),
        ("[1, 2]", "holds no scores of heads"),
        ('{"a": [1]}', "holds no scores of heads"),
        ('{"0-0": []}', "holds no scores of heads"),
        ('{"0-0": [0.5]}', "has scores of 1, and the model has"),
        ("zero", "not all 0"),
    ],
)
def test_files_that_cannot_be_taken(content: str | None, told: str, tmp_path: Path) -> None:
    p = shared_prefill("qwen2", LENGTH)
    path = tmp_path / "heads.json"
    if content == "zero":
        content = json.dumps({f"{i}-{h}": [0.0] for i, h in product(range(p.layers), range(p.heads))})
    if content is not None:
        path.write_text(content)
    with pytest.raises(UsageError, match=told):
        HeadKV(importance=str(path)).select(p, BUDGET)


def test_a_file_is_asked_for() -> None:
    with pytest.raises(
        UsageError, match=r"HeadKV\.importance is missing; it must be a file .* which python -m eval\.heads MODEL makes"
    ):
        HeadKV().select(shared_prefill("qwen2", LENGTH), BUDGET)
    with pytest.raises(UsageError, match=r"HeadKV\.beta is 1\.0; it must be above 1"):
        HeadKV(heads="uniform", beta=1.0)
