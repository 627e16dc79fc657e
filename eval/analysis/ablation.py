"""One setting varied, the others as they were: `analysis.x` names the field, conf/experiment/ablation_* its values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

from eval.analysis import figures, report
from eval.analysis.outcomes import AXES, COLUMNS, VALUES, outcomes
from eval.analysis.settings import Ablation
from eval.analysis.study import Study
from eval.console.errors import UserError
from eval.scoring import statistics

SETTING = ["series", "method", "budget", "x"]


def ablation(study: Study[Ablation]) -> None:
    """Measure, then write the table, its figure and every number.

    Raises UserError for a field that a method lacks or a method to compare with that was not run.
    """
    bases, places = _bases(study), _places(study)
    rows, measured = outcomes(study)
    rows["series"] = [_series(study, name) for name in rows["method"]]
    rows["x"] = [row.budget if places[row.method] is None else places[row.method] for row in rows.itertuples()]
    long = rows.melt([*report.EXAMPLE, *SETTING], list(VALUES), "measure")
    summary = report.summarise(long, [*SETTING, "measure"], "value").merge(
        _against(rows, bases), on=["method", "budget", "measure"], how="left"
    )
    label = study.options.label
    budgets = ", ".join(map(str, dict.fromkeys(rows["budget"].dropna())))
    caption = (
        f"{label[0].upper()}{label[1:]}: {study.described}, n={report.count(rows)} examples of "
        f"{', '.join(sorted(set(rows['dataset'])))}, budget {budgets}; means with standard errors over examples. "
        f"Differences are paired, from {' and '.join(dict.fromkeys(bases.values()))}."
    )
    report.write(measured.folder, {study.name: summary, f"{study.name}_examples": rows})
    report.publish(measured.folder, study.name, layout(summary, label, study.options.x is not None), caption)
    figures.ablation(measured.folder, study.name, summary, label, AXES)


def _series(study: Study[Ablation], method: str) -> str:
    """The class of a method's press."""
    return str(study.methods[method]["_target_"]).split(".")[-1]


def _places(study: Study[Ablation]) -> dict[str, Any]:
    """Where each method stands on the x axis: the field's value, its own name where no field is varied.

    None stands for the budget.
    """
    field, found = study.options.x, {}
    for method, settings in study.methods.items():
        if field is None:
            found[method] = method
        elif field not in settings:
            raise UserError(f"analysis.x is {field!r}, which method {method} has no field of")
        else:
            value = settings[field]
            found[method] = _said(value) if isinstance(value, list) else value
    return found


def _said(steps: Sequence[int]) -> str:
    """A list of steps in words."""
    if len(steps) > 2 and list(steps) == list(range(steps[0], steps[-1] + 1)):
        return f"{steps[0]} to {steps[-1]}"
    return ",".join(map(str, steps)) or "never"


def _bases(study: Study[Ablation]) -> dict[str, str]:
    """The method that each one is compared with: of those in `analysis.against` the one of its class, or the first."""
    named = study.options.against
    methods = list(study.methods)
    for base in named:
        if base not in methods:
            raise UserError(f"analysis.against is {base!r}, which was not run: choose {', '.join(methods)}")
    own = {_series(study, base): base for base in named}
    return {method: own.get(_series(study, method), named[0]) for method in methods}


def _against(rows: pd.DataFrame, bases: dict[str, str]) -> pd.DataFrame:
    """Paired differences of each method from its base, example by example."""
    keys = [*report.EXAMPLE, "budget"]
    lines = []
    for (method, budget), part in rows.groupby(["method", "budget"], sort=False, dropna=False):
        base = bases[method]
        if method == base:
            continue
        pairs = part.merge(rows.loc[rows["method"] == base, [*keys, *VALUES]], on=keys, suffixes=("", "_base"))
        for value in VALUES:
            both = pairs[[value, f"{value}_base"]].dropna().to_numpy()
            if len(both):
                found = statistics.difference([both[:, 0]], [both[:, 1]])
                about = {"method": method, "budget": budget, "measure": value, "against": base}
                lines.append(about | {"difference": found.mean, "difference_error": found.error, "p": found.p})
    columns = ["method", "budget", "measure", "against", "difference", "difference_error", "p"]
    return pd.DataFrame(lines, columns=columns).astype({"budget": "Int64"})


def layout(summary: pd.DataFrame, label: str, varied: bool) -> pd.DataFrame:
    """One line per setting; for each measure that was made its mean and the difference from the base.

    varied: whether a field is; else the settings are methods of their own.
    """
    measures = [measure for measure in VALUES if measure in set(summary["measure"])]
    head = [*(["Method"] if varied else []), label, "Budget"]
    lines = []
    for (series, _, budget, x), part in summary.groupby(SETTING, sort=False, dropna=False):
        line = [*([series] if varied else []), report.words(x), "" if pd.isna(budget) else str(budget)]
        own = part.set_index("measure").reindex(measures)
        for row in own.itertuples():
            line.append("" if pd.isna(row.mean) else report.number(row.mean, row.error, 1))
            compared = pd.notna(row.difference)
            line.append(report.number(row.difference, row.difference_error, 1, "+") if compared else "")
        lines.append(line)
    return pd.DataFrame(lines, columns=[*head, *(word for measure in measures for word in (COLUMNS[measure], "diff."))])
