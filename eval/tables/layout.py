"""From the cells of a table to its rows, marks and notes, whatever they are then written as."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import pandas as pd

from eval.inputs import subsets
from eval.tables.cells import AVERAGE
from eval.tables.naming import Key, key_in

MISSING = "--"


@dataclass(frozen=True)
class Entry:
    """One number as printed, its standard error, and its place among the methods of its block."""

    text: str
    error: str = ""
    place: int = 0  # 1 best, 2 second best, 0 neither


@dataclass(frozen=True)
class Row:
    """One method at one budget.

    stored: the mean number of its KV entries. variant: what tells it from other settings of the method. heading: what
    the rows of its block have alike (`eval.tables.naming.Key`). room: the bytes that its budget was made of.
    """

    method: str
    budget: str
    entries: tuple[Entry, ...]
    stored: str = MISSING
    variant: str = ""
    heading: str = ""
    room: str = ""

    @property
    def title(self) -> str:
        """Method and variant in one."""
        return f"{self.method} ({self.variant})" if self.variant else self.method


@dataclass(frozen=True)
class Table:
    """A table ready to be written. Blocks are separated by a rule; the first is FullKV's, then one for each budget.

    Where budgets were given in bytes there is a block for each number of these; else one for each budget and codec.
    details: what the notes are too short for; it is kept beside the table.
    """

    name: str
    caption: str
    groups: tuple[tuple[str, int], ...]  # title and number of columns
    columns: tuple[str, ...]
    blocks: tuple[tuple[Row, ...], ...]
    notes: tuple[str, ...]
    details: tuple[str, ...] = ()

    @property
    def by_bytes(self) -> bool:
        """Whether budgets were given in bytes."""
        return any(row.room for block in self.blocks for row in block)


def layout(
    name: str,
    caption: str,
    cells: pd.DataFrame,
    shown: Sequence[str],
    notes: Iterable[str],
    details: Iterable[str],
    errors: bool,
) -> Table:
    """Arrange cells (`eval.tables.cells.cells`) as rows per budget, with one column a task and one for the average.

    shown: the tasks that have a column; a cell that is not there is printed as `MISSING`.
    errors: whether standard errors are printed.
    """
    known = [subsets.load(task) for task in shown]
    columns = (*shown, AVERAGE)
    entries: dict[Key, dict[str, Entry]] = {}
    stored: dict[Key, str] = {}  # an average of other tasks than the others' could not be held beside them
    for row in cells.itertuples():
        key = key_in(row)
        entries.setdefault(key, {})[row.subset] = _entry(row, errors)
        if row.subset == AVERAGE:
            stored[key] = short(row.entries)
    blocks = []
    for _, same in groupby(sorted(entries, key=lambda key: (key.block, key.name.order)), key=lambda key: key.block):
        own = list(same)
        grid = [[entries[key].get(column, Entry(MISSING)) for column in columns] for key in own]
        if own[0].budget is not None:
            grid = [list(row) for row in zip(*(placed(column) for column in zip(*grid, strict=True)), strict=True)]
        rows = zip(own, grid, strict=True)
        blocks.append(tuple(_row(key, some, stored.get(key, MISSING)) for key, some in rows))
    titles = (*(subset.column for subset in known), average_title(cells, shown))
    groups = tuple((name, len(list(same))) for name, same in groupby(subset.group for subset in known))
    return Table(name, caption, groups, titles, tuple(blocks), tuple(notes), tuple(details))


def short(number: float) -> str:
    """A number of three digits: 11.5k, 1.23M."""
    for unit, size in (("M", 1e6), ("k", 1e3)):
        if number >= 0.9995 * size:
            return f"{number / size:#.3g}".rstrip(".") + unit
    return f"{number:.0f}"


def average_title(cells: pd.DataFrame, shown: Sequence[str]) -> str:
    """Name the average, with its number of tasks where it is not that of the 16 English ones."""
    tasks = {int(row.tasks) for row in cells.itertuples() if row.subset == AVERAGE}
    english = set(shown).intersection(subsets.ENGLISH)
    return f"Avg of {tasks.pop()}" if english and tasks and tasks != {len(subsets.ENGLISH)} else "Avg"


def markdown(table: Table) -> str:
    """Return the table as GitHub Markdown: bold the best, underlined the second best of a block."""
    lines = [f"**{table.name.replace('table', 'Table ')}.** {_escape(table.caption)}", ""]
    heads = ["Method", *(["Bytes"] if table.by_bytes else []), "Budget", "KV"]
    lines += [_line([*heads, *map(_escape, table.columns)])]
    lines += [_line(["---", *["---:"] * (len(table.columns) + len(heads) - 1)])]
    for row in (row for block in table.blocks for row in block):
        budget = [*([row.room or MISSING] if table.by_bytes else []), row.budget]
        lines.append(_line([_escape(row.title), *budget, row.stored, *map(_cell, row.entries)]))
    for note in table.notes:
        lines += ["", _escape(note)]
    lines += ["", *(f"- {_escape(line)}" for line in table.details)] if table.details else []
    return "\n".join(lines) + "\n"


def placed(column: Sequence[Entry]) -> list[Entry]:
    """Mark the best and the second best; what is printed decides, so equal numbers share a mark.

    Where all are equal none is the best, and nothing is marked.
    """
    values = {float(entry.text) for entry in column if entry.text != MISSING}
    if len(values) < 2:
        return list(column)
    places = {value: place for place, value in enumerate(sorted(values, reverse=True)[:2], 1)}
    return [
        entry if entry.text == MISSING else Entry(entry.text, entry.error, places.get(float(entry.text), 0))
        for entry in column
    ]


def _row(key: Key, entries: Sequence[Entry], stored: str) -> Row:
    budget = MISSING if key.budget is None else str(key.budget)
    room = f"{key.room:,}" if key.room else ""
    return Row(key.name.head, budget, tuple(entries), stored, key.name.settings, key.heading, room)


def _entry(row: Any, errors: bool) -> Entry:
    shown = errors and math.isfinite(row.standard_error)
    return Entry(f"{row.score:.2f}", f"{row.standard_error:.2f}" if shown else "")


def _cell(entry: Entry) -> str:
    marks = {0: ("", ""), 1: ("**", "**"), 2: ("<u>", "</u>")}[entry.place]
    return marks[0] + entry.text + marks[1] + (f" ±{entry.error}" if entry.error else "")


def _line(fields: Iterable[str]) -> str:
    return f"| {' | '.join(fields)} |"


def _escape(text: str) -> str:
    """Keep a name from ending a cell, a line, or being read as markup."""
    flat = " ".join(text.split())
    return re.sub(r"([\\`*_{}\[\]|~])", r"\\\1", flat).replace("<", "&lt;").replace(">", "&gt;")
