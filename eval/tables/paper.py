"""The numbers that the EchoKV paper prints (arXiv 2611.05903v1), as data in `results/paper`.

A cell's address is TABLE:ROW:COLUMN; rows of Tables 3 and 4 are a method and its budget: `3:laq@128:trec`.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from pathlib import Path
from types import MappingProxyType

FOLDER = Path(__file__).resolve().parents[2] / "results" / "paper"
TABLE_OF_MODEL = {"mistral": 3, "qwen": 4}


@dataclass(frozen=True)
class Claim:
    """A statement of the running text or a caption about one cell, or about one cell beside another."""

    section: str
    claim: str
    kind: str  # value, difference, percent (relative difference), above, at least
    printed: str  # the number as the text has it; "" for above and at least
    cell: str
    other: str  # "" for value


@cache
def cells() -> Mapping[str, Decimal]:
    """Return every printed cell of Tables 1 to 6 by its address."""
    found: dict[str, Decimal] = {}
    for table in range(1, 7):
        for line in _read(f"table{table}.csv"):
            keys, values = _split(table, line)
            found |= {f"{table}:{keys}:{column}": Decimal(value) for column, value in values.items()}
    return MappingProxyType(found)


def bold() -> set[str]:
    """Return the addresses of the cells of Tables 3 to 6 that are printed in bold.

    Underlining is not in the text that the marks were read from, so the second-best marks are not known.
    """
    return {f"{line['table']}:{line['row']}:{line['column']}" for line in _read("marks.csv") if line["mark"] == "bold"}


def claims() -> list[Claim]:
    """Return the numbers and comparisons that the text states about the tables."""
    return [Claim(**line) for line in _read("claims.csv")]


def score(model: str, method: str, budget: int | None, subset: str) -> float | None:
    """Return a published score of Tables 3 to 5, None where nothing is published."""
    published = cells()
    row = method if budget is None else f"{method}@{budget}"
    value = published.get(f"{TABLE_OF_MODEL.get(model, 0)}:{row}:{subset}")
    if value is None and (model, budget) == ("mistral", 128):
        value = published.get(f"5:{method}:{subset}")
    return None if value is None else float(value)


def _split(table: int, line: dict[str, str]) -> tuple[str, dict[str, str]]:
    """Separate a line's key from its numbers."""
    if table in TABLE_OF_MODEL.values():
        key = f"{line['method']}@{line['budget']}" if line["budget"] else line["method"]
        return key, {column: value for column, value in line.items() if column not in ("model", "method", "budget")}
    first, *rest = line
    return line[first], {column: line[column] for column in rest}


def _read(name: str) -> list[dict[str, str]]:
    with (FOLDER / name).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))
