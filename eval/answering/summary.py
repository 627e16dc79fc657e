"""The table printed after a run: what each cell scored and stored, and what answering cost."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from math import sqrt
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from eval.inputs.examples import Example, by_subset
from eval.inputs.tokens import spelled
from eval.planning.plan import Cell
from eval.scoring.memory import points
from eval.scoring.metrics import Edit

Answers = Sequence[dict[str, Any]]

OWN = {  # row title -> (field of an answer, divisor, decimals)
    "KV entries stored": ("entries", 1, 0),
    "KV stored, MB": ("bytes", 1e6, 2),
    "selection, s": ("selection_seconds", 1, 2),
}
ALONE = {  # a row's own only where it is answered alone
    "prefill, s": ("prefill_seconds", 1, 2),
    "decoding, s": ("decode_seconds", 1, 2),
    "peak memory, MB": ("peak_bytes", 1e6, 0),
}


def summary(grid: Sequence[Cell], examples: Sequence[Example], edit: Edit, model: str, results: Path) -> str:
    """Scores (0 to 100) ± standard error per subset and on average, and mean cost per answer, one column a cell.

    Seconds and memory of a batch are no cell's own: they stand in one line below, unless all was answered row by row.
    """
    groups = by_subset(examples)
    found = {cell.label: _found(cell, groups) for cell in grid}
    every = [answer for answers in found.values() for some in answers.values() for answer in some]
    alone = bool(every) and all(answer.get("alone") for answer in every)
    columns = {
        cell.label: {
            **_scores(groups, found[cell.label], edit, results),
            **_costs([answer for some in found[cell.label].values() for answer in some], alone),
        }
        for cell in grid
    }
    counts = "-".join(map(str, sorted({len(group) for group in groups.values()})))
    head = f"{model}: score ± standard error, n = {counts} per task; costs are means per answer."
    protocol = grid[0].store.key.identity["protocol"]
    if protocol["question"] == "after":
        head += (
            "\nMethods choose from the context alone; the question comes after, and is stored beside what they keep."
        )
    table = "\n\n".join(_blocks(columns, shutil.get_terminal_size((120, 24)).columns))
    counts_of = {(answer["dataset"], answer["_id"]): answer.get("control_tokens", 0) for answer in every}
    control = spelled(list(counts_of.values()), protocol["control_text"])
    below = [*([control, ""] if control else []), *([] if alone or not every else [_of_batches(every)])]
    return "\n".join(["", head, "", table, "", *below])


def _blocks(columns: Mapping[str, Mapping[str, str]], width: int) -> Iterator[str]:
    """The table as text, cut between columns into as many blocks as the width of a terminal asks for.

    By hand, for a data frame's own printing would make a finished run wait for pandas.
    """
    titles = list(next(iter(columns.values())))
    first = max(map(len, titles))
    block, used = [["", *titles]], first
    for title, column in columns.items():
        room = 2 + max(len(title), *map(len, column.values()))
        if len(block) > 1 and used + room > width:
            yield _text(block, first)
            block, used = block[:1], first
        block.append([cell.rjust(room) for cell in (title, *column.values())])
        used += room
    yield _text(block, first)


def _text(block: Sequence[Sequence[str]], first: int) -> str:
    return "\n".join(titles.ljust(first) + "".join(cells) for titles, *cells in zip(*block, strict=True))


def _found(cell: Cell, groups: dict[str, list[Example]]) -> dict[str, list[dict[str, Any]]]:
    """Per subset the stored answers to the examples."""
    found = {}
    for name, group in groups.items():
        stored = cell.store.answers(name)
        found[name] = [stored[example.id] for example in group if example.id in stored]
    return found


def _scores(
    groups: dict[str, list[Example]], found: dict[str, list[dict[str, Any]]], edit: Edit, results: Path
) -> dict[str, str]:
    column: dict[str, str] = {}
    means, errors = [], []
    for name, group in groups.items():
        scores = points(results / "scores", group[0].subset, found[name], edit)
        error = stdev(scores) / sqrt(len(scores)) if len(scores) > 1 else float("nan")
        column[name] = _with_error(fmean(scores), error) if scores else "missing"
        means += [fmean(scores)] if scores else []
        errors += [error]
    column["average"] = (
        _with_error(fmean(means), sqrt(sum(error**2 for error in errors)) / len(errors))
        if len(means) == len(groups)
        else "missing"
    )
    return column


def _costs(answers: Answers, alone: bool) -> dict[str, str]:
    titles = OWN | ALONE if alone else OWN
    column = {
        title: f"{_mean(answers, field) / divisor:,.{decimals}f}" if answers else "missing"
        for title, (field, divisor, decimals) in titles.items()
    }
    if alone and answers:
        seconds = sum(answer["decode_seconds"] for answer in answers)
        column["tokens per second"] = f"{sum(answer['new_tokens'] for answer in answers) / seconds:.1f}"
    return column


def _of_batches(answers: Answers) -> str:
    """What rows decoded together cost together."""
    decoding = fmean(answer["decode_seconds"] * answer["rows"] for answer in answers)
    return (
        f"Rows are answered together: prefill {_mean(answers, 'prefill_seconds'):.2f} s, a batch of "
        f"{_mean(answers, 'rows'):.0f} rows decodes in {decoding:.2f} s, peak memory "
        f"{_mean(answers, 'peak_bytes') / 1e6:,.0f} MB; cost=true measures each row by itself.\n"
    )


def _mean(answers: Answers, field: str) -> float:
    return fmean(answer[field] for answer in answers)


def _with_error(mean: float, error: float) -> str:
    return f"{mean:.1f} ± {error:.1f}" if error == error else f"{mean:.1f}"
