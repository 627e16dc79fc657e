"""What rows of a table are marked and compared among: equal bytes where these were given, else tokens and a codec."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from eval.answering import runner
from eval.planning.budgets import budgets, given
from eval.planning.codings import codings
from eval.planning.policies import policies
from eval.report import groups, numbers
from eval.tables import __main__ as tables
from eval.tables import gates, latex
from eval.tables.layout import Entry, Row, Table
from tests.eval.stores import pattern, write
from tests.eval.tables.test_tables import compiled
from tests.test_configs import composed

GRID = ["method=[full,snapkv,streamingllm]", "cache=kivi", "cache.group=8", "cache.bits=[16,2]"]
ROOMS = (60_000, 90_000)
RIGHT = {("snapkv", None, 60_000), ("streamingllm", "KIVI-2", 90_000)}  # all else is answered wrongly


def settings(tiny: list[str], *rooms: int) -> list[str]:
    return [*tiny, "subset=[syn_fact]", "limit=1", *GRID, f"budget_bytes=[{','.join(map(str, rooms))}]"]


def lines(text: str) -> list[list[str]]:
    """The rows of a Markdown table, without its head."""
    return [[field.strip() for field in line.split("|")[1:-1]] for line in text.splitlines() if line.startswith("| ")][
        2:
    ]


@pytest.fixture
def answered(tiny_settings: list[str], tmp_path: Path) -> list[str]:
    """Answers of a tiny model, of which those of `RIGHT` are made right by hand; one record."""
    words = settings(tiny_settings, *ROOMS)
    runner.run(composed(*words))
    for path in tmp_path.glob("synthetic/tiny/*/syn_fact.*jsonl"):
        identity = json.loads((path.parent / "manifest.json").read_text())["identity"]
        row = json.loads(path.read_text())
        room = next((room for room in ROOMS if row["bytes"] <= room), None)
        good = (identity["method"]["name"], identity.get("cache", {}).get("name"), room) in RIGHT
        path.write_text(json.dumps(row | {"pred": row["answers"][0] if good else "?"}) + "\n")
    return words


def test_marks_and_differences_are_among_rows_of_as_many_bytes(
    answered: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    assert tables.main(["memory", *answered, "against=snapkv"]) == 0
    out = capsys.readouterr().out
    assert "| Method | Bytes | Budget | KV |" in out
    assert "best and second best of each number of bytes, FullKV apart" in out
    found = [(name, room, entry) for name, room, _, _, entry, _ in lines(out)]
    assert found == [
        ("FullKV", "--", "0.00"),
        ("FullKV + KIVI-2", "--", "0.00"),
        ("StreamingLLM", "60,000", "<u>0.00</u>"),
        ("StreamingLLM + KIVI-2", "60,000", "<u>0.00</u>"),
        ("SnapKV", "60,000", "**100.00**"),
        ("SnapKV + KIVI-2", "60,000", "<u>0.00</u>"),
        ("StreamingLLM", "90,000", "<u>0.00</u>"),
        ("StreamingLLM + KIVI-2", "90,000", "**100.00**"),
        ("SnapKV", "90,000", "<u>0.00</u>"),
        ("SnapKV + KIVI-2", "90,000", "<u>0.00</u>"),
    ]
    cells = list(csv.DictReader((tmp_path / "tables" / "memory.csv").open()))
    own = {
        (cell["method"], cell["variant"], cell["budget_bytes"]): cell for cell in cells if cell["subset"] != "average"
    }
    compared = {key: cell["paired_difference"] for key, cell in own.items() if cell["pairs"] == "1"}
    assert compared == {
        ("streamingllm", "+ KIVI-2", "60000"): "-100.0",
        ("streamingllm", "", "60000"): "-100.0",
        ("snapkv", "+ KIVI-2", "60000"): "-100.0",
        ("streamingllm", "+ KIVI-2", "90000"): "100.0",
        ("streamingllm", "", "90000"): "0.0",
        ("snapkv", "+ KIVI-2", "90000"): "0.0",
    }
    tex = (tmp_path / "tables" / "memory.tex").read_text()
    assert r"\textit{Budget 60,000 bytes}" in tex


def test_a_row_that_two_numbers_of_bytes_have_room_for_stands_under_both(
    tiny_settings: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    words = settings(tiny_settings, 60_000, 60_001)
    chosen = composed(*words)
    (policy,) = policies("snapkv", chosen.methods["snapkv"])
    for coding in codings(chosen.cache):
        (tokens,) = budgets(chosen, policy, coding)  # answered once
        assert given(chosen, policy, coding) == [(tokens, 60_000), (tokens, 60_001)]
    runner.run(chosen)
    capsys.readouterr()
    assert tables.main(["memory", *words]) == 0
    found = lines(capsys.readouterr().out)
    assert [row[1] for row in found] == ["--"] * 2 + ["60,000"] * 4 + ["60,001"] * 4
    assert [[row[0], *row[2:]] for row in found[2:6]] == [[row[0], *row[2:]] for row in found[6:]]


def codecs(results: Path) -> None:
    """LAQ and EchoKV at 128 tokens, as they are and in codes; more bits are better than any method."""
    for method, more in (("laq", 0), ("echokv", 1)):
        write(results, method, 128, {"trec": pattern(8 + more, 10)})
        write(results, method, 128, {"trec": pattern(2 + more, 10)}, cache={"name": "KIVI-2", "bits": 2})


def test_of_equal_tokens_those_of_one_codec_are_marked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    codecs(tmp_path)
    assert tables.main(["memory", "--model", "smollm2", "--no-errors", "--results", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "best and second best of each budget and codec" in out
    assert [(row[0], row[1], row[3]) for row in lines(out)] == [
        ("LAQ", "128", "<u>80.00</u>"),
        ("EchoKV", "128", "**90.00**"),
        ("LAQ + KIVI-2", "128", "<u>20.00</u>"),
        ("EchoKV + KIVI-2", "128", "**30.00**"),
    ]
    tex = (tmp_path / "tables" / "memory.tex").read_text()
    assert r"\textit{Budget 128}" in tex
    assert r"\textit{Budget 128 + KIVI-2}" in tex


def test_the_page_marks_the_same_rows(tmp_path: Path) -> None:
    codecs(tmp_path)
    (group,) = groups.find(tmp_path)
    selected = groups.select(group, tmp_path, None)
    rows = numbers.table(group, selected, numbers.cells_of(selected))["rows"]
    assert [(row["title"], row["block"]) for row in rows] == [
        ("LAQ", "128"),
        ("EchoKV", "128"),
        ("LAQ + KIVI-2", "128 + KIVI-2"),
        ("EchoKV + KIVI-2", "128 + KIVI-2"),
    ]


def test_the_papers_numbers_are_of_what_is_stored_as_it_is(tmp_path: Path) -> None:
    for settings in ({}, {"cache": {"name": "KIVI-2", "bits": 2}}):
        write(tmp_path, "full", None, {"trec": pattern(50, 200)}, label="mistral", **settings)
    (group,) = groups.find(tmp_path)
    selected = groups.select(group, tmp_path, None)
    frame = numbers.cells_of(selected)
    assert frame[frame["subset"] == "trec"].set_index("variant")["paper"].notna().to_dict() == {
        "": True,
        "+ KIVI-2": False,
    }
    missed = [line for line in gates.warnings(frame, selected.answers.runs, "mistral") if "Warning" in line]
    assert len(missed) == 1
    assert missed[0].startswith("Warning: full on trec scores 25.00")


def test_a_table_by_bytes_compiles(tmp_path: Path) -> None:
    entries = (Entry("50.00", "1.00", 1), Entry("50.00"))
    block = (Row("LAQ + KIVI-2", "412", entries, "37.1k", "steps=4", "8,388,608 bytes", "8,388,608"),)
    made = Table("memory", "By bytes.", (("QA", 1),), ("Hot", "Avg"), ((Row("FullKV", "--", entries),), block), ())
    text = latex.render(made)
    assert r"Method & Budget & KV & Hot & Avg \\" in text
    (tmp_path / "memory.tex").write_text(text)
    assert "Overfull" not in compiled(tmp_path, "memory")
