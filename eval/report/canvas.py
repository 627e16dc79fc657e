"""What all figures on paper share: panels, axes that can be read, legends, and their files."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

_RC = {"font.size": 9, "axes.spines.top": False, "axes.spines.right": False, "pdf.fonttype": 42}


def panels(
    columns: int, rows: int = 1, width: float = 3.2, height: float = 2.6, share: str = ""
) -> tuple[Any, list[Any]]:
    """A figure with `rows` x `columns` axes of so many inches, returned row by row.

    share: "x" or "y", the axis that all have in common; its labels then stand at the edge only.
    """
    import matplotlib

    matplotlib.rcParams.update(_RC)
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width * columns, height * rows), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False, sharex=share == "x", sharey=share == "y")
    return figure, list(axes.flat)


def save(figure: Any, folder: Path, name: str) -> None:
    """Write NAME.pdf and NAME.png."""
    figure.savefig(folder / f"{name}.pdf", metadata={"CreationDate": None})
    figure.savefig(folder / f"{name}.png", dpi=160)


def above(figure: Any, axes: Sequence[Any], said: str = "", columns: int | None = None) -> None:
    """One legend above all panels, of every line in them once; `said` stands over it.

    columns: of the legend; by default as many as its longest entry leaves room for.
    """
    found = [pair for panel in axes for pair in zip(*panel.get_legend_handles_labels(), strict=True)]
    handles = {text: handle for handle, text in found}
    room = figure.get_figwidth() * 72
    fitting = [some for some in range(7, 0, -1) if _wide(list(handles), some) <= room]
    columns = columns or (*fitting, 1)[0]
    deep = max(1, -(-len(handles) // columns))
    columns = -(-len(handles) // deep) or 1  # no more than its lines need: matplotlib would fill them all
    lines = deep + bool(said)
    figure.set_figheight(figure.get_figheight() + 0.17 * lines)  # what the panels would else lose
    figure.legend(
        handles.values(), handles.keys(), loc="outside upper center", ncols=columns, frameon=False, fontsize=8,
        title=said or None, title_fontsize=8,
    )  # fmt: skip


def _wide(texts: Sequence[str], columns: int) -> float:
    """Points that a legend takes: letters of 8 points and a handle in each column."""
    deep = max(1, -(-len(texts) // columns))
    parts = [texts[first : first + deep] for first in range(0, len(texts), deep)]
    return sum(4.6 * max(map(len, part)) + 44 for part in parts)


def scale(cells: pd.DataFrame) -> float:
    """Where an axis of scores from 0 ends: a little above the highest interval of these cells."""
    return 1.05 * top(cells[["score", "high"]].max().max())


def spread(wanted: Sequence[float], gap: float) -> list[float]:
    """Places from 0 at least `gap` apart, near the wanted ones in their order; up to 1 where all fit."""
    order = np.argsort(wanted, kind="stable")
    steps = gap * np.arange(len(order))
    free = np.asarray(wanted, dtype="float64")[order] - steps  # places that rise are apart by the gap
    rising = np.maximum.accumulate(free) + np.minimum.accumulate(free[::-1])[::-1]
    places = np.empty(len(order))
    places[order] = np.clip(rising / 2, 0, max(0.0, 1 - gap * (len(order) - 1))) + steps
    return [float(place) for place in places]


def top(highest: float) -> float:
    """Where an axis from 0 ends: at the highest value, at 1 where there is none above 0."""
    return highest if math.isfinite(highest) and highest > 0 else 1.0


def budgets(axes: Sequence[Any], values: Sequence[int]) -> None:
    """Logarithmic x axes with a label at every budget, as far as there is room for it."""
    named: list[int] = []
    for value in values:
        if not named or math.log2(value / named[-1]) >= math.log2(values[-1] / values[0]) / 4:
            named.append(value)
    for panel in axes:
        panel.set_xscale("log", base=2)
        panel.set_xticks(values, [str(value) if value in named else "" for value in values])
        panel.minorticks_off()
        room = 2 ** (0.3 * closest(values))
        panel.set_xlim(min(values) / room, max(values) * room)


def beside(values: Sequence[float], place: int, lines: int) -> Any:
    """The values of line number `place` moved to one side on a logarithmic axis: marks stand beside each other.

    values: of all lines; their closest neighbours decide how far there is room.
    """
    step = min(0.08, 0.5 / max(lines, 1)) * closest(values)
    return 2.0 ** (step * (place - (lines - 1) / 2))


def closest(values: Sequence[float]) -> float:
    """The least distance of two different values in powers of two; 1 where there is one value."""
    gaps = np.diff(sorted({math.log2(value) for value in values}))
    return float(min(gaps, default=1.0))


def ticks(low: float, high: float) -> list[float]:
    """Round numbers between two that are more than four-fold apart: at least three, of the fewest digits."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for digits in ((1,), (1, 2, 5), (1, 1.5, 2, 3, 5, 7)):
        found = [digit * 10.0**decade for decade in decades for digit in digits]
        within = [tick for tick in found if low <= tick <= high]
        if len(within) >= 3:
            break
    return within
