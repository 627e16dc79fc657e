"""How many examples are answered together on a GPU, with a stand-in for its free memory."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from echokv import Needs, prefill
from eval.answering import sizing
from eval.answering.loading import loaded
from eval.answering.runner import run
from eval.planning.plan import Plan
from eval.planning.todo import missing
from tests.eval.answering.test_runner import GRID, SMALL, stored
from tests.test_configs import composed


@pytest.fixture
def free(monkeypatch: pytest.MonkeyPatch) -> list[int | None]:
    """Bytes that a GPU would have free; the last counts."""
    given: list[int | None] = [None]
    monkeypatch.setattr(sizing, "free_memory", lambda model: given[-1])
    return given


def settings(folder: Path, results: Path, *more: str) -> list[str]:
    return [f"model.name={folder}", "model.label=tiny", *SMALL, *GRID, f"results={results}", *more]


def rows_of(results: Path) -> set[int]:
    """How many rows the batches had in which answers were decoded."""
    return {json.loads(line)["rows"] for path in results.rglob("*.jsonl") for line in path.open()}


def decided(plan: Plan, model: Any) -> tuple[int | None, str]:
    (share,) = sizing.shares(plan, model, list(missing(plan.grid, plan.data.examples)))
    return share.rows, share.said


def test_memory_decides_how_many_examples_are_answered_together(
    tiny_folder: Path, tmp_path: Path, free: list[int | None], capsys: pytest.CaptureFixture[str]
) -> None:
    run(composed(*settings(tiny_folder, tmp_path / "cpu")))
    assert "decode_rows" not in capsys.readouterr().err
    free.append(10**12)
    run(composed(*settings(tiny_folder, tmp_path / "gpu")))
    (told,) = [line for line in capsys.readouterr().err.splitlines() if "decode_rows" in line]
    assert told.startswith("decode_rows=")
    assert told.endswith(" tokens, with 1000.0 GB free")
    assert "the answers of 8 examples at a time" in told
    assert max(rows_of(tmp_path / "gpu")) > max(rows_of(tmp_path / "cpu"))
    assert stored(tmp_path / "gpu") == stored(tmp_path / "cpu")


def test_who_goes_on_keeps_what_was_decided(
    tiny_folder: Path, tmp_path: Path, free: list[int | None], capsys: pytest.CaptureFixture[str]
) -> None:
    free.append(10**12)
    run(composed(*settings(tiny_folder, tmp_path, "limit=1")))
    (first,) = {path.read_text() for path in tmp_path.rglob("runs/*.json")}
    rows = json.loads(first)["decode_rows"]
    capsys.readouterr()
    free.append(1)  # a smaller GPU
    run(composed(*settings(tiny_folder, tmp_path)))
    assert f"decode_rows={rows}, as for the answers that are stored\n" in capsys.readouterr().err
    assert {json.loads(path.read_text())["decode_rows"] for path in tmp_path.rglob("runs/*.json")} == {rows}


def test_answers_made_one_example_at_a_time_stay_so(tiny_folder: Path, tmp_path: Path, free: list[int | None]) -> None:
    run(composed(*settings(tiny_folder, tmp_path, "limit=1")))
    free.append(10**12)
    run(composed(*settings(tiny_folder, tmp_path)))
    assert {json.loads(path.read_text())["decode_rows"] for path in tmp_path.rglob("runs/*.json")} == {None}


def test_what_the_settings_name_counts(tiny_folder: Path, tmp_path: Path, free: list[int | None]) -> None:
    model = object()  # nobody looks at it
    free.append(1)
    for word, rows in (("decode_rows=7", 7), ("cost=true", 1)):
        assert decided(Plan.of(composed(*settings(tiny_folder, tmp_path, word))), model) == (rows, "")


def test_less_memory_takes_fewer_examples(tiny_folder: Path, tmp_path: Path, free: list[int | None]) -> None:
    plan = Plan.of(composed(*settings(tiny_folder, tmp_path)))
    model, _ = loaded(plan.model)
    limit = plan.protocol.prompt_limit
    assert limit is not None
    assert limit < model.config.max_position_embeddings
    once, each = sizing._bytes(model, limit, plan)
    for examples, decided_ in zip(range(1, 10), (1, 2, 2, 4, 4, 4, 4, 8, 8), strict=True):
        free.append(int((once + examples * each) / sizing.SHARE) + 1)
        rows, told = decided(plan, model)
        assert rows == (None if examples == 1 else decided_ * len(plan.grid))
        assert f"{free[-1] / 1e9:.1f} GB free" in told  # type: ignore[operator]
    free.append(0)
    assert decided(plan, model)[0] is None  # an example that does not fit is told when it has been tried


def test_an_example_is_not_taken_for_smaller_than_it_is(tiny_folder: Path, tmp_path: Path) -> None:
    plan = Plan.of(composed(*settings(tiny_folder, tmp_path)))
    model, _ = loaded(plan.model)
    length = 300
    p = prefill(model, torch.arange(length) % 200, Needs(window=32))
    held = sum(part.numel() * part.element_size() for part in [*p.keys, *p.values])
    evicted = [cell.press.select(p, cell.budget) for cell in plan.grid if cell.budget]
    held += sum(one.bytes(p) for one in evicted)
    _, each = sizing._bytes(model, length, plan)
    assert held < each


def test_cells_of_two_numbers_are_answered_apart(tiny_folder: Path, tmp_path: Path, free: list[int | None]) -> None:
    """In half precision; what is new is decided by memory, and each folder has one number in the end."""
    half = "model.dtype=bfloat16"
    one = [word for word in settings(tiny_folder, tmp_path, half) if not word.startswith(("method=", "budget="))]
    run(composed(*one, "method=snapkv", "budget=128", "limit=1"))
    free.append(10**12)
    run(composed(*one, "method=streamingllm", "budget=128", "limit=1"))
    run(composed(*one, "method=[snapkv,streamingllm,full]", "budget=128"))
    numbers = {
        folder.parent.name.rsplit("-", 1)[0]: {json.loads(note.read_text())["decode_rows"] for note in folder.iterdir()}
        for folder in tmp_path.rglob("runs")
    }
    assert numbers == {"snapkv-128": {None}, "streamingllm-128": {8}, "full": {24}}
    answered = {path.parent.name: path for path in tmp_path.rglob("*.jsonl")}
    assert len(answered) == 3


def test_in_full_precision_one_number_does_for_all(tiny_folder: Path, tmp_path: Path, free: list[int | None]) -> None:
    one = [word for word in settings(tiny_folder, tmp_path) if not word.startswith(("method=", "budget="))]
    run(composed(*one, "method=snapkv", "budget=128", "limit=1"))
    free.append(10**12)
    run(composed(*one, "method=streamingllm", "budget=128", "limit=1"))
    assert decided(Plan.of(composed(*one, "method=[snapkv,streamingllm,full]", "budget=128")), object()) == (None, "")


def test_a_model_on_the_cpu_has_no_gpu_memory(tiny_folder: Path, tmp_path: Path) -> None:
    model, _ = loaded(Plan.of(composed(*settings(tiny_folder, tmp_path))).model)
    if not torch.cuda.is_available():
        assert sizing.free_memory(model) is None
