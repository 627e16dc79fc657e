"""Whole runs on a tiny model: the grid, resuming, sharding, what is stored."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from eval.answering import answers, loading, runner
from eval.console.errors import UserError
from tests.test_configs import composed

ROOT = Path(__file__).resolve().parents[3]
GRID = ["method=[full,streamingllm,snapkv,echokv]", "budget=[128,256]"]
SMALL = ["data.length=512", "subset=[syn_fact,syn_trec]", "limit=2"]


@pytest.fixture
def settings(tiny_folder: Path, tmp_path: Path) -> list[str]:
    return [f"model.name={tiny_folder}", f"results={tmp_path}", "model.label=tiny", *SMALL]


def stored(root: Path) -> dict[str, dict[str, Any]]:
    """Every answer by cell and id, without what depends on the clock."""
    answers = {}
    for path in sorted(root.rglob("*.jsonl")):
        for line in path.read_bytes().split(b"\n")[:-1]:  # a killed process may leave half a last line
            answer = json.loads(line)
            kept = {k: v for k, v in answer.items() if not k.endswith(("seconds", "peak_bytes", "rows"))}
            name = f"{path.parent.name} {answer['_id']}"
            assert name not in answers, "answered twice"
            answers[name] = kept
    return answers


def test_grid_in_one_run_equals_cells_one_by_one(
    settings: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runner.run(composed(*settings, *GRID))
    table = capsys.readouterr().out
    assert "echokv 256" in table
    assert "± " in table
    together = stored(tmp_path)
    assert len(together) == 4 * (1 + 3 * 2)
    alone = tmp_path / "alone"
    for method in ("full", "streamingllm", "snapkv", "echokv"):
        for budget in (128, 256):
            run = [*settings, f"results={alone}", f"method={method}", f"budget={budget}", "decode_rows=1"]
            runner.run(composed(*run))
    assert stored(alone) == {name: answer for name, answer in together.items() if "alone" not in name}


def test_what_is_stored_states_the_real_size(settings: list[str], tmp_path: Path) -> None:
    runner.run(composed(*settings, *GRID))
    for answer in stored(tmp_path).values():
        layers, groups, heads, dim = 2, 2, 4, 8
        entries = {
            "full": layers * groups * answer["prompt_tokens"],
            "streamingllm": layers * heads * (answer["budget"] or 0),
            "snapkv": layers * heads * (answer["budget"] or 0),
            "echokv": layers * groups * (answer["budget"] or 0),
        }[answer["method"]]
        assert answer["entries"] == entries
        assert answer["bytes"] == entries * 2 * dim * 4


def test_second_run_loads_no_model(
    settings: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    runner.run(composed(*settings))
    before = stored(tmp_path)
    capsys.readouterr()
    monkeypatch.setattr(loading, "load_model", None)
    runner.run(composed(*settings))
    assert "4 of 4 answers are stored, 0 to do" in capsys.readouterr().err
    assert stored(tmp_path) == before


def test_shards_together_make_the_whole(settings: list[str], tmp_path: Path) -> None:
    runner.run(composed(*settings))
    whole = stored(tmp_path)
    parts = tmp_path / "parts"
    for shard in ("0/3", "1/3", "2/3"):
        runner.run(composed(*settings, f"results={parts}", f"shard={shard}"))
    assert stored(parts) == whole


def test_a_longer_run_adds_to_a_shorter_one(settings: list[str], tmp_path: Path) -> None:
    runner.run(composed(*settings, "limit=1"))
    runner.run(composed(*settings, "limit=2"))
    assert len(stored(tmp_path)) == 4


def test_killed_run_goes_on_where_it_was(settings: list[str], tmp_path: Path) -> None:
    unbroken = tmp_path / "unbroken"
    runner.run(composed(*settings, f"results={unbroken}", *GRID))
    command = [sys.executable, "run.py", *settings, f"results={tmp_path / 'killed'}", *GRID]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
        folder = tmp_path / "killed"
        while process.poll() is None and not list(folder.rglob("syn_fact.*.jsonl")):
            pass
        process.kill()
    runner.run(composed(*settings, f"results={folder}", *GRID))
    assert stored(folder) == stored(unbroken)


def test_manifest_holds_configuration_versions_and_code_but_no_path(
    settings: list[str], tiny_folder: Path, tmp_path: Path
) -> None:
    runner.run(composed(*settings))
    manifest = next(tmp_path.rglob("manifest.json")).read_text()
    run = next(tmp_path.rglob("runs/*.json")).read_text()
    assert {"versions", "code", "device", "config", "sources"} <= set(json.loads(run))
    assert str(tiny_folder.parent) not in manifest + run
    assert str(Path.home()) not in manifest + run


def test_real_records(settings: list[str], shared: Path, tmp_path: Path) -> None:
    settings = [word for word in settings if word != "data.length=512"]
    arguments = ["data=jsonl", f"data.path={shared / 'longbench'}", "subset=[hotpotqa,samsum]", "limit=1"]
    runner.run(composed(*settings, *arguments))
    answers = list(stored(tmp_path).values())
    assert {answer["dataset"] for answer in answers} == {"hotpotqa", "samsum"}
    assert all(answer["prompt_tokens"] < 7700 for answer in answers)
    assert any(answer["truncated"] for answer in answers)


def memory_for(rows: int, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Let only batches of so many rows fit, and return the sizes that were tried."""
    whole, tried = answers.decode_rows, []

    def limited(sessions: Any, n: Any, record: Any) -> list[list[int]]:
        tried.append(len(sessions))
        if len(sessions) > rows:
            raise torch.OutOfMemoryError
        return whole(sessions, n, record)

    monkeypatch.setattr(answers, "decode_rows", limited)
    return tried


def test_batch_too_big_for_memory_is_halved(
    settings: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner.run(composed(*settings, *GRID, "limit=1", "subset=syn_fact"))
    whole = stored(tmp_path)
    tried = memory_for(2, monkeypatch)
    runner.run(composed(*settings, *GRID, "limit=1", "subset=syn_fact", f"results={tmp_path / 'small'}"))
    assert tried == [7, 3, 1, 2, 4, 2, 2]
    assert stored(tmp_path / "small") == whole


def test_example_too_big_for_memory_is_left_and_the_run_goes_on(
    settings: list[str],
    tmp_path: Path,
    short_of_memory: Callable[[Any, str, int], list[int]],
    capsys: pytest.CaptureFixture[str],
) -> None:
    short_of_memory(answers, "prefill", 2)
    with pytest.raises(UserError, match="1 examples are left undone for lack of memory"):
        runner.run(composed(*settings))
    assert "left undone" in capsys.readouterr().err
    assert len(stored(tmp_path)) == 3
    runner.run(composed(*settings))
    assert len(stored(tmp_path)) == 4


def test_inspect_shows_prompts_and_runs_nothing(
    settings: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runner.run(composed(*settings, "inspect=3"))
    shown = capsys.readouterr().out
    assert shown.count("tokens: ") == 3
    assert "<|end|>" in shown
    assert not stored(tmp_path)
