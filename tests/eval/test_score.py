"""The scoring command: tables, JSON, LongBench-E buckets, and one line for every kind of wrong input."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path
from statistics import stdev
from typing import Any
from zipfile import ZipFile

import pytest

from eval import score
from eval.console.errors import UserError
from eval.inputs import subsets
from eval.scoring.predictions import read_tables
from eval.scoring.rows import score_rows

ROW: dict[str, Any] = {"pred": "Ann", "answers": ["Ann"], "all_classes": None, "length": 3}
OWN: dict[str, Any] = {**ROW, "_id": "a", "dataset": "qasper", "model": "m", "preset": "paper"}


def write(path: Path, *rows: dict[str, Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_a_published_dump(shared: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = shared / "predictions" / "llama3-8b-instruct"
    published = json.loads((folder / "result.json").read_text())
    quick = ("qasper", "trec", "passage_count", "lcc")
    for name in quick:
        (tmp_path / f"{name}.jsonl").write_bytes((folder / f"{name}.jsonl").read_bytes())
    assert score.main([str(tmp_path), "--json"]) == 0
    (table,) = json.loads(capsys.readouterr().out)
    found = {row["subset"]: row for row in table["scores"] if row["edit"] in (None, "difflib")}
    assert list(found) == list(quick)
    assert {name: round(row["score"], 2) for name, row in found.items()} == {n: published[n] for n in quick}
    assert [row["edit"] for row in table["scores"][-2:]] == ["difflib", "levenshtein"]
    assert round(table["scores"][-1]["score"], 2) == 64.89
    assert score.main([str(tmp_path)]) == 0
    assert "64.89" in capsys.readouterr().out


def test_standard_error_and_failures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    predictions = ["It is fine. ", "", "no"]
    rows = [{**ROW, "pred": text, "answers": ["It is fine. "]} for text in predictions]
    found, _ = score_rows(subsets.load("qmsum"), rows)
    assert found.score == pytest.approx(100 / 3)
    assert found.error == pytest.approx(stdev([100, 0, 0]) / 3**0.5)
    assert found.failures == 1
    (single,) = score_rows(subsets.load("qasper"), [ROW])
    assert single.error is None
    with pytest.raises(UserError, match="no predictions"):
        score_rows(subsets.load("qasper"), [])
    assert score.main([str(write(tmp_path / "qmsum.jsonl", *rows))]) == 0
    out = capsys.readouterr().out
    assert "partial: n=3 of 200" in out
    assert "rouge raised on 1" in out


def test_longbench_e_buckets(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lengths = (("Ann", 3999), ("no", 4000), ("Ann", 7999))
    rows = [{**ROW, "pred": text, "length": length} for text, length in lengths]
    path = write(tmp_path / "qasper_e.jsonl", *rows)
    assert score.main([str(path), "--json"]) == 0
    (table,) = json.loads(capsys.readouterr().out)
    assert table["scores"][0]["buckets"] == {"0-4k": 100.0, "4-8k": 50.0, "8k+": None}
    assert score.main([str(path)]) == 0
    assert "8k+: no records" in capsys.readouterr().out
    write(path, {key: value for key, value in ROW.items() if key != "length"})
    assert score.main([str(path)]) == 1
    assert "length must be a number" in capsys.readouterr().err


def test_one_table_per_folder_method_and_budget(tmp_path: Path) -> None:
    write(tmp_path / "one" / "qasper.jsonl", ROW)
    write(tmp_path / "two" / "qasper.jsonl", ROW)
    write(
        tmp_path / "run.jsonl",
        {**OWN, "method": "h2o", "budget": 128},
        {**OWN, "method": "laq", "budget": 128},
    )
    tables = read_tables([tmp_path, tmp_path / "one"])
    assert {table[1:] for table in tables} == {(), ("method h2o", "budget 128"), ("method laq", "budget 128")}
    assert [len(rows) for by_subset in tables.values() for rows in by_subset.values()] == [1, 1, 1, 1]


@pytest.mark.parametrize(
    ("rows", "complaint"),
    [
        ([OWN, OWN], "_id 'a' stands in 2 rows"),
        ([OWN, {**OWN, "_id": None}], "1 of 2 rows have no _id"),
        ([OWN, {**OWN, "_id": "b", "model": "n"}], "several values of model (m, n)"),
        ([OWN, {**OWN, "_id": "b", "preset": "equal_bytes"}], "several values of preset"),
        ([{**OWN, "dataset": "qaspr"}], "unknown subset 'qaspr'; did you mean qasper"),
        ([{**OWN, "dataset": 3}], "dataset must be the name"),
        ([{**OWN, "answers": "Ann"}], "line 1: answers must be a list"),
        ([{**OWN, "answers": []}], "answers must be a list"),
        ([{**OWN, "pred": None}], "line 1: pred must be a string"),
        ([{**OWN, "all_classes": "Ann"}], "all_classes must be null or a list"),
        ([{**OWN, "dataset": "trec"}], "trec is scored by classification: all_classes must list"),
        ([{**OWN, "dataset": "passage_retrieval_en"}], "its answers are of the form Paragraph 7, found 'Ann'"),
        ([{**OWN, "score": float("nan")}], "NaN is no JSON number"),
        ([], "the file is empty"),
    ],
)
def test_wrong_rows_are_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], rows: list[dict[str, Any]], complaint: str
) -> None:
    assert score.main([str(write(tmp_path / "rows.jsonl", *rows))]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert complaint in err


def test_wrong_paths_are_one_line(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "qasper.jsonl").write_bytes(b'{"pred": "\xff"}')
    for path, complaint in (
        ("none", "no such file"),
        ("empty", "no .jsonl files"),
        ("qasper.jsonl", "not UTF-8"),
    ):
        command = [sys.executable, "-m", "eval.score", str(tmp_path / path)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 1
        assert done.stdout == ""
        assert done.stderr.count("\n") == 1
        assert complaint in done.stderr


def test_rouge_score_stands_apart_from_the_official_rouge() -> None:
    rows = [{"pred": "THE CAT SAT", "answers": ["the cat lay"], "all_classes": None}]
    official, other = score_rows(subsets.load("samsum"), rows)
    assert (official.edit, other.edit) == (None, "rouge-score")
    assert official.score == 0, "the official Rouge-L tells cases apart"
    assert other.score == pytest.approx(100 * 2 / 3)


LINE = {"pred": "Ann", "answers": ["Ann"], "all_classes": None, "length": 5000}


def scored(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[dict[str, Any]]:
    assert score.main([*arguments, "--json"]) == 0
    return [row for table in json.loads(capsys.readouterr().out) for row in table["scores"]]


def test_official_predictions_of_longbench_e(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """LongBench's pred.py --e writes pred_e/MODEL/SUBSET.jsonl, without the _e."""
    write(tmp_path / "pred_e" / "llama" / "qasper.jsonl", LINE)
    write(tmp_path / "pred_e" / "llama" / "hotpotqa_e.jsonl", LINE)
    write(tmp_path / "pred" / "llama" / "qasper.jsonl", LINE)
    found = {row["subset"]: row for row in scored(capsys, str(tmp_path))}
    assert list(found) == ["qasper", "qasper_e", "hotpotqa_e"]
    assert found["qasper"]["buckets"] is None
    assert found["qasper_e"]["buckets"] == {"0-4k": None, "4-8k": 100.0, "8k+": None}
    assert scored(capsys, str(tmp_path / "pred_e" / "llama" / "qasper.jsonl"))[0]["subset"] == "qasper_e"
    write(tmp_path / "pred_e" / "llama" / "narrativeqa.jsonl", LINE)
    assert score.main([str(tmp_path)]) == 1
    assert "unknown subset 'narrativeqa_e'" in capsys.readouterr().err


def test_predictions_named_otherwise_take_a_subset(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "mine.jsonl", LINE)
    assert scored(capsys, str(path), "--subset", "qasper_e")[0]["subset"] == "qasper_e"
    wrong = {
        (str(path),): "mine.jsonl: its name says no subset (unknown subset 'mine'",
        (str(path), "--subset", "qaspr"): "unknown subset 'qaspr'; did you mean qasper",
        (str(path), str(write(tmp_path / "other.jsonl", LINE)), "--subset", "qasper"): "says what one file holds",
        (str(write(tmp_path / "own.jsonl", OWN)), "--subset", "lcc"): "dataset is 'qasper', not 'lcc' as --subset says",
    }
    for arguments, says in wrong.items():
        assert score.main(list(arguments)) == 1
        said = capsys.readouterr().err
        assert said.count("\n") == 1
        assert says in said


def test_packed_files_byte_order_marks_and_numbers_as_ids(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    content = b"\xef\xbb\xbf" + b"".join(json.dumps({**LINE, "_id": n}).encode() + b"\n" for n in (1, 2))
    (tmp_path / "qasper.jsonl.gz").write_bytes(gzip.compress(content))
    (tmp_path / "hotpotqa.jsonl").write_bytes(content)
    assert [(row["subset"], row["n"]) for row in scored(capsys, str(tmp_path))] == [("qasper", 2), ("hotpotqa", 2)]
    (tmp_path / "qasper.jsonl").write_bytes(content)
    assert score.main([str(tmp_path)]) == 1
    assert "qasper.jsonl and qasper.jsonl.gz are both there" in capsys.readouterr().err
    (tmp_path / "lcc.jsonl.gz").write_bytes(gzip.compress(content)[:-9])
    assert score.main([str(tmp_path / "lcc.jsonl.gz")]) == 1
    assert "not a readable gzip" in capsys.readouterr().err


def test_a_zip_is_told_to_be_unpacked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "pred.zip"
    with ZipFile(path, "w") as archive:
        archive.writestr("qasper.jsonl", '{"pred": "a", "answers": ["a"], "all_classes": null}')
    assert score.main([str(path)]) == 1
    assert (
        capsys.readouterr().err
        == f"error: {path}: predictions are not read from a zip: unpack it, and give the folder\n"
    )
