"""Budgets in bytes: as many tokens as they have room for, whatever stores them."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echokv.shapes import Shape
from eval.answering.runner import carry_out
from eval.console.errors import UserError
from eval.planning.budgets import Room, _most, room_of
from eval.planning.codings import Coding, codings
from eval.planning.plan import Plan
from eval.planning.policies import Policy
from tests.test_configs import composed

MISTRAL = Room(Shape(tuple(range(32)), groups=8, heads=32, dim=128), size=2, positions=4096)
KIVI = {"_target_": "echokv.codecs.Kivi"}


def policy(granularity: str, least: int = 1) -> Policy:
    return Policy("mine", "Mine", "", {}, {"granularity": granularity}, None, least, True, {})


@pytest.mark.parametrize(
    ("granularity", "coding", "room", "tokens"),
    [
        ("kv_head", None, 16_777_216, 128),
        ("query_head", None, 4 * 16_777_216, 128),
        ("kv_head", Coding(KIVI), 3_145_728, 128),
        ("kv_head", Coding(KIVI | {"bits": 4}), 5_242_880, 128),
        ("kv_head", Coding(KIVI | {"residual": 128, "rule": "kivi"}), 9_961_472, 128),
    ],
)
def test_bytes_as_tokens(granularity: str, coding: Coding | None, room: int, tokens: int) -> None:
    assert _most(MISTRAL, policy(granularity), coding, room) == tokens


@given(st.sampled_from([1, 2, 4, 8, 16]), st.sampled_from([32, 64, 128]), st.integers(600_000, 30_000_000))
def test_one_token_more_has_no_room(bits: int, group: int, room: int) -> None:
    (coding,) = codings(KIVI | {"bits": bits, "group": group})
    kept, codec = _most(MISTRAL, policy("kv_head"), coding, room), coding.codec if coding else None
    assert MISTRAL.bytes(kept, 8, codec) <= room < MISTRAL.bytes(kept + 1, 8, codec)


def test_less_than_the_least_budget_is_refused() -> None:
    with pytest.raises(UserError, match=r"budget_bytes 1,000 is too small for mine: its least budget of 33 tokens"):
        _most(MISTRAL, policy("kv_head", 33), None, 1000)


def test_what_is_stored_takes_what_was_given(tiny_folder: Path, tmp_path: Path) -> None:
    """The plan's bytes, from config.json alone, are those counted of the tensors."""
    settings = composed(
        f"model.name={tiny_folder}", "subset=syn_fact", "limit=1", "data.length=512", f"results={tmp_path}",
        "method=[snapkv,streamingllm]", "preset=equal_bytes", "cache=kivi", "cache.group=8", "cache.bits=[16,4,2]",
        "budget_bytes=[60000,90000]",
    )  # fmt: skip
    plan, room = Plan.of(settings), room_of(settings.model)
    carry_out(plan)
    assert len(plan.grid) == 12
    for cell in plan.grid:
        (answer,) = cell.store.answers("syn_fact").values()
        assert cell.budget is not None
        assert answer["bytes"] == room.bytes(cell.budget, room.shape.groups, cell.codec)
        most = 60_000 if answer["bytes"] <= 60_000 else 90_000
        assert 0.95 * most < answer["bytes"] <= most
