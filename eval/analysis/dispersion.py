"""Does dispersed evidence hurt, and whom? Score and retention of every method against how far its pieces lie apart.

The synthetic records of two dispersions differ in nothing but where the pieces of evidence stand, so differences are
taken example by example. The paper's central claim, put as a number: EchoKV's advantage over LAQ grows with
dispersion, that is, (EchoKV - LAQ) at the widest minus the same at the narrowest is above 0.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pandas as pd

from eval.analysis import figures, report
from eval.analysis.outcomes import VALUES, outcomes
from eval.analysis.settings import Dispersion
from eval.analysis.study import Study, loader
from eval.console.errors import UserError
from eval.inputs import subsets
from eval.planning.settings import Settings
from eval.scoring import statistics

DISPERSED = ("syn_facts", "syn_hops", "syn_summary")  # tasks whose pieces of evidence `data.dispersion` places
KEYS = ["dataset", "facts", "number"]  # what is the same example at every dispersion


def dispersion(settings: Settings, options: Dispersion) -> None:
    """Measure every level, then write the table, its figure and every number.

    Raises UserError for data that cannot be dispersed or levels out of range.
    """
    name = options.name
    spread, facts = _levels(settings, options)
    load = loader(settings.model)
    parts, levels = [], []
    for many in facts:
        for far in spread:
            study = Study.of(settings.of_data(dispersion=far, facts=many), options, f"dispersion{far}_facts{many}")
            rows, measured = outcomes(study, load)
            parts.append(rows.assign(dispersion=far, facts=many))
            levels.append({"dispersion": far, "facts": many, "folder": measured.folder.name})
    folder = study.place(name, {"analysis": name, "levels": levels}).folder
    rows = pd.concat(parts, ignore_index=True).astype({"budget": "Int64"})
    long = rows.melt([*KEYS, "method", "budget", "dispersion"], list(VALUES), "measure")
    by = ["method", "budget", "facts", "dispersion", "measure"]
    summary = report.summarise(long, by, "value")
    overall = report.summarise(long, [key for key in by if key != "facts"], "value").assign(facts="all")
    changes = pd.DataFrame(_changes(rows, min(spread), max(spread)) + _advantage(rows, options.compare, spread))
    about = f"{study.described}, n={len(rows[KEYS].drop_duplicates())} examples a dispersion"
    caption = (
        f"Score and evidence retained (%) by dispersion of the evidence: {about}, {', '.join(map(str, facts))} pieces, "
        f"budget {', '.join(map(str, dict.fromkeys(rows['budget'].dropna())))}; the last columns are paired changes "
        f"from dispersion {min(spread)} to {max(spread)}."
    )
    whole = pd.concat([summary, overall])
    frames = {name: whole, f"{name}_changes": changes, f"{name}_examples": rows, f"{name}_levels": pd.DataFrame(levels)}
    report.write(folder, frames)
    shown = _layout(overall if len(facts) == 1 else whole, changes)
    shown = shown.drop(columns="Pieces") if len(facts) == 1 else shown
    report.publish(folder, name, shown, caption, _claims(changes, options.compare))
    figures.dispersion(folder, name, summary)


def _levels(settings: Settings, options: Dispersion) -> tuple[list[float], list[int]]:
    """The dispersions and the numbers of pieces, ascending. Raises UserError for data that cannot be dispersed."""
    if not {"dispersion", "facts"} <= set(settings.data.own):
        raise UserError("dispersion places the evidence itself: it needs data=synthetic")
    for task in subsets.expand(settings.subset or settings.data.subsets or ()):
        if task not in DISPERSED:
            raise UserError(f"the evidence of {task} cannot be dispersed: choose subset={', '.join(DISPERSED)}")
        if task == "syn_hops" and options.facts != (2,):
            given = list(options.facts)
            raise UserError(f"syn_hops has two pieces of evidence, analysis.facts is {given}: write analysis.facts=[2]")
    return list(map(float, options.dispersions)), list(options.facts)


def _changes(rows: pd.DataFrame, narrow: float, wide: float) -> list[dict[str, Any]]:
    """What going from the narrowest to the widest dispersion changes, per method."""
    lines = []
    for (method, budget), part in rows.groupby(["method", "budget"], sort=False, dropna=False):
        for value in VALUES:
            both = _pairs(part, value, narrow, wide)
            if len(both):
                about = {"method": method, "budget": budget, "measure": value, "change": "wide - narrow"}
                lines.append(about | _difference(both))
    return lines


def _advantage(rows: pd.DataFrame, compare: Sequence[str], spread: Sequence[float]) -> list[dict[str, Any]]:
    """The advantage of one method over another at each dispersion, and how it changes from narrow to wide."""
    ours, other = compare
    if not {ours, other} <= set(rows["method"]):
        return []
    lines = []
    keys = [*KEYS, "budget", "dispersion"]
    left, right = (rows[rows["method"] == name] for name in (ours, other))
    both = left.merge(right, on=keys, suffixes=("", "_other")).assign(method=f"{ours} - {other}")
    for value in VALUES:
        both[value] -= both[f"{value}_other"]
        for budget, part in both.groupby("budget", sort=False):
            about = {"method": f"{ours} - {other}", "budget": budget, "measure": value}
            for far in spread:
                gains = part.loc[part["dispersion"] == far, value].dropna().to_numpy()
                if len(gains):
                    found = statistics.difference([gains], [0 * gains])
                    lines.append(about | {"change": f"at {far}"} | _told(found, len(gains)))
            grown = _pairs(part, value, min(spread), max(spread))
            if len(grown):
                lines.append(about | {"change": "wide - narrow"} | _difference(grown))
    return lines


def _pairs(part: pd.DataFrame, value: str, narrow: float, wide: float) -> Any:
    """[n, 2]: the value of each example at the widest and at the narrowest dispersion."""
    table = part.pivot(index=KEYS, columns="dispersion", values=value)
    return table[[wide, narrow]].dropna().to_numpy()


def _difference(pairs: Any) -> dict[str, float]:
    return _told(statistics.difference([pairs[:, 0]], [pairs[:, 1]]), len(pairs))


def _told(found: statistics.Difference, n: int) -> dict[str, float]:
    return {"mean": found.mean, "error": found.error, "low": found.low, "high": found.high, "p": found.p, "n": n}


def _layout(summary: pd.DataFrame, changes: pd.DataFrame) -> pd.DataFrame:
    """One line per method, budget and number of pieces: score and retention at each dispersion.

    Their changes stand on the line of all numbers of pieces together.
    """
    lines = []
    for (method, budget), own in summary.groupby(["method", "budget"], sort=False, dropna=False):
        for facts, part in own.groupby("facts", sort=False):
            size = "" if pd.isna(budget) else str(int(budget))
            line: dict[Any, str] = {"Method": report.title(method), "Budget": size, "Pieces": str(facts)}
            for value in ("score", "retained"):
                for row in part[part["measure"] == value].itertuples():
                    line[value, f"at {row.dispersion:g}"] = report.number(row.mean, row.error, 1)
                mine = changes[(changes["method"] == method) & (changes["measure"] == value)]
                mine = mine[mine["budget"].isna() if pd.isna(budget) else mine["budget"] == budget]
                for row in mine.itertuples():
                    line[value, "change"] = report.number(row.mean, row.error, 1, "+") if facts == "all" else ""
            lines.append(line)
    keys = list(dict.fromkeys(key for line in lines for key in line))
    table = pd.DataFrame([[line.get(key, "") for key in keys] for line in lines])
    table.columns = pd.Index([key if isinstance(key, str) else _head(key, keys) for key in keys])
    return table


def _head(key: Any, keys: Sequence[Any]) -> str:
    """What a column is of, said once for the columns of a value."""
    value, what = key
    return f"{value} {what}" if key == next(other for other in keys if other[0] == value) else what


def _claims(changes: pd.DataFrame, compare: Sequence[str]) -> list[str]:
    """The central claim's number, whichever way it falls."""
    if missing := [name for name in compare if name not in set(changes["method"])]:
        return [f"{' and '.join(missing)} of analysis.compare not run: nothing is said of an advantage."]
    said = []
    for row in changes[changes["method"].str.contains(" - ")].itertuples():
        where = "from narrow to wide" if row.change == "wide - narrow" else row.change
        known = math.isfinite(row.low)
        interval = f"[{row.low:+.1f}, {row.high:+.1f}], p={row.p:.3f}" if known else "n = 1, no interval"
        said.append(f"{row.method}, {row.measure} {where} (budget {row.budget}): {row.mean:+.1f} {interval}")
    return said
