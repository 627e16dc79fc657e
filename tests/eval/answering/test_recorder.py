"""Recording kept tokens in a run: the very selections, without a change to the answers, and afterwards as well."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer

from eval.answering import runner
from eval.console.errors import UserError
from eval.keeping import selections
from eval.keeping.reading import stored
from eval.planning.plan import Plan
from tests.test_configs import composed

GRID = ["method=[full,snapkv,laq,echokv]", "budget=[64,128]"]
SMALL = ["data.length=512", "subset=[syn_fact]", "limit=2", "methods.echokv.workspace=96", "methods.laq.workspace=96"]
RECORD = "record.selections=true"


@pytest.fixture
def settings(tiny_folder: Path) -> list[str]:
    return [f"model.name={tiny_folder}", "model.label=tiny", *SMALL, *GRID]


def answers(results: Path) -> dict[str, dict[str, Any]]:
    """Per run its answers, without what depends on the clock."""
    found = {}
    for manifest in results.glob("*/*/*/manifest.json"):
        rows = stored(manifest.parent, "syn_fact").values()
        timed = ("prefill_seconds", "selection_seconds", "decode_seconds", "peak_bytes")
        found[manifest.parent.name] = {row["_id"]: {k: v for k, v in row.items() if k not in timed} for row in rows}
    return found


def rows(results: Path) -> dict[str, dict[str, dict[str, Any]]]:
    runs = [manifest.parent for manifest in results.glob("*/*/*/manifest.json")]
    return {run.name: selections.rows(run, "syn_fact") for run in runs}


def test_recording_changes_no_answer_and_keeps_what_was_selected(settings: list[str], tmp_path: Path) -> None:
    runner.run(composed(*settings, f"results={tmp_path / 'plain'}"))
    runner.run(composed(*settings, f"results={tmp_path / 'seen'}", RECORD))
    assert answers(tmp_path / "seen") == answers(tmp_path / "plain")
    assert not (tmp_path / "plain" / "selections").exists()
    kept = rows(tmp_path / "seen")
    for run, own in answers(tmp_path / "seen").items():
        assert set(kept[run]) == set(own)
        for name, answer in own.items():
            steps = selections.steps(kept[run][name])
            names = [step.name for step in steps]
            assert names == {"laq": ["W1", "final"], "echokv": ["W1", "W2", "final"]}.get(answer["method"], ["final"])
            assert sum(head.size for layer in steps[-1].layers for head in layer) == answer["entries"]
            assert all(len(head) == 96 for step in steps[:-1] for layer in step.layers for head in layer)


def test_answers_without_selections_are_completed(
    settings: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    at_once, later = tmp_path / "at_once", tmp_path / "later"
    runner.run(composed(*settings, f"results={at_once}", RECORD))
    runner.run(composed(*settings, f"results={later}"))
    before = answers(later)
    runner.run(composed(*settings, f"results={later}", RECORD))
    assert "0 to do; selections of 2 examples to record\n" in capsys.readouterr().err
    assert answers(later) == before
    assert rows(later) == rows(at_once)
    files = sorted(later.rglob("*.json*"))
    runner.run(composed(*settings, f"results={later}", RECORD))
    assert sorted(later.rglob("*.json*")) == files
    assert "selections of 7 cells: 0.0" in capsys.readouterr().err


def test_prompts_are_stored_once_with_their_evidence(settings: list[str], tmp_path: Path, tiny_folder: Path) -> None:
    config = composed(*settings, f"results={tmp_path}", RECORD)
    runner.run(config)
    example = Plan.of(config).data.examples[0]
    tokenizer = AutoTokenizer.from_pretrained(tiny_folder)
    run = next(tmp_path.glob("*/*/echokv-64-*"))
    row = selections.rows(run, "syn_fact")[example.id]
    prompt = selections.prompt(run, row["prompt"])
    assert len(prompt.pieces) == row["prompt_tokens"]
    assert example.record["context"] in "".join(prompt.pieces)
    said = ["".join(prompt.pieces[first:last]) for first, last in prompt.evidence]
    assert said == [example.record["context"][first:last] for first, last in example.record["evidence"]]
    assert tokenizer("".join(prompt.pieces))["input_ids"]  # the text is whole
    assert len(list(tmp_path.glob("selections/*/*/prompts/*.json"))) == 2


def test_selections_of_another_text_are_refused(settings: list[str], tmp_path: Path) -> None:
    runner.run(composed(*settings, f"results={tmp_path}", RECORD))
    path = next(tmp_path.glob("selections/*/*/snapkv-64-*/*.jsonl"))
    lines = [json.loads(line) | {"fingerprint": "other"} for line in path.read_text().splitlines()]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    with pytest.raises(UserError, match="another text"):
        runner.run(composed(*settings, f"results={tmp_path}", RECORD))


def test_a_value_that_is_neither_is_refused(settings: list[str], tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"record.selections is 3"):
        runner.run(composed(*settings, f"results={tmp_path}", "record.selections=3"))
