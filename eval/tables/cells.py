"""The cells of a table: scores of a method and budget on a task with their statistics and what they cost."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from echokv.installed import called
from eval.console.errors import UserError
from eval.inputs import subsets
from eval.scoring import memory, statistics
from eval.scoring.metrics import Edit
from eval.scoring.rows import BUCKETS, points
from eval.tables import paper
from eval.tables.collect import MEASURED
from eval.tables.naming import FRAME, Key, key_of

Places = np.ndarray  # int [n]: lines of a data frame
Pair = tuple[np.ndarray, np.ndarray]  # float [n] each: scores of two rows on the same examples

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


@dataclass(frozen=True)
class _Lines:
    """Answers as columns: a table takes hundreds of small parts of them, which a data frame is slow at."""

    columns: dict[str, np.ndarray]

    @classmethod
    def of(cls, frame: pd.DataFrame) -> _Lines:
        names = ("model", "preset", "settings", "edit", "other_edit", "_id", "score", *MEASURED)
        return cls({name: frame[name].to_numpy() for name in names})

    def scores(self, places: Places) -> np.ndarray:
        return np.asarray(self.columns["score"][places], dtype=np.float64)

    def about(self, places: Places, records: int | None) -> dict[str, Any]:
        """What a cell says of its answers besides their scores; the cost columns are means per answer."""
        first = {name: self.columns[name][places[0]] for name in ("model", "preset", "settings", "edit")}
        means = {name: float(self.columns[name][places].mean()) for name in ("other_edit", *MEASURED)}
        other = means.pop("other_edit")
        return {**first, "other_edit": other, "n": len(places), "records": records, "tasks": 1, **means}

    def pairs(self, left: Places, right: Places) -> Pair:
        """The scores of two on the examples that both have."""
        others = dict(zip(self.columns["_id"][right], right, strict=True))
        own = zip(self.columns["_id"][left], left, strict=True)
        both = [(place, others[name]) for name, place in own if name in others]
        mine, theirs = np.array(both, dtype=np.int64).reshape(-1, 2).T
        return self.scores(mine), self.scores(theirs)


def cells(frame: pd.DataFrame, names: Sequence[str], against: str = "laq", intervals: bool = True) -> pd.DataFrame:
    """Return one line per row, budget and task, and per row and budget the average over all tasks at hand.

    frame: answers (`eval.tables.collect.answers`), scored. The average is left out for a row that lacks a task which
    another one has. `against` names the row of the paired differences (a method, or METHOD VARIANT), of as many bytes
    where these were given, else at the same budget; "" is none. `p_holm` corrects for all single tasks, or for all
    averages. intervals: whether `low` and `high` are asked for, which take resampling; else NaN.
    """
    lines, rows = _Lines.of(frame), _places(frame, names)
    tasks = [name for name in names if any(name in own for own in rows.values())]
    others_of = {key.given: own for key, own in rows.items() if str(key.name) == against}
    found = []
    for key, own in rows.items():
        reference = others_of.get(key.given, others_of.get(None, {})) if str(key.name) != against else {}
        for name in [name for name in tasks if name in own]:
            about = lines.about(own[name], subsets.load(name).records)
            pairs = [lines.pairs(own[name], reference[name])] if name in reference else []
            found.append(_cell(key, name, about, [lines.scores(own[name])], pairs, intervals))
        if all(name in own for name in tasks):
            together = np.sort(np.concatenate([own[name] for name in tasks]))
            about = lines.about(together, sum(subsets.load(name).records or 0 for name in tasks))
            about |= {"edit": "", "other_edit": math.nan, "tasks": len(tasks)}
            all_pairs = all(name in reference for name in tasks)
            pairs = [lines.pairs(own[name], reference[name]) for name in tasks] if all_pairs else []
            found.append(_cell(key, AVERAGE, about, [lines.scores(own[name]) for name in tasks], pairs, intervals))
    table = pd.DataFrame(found)
    table = table.astype({"budget": "Int64", "budget_bytes": "Int64"})
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
        raise UserError(f"no answers to LongBench-E, which --by-length is of: run {called()} subset=longbench_e")
    return pd.DataFrame(found).astype({"budget": "Int64", "budget_bytes": "Int64"})


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
    return list(dict.fromkeys(said))  # at several numbers of bytes a row may be one at several


def _places(frame: pd.DataFrame, names: Sequence[str]) -> dict[Key, dict[str, Places]]:
    """Where in the frame the answers of each row to each task stand."""
    found: dict[Key, dict[str, Places]] = {}
    groups = frame.groupby([*FRAME, "subset"], dropna=False).ngroup().to_numpy()
    columns = [frame[name].tolist() for name in (*FRAME, "subset")]
    for group in range(groups.max() + 1):
        places = np.flatnonzero(groups == group)
        *key, subset = (column[places[0]] for column in columns)
        if subset in names:
            found.setdefault(key_of(*key), {})[subset] = places
    return found


def _cell(
    key: Key, subset: str, about: dict[str, Any], own: list[np.ndarray], pairs: Sequence[Pair], intervals: bool
) -> dict[str, Any]:
    found = statistics.estimate(own) if intervals else statistics.plain(own)
    published = None
    if not key.name.stored and (subset != AVERAGE or about["tasks"] == len(subsets.ENGLISH)):
        published = paper.score(about["model"], key.name.method, key.budget, subset)
    printed = math.nan if published is None else published
    return {
        "method": key.name.method, "variant": key.name.variant, "budget": key.budget, "budget_bytes": key.room,
        "subset": subset,
        "score": found.mean, "standard_error": found.error, "low": found.low, "high": found.high,
        "paper": printed, "difference": found.mean - printed, **_paired(pairs), **about,
    }  # fmt: skip


def _paired(pairs: Sequence[Pair]) -> dict[str, float]:
    """Compare with another row; pairs: per task, the scores of both on the same examples."""
    names = ("paired_difference", "paired_error", "paired_low", "paired_high", "p")
    if not pairs or any(len(left) == 0 for left, _ in pairs):
        return {"pairs": 0, **dict.fromkeys(names, math.nan)}
    found = statistics.difference([left for left, _ in pairs], [right for _, right in pairs])
    values = (found.mean, found.error, found.low, found.high, found.p)
    return {"pairs": sum(len(left) for left, _ in pairs), **dict(zip(names, values, strict=True))}
