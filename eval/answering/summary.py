"""The table printed after a run: what each cell scored, stored and cost."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from math import sqrt
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import pandas as pd

from eval.inputs.examples import Example, by_subset
from eval.planning.plan import Cell
from eval.scoring.memory import points
from eval.scoring.metrics import Edit

COSTS = {  # row title -> (field of an answer, divisor, decimals)
    "KV entries stored": ("entries", 1, 0),
    "KV stored, MB": ("bytes", 1e6, 2),
    "prefill, s": ("prefill_seconds", 1, 2),
    "selection, s": ("selection_seconds", 1, 2),
    "decoding, s": ("decode_seconds", 1, 2),
    "peak memory, MB": ("peak_bytes", 1e6, 0),
}


def summary(grid: Sequence[Cell], examples: Sequence[Example], edit: Edit, model: str, results: Path) -> str:
    """Scores (0 to 100) ± standard error per subset and on average, and mean cost per answer, one column a cell."""
    groups = by_subset(examples)
    columns = {cell.label: _column(cell, groups, edit, results) for cell in grid}
    counts = sorted({len(group) for group in groups.values()})
    frame = pd.DataFrame(columns)
    width = shutil.get_terminal_size((120, 24)).columns
    head = (
        f"{model}: score ± standard error, n = {'-'.join(map(str, counts))} per task. Costs are means per answer; the "
        "prefill is shared, a batch's time is divided among its rows, its peak is that of all."
    )
    return f"\n{head}\n\n{frame.to_string(line_width=width)}\n"


def _column(cell: Cell, groups: dict[str, list[Example]], edit: Edit, results: Path) -> dict[str, str]:
    column: dict[str, str] = {}
    means, errors, every = [], [], []
    for name, group in groups.items():
        stored = cell.store.answers(name)
        found = [(example, stored[example.id]) for example in group if example.id in stored]
        every += [answer for _, answer in found]
        scores = points(results / "scores", group[0].subset, [answer for _, answer in found], edit)
        error = stdev(scores) / sqrt(len(scores)) if len(scores) > 1 else float("nan")
        column[name] = _with_error(fmean(scores), error) if scores else "missing"
        means += [fmean(scores)] if scores else []
        errors += [error]
    column["average"] = (
        _with_error(fmean(means), sqrt(sum(error**2 for error in errors)) / len(errors))
        if len(means) == len(groups)
        else "missing"
    )
    for title, (field, divisor, decimals) in COSTS.items():
        column[title] = _mean(every, field, divisor, decimals)
    return column


def _with_error(mean: float, error: float) -> str:
    return f"{mean:.1f} ± {error:.1f}" if error == error else f"{mean:.1f}"


def _mean(answers: Sequence[dict[str, Any]], field: str, divisor: float, decimals: int) -> str:
    return f"{fmean(answer[field] for answer in answers) / divisor:,.{decimals}f}" if answers else "missing"
