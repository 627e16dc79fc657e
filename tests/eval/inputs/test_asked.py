"""Which tokens end an answer, by each rule, and what the prompts of a run are."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from eval.console.errors import UserError
from eval.inputs import subsets
from eval.inputs.asked import stop_ids
from eval.inputs.protocol import Protocol
from tests.eval.inputs.test_truncation import BARE as TOKENIZER

NEWLINE = TOKENIZER.encode("\n", add_special_tokens=False)[-1]


def protocol(**rules: Any) -> Protocol:
    plain = {"chat": "none", "truncation": "truncate_first", "stop": "tokenizer", "min_length": "none"}
    rest = {
        "generation": "bare",
        "control_text": "token",
        "question": "within",
        "prompt_limit": 100,
        "template_options": {},
    }
    return Protocol(**{**plain, **rest, **rules})


def stops(rule: str, subset: str, tokenizer_end: int | None, checkpoint_end: int | list[int] | None) -> frozenset[int]:
    model = SimpleNamespace(generation_config=SimpleNamespace(eos_token_id=checkpoint_end))
    tokenizer = SimpleNamespace(eos_token_id=tokenizer_end, encode=TOKENIZER.encode)
    return stop_ids(model, tokenizer, protocol(stop=rule).stops_on(subsets.load(subset)))


@pytest.mark.parametrize(
    ("rule", "subset", "expected"),
    [
        ("tokenizer", "qasper", {7}),
        ("tokenizer", "samsum", {7}),
        ("checkpoint", "qasper", {7, 8}),
        ("checkpoint", "samsum", {7, 8}),
        ("official", "qasper", {7, 8}),
        ("official", "samsum", {7, NEWLINE}),  # named by LongBench's script, so that the checkpoint's are not asked
        ("official", "samsum_e", {7, NEWLINE}),
        ("official", "trec", {7, 8}),
    ],
)
def test_stop_rules(rule: str, subset: str, expected: set[int]) -> None:
    assert stops(rule, subset, 7, [7, 8]) == expected


def test_a_checkpoint_may_name_one_end_that_is_not_the_tokenizers() -> None:
    assert stops("tokenizer", "qasper", 7, 8) == {7}
    assert stops("checkpoint", "qasper", 7, 8) == {8}


def test_an_answer_that_nothing_ends_is_refused() -> None:
    with pytest.raises(UserError, match=r"the checkpoint names no token .*: use preset.stop=tokenizer"):
        stops("official", "qasper", 7, None)
    with pytest.raises(UserError, match=r"the tokenizer names no token .*: use preset.stop=checkpoint"):
        stops("tokenizer", "qasper", None, [7])
    assert stops("tokenizer", "qasper", 0, None) == {0}
