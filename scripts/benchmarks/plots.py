"""The curves as PDF and PNG, told apart in grey by dash and marker."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from eval.analysis import figures
from eval.tables.naming import title

from . import grid, selection
from .measured import Point


def draw(folder: Path, points: Sequence[Point], tokens: int, length: int) -> list[str]:
    """Write the plots that there are points for; returns their names."""
    made = []
    for name, finish in ((selection.PLOT, _selection), (grid.PLOT, lambda axes: _cells(axes, tokens, length))):
        own = [point for point in points if point.plot == name]
        if not own:
            continue
        figure, (axes,) = figures.panels(1, width=5.2, height=3.6)
        for style, line in enumerate(dict.fromkeys(point.line for point in own)):
            there = sorted((point.x, point.y) for point in own if point.line == line)
            look = {**figures.style(style), "markersize": 4, "linewidth": 1.2}
            axes.plot([x for x, _ in there], [y for _, y in there], label=_label(line), **look)
        finish(axes)
        ticks = sorted({point.x for point in own})
        axes.set_xticks(ticks, [f"{tick:,.0f}" for tick in ticks])
        axes.minorticks_off()
        axes.grid(color="0.9", linewidth=0.6)
        figures.above(figure, [axes])
        figures.save(figure, folder, name)
        made.append(name)
    return made


def _selection(axes: Any) -> None:
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set(xlabel="prompt length (tokens)", ylabel="time of the prefill and of one selection (s)")


def _cells(axes: Any, tokens: int, length: int) -> None:
    from matplotlib.ticker import FixedLocator, NullLocator

    axes.set_yscale("log")
    axes.yaxis.set_major_locator(FixedLocator([0.5, 1, 2, 5, 10, 20]))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter("{x:g}")
    axes.axhline(grid.TOGETHER, color="0.5", linewidth=0.8, linestyle=(0, (4, 4)), label=f"bar {grid.TOGETHER:g}")
    axes.set(
        xlabel=f"cells answered ({length:,}-token prompt, {tokens} new tokens each)",
        ylabel="time over that of FullKV alone (ratio)",
    )


def _label(line: str) -> str:
    """A method's title; H2O's two readings and lines that are no method keep their words."""
    first, *rest = line.split(" ")
    return " ".join([title(first), *rest])
