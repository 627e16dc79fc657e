"""DefensiveKV against a naive twin, and against an example worked out by hand."""

from typing import Any

import pytest
import torch

from baselines.defensivekv import DefensiveKV
from echokv import UsageError, decode
from tests import twin_defensive
from tests.models import ARCHITECTURES
from tests.policies import as_lists, close, shared_prefill, trace
from tests.twin_model import decode as twin_decode

LENGTH, BUDGET = 150, 48
FIELDS: dict[str, dict[str, Any]] = {
    "default": {},  # on so flat an attention what is sure fills most of the budget
    "small": {"covered": 0.1, "window": 16},
    "model": {"across": "model", "window": 8, "covered": 0.15},
    "window": {"window_share": "window", "window": 8, "covered": 0.2, "kernel": 1},
}
# One KV head's four rows: two query heads of two window queries each.
ROWS = [[0.6, 0.2, 0.2], [0.1, 0.8, 0.1], [0.3, 0.3, 0.4], [0.2, 0.2, 0.6]]


def test_by_hand() -> None:
    press = DefensiveKV(window=2, kernel=1)
    paid = torch.tensor(ROWS, dtype=torch.float64).view(2, 2, 3)
    assert press.worst(paid.view(1, 1, 4, 3)).tolist() == [[pytest.approx([2 / 3, 0.8, 2 / 3])]]
    assert twin_defensive.worst(ROWS, 1) == pytest.approx([2 / 3, 0.8, 2 / 3])
    # Nothing is paid to the window: the sums .375, .7 and 1 of the sorted means pass .9 at the third.
    press = DefensiveKV(window=2, kernel=1, window_share="window")
    assert press.reach(paid.view(1, 1, 4, 3).mean(dim=2), paid[None]).tolist() == [[2]]
    assert twin_defensive.sure([0.3, 0.375, 0.325], 0.9, 3) == [1, 2]
    assert twin_defensive.sure([0.3, 0.375, 0.325], 0.9, 1) == [1]  # scores at a budget are compared with the twin's


@pytest.mark.parametrize("fields", FIELDS)
@pytest.mark.parametrize("granularity", ["kv_head", "query_head"])
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_scores_selections_and_answers_equal_the_twins(name: str, granularity: Any, fields: str) -> None:
    p, whole = shared_prefill(name, LENGTH), trace(name, LENGTH)
    press = DefensiveKV(granularity=granularity, **FIELDS[fields])
    naive = twin_defensive.defensivekv(whole, BUDGET, granularity=granularity, **FIELDS[fields])
    for mine, other in zip(press.scores(p, BUDGET), naive.scores, strict=True):
        close(mine, other)
    selection = press.select(p, BUDGET)
    assert as_lists(selection) == naive.kept
    assert selection.entries == BUDGET * selection.heads * p.layers
    assert fields == "default" or len({n for layer in selection.kept for n in layer}) > 2  # heads differ
    assert decode(p, selection, 4) == twin_decode(whole, naive.kept, 4)[0]


def test_what_is_sure_fills_the_budget_at_most() -> None:
    p = shared_prefill("qwen2", LENGTH)
    press = DefensiveKV(window=8, covered=1.0, window_share="window")
    for layer in press.scores(p, 20):
        assert (layer.isposinf().sum(dim=1) <= 20).all()


def test_a_safeguard_across_the_model_is_refused() -> None:
    with pytest.raises(UsageError, match=r"DefensiveKV\.alpha is 0\.2; across=model has no safeguard: set it to 0"):
        DefensiveKV(across="model", alpha=0.2)
