"""What of a plan is still to be answered, and in which batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from eval.console.errors import UserError
from eval.inputs.examples import Example, by_subset
from eval.planning.plan import Cell

Lacking = tuple[Example, list[Cell]]


def missing(grid: Sequence[Cell], inputs: Sequence[Example], alone: bool = False) -> Iterator[Lacking]:
    """The examples that some cells lack, with those cells.

    alone: an answer whose costs were not measured alone is lacking too.

    Raises UserError where an answer is stored for another text or other subset settings.
    """
    for subset, group in by_subset(inputs).items():
        stored = [(cell, cell.store.answers(subset)) for cell in grid]
        for example in group:
            lacking = []
            for cell, answers in stored:
                answer = answers.get(example.id)
                if answer is not None and answer["fingerprint"] != example.fingerprint:
                    raise UserError(
                        f"{cell.store.folder} answers {example.id} of {subset} for another text or other subset "
                        "settings: use another results= folder"
                    )
                if answer is None or (alone and not answer.get("alone")):
                    lacking.append(cell)
            if lacking:
                yield example, lacking


def batches(todo: Sequence[Lacking], rows: int | None) -> Iterator[list[Lacking]]:
    """Examples whose answers are decoded together: one, or as many as `rows` answers make."""
    group: list[Lacking] = []
    for one in todo:
        if group and sum(len(lacking) for _, lacking in [*group, one]) > (rows or 0):
            yield group
            group = []
        group.append(one)
    if group:
        yield group
