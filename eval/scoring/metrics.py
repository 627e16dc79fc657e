"""LongBench's metrics, quirks included, so that scores equal the official scorer's.

Source: THUDM/LongBench 2e00731, `LongBench/metrics.py`. Every metric takes one prediction, one
reference answer and the task's classes (used by `classification` alone) and returns a number from 0 to 1.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Callable, Sequence
from difflib import SequenceMatcher
from typing import Literal

from eval.console.errors import UserError, nearest
from eval.console.imported import imported
from eval.scoring import rouge_l
from eval.scoring.chinese import segmented, words

Metric = Callable[[str, str, Sequence[str] | None], float]
Need = Callable[[Sequence[str], Sequence[str] | None], str | None]  # answers and classes -> what is wrong with them
Edit = Literal["difflib", "levenshtein"]

_CHINESE_PUNCTUATION = (
    "！？｡。＂＃＄％＆＇（）＊＋，－／：；＜＝＞＠［＼］＾＿｀｛｜｝～｟｠｢｣"  # noqa: RUF001
    "､、〃》「」『』【】〔〕〖〗〘〙〚〛〜〝〞〟〰〾〿–—‘’‛“”„‟…‧﹏."  # noqa: RUF001
)


def needing(need: Need) -> Callable[[Metric], Metric]:
    """Say what a metric needs of a record; `eval.scoring.official.check` asks for it before any answer is made."""

    def mark(metric: Metric) -> Metric:
        vars(metric)["need"] = need
        return metric

    return mark


def normalise(text: str) -> str:
    """Lower the case, then delete ASCII punctuation, then articles, then surplus blanks (in this order)."""
    kept = "".join(char for char in text.lower() if char not in string.punctuation)
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", kept).split())


def normalise_zh(text: str) -> str:
    """Lower the case and delete ASCII and Chinese punctuation and all blanks."""
    ignored = string.punctuation + _CHINESE_PUNCTUATION
    return "".join("".join(char for char in text.lower() if char not in ignored).split())


def bag_f1(predicted: Sequence[str], expected: Sequence[str]) -> float:
    """Return the F1 of two bags of tokens; 0 where they share none, two empty bags included."""
    common = (Counter(predicted) & Counter(expected)).total()
    if common == 0:
        return 0.0
    precision, recall = common / len(predicted), common / len(expected)
    return 2 * precision * recall / (precision + recall)


def qa_f1(prediction: str, answer: str, _classes: Sequence[str] | None = None) -> float:
    """Token F1 of the normalised texts (`qa_f1_score`)."""
    return bag_f1(normalise(prediction).split(), normalise(answer).split())


def qa_f1_zh(prediction: str, answer: str, _classes: Sequence[str] | None = None) -> float:
    """Token F1 of jieba's words, each normalised, empty ones left out (`qa_f1_zh_score`)."""
    bags = [[word for word in map(normalise_zh, words(text)) if word] for text in (prediction, answer)]
    return bag_f1(*bags)


def rouge(prediction: str, answer: str, _classes: Sequence[str] | None = None) -> float:
    """Rouge-L F of the `rouge` package (`rouge_score`); 0 where a text has no sentence."""
    return rouge_l.package(prediction, answer)


def rouge_zh(prediction: str, answer: str, _classes: Sequence[str] | None = None) -> float:
    """`rouge` over jieba's words (`rouge_zh_score`)."""
    return rouge_l.package(segmented(prediction), segmented(answer))


def rouge_score_l(prediction: str, answer: str, _classes: Sequence[str] | None = None) -> float:
    """Rouge-L F of Google's `rouge-score` without stemming: not the measure that `rouge` is."""
    return rouge_l.google(prediction, answer)


def _classes_to_choose_from(answers: Sequence[str], classes: Sequence[str] | None) -> str | None:
    if not classes:
        return "all_classes must list the classes that it chooses from"
    if not set(answers) & set(classes):
        return f"no answer is among all_classes: {', '.join(answers)}"
    return None


def _each(pattern: str, form: str) -> Need:
    """Need every answer to have a pattern in it; `form` says it in words."""

    def need(answers: Sequence[str], _: Sequence[str] | None) -> str | None:
        wrong = next((answer for answer in answers if not re.search(pattern, answer)), None)
        return None if wrong is None else f"its answers are {form}, found {wrong!r}"

    return need


@needing(_classes_to_choose_from)
def classification(prediction: str, answer: str, classes: Sequence[str] | None) -> float:
    """1/k if the answer is among the k classes that the prediction names (`classification_score`).

    Classes that are parts of the answer are taken out while the list is being walked, which skips the element
    after each one taken out. Kept as it is: published scores contain it.

    Raises:
        UserError: no classes given.
    """
    if classes is None:
        raise UserError("classification needs all_classes, the list of class names; the record has none")
    named = [name for name in classes if name in prediction]
    for name in named:
        if name in answer and name != answer:
            named.remove(name)
    return 1.0 / len(named) if answer in named else 0.0


@needing(_each(r"Paragraph (\d+)", "of the form Paragraph 7"))
def retrieval(prediction: str, answer: str, _classes: Sequence[str] | None = None) -> float:
    """Share of the prediction's numbers that are the answer's paragraph (`retrieval_score`)."""
    return _share_of_numbers(prediction, _paragraph(r"Paragraph (\d+)", answer))


@needing(_each(r"段落(\d+)", "of the form 段落7"))
def retrieval_zh(prediction: str, answer: str, _classes: Sequence[str] | None = None) -> float:
    """`retrieval` for answers of the form 段落7 (`retrieval_zh_score`)."""
    return _share_of_numbers(prediction, _paragraph(r"段落(\d+)", answer))


@needing(_each(r"^\d+$", "whole numbers, such as 7"))
def count(prediction: str, answer: str, _classes: Sequence[str] | None = None) -> float:
    """Share of the prediction's numbers that equal the answer, as text (`count_score`)."""
    return _share_of_numbers(prediction, answer)


def code_sim(prediction: str, answer: str, _classes: Sequence[str] | None = None) -> float:
    """Edit similarity of the first line of code (`code_sim_score`), by difflib: fuzzywuzzy by itself."""
    return ratio_difflib(first_code_line(prediction), answer) / 100


def code_sim_levenshtein(prediction: str, answer: str, _classes: Sequence[str] | None = None) -> float:
    """`code_sim` by the InDel ratio: fuzzywuzzy where python-Levenshtein is installed."""
    return ratio_levenshtein(first_code_line(prediction), answer) / 100


def first_code_line(prediction: str) -> str:
    """Return the first line without a backtick, '#' or '//'; '' if there is none. Blank lines count."""
    lines = prediction.lstrip("\n").split("\n")
    return next((line for line in lines if not any(mark in line for mark in ("`", "#", "//"))), "")


def ratio_difflib(left: str, right: str) -> int:
    """`fuzzywuzzy.fuzz.ratio` on difflib: similarity in whole percent."""
    if left == right or not left or not right:
        return 100 * (left == right)
    return round(100 * SequenceMatcher(None, left, right).ratio())


def ratio_levenshtein(left: str, right: str) -> int:
    """`fuzzywuzzy.fuzz.ratio` on python-Levenshtein: similarity in whole percent."""
    if left == right or not left or not right:
        return 100 * (left == right)
    from rapidfuzz import fuzz  # takes as long to import as a small table to make

    return round(fuzz.ratio(left, right))


METRICS: dict[str, Metric] = {
    "qa_f1": qa_f1,
    "qa_f1_zh": qa_f1_zh,
    "rouge": rouge,
    "rouge_zh": rouge_zh,
    "rouge_score_l": rouge_score_l,
    "classification": classification,
    "retrieval": retrieval,
    "retrieval_zh": retrieval_zh,
    "count": count,
    "code_sim": code_sim,
    "code_sim_levenshtein": code_sim_levenshtein,
}


def named(name: str) -> Metric:
    """The metric of this name, or the function at this import path (package.module.function), which may be anyone's.

    Raises UserError if there is none.
    """
    if name in METRICS:
        return METRICS[name]
    if "." not in name:
        raise UserError(f"unknown metric {name!r}{nearest(name, METRICS)} One's own is named package.module.function")
    metric: Metric = imported(name, "metric")
    if not callable(metric):
        raise UserError(f"metric {name} is no function")
    return metric


def _share_of_numbers(prediction: str, expected: str) -> float:
    numbers = re.findall(r"\d+", prediction)
    return numbers.count(expected) / len(numbers) if numbers else 0.0


def _paragraph(pattern: str, answer: str) -> str:
    found = re.search(pattern, answer)
    if found is None:
        raise UserError(f"the answer {answer!r} names no paragraph (expected the form {pattern!r})")
    return found[1]
