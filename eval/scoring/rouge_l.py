"""Rouge-L by two packages that disagree by up to 11 points: `rouge` (LongBench's) and Google's `rouge-score`.

`rouge` computes the summary-level union LCS over sets of words and raises on a text without a sentence, which
LongBench turns into 0. It recurses once per step of an LCS path, so that long sentences break Python's
default limit, at a length that depends on the caller; here the limit is raised for the call.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from eval.console.errors import UserError

# Pairs on which plain LCS, bags instead of sets, and older editions give other values than rouge 1.0.1.
_CHECKS = (
    ("The cat", "The cat sat on the mat. It was happy. ", 1 / 3),
    ("c d. a b", "a b c d", 1.0),
    ("x x y", "x y y z", 4 / 5),
)


def sentences(text: str) -> list[str]:
    """Split a text into sentences as `rouge` does: what stands between full stops and is not empty."""
    return [part for part in text.split(".") if part]


def package(prediction: str, answer: str) -> float:
    """Return Rouge-L F, 0 to 1, of the `rouge` package; 0 where either text has no sentence.

    Raises:
        UserError: the module `rouge` is missing or another package's.
    """
    scorer = _checked_package()
    if not sentences(prediction) or not sentences(answer):
        return 0.0  # LongBench: the package raises ValueError, and `except: return 0.0`
    return _package_f(scorer, prediction, answer)


def google(prediction: str, answer: str) -> float:
    """Return rougeL F, 0 to 1, of `rouge-score`, without stemming."""
    return float(_google_scorer().score(answer, prediction)["rougeL"].fmeasure)


def _package_f(scorer: Any, prediction: str, answer: str) -> float:
    with _recursion(len(prediction.split()) + len(answer.split())):
        return float(scorer.get_scores([prediction], [answer])[0]["rouge-l"]["f"])


@contextmanager
def _recursion(more: int) -> Iterator[None]:
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(limit + more + 100)
    try:
        yield
    finally:
        sys.setrecursionlimit(limit)


@cache
def _checked_package() -> Any:
    try:
        import rouge

        scorer = rouge.Rouge(metrics=["rouge-l"])
        found = [_package_f(scorer, prediction, answer) for prediction, answer, _ in _CHECKS]
    except Exception as error:  # a foreign module of this name may fail in any way
        message = f"the package rouge does not work ({error}); run `pip install rouge==1.0.1`"
        raise UserError(message) from error
    if any(abs(value - check[2]) > 1e-6 for value, check in zip(found, _CHECKS, strict=True)):
        raise UserError(
            f"{rouge.__file__} is not the package rouge 1.0.1 (rouge-chinese overwrites it); "
            "run `pip uninstall rouge-chinese; pip install --force-reinstall rouge==1.0.1`"
        )
    return scorer


@cache
def _google_scorer() -> Any:
    from rouge_score.rouge_scorer import RougeScorer

    return RougeScorer(["rougeL"])
