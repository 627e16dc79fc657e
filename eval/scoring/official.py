"""One prediction scored by its task's metric, as LongBench's `eval.py` does it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from eval.console.errors import UserError, nearest
from eval.console.foreign import blamed
from eval.inputs.subsets import Subset
from eval.scoring import metrics, rouge_l
from eval.scoring.chinese import segmented
from eval.scoring.metrics import Edit, Need


def score(
    prediction: str,
    answers: Sequence[str],
    subset: Subset,
    all_classes: Sequence[str] | None = None,
    edit: Edit = "difflib",
    failures: Counter[str] | None = None,
) -> float:
    """Score one prediction as `eval.py` does: first line where the subset says so, best of all answers.

    Args:
        edit: which edit similarity stands for `code_sim`.
        failures: counts, per subset, the records on which the `rouge` package raises and scores 0.

    Returns:
        The score, 0 to 1. An error in a metric of the user's own is told with its line.

    Raises:
        UserError: no answers, an unknown metric or backend, or answers that do not suit the metric.
    """
    if isinstance(answers, str) or not answers:
        raise UserError(f"{subset.name}: answers must be a list with at least one string")
    metric = metrics.named(_metric_name(subset, edit))
    if subset.first_line:
        prediction = prediction.lstrip("\n").split("\n")[0]
    if failures is not None and metric in (metrics.rouge, metrics.rouge_zh):
        texts = (segmented(text) if metric is metrics.rouge_zh else text for text in (prediction, *answers))
        failures[subset.name] += any(not rouge_l.sentences(text) for text in texts)
    with blamed(f"metric {subset.metric}"):
        points = max(metric(prediction, answer, all_classes) for answer in answers)
    if not isinstance(points, int | float) or not 0 <= points <= 1:
        raise UserError(f"metric {subset.metric} gave {points!r} to a prediction for {subset.name}; give 0 to 1")
    return points


def check(subset: Subset, answers: Sequence[str], classes: Sequence[str] | None) -> None:
    """Raise UserError if the subset's metric cannot score a record of these answers and classes."""
    need: Need | None = getattr(metrics.named(_metric_name(subset, "difflib")), "need", None)
    if need and (wrong := need(answers, classes)):
        raise UserError(f"{subset.name} is scored by {subset.metric}: {wrong}")


def _metric_name(subset: Subset, edit: str) -> str:
    if edit not in ("difflib", "levenshtein"):
        raise UserError(f"unknown edit similarity {edit!r}{nearest(edit, ('difflib', 'levenshtein'))}")
    return "code_sim_levenshtein" if (subset.metric, edit) == ("code_sim", "levenshtein") else subset.metric
