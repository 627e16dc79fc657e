"""scripts/kept_sets.py: how two kept sets are judged, and what kvpress is asked to keep."""

import pytest
import torch

from scripts.kept_sets import NEAR, PAIRS, judge

SCORES = torch.tensor([[9.0, 5.0, 5.0, 1.0], [8.0, 5.0, 2.0, 1.0]])


@pytest.mark.parametrize(
    ("ours", "theirs", "verdicts"),
    [
        ([[0, 1], [0, 1]], [[0, 1], [0, 1]], ["equal", "equal"]),
        ([[0, 1], [0, 1]], [[0, 2], [0, 1]], ["ties", "equal"]),
        ([[0, 1], [0, 1]], [[0, 1, 2], [0]], ["ties", "ties"]),  # a tie of two heads
        ([[0, 1], [0, 1]], [[0, 1], [0, 2]], ["equal", "different"]),
        ([[0, 1], [0, 1]], [[0, 1, 2], [0, 1]], ["different", "equal"]),  # one token more
    ],
)
def test_verdicts(ours: list[list[int]], theirs: list[list[int]], verdicts: list[str]) -> None:
    assert list(judge(ours, theirs, SCORES)) == verdicts


def test_what_rounding_is() -> None:
    def verdict(gap: float) -> list[str]:
        return list(judge([[0]], [[1]], torch.tensor([[1.0, 1.0 - gap]], dtype=torch.float64)))

    assert verdict(NEAR / 2) == ["ties"]
    assert verdict(2 * NEAR) == ["different"]


@pytest.mark.parametrize("policy", ["snapkv", "kvzip", "kvzip_layer"])
@pytest.mark.parametrize("budget", [128, 512])
def test_kvpress_is_asked_to_keep_as_many(policy: str, budget: int) -> None:
    pair = PAIRS[policy]
    for length in range(600, 700):
        share = pair.request(budget, range(length))["settings"]["compression_ratio"]
        if policy == "snapkv":  # of a head it keeps the rest, rounded down
            assert int(length * (1 - share)) == budget
        else:  # of heads together it drops the share, rounded down
            whole = length * pair.together
            assert whole - int(whole * share) == budget * pair.together
