"""Score by budget on paper: a few methods together in one panel a task, many in small multiples, family by family."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from eval.report import canvas
from eval.report.look import REFERENCES, Look, family
from eval.report.plots import count, cut, rows, task_title
from eval.tables.naming import Name

FEW = 9  # methods with budgets that one panel takes
MOST = 8  # methods in colour in one panel of many
TALL, WIDE = 2.2, 2.6  # inches of a panel
GAP = 0.08  # of a panel's height between two names at its edge
Looks = Mapping[str, Look]


@dataclass(frozen=True)
class _End:
    """Where the line of a row ends on the right."""

    title: str
    x: float
    y: float
    colour: str


def figures(frame: pd.DataFrame, tasks: Sequence[str], looks: Looks) -> dict[str, Any]:
    """The figures by name: "budgets", and of many methods "tasks", which has all but the first of the tasks."""
    if len(_limited(frame)) <= FEW:
        return {"budgets": together(frame, tasks, looks)}
    found = {"budgets": apart(frame, tasks[:1], looks)}
    return found | ({"tasks": apart(frame, tasks[1:], looks)} if len(tasks) > 1 else {})


def together(frame: pd.DataFrame, tasks: Sequence[str], looks: Looks) -> Any:
    """Score by budget with 95% intervals, one panel a task, FullKV as a line across; all panels on one scale."""
    across = min(4, len(tasks))
    figure, axes = canvas.panels(across, -(-len(tasks) // across), WIDE, TALL, share="y")
    shown = frame[frame["subset"].isin(tasks)]
    names = _limited(shown)
    for panel, task in zip(axes, tasks, strict=False):
        for name, part in rows(shown[shown["subset"] == task]).items():
            _line(panel, name, part, names, _budgets(shown), looks)
        panel.set_title(task_title(task), fontsize=9)
    _finish(figure, axes, len(tasks), across, shown)
    canvas.above(figure, axes[: len(tasks)], f"{count(shown)}; bars and bands: 95% intervals")
    return figure


def apart(frame: pd.DataFrame, tasks: Sequence[str], looks: Looks) -> Any:
    """Score by budget, one panel a family and task: its methods in colour and named, all others in grey behind them.

    References are in all panels, and named in the first of a task. One task's panels stand three beside each other,
    those of several a line a task.
    """
    shown = frame[frame["subset"].isin(tasks)]
    parts = list(_parts(shown))
    across = len(parts) if len(tasks) > 1 else min(3, len(parts))
    figure, axes = canvas.panels(across, -(-len(parts) * len(tasks) // across), WIDE, TALL, share="y")
    places = [(task, number) for task in tasks for number in range(len(parts))]
    for panel, (task, number) in zip(axes, places, strict=False):
        title, names = parts[number]
        ends = []
        for name, part in rows(shown[shown["subset"] == task]).items():
            reference = family(name) == REFERENCES
            if not reference and name not in names:
                _quiet(panel, part)
                continue
            end = _line(panel, name, part, [name] if reference else names, _budgets(shown), looks)
            ends += [end] if number == 0 or not reference else []
        _named(panel, ends, shown)
        panel.set_title(title if len(tasks) == 1 else f"{task_title(task)}: {title}", fontsize=8, loc="left")
    _finish(figure, axes, len(places), across, shown)
    of, each = (f"{task_title(tasks[0])}, ", "") if len(tasks) == 1 else ("", " per task")
    figure.suptitle(
        f"{of}{count(shown, each)}; bars and bands: 95% intervals; grey: methods of other panels", fontsize=8
    )
    return figure


def _parts(frame: pd.DataFrame) -> Iterator[tuple[str, list[Name]]]:
    """Title and rows of each family but the references, in the order of the table; a large one is several."""
    families: dict[str, list[Name]] = {}
    for name in rows(frame):
        families.setdefault(family(name), []).append(name)
    for title, names in families.items():
        starts = range(0, len(names), MOST) if title != REFERENCES else ()
        for number, start in enumerate(starts, 1):
            yield title + (f" ({number} of {len(starts)})" if len(starts) > 1 else ""), names[start : start + MOST]


def _limited(frame: pd.DataFrame) -> list[Name]:
    """The rows that have budgets."""
    return list(rows(frame[frame["budget"].notna()]))


def _budgets(frame: pd.DataFrame) -> list[int]:
    return sorted(set(frame["budget"].dropna()))


def _line(
    panel: Any, name: Name, part: pd.DataFrame, names: Sequence[Name], budgets: Sequence[int], looks: Looks
) -> _End:
    """One row: marks at its budgets, those of the other `names` beside them; without a budget a line across."""
    style, part = looks[str(name)].lines, part.sort_values("budget")
    if part["budget"].isna().all():
        row, across = part.iloc[0], {"color": style["color"], "linewidth": 1.1}
        panel.axhline(row["score"], linestyle=style["linestyle"], label=name.title, **across)
        panel.axhspan(row["low"], row["high"], color=style["color"], alpha=0.08, linewidth=0)
        return _End(name.title, max(budgets, default=1), row["score"], style["color"])
    x = part["budget"].to_numpy(dtype="float64") * canvas.beside(budgets, names.index(name), len(names))
    panel.vlines(x, part["low"], part["high"], color=style["color"], linewidth=0.8, alpha=0.5, clip_on=False)
    panel.plot(x, part["score"], label=name.title, markersize=4, linewidth=1.1, clip_on=False, **style)
    return _End(name.title, x[-1], part["score"].iloc[-1], style["color"])


def _quiet(panel: Any, part: pd.DataFrame) -> None:
    """One row behind those that a panel is of; one without a budget is left out."""
    part = part.sort_values("budget")
    x = part["budget"].to_numpy(dtype="float64", na_value=np.nan)
    panel.plot(x, part["score"], color="0.86", linewidth=0.8, marker=".", markersize=2, zorder=0)


def _named(panel: Any, ends: Sequence[_End], shown: pd.DataFrame) -> None:
    """Write titles at the right edge, each as near its line's end as others leave room for and joined to it."""
    top = canvas.scale(shown)
    places = canvas.spread([end.y / top for end in ends], GAP)
    for end, place in zip(ends, places, strict=True):
        joint = {"arrowstyle": "-", "color": end.colour, "linewidth": 0.6, "relpos": (0, 0.5)}
        panel.annotate(
            end.title, (end.x, end.y), (1.04, place), textcoords="axes fraction", fontsize=7, va="center",
            annotation_clip=False, arrowprops=joint,
        )  # fmt: skip


def _finish(figure: Any, axes: Sequence[Any], used: int, across: int, shown: pd.DataFrame) -> None:
    """Axes, grid and their labels."""
    panels = axes[:used]
    if budgets := _budgets(shown):
        canvas.budgets(panels, budgets)
    for panel in panels:
        panel.set_ylim(0, canvas.scale(shown))
        panel.grid(axis="y", color="0.92", linewidth=0.6)
    cut(axes, used, across)
    figure.supxlabel("budget (tokens per head)", fontsize=9)
    figure.supylabel("score", fontsize=9)
