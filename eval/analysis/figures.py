"""Figures as PDF and PNG: methods in their colours, readable in grey, since lines differ in dash and marker too."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from eval.analysis import report
from eval.report.canvas import above, panels, save
from eval.report.look import another, looks
from eval.tables import naming

# The first ones stand out most. Grey is told apart by dash, marker and whether the marker is filled.
STYLES = (
    {"color": "black", "linestyle": "-", "marker": "o"},
    {"color": "0.4", "linestyle": "--", "marker": "s"},
    {"color": "black", "linestyle": ":", "marker": "^", "markerfacecolor": "white"},
    {"color": "0.4", "linestyle": "-.", "marker": "D", "markerfacecolor": "white"},
    {"color": "0.6", "linestyle": "-", "marker": "v"},
    {"color": "0.6", "linestyle": "--", "marker": "x"},
    {"color": "0.6", "linestyle": ":", "marker": "P"},
    {"color": "0.4", "linestyle": (0, (5, 1)), "marker": "*"},
    {"color": "black", "linestyle": "-.", "marker": "o", "markerfacecolor": "white"},
)
_DISPERSED = {"score": "score (0 to 100)", "retained": "evidence retained (%)"}


def style(place: int) -> dict[str, Any]:
    """The look of line number `place` of what are no methods: in grey while these last."""
    grey: dict[str, Any] | None = STYLES[place] if place < len(STYLES) else None
    return grey or another(place - len(STYLES)).lines


def by_method(frame: pd.DataFrame) -> dict[str, dict[str, Any]]:
    """The look of each method of a frame: that which it has in the figures of scores."""
    return {method: look.lines for method, look in looks(map(str, frame["method"])).items()}


def line(axes: Any, x: Any, part: pd.DataFrame, label: str, look: dict[str, Any]) -> None:
    """One line of means with bars of one standard error."""
    axes.errorbar(
        x, part["mean"].to_numpy(), yerr=part["error"].fillna(0.0).to_numpy(), label=label, markersize=4,
        linewidth=1.1, elinewidth=0.8, capsize=2, clip_on=False, **look,
    )  # fmt: skip


def aside(x: pd.Series, place: int, lines: int, log: bool = False) -> Any:
    """The values a little to one side, so that the bars of several lines stand beside each other.

    log: whether the axis will be.
    """
    steps, values = place - (lines - 1) / 2, x.to_numpy(dtype="float64")
    if log:
        return values * 2 ** (0.06 * steps)
    return values + 0.07 / max(lines, 3) * steps * (values.max() - values.min())


def bars(axes: Any, labels: Sequence[str], part: pd.DataFrame) -> None:
    """Means of unordered settings, one row each from the top down, with bars of one standard error."""
    places = list(range(len(labels)))
    error = part["error"].fillna(0.0).to_numpy()
    axes.errorbar(
        part["mean"].to_numpy(), places, xerr=error, color="black", linestyle="", marker="o", markersize=5,
        elinewidth=1, capsize=2,
    )  # fmt: skip
    axes.set_yticks(places, labels)
    axes.set_ylim(len(labels) - 0.5, -0.5)
    axes.grid(axis="x", color="0.9")
    axes.set_axisbelow(True)


def overlap(folder: Path, summary: pd.DataFrame, by_layer: pd.DataFrame) -> None:
    """Table 1 over the steps, and layer by layer (without errors) at the last step that every method reached."""
    figure, (left, right) = panels(2, height=3.0, share="y")
    shown = summary[(summary["measure"] == "overlap") & ~summary["method"].str.contains(" - ")]
    look = by_method(shown)
    for place, (method, part) in enumerate(shown.groupby("method", sort=False)):
        line(left, aside(part["step"], place, len(look)), part, report.title(str(method)), look[str(method)])
        if part["paper"].notna().any():
            printed = f"{report.title(str(method))}, printed for Mistral-7B"
            cross = {"linestyle": "", "marker": "+x"[place % 2], "color": look[str(method)]["color"]}
            left.plot(part["step"], part["paper"], label=printed, **cross)
    last = int(shown.groupby("method")["step"].max().min())
    for method, part in by_layer[by_layer["step"] == last].groupby("method", sort=False):
        line(right, part["layer"], part.assign(error=0.0), report.title(str(method)), look[str(method)])
    left.set(xlabel="lookahead step k", ylabel="KV overlap (share of B)")
    left.set_ylim(bottom=0)
    left.set_xticks(sorted(set(shown["step"])))
    right.set(xlabel=f"layer, at k = {last}")
    above(figure, [left])
    save(figure, folder, "table1")


def positions(folder: Path, summary: pd.DataFrame, step: int) -> None:
    """Table 2 for every layer."""
    figure, (axes,) = panels(1, width=6.4, height=3.4)
    strategies = list(dict.fromkeys(summary["strategy"]))[::-1]  # the decoded query first
    for place, strategy in enumerate(strategies):
        part = summary[summary["strategy"] == strategy]
        line(axes, part["layer"] + 0.08 * (place - 2.5), part, strategy.replace("_", ", "), style(place))
    axes.set(xlabel="layer", ylabel=f"KV overlap with the true query, k = {step}", ylim=(0, 1))
    above(figure, [axes], columns=3)
    save(figure, folder, "table2")


def retention(folder: Path, summary: pd.DataFrame) -> None:
    """Table 6 over everything measured: workspaces, then final caches, with the share that chance would keep."""
    whole = summary[summary["dataset"] == "all"] if "all" in set(summary["dataset"]) else summary
    part = whole[~whole["selection"].str.contains(" - ")]
    part = part.sort_values("selection", key=lambda names: names == "final", kind="stable", ignore_index=True)
    labels = [
        report.title(row.method)
        + ("" if row.selection == "final" else f" {row.selection}")
        + ("" if pd.isna(row.budget) else f" @{row.budget}")
        for row in part.itertuples()
    ]
    figure, (axes,) = panels(1, width=5.6, height=0.9 + 0.22 * len(labels))
    bars(axes, labels, part)
    chance = {"linestyle": "", "marker": "|", "markersize": 9, "markeredgewidth": 1.5, "color": "0.5"}
    axes.plot(part["of_prompt"], range(len(labels)), label="a random choice of the size", **chance)
    axes.set_xlabel("evidence tokens retained (%)")
    axes.set_xlim(left=0)
    above(figure, [axes], columns=1)
    save(figure, folder, "table6")


def ablation(folder: Path, name: str, summary: pd.DataFrame, label: str, axes_labels: dict[str, str]) -> None:
    """One panel per measure that was made: lines over a number, or rows where the settings have no order."""
    measures = [measure for measure in axes_labels if summary.loc[summary["measure"] == measure, "mean"].notna().any()]
    ordered = all(isinstance(x, int | float) for x in summary["x"])
    settings = summary.drop_duplicates(["method", "budget"])
    figure, axes = panels(len(measures), height=2.6 if ordered else 0.8 + 0.22 * len(settings))
    for place, (axis, measure) in enumerate(zip(axes, measures, strict=True)):
        own = summary[summary["measure"] == measure]
        if ordered:
            _over_numbers(axis, own, label)
            axis.set_ylabel(axes_labels[measure])
            if (own["mean"] >= 0).all():
                axis.set_ylim(bottom=0)
        else:
            bars(axis, _names(own) if place == 0 else [""] * len(own), own)
            axis.set_xlabel(axes_labels[measure])
    if ordered:
        above(figure, axes)
    else:
        figure.suptitle(label, fontsize=9)
    save(figure, folder, name)


def _over_numbers(axis: Any, own: pd.DataFrame, label: str) -> None:
    values = sorted(set(own["x"]))
    log = values[0] > 0 and values[-1] / values[0] >= 8
    lines = list(own.groupby(["series", "budget"], sort=False, dropna=False))
    for place, ((series, budget), part) in enumerate(lines):
        part = part.sort_values("x")
        line(axis, aside(part["x"], place, len(lines), log), part, f"{series} @{budget}", style(place))
    axis.set_xlabel(label)
    if log:
        axis.set_xscale("log", base=2)
    axis.set_xticks(values, [f"{value:g}" for value in values])
    axis.minorticks_off()


def _names(own: pd.DataFrame) -> list[str]:
    """Settings by their value, with method and budget where these differ."""
    # A value that stands twice is of several methods; names of methods differ anyway.
    several, budgets = own.duplicated(["x", "budget"]).any(), own["budget"].nunique() > 1
    return [
        (f"{row.series} " if several else "")
        + report.words(row.x)
        + (f" @{row.budget}" if budgets and not pd.isna(row.budget) else "")
        for row in own.itertuples()
    ]


def distances(folder: Path, name: str, ranking: pd.DataFrame, row: str) -> None:
    """Settings by their distance to a printed row, nearest on top, with bootstrap standard errors."""
    forms = {"pooling": "{} pooling", "granularity": "{}", "workspace": "W = {}"}
    if ranking["budget"].nunique() > 1:
        forms["budget"] = "B = {}"
    labels = [
        ", ".join([line["press"], *(form.format(line[key]) for key, form in forms.items() if not pd.isna(line[key]))])
        for line in ranking.to_dict("records")
    ]
    figure, (axes,) = panels(1, width=5.6, height=0.9 + 0.22 * len(labels))
    shown = [report.words(label).replace("none pooling", "no pooling") for label in labels]
    bars(axes, shown, ranking.rename(columns={"distance": "mean"}))
    axes.set(xlabel=f"mean distance to {row} (points)")
    axes.set_xlim(left=0)
    save(figure, folder, name)


def dispersion(folder: Path, name: str, summary: pd.DataFrame) -> None:
    """Score and retention, one figure a budget; one column per number of pieces, one line per method.

    A method without a budget keeps everything and has no line among the retentions.
    """
    budgets = sorted(set(summary["budget"].dropna()))
    for budget in budgets:
        own = summary[summary["budget"].eq(budget) | summary["budget"].isna()]
        _dispersion(own, f"at a budget of {budget}", folder, name if len(budgets) == 1 else f"{name}_{budget}")


def _dispersion(summary: pd.DataFrame, said: str, folder: Path, name: str) -> None:
    facts = list(dict.fromkeys(summary["facts"]))
    single = len(facts) == 1
    figure, axes = panels(2 if single else len(facts), rows=1 if single else 2, width=3.2 if single else 2.8)
    methods = sorted(set(summary["method"]), key=lambda method: naming.Name(method).order)
    look = by_method(summary)
    for (measure, label), first in zip(_DISPERSED.items(), (0, len(facts)), strict=True):
        for axis, many in zip(axes[first : first + len(facts)], facts, strict=True):
            if axis is not axes[first]:
                axis.sharey(axes[first])  # before lines are drawn: what is shared later takes the first one's range
            own = summary[(summary["measure"] == measure) & (summary["facts"] == many)].sort_values("dispersion")
            for place, method in enumerate(methods):
                part = own[own["method"] == method]
                if len(part) and not (measure == "retained" and part["budget"].isna().any()):
                    x = aside(part["dispersion"], place, len(methods))
                    line(axis, x, part, report.title(method), look[method])
            axis.set_xticks(sorted(set(own["dispersion"])))
            axis.set_xlabel("dispersion of the evidence")
            if single or measure == "score":
                axis.set_title(f"{many} pieces, {said}", fontsize=9)
        axes[first].set_ylabel(label)
        axes[first].set_ylim(bottom=-0.04 * axes[first].get_ylim()[1])  # so that marks at 0 are whole
    above(figure, axes)
    save(figure, folder, name)
