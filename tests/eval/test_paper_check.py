"""The paper's own numbers: what holds, what does not, and that the checks notice a changed cell."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from decimal import Decimal
from pathlib import Path

import pytest

from eval import paper_check
from eval.tables import paper
from eval.tables.paper import Claim

CELLS = dict(paper.cells())


def changed(address: str, value: str) -> dict[str, Decimal]:
    assert address in CELLS
    return CELLS | {address: Decimal(value)}


def failures(findings: list[paper_check.Finding]) -> list[str]:
    return [f"{finding.what}: {finding.failure}" for finding in findings if finding.failure]


def test_tables_agree_with_themselves() -> None:
    assert len(list(paper_check.averages(CELLS))) == 19 + 19 + 3
    assert failures(list(paper_check.averages(CELLS))) == []
    assert failures(list(paper_check.repeated_cells(CELLS))) == []
    assert failures(list(paper_check.marks(CELLS, paper.bold()))) == []


def test_every_failed_statement_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert paper_check.main([]) == 0
    printed = capsys.readouterr().out
    failed = failures(list(paper_check.statements(CELLS, paper.claims())))
    assert len(failed) == 10
    assert all(line in printed for line in failed)
    assert "EchoKV improves on 2WikiMQA (Mistral, 128): 3:echokv@128:2wikimqa is 24.85" in printed
    assert "3:laq@128:2wikimqa is 25.25" in printed
    assert "second-best marks: not checked" in printed


def test_help_checks_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        paper_check.main(["--help"])
    assert ended.value.code == 0
    printed = capsys.readouterr().out
    assert "python -m eval.paper_check" in printed
    assert "hold" not in printed


def test_a_reader_that_ends_is_told_in_one_line() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "eval.paper_check"]
    done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writing)
    assert (done.returncode, done.stderr) == (1, "error: what reads the output has ended\n")


def test_numbers_of_the_text_hold() -> None:
    numbers = [claim for claim in paper.claims() if claim.printed]
    assert len(numbers) > 30
    assert failures(list(paper_check.statements(CELLS, numbers))) == []


@pytest.mark.parametrize(
    ("cells", "bold", "what"),
    [
        (
            changed("3:laq@128:trec", "69.40"),
            paper.bold(),
            r"128, trec, bold: laq@128 \(69.40\) is bold, the best is 69.50",
        ),
        (CELLS, paper.bold() - {"6:qasper:echokv_w2"}, r"6, qasper, bold: echokv_w2 \(78.1\) is best and not bold"),
        (changed("5:laq:hotpotqa", "42"), paper.bold(), "5, hotpotqa, bold: echokv .* best is 42; laq .* not bold"),
    ],
)
def test_a_wrong_mark_is_found(cells: dict[str, Decimal], bold: set[str], what: str) -> None:
    (line,) = failures(list(paper_check.marks(cells, bold)))
    assert re.search(what, line)


def test_a_wrong_average_and_a_wrong_copy_are_found() -> None:
    (line,) = failures(list(paper_check.averages(changed("4:h2o@512:average", "34.87"))))
    assert line.startswith("Table 4, h2o@512, average: printed 34.87, the mean is 34.8")
    (line,) = failures(list(paper_check.repeated_cells(changed("5:echokv:average", "39.56"))))
    assert "39.56 there, 39.55 in Table 3" in line


@pytest.mark.parametrize(("printed", "holds"), [("2.4", True), ("2.5", False), ("2", True), ("2.41", True)])
def test_a_number_agrees_if_rounding_gives_it(printed: str, holds: bool) -> None:
    claim = Claim("3.1", "gain", "percent", printed, "1:refreshed:k6", "1:frozen:k6")
    assert (failures(list(paper_check.statements(CELLS, [claim]))) == []) is holds


def test_the_data_are_the_papers(shared: Path) -> None:
    for name in [f"table{number}.csv" for number in range(1, 7)]:
        assert (paper.FOLDER / name).read_text() == (shared / "reference" / "paper_tables" / name).read_text()
    text = (shared / "reference" / "echokv-paper.txt").read_text()
    body = text[text.index("**Abstract**") : text.index("**References**")]
    assert len(paper.bold()) + 2 == len(
        re.findall(r"\*\*(?:\d+\.\d\d|\d\d\.\d)\*\*", body)
    )  # Table 1 has two, of no stated meaning
