"""What `python -m eval.figures` draws of a table: scores by budget, scores against costs, paired differences."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pandas as pd

from eval.inputs import subsets
from eval.report import canvas, labels, numbers
from eval.report.look import Look
from eval.tables import cells
from eval.tables.naming import Key, Name
from eval.tables.options import Selected

TALL, WIDE = 2.2, 2.6  # inches of a panel
COSTS = {"bytes": "stored MB per answer", "seconds": "seconds per answer"}
SECONDS = ["prefill_seconds", "selection_seconds", "decode_seconds"]
Looks = Mapping[str, Look]


def curves(frame: pd.DataFrame, tasks: Sequence[str], looks: Looks) -> Any:
    """Score by budget with 95% intervals, one panel a task, FullKV as a line across; all panels on one scale."""
    across = min(4, len(tasks))
    figure, axes = canvas.panels(across, -(-len(tasks) // across), WIDE, TALL, share="y")
    shown = frame[frame["subset"].isin(tasks)]
    limited = shown[shown["budget"].notna()]
    names = list(rows(limited))
    budgets = sorted(set(limited["budget"]))
    for panel, task in zip(axes, tasks, strict=False):
        for name, part in rows(shown[shown["subset"] == task]).items():
            _line(panel, name, part.sort_values("budget"), names, budgets, looks[str(name)].lines)
        panel.set_title(_task(task), fontsize=9)
        panel.grid(axis="y", color="0.92", linewidth=0.6)
    if budgets:
        canvas.budgets(axes[: len(tasks)], budgets)
    canvas.from_zero(axes[: len(tasks)], shown[["score", "high"]].max().max())
    _cut(axes, len(tasks), across)
    figure.supxlabel("budget (tokens per head)", fontsize=9)
    figure.supylabel("score", fontsize=9)
    canvas.above(figure, axes[: len(tasks)], f"{_count(shown)}; bars and bands: 95% intervals")
    return figure


def _line(
    panel: Any, name: Name, part: pd.DataFrame, names: Sequence[Name], budgets: Sequence[int], style: dict[str, Any]
) -> None:
    """One row: marks at its budgets, those of other rows beside them; without a budget a line across."""
    if part["budget"].isna().all():
        row, across = part.iloc[0], {"color": style["color"], "linewidth": 1.1}
        panel.axhline(row["score"], linestyle=style["linestyle"], label=name.title, **across)
        panel.axhspan(row["low"], row["high"], color=style["color"], alpha=0.08, linewidth=0)
        return
    x = part["budget"].to_numpy(dtype="float64") * canvas.beside(budgets, names.index(name), len(names))
    panel.vlines(x, part["low"], part["high"], color=style["color"], linewidth=0.8, alpha=0.5, clip_on=False)
    panel.plot(x, part["score"], label=name.title, markersize=4, linewidth=1.1, clip_on=False, **style)


def costs(frame: pd.DataFrame, looks: Looks, task: str = cells.AVERAGE) -> Any:
    """Score against stored bytes and, where all answers were measured alone, against seconds; numbers are budgets."""
    own = frame[frame["subset"] == task].copy()
    own["bytes"] /= 1e6
    own["seconds"] = own[SECONDS].sum(axis=1)
    shown = [cost for cost in COSTS if cost == "bytes" or own["alone"].all()]
    figure, axes = canvas.panels(len(shown), width=3.4 if len(shown) > 1 else 6.0, height=2.9, share="y")
    marks = {cost: list(_marks(panel, own, cost, looks)) for panel, cost in zip(axes, shown, strict=True)}
    canvas.from_zero(axes, own[["score", "high"]].max().max())
    axes[0].set_ylabel(f"score, {_task(task)}")
    canvas.above(figure, axes, f"{_count(own, each='')}; numbers: budgets; bars: 95% intervals")
    figure.draw_without_rendering()  # now it is known where the marks lie
    for panel, cost in zip(axes, shown, strict=True):
        labels.name_marks(panel, marks[cost])
    return figure


def _marks(panel: Any, own: pd.DataFrame, cost: str, looks: Looks) -> Iterator[tuple[float, float, str, str]]:
    """Draw the methods of one panel; yields where their marks lie, and the budget and colour of each."""
    low, high = own[cost].min(), own[cost].max()
    log = high > 4 * low > 0
    found = rows(own)
    for place, (name, part) in enumerate(found.items()):
        part = part.sort_values(cost)
        style = looks[str(name)].lines
        step = place - (len(found) - 1) / 2  # of marks that would lie on each other, such as at equal bytes
        x = part[cost].to_numpy(dtype="float64")
        x = x * (high / low) ** (0.008 * step) if log else x + 0.008 * step * (high - low)
        panel.vlines(x, part["low"], part["high"], color=style["color"], linewidth=0.8, alpha=0.5)
        panel.plot(x, part["score"], label=name.title, markersize=5, linewidth=0.8, clip_on=False, **style)
        for across, row in zip(x, part.itertuples(), strict=True):
            yield across, row.score, "" if pd.isna(row.budget) else str(row.budget), style["color"]
    if log:
        panel.set_xscale("log")
        ticks = canvas.ticks(low, high)
        panel.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        panel.minorticks_off()
    panel.set_xlabel(f"{COSTS[cost]} (log scale)" if log else COSTS[cost])


def differences(selected: Selected, against: str, tasks: Sequence[str], looks: Looks) -> Any:
    """Paired differences to a row at the same budget, one panel a task on one scale, with 95% intervals."""
    scores = numbers.by_cell(selected)
    found = numbers.differences(scores, selected.tasks)
    keys = [key for key in numbers.ordered(list(scores)) if str(key.name) != against]
    others = [key for key in scores if str(key.name) == against]
    pairs = [(key, other) for key in keys for other in others if other.budget in (None, key.budget)]
    across = min(3, len(tasks))
    figure, axes = canvas.panels(across, -(-len(tasks) // across), 2.9, 0.5 + 0.17 * len(pairs), share="x")
    for place, (panel, task) in enumerate(zip(axes, tasks, strict=False)):
        for up, (key, other) in enumerate(pairs):
            line = _turned(found, numbers.name_of(key), numbers.name_of(other), task)
            if line is not None:
                mean, low, high = line
                style = looks[str(key.name)].lines | {"linestyle": ""}
                panel.plot([low, high], [up, up], color=style["color"], linewidth=1.2)
                panel.plot([mean], [up], markersize=4, **style)
        panel.axvline(0, color="black", linewidth=0.8)
        panel.grid(axis="x", color="0.92", linewidth=0.6)
        named = [_label(key) for key, _ in pairs] if place % across == 0 else [""] * len(pairs)
        panel.set_yticks(range(len(pairs)), named, fontsize=7)
        panel.set_ylim(len(pairs) - 0.5, -0.5)
        panel.set_title(_task(task), fontsize=9)
    _cut(axes, len(tasks), across)
    figure.supxlabel(f"points more than {others[0].name.title} on the same examples; bars: 95% intervals", fontsize=8)
    return figure


def _cut(axes: Sequence[Any], used: int, across: int) -> None:
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


def _count(frame: pd.DataFrame, each: str = " per task") -> str:
    """How many examples the scores are of."""
    own = frame[frame["subset"] != cells.AVERAGE] if each else frame
    least, most = own["n"].min(), own["n"].max()
    return f"n = {least}{'' if least == most else f' to {most}'}{each}"


def _label(key: Key) -> str:
    return key.name.title + ("" if key.budget is None else f" {key.budget}")


def _task(name: str) -> str:
    return "average" if name == cells.AVERAGE else subsets.load(name).column
