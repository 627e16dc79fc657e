"""The cells of a table: scores of a method and budget on a task with their statistics and what they cost."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from eval.console.errors import UserError
from eval.inputs import subsets
from eval.scoring import memory, statistics
from eval.scoring.metrics import Edit
from eval.scoring.rows import BUCKETS, points
from eval.tables import paper
from eval.tables.collect import MEASURED
from eval.tables.naming import FRAME, Key, key_of

AVERAGE = "average"  # the `subset` of a row that averages all tasks


def scored(frame: pd.DataFrame, edit: Edit, kept: Path) -> pd.DataFrame:
    """Add `score` (percent) and, for code, `other_edit`: the score by the other edit similarity.

    kept: folder in which scores that take long are kept (`eval.scoring.memory`).

    Raises:
        UserError: a score that is not a number.
    """
    other: Edit = "difflib" if edit == "levenshtein" else "levenshtein"
    parts = []
    for name, part in frame.groupby("subset", sort=False):
        subset, rows = subsets.load(name), part.to_dict("records")
        code = subset.metric == "code_sim"
        second = points(subset, rows, other) if code else math.nan
        parts.append(
            part.assign(score=memory.points(kept, subset, rows, edit), edit=edit if code else "", other_edit=second)
        )
    whole = pd.concat(parts)
    for row in whole[~np.isfinite(whole["score"])].set_index("_id").itertuples():
        raise UserError(f"{row.method} {row.subset}: the score of _id {row.Index!r} is not a number")
    return whole


def columns(frame: pd.DataFrame, names: Sequence[str] | None = None) -> list[str]:
    """Return a table's tasks in order: those asked for, else the 16 English ones if there is any, else all."""
    if names is not None:
        return list(names)
    present = set(frame["subset"])
    if present.intersection(subsets.ENGLISH):
        return list(subsets.ENGLISH)
    order = {name: place for place, name in enumerate(subsets.names())}
    return sorted(present, key=lambda name: (name.endswith("_e"), order[name.removesuffix("_e")]))


def cells(frame: pd.DataFrame, names: Sequence[str], against: str = "laq") -> pd.DataFrame:
    """Return one line per row, budget and task, and per row and budget the average over all tasks at hand.

    frame: answers (`eval.tables.collect.answers`), scored. The average is left out for a row that lacks a task which
    another one has. `against` names the row of the paired differences (a method, or METHOD VARIANT), at the same
    budget. `p_holm` corrects for all single tasks, or for all averages.
    """
    by_key = {key_of(*key): part for key, part in frame.groupby(FRAME, dropna=False, sort=False)}
    scores = {key: _by_subset(part, names) for key, part in by_key.items()}
    tasks = [name for name in names if any(name in one for one in scores.values())]
    others_of = {key.budget: own for key, own in scores.items() if str(key.name) == against}
    found = []
    for key, part in by_key.items():
        reference = others_of.get(key.budget, others_of.get(None, {})) if str(key.name) != against else {}
        for name in [name for name in tasks if name in scores[key]]:
            about = _about(part[part["subset"] == name], subsets.load(name).records)
            found.append(_cell(key, name, about, [scores[key][name]], [reference[name]] if name in reference else None))
        if all(name in scores[key] for name in tasks):
            about = _about(part[part["subset"].isin(tasks)], sum(subsets.load(name).records or 0 for name in tasks))
            about |= {"edit": "", "other_edit": math.nan, "tasks": len(tasks)}
            others = [reference[name] for name in tasks] if all(name in reference for name in tasks) else None
            found.append(_cell(key, AVERAGE, about, [scores[key][name] for name in tasks], others))
    table = pd.DataFrame(found)
    table["budget"] = table["budget"].astype("Int64")
    table["against"] = np.where(table["p"].isna(), "", against)
    average = table["subset"] == AVERAGE
    for family in (average, ~average):
        table.loc[family, "p_holm"] = statistics.holm(list(table.loc[family, "p"]))
    return table


def by_length(frame: pd.DataFrame) -> pd.DataFrame:
    """Return one line per row, budget, LongBench-E task and bucket of `eval.scoring.rows.BUCKETS`.

    A bucket without records has n = 0 and no score.

    Raises:
        UserError: no answers to LongBench-E.
    """
    found = []
    extended = frame[frame["subset"].str.endswith("_e")]
    for (*key, subset), part in extended.groupby([*FRAME, "subset"], dropna=False, sort=False):
        about = part.iloc[0][["model", "preset", "settings", "edit"]].to_dict()
        for length, low, high in BUCKETS:
            values = part.loc[(part["length"] >= low) & (part["length"] < high), "score"].to_numpy()
            own = statistics.estimate([values]) if len(values) else statistics.Estimate(*[math.nan] * 4)
            cell = dict(zip(FRAME, key, strict=True)) | {"subset": subset, "length": length, "n": len(values)}
            found.append(
                {**cell, "score": own.mean, "standard_error": own.error, "low": own.low, "high": own.high, **about}
            )
    if not found:
        raise UserError("no answers to LongBench-E, which --by-length is of: run python run.py subset=longbench_e")
    return pd.DataFrame(found).astype({"budget": "Int64"})


def missing(frame: pd.DataFrame, names: Sequence[str]) -> list[str]:
    """Name, per row and budget, the examples that it lacks and others have, in tasks that it has at all."""
    everything = {name: set(part["_id"]) for name, part in frame.groupby("subset")}
    said = []
    for key, part in frame.groupby(FRAME, dropna=False, sort=False):
        counts = part["subset"].value_counts()
        lacking = {name: len(everything[name]) - counts[name] for name in names if name in counts}
        listed = [f"{n} of {len(everything[name])} in {name}" for name, n in lacking.items() if n]
        if listed:
            said.append(f"{key_of(*key).label} lacks examples that others have: {', '.join(listed)}")
    return said


def _by_subset(part: pd.DataFrame, names: Sequence[str]) -> dict[str, pd.Series]:
    return {name: own.set_index("_id")["score"] for name, own in part.groupby("subset") if name in names}


def _about(part: pd.DataFrame, records: int | None) -> dict[str, Any]:
    """What a cell says of its answers besides their scores; the cost columns are means per answer."""
    other = part["other_edit"].mean()
    first = part.iloc[0]
    return {
        "model": first["model"],
        "preset": first["preset"],
        "settings": first["settings"],
        "edit": first["edit"],
        "other_edit": other,
        "n": len(part),
        "records": records,
        "tasks": 1,
        **{name: part[name].mean() for name in MEASURED},
    }


def _cell(
    key: Key, subset: str, about: dict[str, Any], own: list[pd.Series], others: list[pd.Series] | None
) -> dict[str, Any]:
    found = statistics.estimate([values.to_numpy() for values in own])
    published = None
    if subset != AVERAGE or about["tasks"] == len(subsets.ENGLISH):
        published = paper.score(about["model"], key.name.method, key.budget, subset)
    printed = math.nan if published is None else published
    return {
        "method": key.name.method, "variant": key.name.variant, "budget": key.budget, "subset": subset,
        "score": found.mean, "standard_error": found.error, "low": found.low, "high": found.high,
        "paper": printed, "difference": found.mean - printed, **_paired(own, others), **about,
    }  # fmt: skip


def _paired(own: list[pd.Series], others: list[pd.Series] | None) -> dict[str, float]:
    """Compare with the other method on the examples that both have."""
    pairs = [one.align(other, join="inner") for one, other in zip(own, others, strict=True)] if others else []
    names = ("paired_difference", "paired_error", "paired_low", "paired_high", "p")
    if not pairs or any(pair[0].empty for pair in pairs):
        return {"pairs": 0, **dict.fromkeys(names, math.nan)}
    left, right = ([pair[side].to_numpy() for pair in pairs] for side in (0, 1))
    found = statistics.difference(left, right)
    values = (found.mean, found.error, found.low, found.high, found.p)
    return {"pairs": sum(map(len, left)), **dict(zip(names, values, strict=True))}
