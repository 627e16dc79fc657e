"""Figures for a paper: `python -m eval.figures` writes PDF and PNG of budget curves, costs and paired differences.

One folder RESULTS/figures/DATA-MODEL-PRESET a table, with the settings behind it in which it differs from another of
that name; methods in the paper's order, told apart by marker and dash as well as by colour.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from eval.analysis import figures
from eval.console.errors import UserError, command
from eval.inputs import subsets
from eval.report import groups, numbers
from eval.tables import cells, naming
from eval.tables.naming import Key, Name
from eval.tables.options import AGAINST, check_against

COLOURS = ("#5b6675", "#8a5a2b", "#c26a00", "#1f83b8", "#00806a", "#b04a86", "#c23b22", "#6a55b5", "#0b4f9c")
TALL, WIDE = 2.2, 2.6  # inches of a panel
COSTS = {"bytes": "stored MB per answer", "seconds": "seconds per answer, share of its batch"}
DRAWN = ("budgets", "costs", "differences")
_PLACES = tuple((dx, dy) for far in (5, 9, 14) for dx, dy in ((far, 2), (far, -7), (-far, 2), (-far, -7), (0, far)))


def look(method: str) -> dict[str, Any]:
    """Colour, marker and dash of a row: the same in every figure."""
    place = [*naming.ORDER, method].index(method)
    style: dict[str, Any] = figures.STYLES[place % len(figures.STYLES)]
    return {**style, "color": COLOURS[place % len(COLOURS)]}


def curves(frame: pd.DataFrame, tasks: Sequence[str]) -> Any:
    """Score by budget, one panel a task and one for the average, with 95% bands and FullKV as a line."""
    across = min(4, len(tasks))
    figure, axes = figures.panels(across, -(-len(tasks) // across), WIDE, TALL)
    for panel, task in zip(axes, tasks, strict=False):
        own = frame[frame["subset"] == task]
        for name, part in _by_row(own[own["budget"].isna()]):
            colour = look(str(name))["color"]
            panel.axhline(part["score"].iloc[0], color=colour, linestyle="--", linewidth=1, label=name.title)
        for name, part in _by_row(own[own["budget"].notna()]):
            part, style = part.sort_values("budget"), look(str(name))
            x = part["budget"].to_numpy(dtype="float64")
            panel.plot(x, part["score"].to_numpy(), label=name.title, markersize=4, linewidth=1.2, **style)
            panel.fill_between(x, part["low"], part["high"], color=style["color"], alpha=0.1, linewidth=0)
        budgets = sorted(set(own["budget"].dropna()))
        if budgets and budgets[-1] >= 4 * budgets[0]:
            panel.set_xscale("log", base=2)
        panel.set_xticks(budgets, [str(budget) for budget in budgets])
        panel.minorticks_off()
        panel.set_title(_task(task), fontsize=9)
        panel.set(xlabel="budget (tokens per head)", ylabel="score")
    return _finished(figure, axes, len(tasks), "bands: 95% intervals")


def costs(frame: pd.DataFrame, task: str = cells.AVERAGE) -> Any:
    """Score against stored bytes and against seconds; one mark a method and budget, numbers are budgets."""
    own = frame[frame["subset"] == task].copy()
    own["bytes"] /= 1e6
    own["seconds"] = own[["prefill_seconds", "selection_seconds", "decode_seconds"]].sum(axis=1)
    figure, axes = figures.panels(2, width=3.4, height=2.8)
    for panel, (cost, label) in zip(axes, COSTS.items(), strict=True):
        for name, part in _by_row(own):
            part = part.sort_values(cost)
            style = look(str(name))
            panel.plot(part[cost], part["score"], label=name.title, markersize=5, linewidth=0.8, **style)
            panel.vlines(part[cost], part["low"], part["high"], color=style["color"], linewidth=0.8, alpha=0.6)
        low, high = own[cost].min(), own[cost].max()
        if log := high > 4 * low > 0:
            panel.set_xscale("log")
            ticks = _ticks(low, high)
            panel.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
            panel.minorticks_off()
        panel.set(xlabel=f"{label} (log scale)" if log else label, ylabel=f"score, {_task(task)}")
    _finished(figure, axes, 2, "numbers: budgets; bars: 95% intervals")
    figure.draw_without_rendering()  # now it is known where the marks lie
    for panel, cost in zip(axes, COSTS, strict=True):
        _name_budgets(panel, own, cost)
    return figure


def _ticks(low: float, high: float) -> list[float]:
    """Round numbers between two that are more than four-fold apart: at least three, of the fewest digits."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for digits in ((1,), (1, 2, 5), (1, 1.5, 2, 3, 5, 7)):
        ticks = [digit * 10.0**decade for decade in decades for digit in digits]
        within = [tick for tick in ticks if low <= tick <= high]
        if len(within) >= 3:
            break
    return within


def _name_budgets(panel: Any, own: pd.DataFrame, cost: str) -> None:
    """Write each mark's budget beside it, where it covers neither a mark nor another budget; else leave it out."""
    points = panel.transData.transform(own[[cost, "score"]].to_numpy(dtype="float64")) * 72 / panel.figure.dpi
    taken = [(x - 3, y - 3, x + 3, y + 3) for x, y in points]
    for (x, y), row in zip(points, own.itertuples(), strict=True):
        if pd.isna(row.budget):
            continue
        wide = 4 * len(str(row.budget))  # points, at this size of the letters
        for dx, dy in _PLACES:
            left = x + dx - (wide if dx < 0 else 0 if dx else wide / 2)
            box = (left, y + dy, left + wide, y + dy + 6)
            if not any(_cross(box, other) for other in taken):
                taken.append(box)
                where, by = (getattr(row, cost), row.score), (left - x, dy)
                colour = look(str(Name(row.method, row.variant)))["color"]
                panel.annotate(row.budget, where, textcoords="offset points", xytext=by, fontsize=6, color=colour)
                break


def _cross(one: Sequence[float], other: Sequence[float]) -> bool:
    """Whether two boxes (left, bottom, right, top) have a place in common."""
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def differences(selected: Any, against: str, tasks: Sequence[str]) -> Any:
    """Paired differences to a row at the same budget, one panel a task, with 95% intervals."""
    scores = numbers.by_cell(selected)
    found = numbers.differences(scores, selected.tasks)
    keys = [key for key in numbers.ordered(list(scores)) if str(key.name) != against]
    others = [key for key in scores if str(key.name) == against]
    pairs = [(key, other) for key in keys for other in others if other.budget in (None, key.budget)]
    across = min(3, len(tasks))
    figure, axes = figures.panels(across, -(-len(tasks) // across), 3.2, 0.9 + 0.17 * len(pairs))
    for panel, task in zip(axes, tasks, strict=False):
        lines = [(key, _turned(found, numbers.name_of(key), numbers.name_of(other), task)) for key, other in pairs]
        for place, (key, line) in enumerate(lines):
            if line is not None:
                mean, low, high = line
                style = look(str(key.name))
                panel.plot([low, high], [place, place], color=style["color"], linewidth=1.2)
                panel.plot([mean], [place], color=style["color"], marker=style["marker"], markersize=4)
        panel.axvline(0, color="black", linewidth=0.8)
        panel.set_yticks(range(len(pairs)), [_label(key) for key, _ in pairs], fontsize=7)
        panel.set_ylim(len(pairs) - 0.5, -0.5)
        panel.set_title(_task(task), fontsize=9)
        panel.set(xlabel=f"points more than {others[0].name.title}")
    for panel in axes[len(tasks) :]:
        panel.remove()
    figure.suptitle("paired differences with 95% intervals", fontsize=8)
    return figure


def write(results: Path, against: str) -> Iterator[Path]:
    """Write the figures of every table and yield their folders; what was left out of one is told on stderr.

    Raises:
        UserError: no answers, none of the method to compare with, or a folder that cannot be written to.
    """
    found = groups.find(results)
    check_against(against, [run.name for group in found for run in group.runs])
    for group in found:
        selected = groups.select(group, results, None)
        frame = cells.cells(selected.scored, selected.tasks, against="")
        present = [task for task in (*selected.tasks, cells.AVERAGE) if task in set(frame["subset"])]
        folder = results / "figures" / group.name
        drawn = {"budgets": curves(frame, present)}
        if cells.AVERAGE in present:
            drawn["costs"] = costs(frame)
        if {against} < {str(name) for name, _ in _by_row(frame)}:  # and another to compare with it
            drawn["differences"] = differences(selected, against, present)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            for name, figure in drawn.items():
                figures.save(figure, folder, name)
            for path in (folder / f"{name}.{ending}" for name in {*DRAWN} - {*drawn} for ending in ("pdf", "png")):
                path.unlink(missing_ok=True)  # of earlier answers or of another --against
        except OSError as error:
            raise UserError(f"cannot write to {folder} ({error.strerror}): choose another --results") from error
        yield folder


def _by_row(frame: pd.DataFrame) -> list[tuple[Name, pd.DataFrame]]:
    parts = [(Name(*name), part) for name, part in frame.groupby(["method", "variant"], sort=False)]
    return sorted(parts, key=lambda item: item[0].order)


def _turned(found: dict[str, Any], left: str, right: str, task: str) -> tuple[float, float, float] | None:
    """Mean and interval of left - right, whichever way round it is known; None without enough pairs."""
    for name, sign in ((f"{left}|{right}", 1), (f"{right}|{left}", -1)):
        line = found.get(name, {}).get(task)
        if line is not None and line[2] is not None:
            low, high = sorted((sign * line[2], sign * line[3]))
            return sign * line[0], low, high
    return None


def _finished(figure: Any, axes: Sequence[Any], used: int, said: str) -> Any:
    """Remove the panels that are not used and put a legend above that begins with what else a reader must know."""
    for panel in axes[used:]:
        panel.remove()
    handles = {
        text: handle for panel in axes[:used] for handle, text in zip(*panel.get_legend_handles_labels(), strict=True)
    }
    figure.legend(
        handles.values(), handles.keys(), loc="outside upper center", ncols=7, frameon=False, fontsize=8, title=said,
        title_fontsize=8,
    )  # fmt: skip
    return figure


def _label(key: Key) -> str:
    return key.name.title + ("" if key.budget is None else f" {key.budget}")


def _task(name: str) -> str:
    return "average" if name == cells.AVERAGE else subsets.load(name).column


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status, 1 with one line on stderr for wrong input."""
    parser = argparse.ArgumentParser(prog="python -m eval.figures", description="Figures for a paper, PDF and PNG.")
    parser.add_argument("--results", type=Path, default=Path("results"), help="folder of the stored answers")
    parser.add_argument("--against", default=AGAINST, help="method of the paired differences")
    return command(parser, arguments, _print)


def _print(chosen: argparse.Namespace) -> None:
    for folder in write(chosen.results, chosen.against):
        print(folder, flush=True)


if __name__ == "__main__":
    sys.exit(main())
