"""Figures as PDF and PNG: readable in grey, since lines differ in dash and marker, not in colour."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from eval.analysis import report

STYLES = (
    {"color": "black", "linestyle": "-", "marker": "o"},
    {"color": "0.45", "linestyle": "--", "marker": "s"},
    {"color": "0.25", "linestyle": ":", "marker": "^"},
    {"color": "0.6", "linestyle": "-.", "marker": "D"},
    {"color": "black", "linestyle": (0, (1, 1)), "marker": "v"},
    {"color": "0.45", "linestyle": "-", "marker": "x"},
    {"color": "0.7", "linestyle": "--", "marker": "P"},
    {"color": "0.3", "linestyle": (0, (5, 1)), "marker": "*"},
)
_RC = {"font.size": 9, "axes.spines.top": False, "axes.spines.right": False, "pdf.fonttype": 42}


def panels(columns: int, rows: int = 1, width: float = 3.2, height: float = 2.6) -> tuple[Any, list[Any]]:
    """A figure with `rows` x `columns` axes, returned row by row."""
    import matplotlib

    matplotlib.rcParams.update(_RC)
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width * columns, height * rows), layout="constrained")
    return figure, list(figure.subplots(rows, columns, squeeze=False).flat)


def save(figure: Any, folder: Path, name: str) -> None:
    """Write NAME.pdf and NAME.png."""
    figure.savefig(folder / f"{name}.pdf", metadata={"CreationDate": None})
    figure.savefig(folder / f"{name}.png", dpi=160)


def above(figure: Any, axes: Any, columns: int = 2) -> None:
    """The legend of one panel, above all."""
    figure.legend(
        *axes.get_legend_handles_labels(), loc="outside upper center", ncols=columns, frameon=False, fontsize=7
    )


def line(axes: Any, x: Sequence[Any], part: pd.DataFrame, label: str, style: int) -> None:
    """One line of means with bars of one standard error."""
    look: dict[str, Any] = STYLES[style % len(STYLES)]
    error = part["error"].fillna(0.0).to_numpy()
    axes.errorbar(x, part["mean"].to_numpy(), yerr=error, label=label, markersize=4, linewidth=1.2, capsize=2, **look)


def bars(axes: Any, labels: Sequence[str], part: pd.DataFrame) -> None:
    """Means of unordered settings, one row each from the top down, with bars of one standard error."""
    places = list(range(len(labels)))
    error = part["error"].fillna(0.0).to_numpy()
    axes.errorbar(part["mean"].to_numpy(), places, xerr=error, color="black", linestyle="", marker="o", capsize=2)
    axes.set_yticks(places, labels)
    axes.set_ylim(len(labels) - 0.5, -0.5)
    axes.grid(axis="x", color="0.9")


def overlap(folder: Path, summary: pd.DataFrame, by_layer: pd.DataFrame) -> None:
    """Table 1 over the steps, and layer by layer (without errors) at the last step that every method reached."""
    figure, (left, right) = panels(2, height=3.0)
    shown = summary[(summary["measure"] == "overlap") & ~summary["method"].str.contains(" - ")]
    for style, (method, part) in enumerate(shown.groupby("method", sort=False)):
        line(left, part["step"].to_numpy(), part, report.title(str(method)), style)
        if part["paper"].notna().any():
            printed = f"{report.title(str(method))}, printed for Mistral-7B"
            left.plot(part["step"], part["paper"], linestyle="", marker="+x"[style % 2], color="0.3", label=printed)
    last = int(shown.groupby("method")["step"].max().min())
    for style, (method, part) in enumerate(by_layer[by_layer["step"] == last].groupby("method", sort=False)):
        line(right, part["layer"].to_numpy(), part.assign(error=0.0), report.title(str(method)), style)
    left.set(xlabel="lookahead step k", ylabel="KV overlap (share of B)")
    left.set_xticks(sorted(set(shown["step"])))
    right.set(xlabel="layer", ylabel=f"overlap at k = {last} (share of B)")
    above(figure, left)
    save(figure, folder, "table1")


def positions(folder: Path, summary: pd.DataFrame, step: int) -> None:
    """Table 2 for every layer."""
    figure, (axes,) = panels(1, width=5.4, height=3.0)
    for style, (strategy, part) in enumerate(summary.groupby("strategy", sort=False)):
        line(axes, part["layer"].to_numpy(), part, str(strategy).replace("_", ", "), style)
    axes.set(xlabel="layer", ylabel=f"KV overlap with the true query, k = {step}", ylim=(0, 1))
    above(figure, axes, 3)
    save(figure, folder, "table2")


def retention(folder: Path, summary: pd.DataFrame) -> None:
    """Table 6 over everything measured: workspaces and final caches, with the share that chance would keep."""
    whole = summary[summary["dataset"] == "all"] if "all" in set(summary["dataset"]) else summary
    part = whole[~whole["selection"].str.contains(" - ")].reset_index(drop=True)
    labels = [
        report.title(row.method)
        + ("" if row.selection == "final" else f" {row.selection}")
        + ("" if pd.isna(row.budget) else f" @{row.budget}")
        for row in part.itertuples()
    ]
    figure, (axes,) = panels(1, width=5.6, height=0.9 + 0.22 * len(labels))
    bars(axes, labels, part)
    axes.plot(part["of_prompt"], range(len(labels)), linestyle="", marker="|", color="0.5", label="share of the prompt")
    axes.set_xlabel("evidence tokens retained (%)")
    axes.set_xlim(left=0)
    axes.legend(frameon=False, fontsize=7, loc="lower right")
    save(figure, folder, "table6")


def ablation(folder: Path, name: str, summary: pd.DataFrame, label: str, axes_labels: dict[str, str]) -> None:
    """One panel per measure: lines over a number, or rows where the settings have no order."""
    measures = [measure for measure in axes_labels if summary.loc[summary["measure"] == measure, "mean"].notna().any()]
    ordered = all(isinstance(x, int | float) for x in summary["x"])
    settings = summary.drop_duplicates(["method", "budget"])
    figure, axes = panels(len(measures), height=2.6 if ordered else 1.0 + 0.25 * len(settings))
    for place, (axis, measure) in enumerate(zip(axes, measures, strict=True)):
        own = summary[summary["measure"] == measure]
        if ordered:
            for style, ((series, budget), part) in enumerate(own.groupby(["series", "budget"], sort=False)):
                part = part.sort_values("x")
                line(axis, part["x"].to_numpy(), part, f"{series} @{budget}", style)
            axis.set(xlabel=label, ylabel=axes_labels[measure])
            values = sorted(set(own["x"]))
            if values[0] > 0 and values[-1] / values[0] >= 8:
                axis.set_xscale("log", base=2)
            axis.set_xticks(values, [f"{value:g}" for value in values])
            axis.minorticks_off()
        else:
            names = [row.x if row.x == row.method else f"{row.series} {row.x}" for row in own.itertuples()]
            bars(axis, [str(name).replace("_", " ") if place == 0 else "" for name in names], own)
            axis.set(xlabel=axes_labels[measure])
    if ordered:
        above(figure, axes[0], 4)
    save(figure, folder, name)


def distances(folder: Path, name: str, ranking: pd.DataFrame, row: str) -> None:
    """Settings by their distance to a printed row, nearest on top."""
    labels = [f"{r.press}, {r.pooling} pooling, {r.granularity}, W={r.workspace}" for r in ranking.itertuples()]
    figure, (axes,) = panels(1, width=5.6, height=0.9 + 0.22 * len(labels))
    bars(axes, labels, ranking.rename(columns={"distance": "mean"}).assign(error=0.0))
    axes.set(xlabel=f"mean absolute distance to row {row} (points)")
    axes.set_xlim(left=0)
    save(figure, folder, name)


def dispersion(folder: Path, name: str, summary: pd.DataFrame) -> None:
    """Score above, retention below; one column per number of pieces, one line per method and budget.

    A method without a budget keeps everything and has no line below.
    """
    facts = list(dict.fromkeys(summary["facts"]))
    figure, axes = panels(len(facts), rows=2, width=4.8 if len(facts) == 1 else 2.9, height=2.4)
    titles = {"score": "score", "retained": "evidence retained (%)"}
    for (measure, said), first in zip(titles.items(), (0, len(facts)), strict=True):
        for axis, many in zip(axes[first : first + len(facts)], facts, strict=True):
            own = summary[(summary["measure"] == measure) & (summary["facts"] == many)]
            for style, ((method, budget), part) in enumerate(
                own.groupby(["method", "budget"], sort=False, dropna=False)
            ):
                if measure == "retained" and pd.isna(budget):
                    continue
                size = "" if pd.isna(budget) else f" @{int(budget)}"
                part = part.sort_values("dispersion")
                line(axis, part["dispersion"].to_numpy(), part, report.title(str(method)) + size, style)
            axis.set(ylabel=said, xlabel="dispersion of the evidence")
            axis.set_ylim(bottom=0)
            axis.set_title(f"{many} pieces of evidence", fontsize=9)
    above(figure, axes[0], 3 if len(facts) == 1 else 4)
    save(figure, folder, name)
