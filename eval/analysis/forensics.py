"""Which settings made a published row? Every setting's scores against it, nearest first (pooling, heads, size)."""

from __future__ import annotations

from typing import Any

import pandas as pd

from eval import paper, subsets
from eval.analysis import figures, report
from eval.analysis.outcomes import outcomes
from eval.analysis.study import Study
from eval.errors import UserError


def forensics(study: Study) -> None:
    """Measure, then write the ranking, its figure and every number.

    The distance is the mean absolute difference over the tasks that were run and are printed in the row.
    """
    published = row(str(study.settings["row"]))
    names = {example.subset.name for example in study.data.examples}
    common = [name for name in published if name in names]
    if not common:
        raise UserError(f"row {study.settings['row']} has none of {', '.join(sorted(names))}: run tasks that it prints")
    rows, measured = outcomes(study)
    scores = rows.groupby(["method", "budget", "dataset"], sort=False)["score"].mean().unstack("dataset")
    distances = pd.DataFrame(
        {
            "distance": (scores[common] - pd.Series(published)[common]).abs().mean(axis=1),
            "largest": (scores[common] - pd.Series(published)[common]).abs().max(axis=1),
            "tasks": len(common),
        }
    )
    ranking = distances.join(scores[common]).reset_index().sort_values("distance", kind="stable", ignore_index=True)
    settings = pd.DataFrame([_settings(study.config["methods"][name]) for name in ranking["method"]])
    ranking = pd.concat([ranking[["method", "budget"]], settings, ranking.drop(columns=["method", "budget"])], axis=1)
    caption = (
        f"Settings by mean absolute distance to the printed row {study.settings['row']} over {len(common)} tasks: "
        f"{study.model}, n={rows['_id'].nunique()} examples."
    )
    notes = [] if study.model == "mistral" else [f"The row was printed for another model than {study.model}."]
    report.write(measured.folder, {study.name: ranking, f"{study.name}_examples": rows})
    report.publish(measured.folder, study.name, _layout(ranking, published, common), caption, notes)
    figures.distances(measured.folder, study.name, ranking, str(study.settings["row"]))


def row(address: str) -> dict[str, float]:
    """A published row by task, such as 3:laq@128. Raises UserError if nothing is printed under the address."""
    cells = paper.cells()
    found = {key.split(":")[2]: float(value) for key, value in cells.items() if key.rsplit(":", 1)[0] == address}
    found.pop("average", None)
    if not found:
        raise UserError(f"analysis.row is {address!r}; name a printed row as TABLE:METHOD@BUDGET, such as 3:laq@128")
    return found


def _settings(method: dict[str, Any]) -> dict[str, Any]:
    size = method.get("workspace")
    return {
        "press": str(method["_target_"]).split(".")[-1],
        "pooling": method.get("pooling"),
        "granularity": method.get("granularity"),
        "workspace": "budget" if size is None else size,
    }


def _layout(ranking: pd.DataFrame, published: dict[str, float], common: list[str]) -> pd.DataFrame:
    columns = {name: subsets.load(name).column for name in common}
    first = {"Press": "as printed", "Pooling": "", "Granularity": "", "Workspace": "", "Distance": ""}
    lines = [first | {columns[name]: f"{published[name]:.2f}" for name in common}]
    for line in ranking.to_dict("records"):
        about = {key.title(): str(line[key]) for key in ("press", "pooling", "granularity", "workspace")}
        about["Distance"] = f"{line['distance']:.2f}"
        lines.append(about | {columns[name]: f"{line[name]:.2f}" for name in common})
    return pd.DataFrame(lines)
