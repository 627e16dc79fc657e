"""Selections side by side: the same as one after the other, in fewer passes through the model."""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch

from baselines.laq import LAQ
from echokv import EchoKV, Prefill, Press, Session, Stretch, UsageError
from eval.answering import answers
from eval.answering.runner import run
from eval.answering.together import choose, in_halves
from eval.inputs import subsets
from eval.tables import collect
from tests.eval.answering.test_runner import GRID, SMALL, stored
from tests.models import tiny
from tests.policies import POLICIES, WORKSPACE, as_lists, iterative_only, shared_prefill, stage1_only
from tests.test_configs import composed

BUDGETS = (40, 64, 96)


def test_choices_equal_those_of_each_press() -> None:
    parts = [shared_prefill("qwen2", length) for length in (200, 170)]
    jobs: list[tuple[Prefill, Press, Any]] = [
        (p, policy.press(granularity=granularity), BUDGETS)
        for p in parts
        for policy in POLICIES.values()
        for granularity in ("kv_head", "query_head")
    ]
    found = choose(jobs)
    for (p, press, budgets), choice in zip(jobs, found, strict=True):
        alone = press.select_all(p, budgets)
        assert [as_lists(one) for one in choice.selections] == [as_lists(one) for one in alone]
        assert [one.ties for one in choice.selections] == [one.ties for one in alone]


def test_lookaheads_of_all_policies_and_prompts_are_one_batch() -> None:
    model = tiny("llama")
    parts = [shared_prefill("llama", length) for length in (200, 170)]
    presses: list[tuple[Press, Any]] = [
        (EchoKV(workspace=WORKSPACE), BUDGETS),
        (stage1_only(workspace=WORKSPACE), BUDGETS),
        (iterative_only(workspace=WORKSPACE), BUDGETS),
        (LAQ(workspace=WORKSPACE), BUDGETS),
        *((LAQ(), [budget]) for budget in BUDGETS),
    ]
    jobs = [(p, press, budgets) for p in parts for press, budgets in presses]
    seen: list[int] = []
    hook = model.register_forward_pre_hook(lambda _, __, given: seen.append(len(given["input_ids"])), with_kwargs=True)
    try:
        found = choose(jobs)
    finally:
        hook.remove()
    # EchoKV and stage1_only are one row until the refresh, iterative_only and LAQ on the same workspace as well.
    assert seen == [2 * 5] * 4 + [2 * 7] * 4
    assert [choice.ahead for choice in found] == [8] * len(jobs)


def test_a_mistake_in_one_press_is_told() -> None:
    p = shared_prefill("llama", 200)
    with pytest.raises(UsageError, match="budget 0 is too small"):
        choose([(p, EchoKV(), [64]), (p, LAQ(), [0])])


@dataclass(frozen=True, kw_only=True)
class Careful(EchoKV):
    """A policy that turns gradients off for its own work, as many do."""

    @torch.no_grad()
    def score(self, prefill: Prefill, budget: int | None) -> Any:
        return (yield from super().score(prefill, budget))


@pytest.mark.parametrize("steps", [(8, 6), (6, 8), (8, 8)])
def test_a_policys_mode_does_not_outlive_it(steps: tuple[int, int]) -> None:
    p = shared_prefill("llama", 200)
    choose([(p, Careful(workspace=100 + n, steps=n), [64]) for n in steps])
    assert torch.is_grad_enabled()


@dataclass(frozen=True, kw_only=True)
class Confused(EchoKV):
    """A policy that yields what it should return."""

    def rescore(self, done: Any, prefill: Prefill) -> Any:
        yield self.attention(done.queries, prefill)


def test_what_cannot_be_fed_is_told() -> None:
    p = shared_prefill("llama", 200)
    says = r"^Confused\.rescore yielded a value of type list; it may yield a Stretch"
    for one in (lambda press: press.select(p, 64), lambda press: press.rounds(p, 64)):
        with pytest.raises(UsageError, match=says):
            one(Confused(workspace=100))
    with pytest.raises(UsageError, match=says):
        choose([(p, Confused(workspace=100), [64])])
    with pytest.raises(UsageError, match="a stretch of -1 tokens; it must be at least 0"):
        Stretch(Session(p, EchoKV().select(p, 64)), -1)


def test_halving() -> None:
    calls = []

    def work(items: Any) -> list[int]:
        calls.append(len(items))
        if len(items) > 2:
            raise torch.OutOfMemoryError
        return [item + 1 for item in items]

    assert list(in_halves(work, range(7))) == list(range(1, 8))
    assert calls == [7, 3, 1, 2, 4, 2, 2]
    with pytest.raises(torch.OutOfMemoryError):
        list(in_halves(lambda items: work([*items, 0, 0]), range(7)))


@pytest.mark.parametrize("rows", [3, 20, 1000])
def test_batches_that_span_examples_change_no_answer(tiny_folder: Path, tmp_path: Path, rows: int) -> None:
    settings = [f"model.name={tiny_folder}", "model.label=tiny", *SMALL, *GRID]
    run(composed(*settings, f"results={tmp_path / 'one'}"))
    run(composed(*settings, f"results={tmp_path / 'many'}", f"decode_rows={rows}"))
    assert stored(tmp_path / "many") == stored(tmp_path / "one")


def test_batch_of_examples_too_big_for_memory_is_halved(
    tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = [f"model.name={tiny_folder}", "model.label=tiny", *SMALL, *GRID, "decode_rows=1000"]
    run(composed(*settings, f"results={tmp_path / 'one'}"))
    whole, tried = answers.by_scope, []

    def limited(cells: Any) -> Any:
        tried.append(1)
        if len(tried) == 3:  # the third of four examples in the first batch
            raise torch.OutOfMemoryError
        return whole(cells)

    monkeypatch.setattr(answers, "by_scope", limited)
    run(composed(*settings, f"results={tmp_path / 'small'}"))
    assert stored(tmp_path / "small") == stored(tmp_path / "one")
    assert len(tried) == 3 + 4


def test_column_sums_are_a_cost_of_the_methods_that_use_them(
    tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An hour of a prefill that took seconds: shared by the two cells of H2O, and not a part of the prefill."""
    ours = answers.prefill
    monkeypatch.setattr(answers, "prefill", lambda *a, **k: replace(ours(*a, **k), sums_seconds=3600.0))
    settings = [f"model.name={tiny_folder}", "model.label=tiny", *SMALL, "methods.h2o.queries=all"]
    run(composed(*settings, "method=[h2o,streamingllm]", "budget=[64,128]", f"results={tmp_path}"))
    found = [json.loads(line) for path in tmp_path.rglob("*.jsonl") for line in path.read_text().splitlines()]
    assert {answer["method"] for answer in found} == {"h2o", "streamingllm"}
    for answer in found:
        share = 1800.0 if answer["method"] == "h2o" else 0.0
        assert share <= answer["selection_seconds"] < share + 60
        assert answer["prefill_seconds"] < 60 - 3600


def test_lookahead_tokens_are_stored(tiny_folder: Path, tmp_path: Path) -> None:
    """T_eff: fewer than T where the lookahead reaches the answer's end."""
    run(composed(f"model.name={tiny_folder}", "model.label=tiny", *SMALL, *GRID, f"results={tmp_path}"))
    for answer in stored(tmp_path).values():
        ahead = answer["lookahead_tokens"]
        assert 1 <= ahead <= 8 if answer["method"] == "echokv" else ahead == 0


def test_what_tables_and_report_read_is_stored(tiny_folder: Path, tmp_path: Path) -> None:
    run(composed(f"model.name={tiny_folder}", "model.label=tiny", *SMALL, *GRID, f"results={tmp_path}"))
    for path in tmp_path.rglob("syn_*.jsonl"):
        for answer in map(json.loads, path.read_text().splitlines()):
            assert set(collect.MEASURED) <= set(answer)
            assert 1 <= answer["new_tokens"] <= subsets.load(answer["dataset"]).max_new_tokens
