"""A table as the page's data: its rows, tasks, cells, paired differences and per-example scores."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd

from eval.inputs import subsets
from eval.keeping.manifests import digest
from eval.report import look
from eval.report.groups import Group
from eval.scoring import statistics
from eval.tables import cells, gates, layout
from eval.tables.build import describe, model_name
from eval.tables.collect import Run
from eval.tables.naming import FRAME, Key, key_in, key_of
from eval.tables.options import Selected

FIELDS = (
    "score", "standard_error", "low", "high", "n", "records", "paper", "entries", "bytes",
    "prefill_seconds", "selection_seconds", "decode_seconds", "alone", "new_tokens", "other_edit",
)  # fmt: skip
Scores = Mapping[Key, Mapping[str, pd.Series]]  # per cell and task: scores by _id


def name_of(key: Key) -> str:
    """The name by which the page's data and files know a cell."""
    name = str(key.name)
    if key.name.variant:  # any text, of which a file's name and an address take only some
        name = f"{re.sub(r'[^A-Za-z0-9.=-]+', '_', name)}-{digest(name)[:4]}"
    return name if key.budget is None else f"{name}-{key.budget}"


def ordered(keys: Sequence[Key]) -> list[Key]:
    """Cells in the paper's order: FullKV, then block by block, methods as in its tables."""
    return sorted(keys, key=lambda key: (key.block, key.name.order))


def table(group: Group, selected: Selected, frame: pd.DataFrame) -> dict[str, Any]:
    """Return what the page shows of a table at first sight; `frame` are its cells (`cells_of`)."""
    runs = {run.key: run for run in selected.answers.runs}
    keys = ordered(list(dict.fromkeys(map(key_in, frame.itertuples()))))
    notes = [*gates.warnings(frame, selected.answers.runs, group.model)]
    notes += [f"{line[0].upper()}{line[1:]}." for line in gates.question(selected.answers.runs)]
    notes += gates.control_text(selected.scored, selected.answers.runs)
    notes += [f"Left out: {run}." for run in selected.answers.left_out]
    notes += [f"{line}." for line in cells.missing(selected.scored, selected.tasks)]
    found: dict[str, dict[str, list[float | None]]] = {name_of(key): {} for key in keys}
    for row in frame.itertuples():
        found[name_of(key_in(row))][row.subset] = [plain(getattr(row, field)) for field in FIELDS]
    return {
        "data": group.data,
        "model": group.model,
        "name": model_name(selected.answers.runs[0]),
        "preset": group.preset,
        "caption": describe(frame, selected, group.apart),
        "notes": notes,
        "fields": FIELDS,
        "tasks": [task(name) for name in selected.tasks],
        "average": layout.average_title(frame, selected.tasks),
        "rows": [row_of(key, runs[key]) for key in keys],
        "cells": found,
    }


def row_of(key: Key, run: Run) -> dict[str, Any]:
    """A row of the table and the settings that made it; `method` is the same for its row at every budget.

    block: the same for all rows that are marked against each other. family: for those that are in colour together.
    """
    made_by = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(run.folder.glob("runs/*.json"))]
    return {
        "cell": name_of(key),
        "method": str(key.name),
        "title": key.name.title,
        "family": look.family(key.name),
        "budget": key.budget,
        "block": key.heading,
        "folder": run.folder.name,
        "identity": run.identity,
        "runs": made_by,
    }


def task(name: str) -> dict[str, Any]:
    """What the page says of a task."""
    about = subsets.load(name)
    fields = ("name", "column", "group", "metric", "language", "max_new_tokens", "records")
    return {field: getattr(about, field) for field in fields}


def cells_of(selected: Selected) -> pd.DataFrame:
    """The cells of a table with `alone`: whether all answers of a cell say so, and their seconds are their own.

    No method is compared with: `differences` does it for all of them.
    """
    frame = cells.cells(selected.scored, selected.tasks, against="")
    marks = selected.scored.get("alone")
    together = selected.scored if marks is None else selected.scored[marks.ne(True)]
    shared = {(key_in(row), row.subset) for row in together.itertuples()}
    shared |= {(key, cells.AVERAGE) for key, _ in shared}
    keys = [(key_in(row), row.subset) for row in frame.itertuples()]
    return frame.assign(alone=[key not in shared for key in keys])


def by_cell(selected: Selected) -> Scores:
    """Scores of every cell by task and `_id`."""
    found: dict[Key, dict[str, pd.Series]] = {}
    for (*key, subset), part in selected.scored.groupby([*FRAME, "subset"], dropna=False):
        found.setdefault(key_of(*key), {})[subset] = part.set_index("_id")["score"]
    return found


def differences(scores: Scores, tasks: Sequence[str]) -> dict[str, dict[str, list[float | None]]]:
    """Paired differences "A|B" of the cells of one budget, and of each and FullKV, on the examples that both have.

    Per task and for the average: mean of A - B, standard error, 95% bootstrap interval (low, high), pairs.
    """
    names = {name for own in scores.values() for name in own}
    wanted = [name for name in tasks if name in names]
    found = {}
    for left, right in combinations(ordered(list(scores)), 2):
        if None not in (left.budget, right.budget) and left.budget != right.budget:
            continue
        own = dict(_paired(scores[left], scores[right], wanted))
        found[f"{name_of(left)}|{name_of(right)}"] = own
    return found


def _paired(
    left: Mapping[str, pd.Series], right: Mapping[str, pd.Series], wanted: Sequence[str]
) -> Iterator[tuple[str, list[float | None]]]:
    strata: list[np.ndarray] = []
    for name in wanted:
        if name not in left or name not in right:
            continue
        one, other = left[name].align(right[name], join="inner")
        if len(one):
            strata.append((one - other).to_numpy())
            yield name, _told([strata[-1]])
    if strata and len(strata) == len(wanted):
        yield cells.AVERAGE, _told(strata)


def _told(strata: Sequence[np.ndarray]) -> list[float | None]:
    found = statistics.estimate(strata)
    return [*map(plain, (found.mean, found.error, found.low, found.high)), sum(map(len, strata))]


def plain(value: Any) -> float | None:
    """A number as JSON has it: four decimals at most, None where there is none."""
    if value is None or pd.isna(value):
        return None
    rounded = round(float(value), 4)
    return int(rounded) if rounded == int(rounded) else rounded


def significant(value: Any) -> float | None:
    """A number to six significant digits, None where there is none."""
    return None if value is None or pd.isna(value) else float(f"{float(value):.6g}")
