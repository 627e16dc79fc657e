"""Kept Rouge scores: the same numbers, each computed once."""

from __future__ import annotations

import ast
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from eval.console.errors import UserError
from eval.inputs import subsets
from eval.scoring import memory
from eval.scoring import rows as plain

ROWS: list[dict[str, Any]] = [
    {"pred": "The whale is blue. It swims.", "answers": ["A blue whale swims."], "all_classes": None},
    {"pred": "The whale is blue.\nIt swims.", "answers": ["A blue whale. It swims."], "all_classes": None},
    {"pred": "", "answers": ["A blue whale swims."], "all_classes": None},
]


@pytest.mark.parametrize("name", ["gov_report", "samsum", "qasper"])
def test_scores_are_those_of_the_metric(tmp_path: Path, name: str) -> None:
    subset = subsets.load(name)
    expected = plain.points(subset, ROWS, "difflib")
    for rows, values in ((ROWS[:1], expected[:1]), (ROWS, expected), (ROWS[::-1], expected[::-1])):
        assert memory.points(tmp_path, subset, rows, "difflib") == values
    assert len(list(tmp_path.iterdir())) == (name != "qasper")


def test_each_is_computed_once_and_a_damaged_file_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    subset, computed = subsets.load("gov_report"), []
    real = plain.points
    monkeypatch.setattr(plain, "points", lambda own, rows, edit: computed.append(len(rows)) or real(own, rows, edit))
    for _ in range(2):
        memory.points(tmp_path, subset, ROWS, "difflib")
    assert computed == [3]
    (path,) = tmp_path.iterdir()
    path.write_text('{"torn')
    memory.points(tmp_path, subset, ROWS[:2], "difflib")
    memory.points(tmp_path, subset, [*ROWS, ROWS[0]], "difflib")
    assert computed == [3, 2, 1]


def test_a_folder_that_cannot_be_written_to_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"cannot write to .*--results"):
        memory.points(tmp_path / "file", subsets.load("gov_report"), ROWS, "difflib")


def test_all_modules_that_a_score_comes_from_are_in_the_digest() -> None:
    """By the imports in the files: whatever of the package is reached from the code that scores a row."""
    reached, left = set(), ["eval.scoring.rows"]
    while left:
        if (name := left.pop()) not in reached:
            reached.add(name)
            tree = ast.parse(Path(str(import_module(name).__file__)).read_text(encoding="utf-8"))
            for node in ast.walk(tree):
                if isinstance(node, ast.ImportFrom) and node.module == "eval.scoring":
                    left += [f"eval.scoring.{alias.name}" for alias in node.names]
                elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("eval.scoring."):
                    left.append(str(node.module))
    assert reached == {module.__name__ for module in memory.CODE}
