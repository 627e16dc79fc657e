"""One setting varied, the others as they were: `analysis.x` names the field, conf/experiment/ablation_* its values."""

from __future__ import annotations

from typing import Any

import pandas as pd

from eval import statistics
from eval.analysis import figures, report
from eval.analysis.outcomes import AXES, VALUES, outcomes
from eval.analysis.study import Study
from eval.errors import UserError


def ablation(study: Study) -> None:
    """Measure, then write the table, its figure and every number."""
    rows, measured = outcomes(study)
    settings = study.config["methods"]
    rows["series"] = [str(settings[name]["_target_"]).split(".")[-1] for name in rows["method"]]
    rows["x"] = [_value(study, settings[row.method], row) for row in rows.itertuples()]
    long = rows.melt(["_id", "dataset", "method", "budget", "series", "x"], list(VALUES), "measure")
    by = ["series", "method", "budget", "x", "measure"]
    summary = report.summarise(long, by, "value").merge(
        _against(study, rows), on=["method", "budget", "measure"], how="left"
    )
    field = study.settings["x"] or "method"
    caption = (
        f"{study.settings['label']}: {study.model}, n={rows['_id'].nunique()} examples of "
        f"{', '.join(sorted(set(rows['dataset'])))}, budget {_budgets(rows)}; standard errors over examples."
    )
    report.write(measured.folder, {study.name: summary, f"{study.name}_examples": rows})
    report.publish(measured.folder, study.name, layout(summary, str(field)), caption)
    figures.ablation(measured.folder, study.name, summary, str(study.settings["label"]), AXES)


def _value(study: Study, settings: dict[str, Any], row: Any) -> Any:
    """Where the method stands on the x axis: the field's number, or the method's name where no field is varied."""
    field = study.settings["x"]
    if field is None:
        return row.method
    if field not in settings:
        raise UserError(f"analysis.x is {field!r}, which method {row.method} does not set in its configuration")
    value = settings[field]
    if value is None:
        return row.budget
    return ",".join(map(str, value)) or "never" if isinstance(value, list) else value


def _against(study: Study, rows: pd.DataFrame) -> pd.DataFrame:
    """Paired differences from the method named in `analysis.against`, example by example."""
    base = study.settings["against"]
    if base not in set(rows["method"]):
        raise UserError(
            f"analysis.against is {base!r}, which was not run: choose {', '.join(dict.fromkeys(rows['method']))}"
        )
    keys = ["_id", "dataset", "budget"]
    reference = rows.loc[rows["method"] == base, [*keys, *VALUES]]
    lines = []
    for (method, budget), part in rows[rows["method"] != base].groupby(["method", "budget"], sort=False):
        pairs = part.merge(reference, on=keys, suffixes=("", "_base"))
        for value in VALUES:
            both = pairs[[value, f"{value}_base"]].dropna().to_numpy()
            if len(both):
                found = statistics.difference([both[:, 0]], [both[:, 1]])
                about = {"method": method, "budget": budget, "measure": value, "against": base}
                lines.append(about | {"difference": found.mean, "difference_error": found.error, "p": found.p})
    columns = ["method", "budget", "measure", "against", "difference", "difference_error", "p"]
    return pd.DataFrame(lines, columns=columns).astype({"budget": "Int64"})


def layout(summary: pd.DataFrame, field: str) -> pd.DataFrame:
    """One line per setting, one column per measure that was made."""
    lines = []
    for (series, method, budget, x), part in summary.groupby(["series", "method", "budget", "x"], sort=False):
        line = {"Method": series, field: str(x if field != "method" else method), "Budget": str(budget)}
        for row in part.itertuples():
            line[AXES[row.measure]] = report.number(row.mean, row.error, 1)
        lines.append(line)
    return pd.DataFrame(lines).fillna("")


def _budgets(rows: pd.DataFrame) -> str:
    return ", ".join(str(budget) for budget in dict.fromkeys(rows["budget"]))
