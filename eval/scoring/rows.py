"""Rows of predictions, scored: a subset's mean, its standard error, and what LongBench-E has by length."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, stdev
from typing import Any

from eval.console.errors import UserError
from eval.inputs.subsets import Subset
from eval.scoring import official
from eval.scoring.metrics import Edit

Row = dict[str, Any]

BUCKETS = (("0-4k", 0, 4000), ("4-8k", 4000, 8000), ("8k+", 8000, math.inf))  # words, LongBench-E


@dataclass(frozen=True)
class Score:
    """One subset's score in percent, unrounded, by one variant of its metric."""

    subset: str
    edit: str | None  # difflib or levenshtein for code, rouge-score beside the official Rouge-L, else None
    n: int
    expected: int | None  # official number of records
    score: float
    error: float | None  # standard error; None for a single record
    buckets: dict[str, float | None] | None  # LongBench-E: mean by length in words; None for an empty one
    failures: int  # records on which the rouge package raises, scored 0 as LongBench does


def score_rows(subset: Subset, rows: Sequence[Row]) -> list[Score]:
    """Score the rows of one subset, for code by both edit similarities, for Rouge-L by `rouge-score` too.

    Raises:
        UserError: a row without a usable pred, answers, all_classes or (LongBench-E) length; no rows.
    """
    if not rows:
        raise UserError(f"{subset.name}: no predictions to score")
    if subset.metric == "code_sim":
        return [_score(subset, rows, edit, edit) for edit in ("difflib", "levenshtein")]
    scores = [_score(subset, rows, "difflib", None)]
    if subset.metric == "rouge":
        scores.append(_score(replace(subset, metric="rouge_score_l"), rows, "difflib", "rouge-score"))
    return scores


def points(subset: Subset, rows: Iterable[Row], edit: Edit, failures: Counter[str] | None = None) -> list[float]:
    """Score every row by itself, in percent; `failures` as in `official.score`."""
    return [
        100 * official.score(row["pred"], row["answers"], subset, row["all_classes"], edit, failures) for row in rows
    ]


def check_row(row: Row, subset: Subset) -> None:
    """Raise UserError unless `pred`, `answers`, `all_classes` and (LongBench-E) `length` can be scored."""
    if not isinstance(row.get("pred"), str):
        raise UserError("pred must be a string; an empty answer is '', never left out")
    answers, classes = row.get("answers"), row["all_classes"]
    if not isinstance(answers, list) or not answers or not all(isinstance(text, str) for text in answers):
        raise UserError("answers must be a list with at least one string")
    if classes is not None and not (isinstance(classes, list) and all(isinstance(c, str) for c in classes)):
        raise UserError("all_classes must be null or a list of strings")
    official.check(subset, answers, classes)
    if subset.name.endswith("_e") and type(row.get("length")) not in (int, float):
        raise UserError("length must be a number: LongBench-E's buckets go by it")


def _score(subset: Subset, rows: Sequence[Row], edit: Edit, variant: str | None) -> Score:
    failures: Counter[str] = Counter()
    values = points(subset, rows, edit, failures)
    return Score(
        subset=subset.name,
        edit=variant,
        n=len(values),
        expected=subset.records,
        score=fmean(values),
        error=stdev(values) / math.sqrt(len(values)) if len(values) > 1 else None,
        buckets=_buckets(rows, values) if subset.name.endswith("_e") else None,
        failures=failures[subset.name],
    )


def _buckets(rows: Sequence[Row], values: Sequence[float]) -> dict[str, float | None]:
    """Average by the records' own `length` field, which counts differently from subset to subset."""
    means: dict[str, float | None] = {}
    for title, low, high in BUCKETS:
        inside = [value for row, value in zip(rows, values, strict=True) if low <= row["length"] < high]
        means[title] = fmean(inside) if inside else None
    return means
