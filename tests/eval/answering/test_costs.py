"""What a run says of its costs: a batch's in one line, a row's own only where it was answered alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from eval.answering import runner
from tests.eval.answering.test_runner import ROOT, stored
from tests.test_configs import composed

QUICK = """
import sys
import run
status = run.main()
print(*[name for name in ("torch", "transformers") if name in sys.modules])
sys.exit(status)
"""
SMALL = ["data.length=512", "subset=syn_fact", "limit=2", "method=[full,snapkv,echokv]", "budget=128"]


@pytest.fixture
def settings(tiny_folder: Path, tmp_path: Path) -> list[str]:
    return [f"model.name={tiny_folder}", "model.label=tiny", f"results={tmp_path}", *SMALL]


def rows(root: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for path in sorted(root.rglob("syn_*.jsonl")) for line in path.read_text().splitlines()]


def test_a_batchs_costs_stand_in_one_line(
    settings: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runner.run(composed(*settings))
    said = capsys.readouterr().out
    assert "prefill, s" not in said
    assert "peak memory, MB" not in said
    (line,) = [line for line in said.splitlines() if line.startswith("Rows are answered together")]
    assert "a batch of 3 rows decodes in" in line
    answers = rows(tmp_path)
    peak = sum(answer["peak_bytes"] for answer in answers) / len(answers) / 1e6
    assert f"peak memory {peak:,.0f} MB" in line
    assert not any("alone" in answer for answer in answers)


def test_cost_answers_each_row_by_itself(
    settings: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runner.run(composed(*settings))
    together = stored(tmp_path)
    capsys.readouterr()
    runner.run(composed(*settings, f"results={tmp_path / 'alone'}", "cost=true"))
    said = capsys.readouterr().out
    for title in ("prefill, s", "selection, s", "decoding, s", "tokens per second", "peak memory, MB"):
        assert said.count(title) == 1, title
    alone = rows(tmp_path / "alone")
    assert len(alone) == 6
    assert all(answer["alone"] and answer["rows"] == 1 for answer in alone)
    assert len({answer["prefill_seconds"] for answer in alone}) > 2, "each row has a prefill of its own"
    same = {name: {**answer, "alone": True} for name, answer in together.items()}
    assert stored(tmp_path / "alone") == same


def test_what_was_answered_together_is_measured_again(
    settings: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runner.run(composed(*settings))
    runner.run(composed(*settings, "cost=true"))
    assert "0 of 6 answers are stored, 6 to do" in capsys.readouterr().err
    runner.run(composed(*settings, "cost=true"))
    found = capsys.readouterr()
    assert "6 of 6 answers are stored, 0 to do" in found.err
    assert "tokens per second" in found.out
    runner.run(composed(*settings))
    found = capsys.readouterr()
    assert "6 of 6 answers are stored, 0 to do" in found.err
    assert "tokens per second" in found.out, "the better measurement is the one that counts"


def test_a_run_says_first_what_it_is_about_to_do(
    settings: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tiny_folder: Path
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    runner.run(composed(*settings, "inspect=1", "budget=[64,128]"))
    first = capsys.readouterr().err.splitlines()[0]
    assert first == (
        f"tiny ({tiny_folder}), float32, device auto, 3 threads; preset paper; data synthetic; "
        "full, snapkv, echokv at 64, 128"
    )


def test_a_run_whose_answers_are_stored_imports_neither_torch_nor_transformers(
    settings: list[str], tmp_path: Path
) -> None:
    environment = {**os.environ, "ECHOKV_CACHE": str(tmp_path / "cache")}  # no other process writes there
    command = [sys.executable, "-c", QUICK, *settings]
    for heavy in ({"torch", "transformers"}, set()):  # the first one answers
        done = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True, timeout=600
        )
        assert set(done.stdout.splitlines()[-1].split()) == heavy
        assert "echokv 128" in done.stdout


def test_columns_that_do_not_fit_stand_below(
    settings: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "45")
    runner.run(composed(*settings, "limit=1"))
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith(("syn_fact", " "))]
    assert [line.split() for line in lines[::2]] == [["full", "snapkv", "128"], ["echokv", "128"]]
    assert [len(line.split()) for line in lines[1::2]] == [3, 2]
    assert all(len(one) == len(two) <= 45 for one, two in zip(lines[::2], lines[1::2], strict=True))
