"""The terminal's tables and examples."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from eval import show
from eval.selections import Prompt
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


def told(arguments: list[str], results: Path, capsys: pytest.CaptureFixture[str], status: int = 0) -> str:
    assert show.main([*arguments, "--results", str(results), "--width", "140"]) == status
    captured = capsys.readouterr()
    assert not (status and captured.out)
    return captured.err if status else captured.out


def test_tables(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = told([], results, capsys)
    assert "longbench smollm2 paper" in text
    assert "80.00 ±13.33" in text
    assert "±" not in told(["--no-errors"], results, capsys)
    assert "check --data" in told(["--data", "jsonl"], results, capsys, 1)


def test_best_is_bold_and_second_underlined() -> None:
    rows = tuple(Row(name, "128", (Entry(value, "1.00", place),)) for name, value, place in
                 (("a", "3.00", 1), ("b", "2.00", 2), ("c", "1.00", 0)))  # fmt: skip
    console = Console(width=80, force_terminal=True, color_system="truecolor", record=True)
    console.print(show.table_of(Table("t", "c", (), ("X",), (rows,), ())))
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
        (["nothing", "--budget", "128"], "2 examples have some, such as hotpotqa-1, hotpotqa-2"),
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


def test_shading_and_folding() -> None:
    shares = np.zeros(len(PIECES))
    shares[10] = 1.0
    text = show.shaded(Prompt(tuple(PIECES), ((0, 3),)), shares, ["blue whale"], whole=False)
    styles = {text.plain[span.start : span.end]: span.style for span in text.spans}
    assert styles["badge "].underline
    assert not styles["filler1 "].underline
    assert styles["filler7 "].bgcolor.name == show.SHADES[-1]
    assert styles["filler6 "].bgcolor is None
    assert "filler30" not in text.plain
    assert "tokens that none keeps]" in text.plain
    whole = show.shaded(Prompt(tuple(PIECES), ((0, 3),)), shares, ["blue whale"], whole=True)
    assert whole.plain == "".join(PIECES)
    bold = "".join(whole.plain[span.start : span.end] for span in whole.spans if span.style.bold)
    assert bold == "blue whale"
