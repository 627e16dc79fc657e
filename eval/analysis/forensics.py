"""Which settings made a published row? Every setting's scores against it, nearest first (pooling, heads, size)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from eval.analysis import figures, report
from eval.analysis.outcomes import outcomes
from eval.analysis.settings import Forensics
from eval.analysis.study import Study
from eval.console.errors import UserError
from eval.inputs import subsets
from eval.scoring import statistics
from eval.tables import paper

SETTING = ["method", "budget"]


def forensics(study: Study[Forensics]) -> None:
    """Measure, then write the ranking, its figure and every number.

    The distance is the mean absolute difference over the tasks that were run and are printed in the row.

    Raises UserError for a row that is not printed, or prints none of the tasks.
    """
    address = study.options.row
    published = row(address)
    names = {example.subset.name for example in study.examples}
    common = [name for name in published if name in names]
    if not common:
        raise UserError(f"row {address} has none of {', '.join(sorted(names))}: run tasks that it prints")
    rows, measured = outcomes(study)
    ranking = rank(rows, published, common)
    about = pd.DataFrame([_settings(study.methods[name]) for name in ranking["method"]], dtype=object)
    ranking = pd.concat([ranking[SETTING], about, ranking.drop(columns=SETTING)], axis=1)
    counts = rows.drop_duplicates(report.EXAMPLE)["dataset"].value_counts()
    caption = (
        f"Settings by mean absolute distance to the printed row {address} over {len(common)} tasks: {study.described}, "
        f"n={' + '.join(str(counts[name]) for name in common)} examples. Nearest: in what share "
        f"of {statistics.RESAMPLES} resamples of the examples a setting comes first."
    )
    report.write(measured.folder, {study.name: ranking, f"{study.name}_examples": rows})
    notes = _notes(study, address, ranking)
    report.publish(measured.folder, study.name, _layout(ranking, published, common), caption, notes)
    figures.distances(measured.folder, study.name, ranking, address)


def row(address: str) -> dict[str, float]:
    """A published row by task, such as 3:laq@128. Raises UserError if nothing is printed under the address."""
    cells = paper.cells()
    found = {key.split(":")[2]: float(value) for key, value in cells.items() if key.rsplit(":", 1)[0] == address}
    found.pop("average", None)
    if not found or address[0] not in "345":
        raise UserError(f"analysis.row is {address!r}; name a printed row as TABLE:METHOD@BUDGET, such as 3:laq@128")
    return found


def rank(rows: pd.DataFrame, published: dict[str, float], tasks: Sequence[str], seed: int = 0) -> pd.DataFrame:
    """Settings by distance: with its bootstrap standard error, the largest difference, and each task's score.

    nearest: in how many percent of the resamples a setting is the nearest; settings that tie share it. Examples are
    drawn within a task, the same for every setting. One example in a task cannot tell either: NaN.
    """
    random = np.random.default_rng(seed)
    scores, drawn = {}, []
    for task in tasks:
        table = rows[rows["dataset"] == task].pivot(index=SETTING, columns="_id", values="score")
        draws = random.integers(0, table.shape[1], size=(statistics.RESAMPLES, table.shape[1]))
        scores[task] = table.mean(axis=1)
        drawn.append(np.abs(table.to_numpy()[:, draws].mean(axis=2) - published[task]))
    means = pd.DataFrame(scores)
    apart = (means - pd.Series(published)[list(tasks)]).abs()
    distances = np.mean(drawn, axis=0)  # [settings, resamples]
    first = np.isclose(distances, distances.min(axis=0))
    about = {
        "distance": apart.mean(axis=1),
        "error": distances.std(axis=1, ddof=1),
        "largest": apart.max(axis=1),
        "nearest": 100 * (first / first.sum(axis=0)).mean(axis=1),
        "tasks": len(tasks),
    }
    if rows.groupby("dataset")["_id"].nunique()[list(tasks)].min() < 2:
        about |= {"error": math.nan, "nearest": math.nan}
    whole = pd.DataFrame(about, index=means.index).join(means).reset_index()
    return whole.sort_values("distance", kind="stable", ignore_index=True)


def _settings(method: dict[str, Any]) -> dict[str, Any]:
    size = method.get("workspace")
    return {
        "press": str(method["_target_"]).split(".")[-1],
        "pooling": method.get("pooling"),
        "granularity": method.get("granularity"),
        "workspace": "budget" if size is None and "workspace" in method else size,
    }


def _notes(study: Study[Forensics], address: str, ranking: pd.DataFrame) -> list[str]:
    """In what the settings cannot be those of the row, whatever their distance."""
    table, _, name = address.partition(":")
    model = {number: model for model, number in paper.TABLE_OF_MODEL.items()}.get(int(table), "mistral")
    notes = [] if study.model == model else [f"The row was printed for another model than {study.model}: {model}."]
    printed = name.partition("@")[2] or ("128" if table == "5" else "")  # FullKV has none
    others = sorted({int(budget) for budget in ranking["budget"].dropna()} - {int(printed or 0)})
    if printed and others:
        notes.append(f"The row was printed for budget {printed}, not {', '.join(map(str, others))}.")
    return notes


def _layout(ranking: pd.DataFrame, published: dict[str, float], common: Sequence[str]) -> pd.DataFrame:
    columns = {name: subsets.load(name).column for name in common}
    lines = []
    for line in ranking.to_dict("records"):
        about = ("press", "pooling", "granularity", "workspace", "budget")
        shown = {key.title(): "" if pd.isna(line[key]) else report.words(line[key]) for key in about}
        shown["Distance"] = report.number(line["distance"], line["error"], 2)
        shown["Nearest (%)"] = "" if math.isnan(line["nearest"]) else f"{line['nearest']:.0f}"
        lines.append(shown | {columns[name]: f"{line[name]:.2f}" for name in common})
    printed = {"Press": "as printed"} | {columns[name]: f"{published[name]:.2f}" for name in common}
    return pd.DataFrame([dict.fromkeys(lines[0], "") | printed, *lines])
