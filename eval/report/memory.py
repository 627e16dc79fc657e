"""Score against stored bytes, where what is kept is stored in several ways: eviction, codes of few bits and both."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from eval.report import canvas
from eval.report.look import Look, another
from eval.report.plots import count, cut, rows, task_title
from eval.tables import cells
from eval.tables.naming import PLUS, Name

AS_IT_IS = "as it is"


def by_bytes(frame: pd.DataFrame, task: str = cells.AVERAGE) -> Any:
    """A panel a method, in it a line for each way of storing what it keeps, with 95% intervals; None for one way alone.

    What stores the whole prompt is in every panel, a hollow mark for each way.
    """
    own = frame[frame["subset"] == task].assign(mb=frame["bytes"] / 1e6)
    parts = rows(own)
    ways = {way: another(place) for place, way in enumerate(sorted({name.stored for name in parts}))}
    whole = {name: part for name, part in parts.items() if part["budget"].isna().all()}
    methods = dict.fromkeys(_method(name) for name in parts if name not in whole)
    if len(ways) < 2 or not methods:
        return None
    across = min(3, len(methods))
    figure, axes = canvas.panels(across, -(-len(methods) // across), 2.6, 2.3, share="y")
    for panel, method in zip(axes, methods, strict=False):
        for name, part in whole.items():
            _marks(panel, part, ways[name.stored], hollow=True)
        for name, part in parts.items():
            if name not in whole and _method(name) == method:
                _marks(panel, part.sort_values("mb"), ways[name.stored], said(name.stored))
        panel.set_title(method.title, fontsize=9)
        panel.set_ylim(0, canvas.scale(own))
        panel.grid(axis="y", color="0.92", linewidth=0.6)
    _finish(figure, axes, len(methods), across, own)
    also = "; hollow: FullKV so stored" if whole else ""
    told = f"{task_title(task)}, {count(own, each='')}; bars: 95% intervals{also}"
    canvas.above(figure, axes[: len(methods)], told)
    return figure


def said(stored: str) -> str:
    """How the legend names a way of storing."""
    return stored.removeprefix(PLUS) or AS_IT_IS


def _method(name: Name) -> Name:
    """The row without its codec."""
    return Name(name.method, name.settings)


def _marks(panel: Any, part: pd.DataFrame, look: Look, label: str = "", hollow: bool = False) -> None:
    style: Mapping[str, Any] = look.lines | ({"linestyle": "", "markerfacecolor": "none"} if hollow else {})
    panel.vlines(part["mb"], part["low"], part["high"], color=style["color"], linewidth=0.8, alpha=0.5)
    panel.plot(part["mb"], part["score"], label=label or None, markersize=4.5, linewidth=1.1, **style)


def _finish(figure: Any, axes: Any, used: int, across: int, own: pd.DataFrame) -> None:
    """A scale of bytes that all panels have in common."""
    low, high = own["mb"].min(), own["mb"].max()
    ticks = canvas.ticks(low, high)[-6:] if high > 4 * low else []
    for panel in axes[:used]:
        panel.set_xscale("log")
        panel.set_xlim(low / 1.3, high * 1.3)
        if ticks:
            panel.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
            panel.minorticks_off()
    cut(axes, used, across)
    figure.supxlabel("stored MB per answer (log scale)", fontsize=9)
    figure.supylabel("score", fontsize=9)
