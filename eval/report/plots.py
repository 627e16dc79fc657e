"""What `python -m eval.figures` draws of a table beside its curves: scores against costs, paired differences."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

import pandas as pd

from eval.inputs import subsets
from eval.report import canvas, numbers
from eval.report.look import Look
from eval.tables import cells
from eval.tables.naming import Key, Name
from eval.tables.options import Selected

MANY = 40  # paired differences that one panel takes
COSTS = {"bytes": "stored MB per answer", "seconds": "seconds per answer"}
SECONDS = ["prefill_seconds", "selection_seconds", "decode_seconds"]
Looks = Mapping[str, Look]


def costs(frame: pd.DataFrame, looks: Looks, task: str = cells.AVERAGE) -> Any:
    """Score, stored bytes and, where all answers were measured alone, seconds, beside each other.

    Each method and budget has a line of its own: where costs are equal no mark lies on another.
    """
    own = frame[frame["subset"] == task].copy()
    own["bytes"] /= 1e6
    own["seconds"] = own[SECONDS].sum(axis=1)
    shown = [cost for cost in COSTS if cost == "bytes" or own["alone"].all()]
    lines = list(_lines(own))
    names = 0.065 * max(len(label) for _, label, _, _ in lines)  # inches before the first panel
    wide, high = 2.4 + names / (1 + len(shown)), 0.8 + 0.13 * (1 + lines[-1][0])
    figure, axes = canvas.panels(1 + len(shown), width=wide, height=high, share="y")
    for place, _, name, row in lines:
        _costs_of(axes, place, row, shown, looks[str(name)].lines | {"linestyle": ""})
    axes[0].set_yticks([place for place, *_ in lines], [label for _, label, *_ in lines], fontsize=7)
    axes[0].set_ylim(lines[-1][0] + 0.7, -0.7)
    axes[0].set_xlim(0, canvas.scale(own))
    axes[0].set_xlabel(f"score, {task_title(task)}", fontsize=8)
    for panel, cost in zip(axes[1:], shown, strict=True):
        _scale(panel, own[cost], COSTS[cost])
    for panel in axes:
        panel.grid(axis="x", color="0.92", linewidth=0.6)
        panel.tick_params(axis="x", labelsize=8)
        panel.tick_params(axis="y", length=0)
    figure.suptitle(f"{count(own, each='')}; bars: 95% intervals", fontsize=8)
    return figure


def _lines(own: pd.DataFrame) -> Iterator[tuple[float, str, Name, Any]]:
    """The lines of a figure from above: place, label, row of the table and cell; only a row's first line names it."""
    place = 0.0
    for name, part in rows(own).items():
        for number, row in enumerate(part.sort_values("budget").itertuples()):
            budget = "" if pd.isna(row.budget) else str(row.budget)
            yield place, budget if number else f"{name.title}  {budget}".rstrip(), name, row
            place += 1
        place += 0.4  # between two rows


def _costs_of(axes: Sequence[Any], place: float, row: Any, shown: Sequence[str], style: dict[str, Any]) -> None:
    """One line: score with its interval, then what it cost."""
    axes[0].hlines(place, row.low, row.high, color=style["color"], linewidth=1.2, alpha=0.6)
    for panel, value in zip(axes, (row.score, *(getattr(row, cost) for cost in shown)), strict=True):
        panel.plot([value], [place], markersize=4.5, clip_on=False, **style)


def _scale(panel: Any, values: pd.Series, said: str) -> None:
    """An axis of costs: from 0, or logarithmic where they are more than four-fold apart."""
    low, high = values.min(), values.max()
    if log := high > 4 * low > 0:
        panel.set_xscale("log")
        ticks = canvas.ticks(low, high)
        panel.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        panel.minorticks_off()
    else:
        panel.set_xlim(0, 1.05 * canvas.top(high))
    panel.set_xlabel(f"{said} (log scale)" if log else said, fontsize=8)


def differences(selected: Selected, against: str, tasks: Sequence[str], looks: Looks) -> Any:
    """Paired differences to a row at the same budget, one panel a task on one scale, with 95% intervals.

    Of many rows one panel a budget, of the first task alone. None where no other row has a budget of its.
    """
    scores = numbers.by_cell(selected)
    found = numbers.differences(scores, selected.tasks)
    keys = [key for key in numbers.ordered(list(scores)) if str(key.name) != against]
    others = [key for key in scores if str(key.name) == against]
    pairs = [(key, other) for key in keys for other in others if other.budget in (None, key.budget)]
    if not pairs:
        return None
    parts = [(task_title(task), task, pairs) for task in tasks]
    if many := len(pairs) > MANY:
        by_budget = groupby(pairs, key=lambda pair: pair[0].budget)
        parts = [(f"{task_title(tasks[0])}, budget {size or 'none'}", tasks[0], list(some)) for size, some in by_budget]
    across = min(3, len(parts))
    most = max(len(own) for _, _, own in parts)
    wide = 2.9 if not many else 2.2 + 0.065 * max(len(key.name.title) for key, _ in pairs)
    figure, axes = canvas.panels(across, -(-len(parts) // across), wide, 0.5 + 0.17 * most, share="x")
    for place, (panel, (title, task, own)) in enumerate(zip(axes, parts, strict=False)):
        for up, (key, other) in enumerate(own):
            line = _turned(found, numbers.name_of(key), numbers.name_of(other), task)
            if line is not None:
                mean, low, high = line
                style = looks[str(key.name)].lines | {"linestyle": ""}
                panel.plot([low, high], [up, up], color=style["color"], linewidth=1.2)
                panel.plot([mean], [up], markersize=4, **style)
        panel.axvline(0, color="black", linewidth=0.8)
        panel.grid(axis="x", color="0.92", linewidth=0.6)
        said = [key.name.title if many else _label(key) for key, _ in own]
        panel.set_yticks(range(len(own)), said if many or place % across == 0 else [""] * len(own), fontsize=7)
        panel.set_ylim(len(own) - 0.5, -0.5)
        panel.set_title(title, fontsize=9)
    cut(axes, len(parts), across)
    figure.supxlabel(f"points more than {others[0].name.title} on the same examples; bars: 95% intervals", fontsize=8)
    return figure


def cut(axes: Sequence[Any], used: int, across: int) -> None:
    """Remove the panels that are not used; those above them get the labels of the x axis that they would have had."""
    for panel in axes[used:]:
        panel.remove()
    for panel in axes[max(0, used - across) : used]:
        panel.tick_params(labelbottom=True)


def rows(frame: pd.DataFrame) -> dict[Name, pd.DataFrame]:
    """The lines of each row of a table, at all its budgets, in the paper's order."""
    parts = [(Name(*name), part) for name, part in frame.groupby(["method", "variant"], sort=False)]
    return dict(sorted(parts, key=lambda part: part[0].order))


def _turned(found: dict[str, Any], left: str, right: str, task: str) -> tuple[float, float, float] | None:
    """Mean and interval of left - right, whichever way round it is known; None without enough pairs."""
    for name, sign in ((f"{left}|{right}", 1), (f"{right}|{left}", -1)):
        line = found.get(name, {}).get(task)
        if line is not None and line[2] is not None:
            low, high = sorted((sign * line[2], sign * line[3]))
            return sign * line[0], low, high
    return None


def count(frame: pd.DataFrame, each: str = " per task") -> str:
    """How many examples the scores are of."""
    own = frame[frame["subset"] != cells.AVERAGE] if each else frame
    least, most = own["n"].min(), own["n"].max()
    return f"n = {least}{'' if least == most else f' to {most}'}{each}"


def _label(key: Key) -> str:
    return key.name.title + ("" if key.budget is None else f" {key.budget}")


def task_title(name: str) -> str:
    return "average" if name == cells.AVERAGE else subsets.load(name).column
