"""Synthetic long-context records in LongBench's form, made from a seed alone.

Every record carries the exact character spans of its evidence. It depends on the arguments of `make` and on
the templates in conf/subsets alone: on no model, tokenizer or platform.
"""

from collections.abc import Callable
from random import Random
from typing import Any

from eval.console.errors import UserError, nearest
from eval.inputs import subsets
from eval.synthetic import code, facts, fewshot, passages, summary
from eval.synthetic.layout import Draft, tokens

_Builder = Callable[[Random, int, float, int], Draft]

_TASKS: dict[str, _Builder] = {
    "syn_fact": facts.one_fact,
    "syn_facts": facts.several_facts,
    "syn_hops": facts.two_hops,
    "syn_retrieval": passages.retrieval,
    "syn_count": passages.counting,
    "syn_trec": fewshot.classification,
    "syn_summary": summary.key_points,
    "syn_code": code.completion,
}
TASKS: tuple[str, ...] = tuple(_TASKS)

LENGTHS = (512, 32_768)
FACTS = (1, 8)
_FILL = 0.98  # of the asked length: the estimate errs by a percent or two, a prompt must not be longer


def make(
    task: str, index: int, *, seed: int = 0, length: int = 1024, dispersion: float = 1.0, facts: int = 4
) -> dict[str, Any]:
    """Return record number `index` of `task`.

    `length` is the size of the task's prompt in tokens, template included, chat wrapper not. `dispersion` says
    how far the pieces of evidence lie apart (0: neighbours, 1: over the whole context but its end; for
    syn_facts, syn_hops, syn_summary) and `facts` how many there are (for syn_facts, syn_summary); the other
    tasks note both in `_id` alone. Records of syn_facts and syn_summary that differ in nothing but `dispersion`
    have the same sentences.

    Raises UserError if the task is unknown or a setting is out of its range.
    """
    if task not in _TASKS:
        raise UserError(f"unknown synthetic task {task!r}{nearest(task, TASKS)}")
    _check("index", index, 0, None)
    _check("seed", seed, 0, None)
    _check("length", length, *LENGTHS)
    _check("facts", facts, *FACTS)
    if isinstance(dispersion, bool) or not isinstance(dispersion, int | float) or not 0 <= dispersion <= 1:
        raise UserError(f"dispersion is {dispersion!r}: give a number from 0 (together) to 1 (spread out)")
    rng = Random(f"{task}/{seed}/{length}/{facts}/{index}")
    template = (subsets.load(task).template or "").replace("{context}", "").replace("{input}", "")
    draft = _TASKS[task](rng, int(length * _FILL) - tokens(template), float(dispersion), facts)
    return {
        "_id": f"{task}-seed{seed}-length{length}-dispersion{float(dispersion)}-facts{facts}-{index}",
        "input": draft.question,
        "context": draft.context,
        "answers": draft.answers,
        "length": len(draft.context.split()) + len(draft.question.split()),
        "dataset": task,
        "language": "en",
        "all_classes": draft.classes,
        "evidence": draft.evidence,
    }


def _check(name: str, value: object, least: int, most: int | None) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least or (most is not None and value > most):
        limit = f"from {least} to {most}" if most is not None else f"of at least {least}"
        raise UserError(f"{name} is {value!r}: give a whole number {limit}")
