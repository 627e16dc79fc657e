"""The terminal's tables and examples."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from eval import show
from eval.inputs import subsets
from eval.keeping.selections import Prompt
from eval.report import shading
from eval.tables.layout import Entry, Row, Table
from tests.eval import kept
from tests.eval.stores import pattern, write

PIECES = ["The ", "badge ", "is ", *(f"filler{place} " for place in range(60)), "blue ", "whale", ".\n"]


@pytest.fixture
def results(tmp_path: Path) -> Path:
    write(tmp_path, "full", None, {"hotpotqa": pattern(8, 10)})
    for budget in (128, 256):
        run = write(tmp_path, "echokv", budget, {"hotpotqa": pattern(5, 10)})
        for number in (1, 2):
            kept.write(run, "hotpotqa", number, PIECES, ("W1",))
    return tmp_path


def told(
    arguments: list[str], results: Path, capsys: pytest.CaptureFixture[str], status: int = 0, width: int = 140
) -> str:
    assert show.main([*arguments, "--results", str(results), "--width", str(width)]) == status
    captured = capsys.readouterr()
    assert not (status and captured.out)
    return captured.err if status else captured.out


def test_tables(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = told([], results, capsys)
    assert "longbench smollm2 paper" in text
    assert "80.00 ±13.33" in text
    assert "±" not in told(["--no-errors"], results, capsys)


@pytest.mark.parametrize("width", [20, 80, 300])
def test_numbers_are_never_cut(width: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """16 tasks with standard errors fit no terminal: the table is split into groups of tasks."""
    for place, method in enumerate(("full", "laq", "echokv")):
        right = {name: pattern(5 + place, 10) for name in subsets.ENGLISH}
        write(tmp_path, method, None if method == "full" else 128, right)
    text = told([], tmp_path, capsys, width=width)
    lines = text.splitlines()
    rows = [line.strip("│").split("│") for line in lines if line.startswith("│") and "LAQ" in line]
    numbers = [cell.strip() for row in rows for cell in row[3:]]
    assert len(numbers) == len(subsets.ENGLISH) + 1
    assert all(re.fullmatch(r"\d+\.\d\d ±\d+\.\d\d", number) for number in numbers)
    assert all([field.strip() for field in row[1:3]] == ["128", "34.6k"] for row in rows)
    assert len(rows) == {20: 17, 80: 6, 300: 1}[width]
    if width > 20:
        assert max(map(len, lines)) <= width
    heads = [line for line in lines if "Method" in line]
    assert [name in heads[-1] for name in ("Avg", "Lcc")] == [True, width != 20]


def test_tables_that_differ_in_a_setting_say_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for length in (512, 640):
        write(tmp_path, "laq", 128, {"trec": [True, False]}, data={"length": length})
    text = told([], tmp_path, capsys)
    assert "data.length=512" in text
    assert "data.length=640" in text


def test_best_is_bold_and_second_underlined() -> None:
    rows = tuple(Row(name, "128", (Entry(value, "1.00", place),)) for name, value, place in
                 (("a", "3.00", 1), ("b", "2.00", 2), ("c", "1.00", 0)))  # fmt: skip
    console = Console(width=80, force_terminal=True, color_system="truecolor", record=True)
    show.print_table(Table("t", "c", (), ("X",), (rows,), ()), console)
    text = console.export_text(styles=True)
    assert "\x1b[1m3.00" in text
    assert "\x1b[4m2.00" in text
    assert "\x1b[1m1.00" not in text


def test_half_of_a_surrogate_pair_is_shown_as_the_replacement_character(
    results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for path in results.rglob("*"):
        if path.name == "p1.json":
            path.write_text(path.read_text().replace("badge", r"bad\ud800ge"))
        if path.name.startswith("hotpotqa") and "selections" not in path.parts:
            path.write_text(path.read_text().replace("blue whale", r"blue \ud800"))
    text = told(["hotpotqa-1", "--budget", "128", "--whole"], results, capsys)
    assert "bad\ufffdge" in text
    assert "accepted: blue \ufffd" in text


def test_example(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = told(["hotpotqa-1", "--budget", "128"], results, capsys)
    assert "echokv 128, final cache, 66 tokens, 6 (layer, head) pairs" in text
    assert "accepted: blue whale" in text
    assert "W1" in told(["hotpotqa-1", "--budget", "128", "--step", "W1"], results, capsys)
    whole = told(["hotpotqa-1", "--budget", "128", "--whole"], results, capsys)
    assert all(piece.strip() in whole for piece in PIECES)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--data", "jsonl"], "--data 'jsonl': no such answers in"),
        (["--data", "jsonl"], "; known: longbench\n"),
        (["--model", "smolm2"], "did you mean smollm2?"),
        (["--preset", "papr"], "did you mean paper?"),
        (
            ["nothing", "--budget", "128"],
            "no answer to 'nothing'; known: hotpotqa-0, hotpotqa-1, hotpotqa-2 and 7 more\n",
        ),
        (["hotpota-1", "--budget", "128"], "echokv has no answer to 'hotpota-1'; did you mean hotpotqa-1, "),
        (["hotpotqa-5", "--budget", "128"], "2 examples have some, such as hotpotqa-1, hotpotqa-2"),
        (["hotpotqa-1", "--subset", "hotpotqua"], "unknown subset 'hotpotqua'; did you mean hotpotqa"),
        (["hotpotqa-1", "--subset", "trec"], "echokv has no answer to 'hotpotqa-1'\n"),
        (["hotpotqa-1", "--data", "longbnch"], "did you mean longbench?"),
        (["hotpotqa-1", "--model", "smolm2"], "did you mean smollm2?"),
        (["hotpotqa-1", "--method", "ekokv"], "--method 'ekokv' was not run; did you mean echokv?"),
        (["hotpotqa-1", "--method", "xyz"], "--method 'xyz' was not run; known: echokv, full\n"),
        (["hotpotqa-1", "--method", "echokv step=4"], "--method 'echokv step=4' was not run; did you mean echokv?"),
        (["hotpotqa-1", "--budget", "129"], "--budget 129: echokv was run at 128, 256"),
        (["hotpotqa-1"], "2 fit"),
        (["hotpotqa", "--budget", "128"], "2 fit"),
        (["hotpotqa-1", "--method", "full"], "record.selections=true"),
        (["hotpotqa-1", "--budget", "128", "--step", "W3"], "did you mean W1"),
        (["hotpotqa-1", "--budget", "128", "--layer", "3"], "give 0 to 2"),
        (["hotpotqa-1", "--budget", "128", "--head", "-1"], "give 0 to 1"),
    ],
)
def test_wrong_input(arguments: list[str], said: str, results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = told(arguments, results, capsys, 1)
    assert said in text
    assert text.count("\n") == 1


def test_no_answers_at_all(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert f"no answers in {tmp_path}: run " in told(["hotpotqa-1"], tmp_path, capsys, 1)
    assert f"no answers in {tmp_path}: run " in told([], tmp_path, capsys, 1)


def test_shading_and_folding() -> None:
    shares = np.zeros(len(PIECES))
    shares[10] = 1.0
    text = shading.shaded(Prompt(tuple(PIECES), ((0, 3),)), shares, ["blue whale"], whole=False)
    styles = {text.plain[span.start : span.end]: span.style for span in text.spans}
    assert styles["badge "].underline
    assert not styles["filler1 "].underline
    assert styles["filler7 "].bgcolor.name == shading.SHADES[-1]
    assert styles["filler6 "].bgcolor is None
    assert "filler30" not in text.plain
    assert "tokens that none keeps]" in text.plain
    whole = shading.shaded(Prompt(tuple(PIECES), ((0, 3),)), shares, ["blue whale"], whole=True)
    assert whole.plain == "".join(PIECES)
    bold = "".join(whole.plain[span.start : span.end] for span in whole.spans if span.style.bold)
    assert bold == "blue whale"


def test_marks_where_there_is_no_colour(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shares = np.zeros(len(PIECES))
    shares[[1, 63, 64]] = 1.0, 0.3, 0.3
    text = shading.shaded(Prompt(tuple(PIECES), ((0, 3),)), shares, ["blue whale"], whole=False, colour=False)
    assert text.plain.startswith("_The _[7:_badge _]_is _filler0 filler1 ")
    assert text.plain.endswith("filler59 [4:*blue whale*].\n")
    assert " tokens that none keeps] " in text.plain
    piped = told(["hotpotqa-1", "--budget", "128"], results, capsys)
    assert "kept by: [1:>0%] [2:>5%] [3:>10%] [4:>20%] [5:>40%] [6:>60%] [7:>80%]" in piped
    assert "_evidence_" in piped
    assert "*answer*" in piped
    assert re.search(r"\[[1-7]:", piped.partition("*answer*")[2])
