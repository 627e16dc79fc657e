"""From prompts to answers: one prefill per example, all its cells chosen side by side, all rows decoded together."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from echokv import Codec, Prefill, Selection, Session, decode_rows, prefill
from echokv.further import ask
from echokv.rows import Record
from eval.answering.measure import Meter
from eval.answering.together import Choice, choose, in_halves
from eval.inputs.asked import Asked
from eval.planning.plan import Cell, union_of_needs

See = Callable[[Prefill, Sequence[tuple[Cell, Selection]]], None]


@dataclass(frozen=True, eq=False)
class Task:
    """A prompt and the cells that are to answer it.

    see: called with the prefill and every cell's selection before anything is decoded; its time is nobody's.
    """

    asked: Asked
    cells: Sequence[Cell]
    see: See | None = None


@dataclass(frozen=True)
class _Row:
    """One answer to be decoded, and what was measured on the way to it."""

    task: Task
    cell: Cell
    filled: Prefill
    selection: Selection
    choice: Choice
    filling: Meter


class Wanted(NamedTuple):
    """An answer of at most so many tokens, on what was selected of a prompt and a question fed after it."""

    filled: Prefill
    selection: Selection
    most: int
    question: tuple[int, ...] = ()
    codec: Codec | None = None


def answers(
    tasks: Sequence[Task], model: Any, rows: int | None, record: Record | None = None
) -> Iterator[tuple[Task, Cell, dict[str, Any]]]:
    """Prefill each prompt once, select for every cell, decode all cells; yield tokens and measurements of each.

    rows: at most so many answers are decoded as one batch; None is all of them.
    record: makes of a decode step a quicker one (`echokv.graphs`).

    Costs that cells share are told in equal shares: a scoring among the budgets it served, a batch among its rows.
    """
    chosen = _chosen(tasks, model)
    size = rows or len(chosen)
    for first in range(0, len(chosen), size):
        batch = chosen[first : first + size]
        wanted = [_wanted(row) for row in batch]
        with Meter() as decoding:
            decoded = list(in_halves(lambda some: _decode(some, record), wanted))
        for row, (tokens, together, stored) in zip(batch, decoded, strict=True):
            about = {"new_tokens": len(tokens), **_about(row, decoding, len(batch), stored), "rows": together}
            yield row.task, row.cell, {"tokens": tokens, **about}


def fitting(
    tasks: Sequence[Task], model: Any, rows: int | None, record: Record | None
) -> Iterator[tuple[Task, Cell | None, dict[str, Any]]]:
    """`answers`, of fewer tasks at a time where memory ends; a task that does not fit alone comes without a cell."""
    yield from in_halves(lambda some: answers(some, model, rows, record), tasks, lambda task: (task, None, {}))


def _chosen(tasks: Sequence[Task], model: Any) -> list[_Row]:
    filled: list[tuple[Prefill, Meter]] = []
    for task in tasks:
        asked = task.asked
        with Meter() as filling:
            needs = union_of_needs(task.cells)
            rules = (asked.stop_ids, asked.min_new_tokens, asked.generation, asked.tokenizer)
            one = prefill(model, torch.tensor(asked.ids), needs, *rules)
        filled.append((one, filling))
    groups = [
        (task, one, filling, group)
        for task, (one, filling) in zip(tasks, filled, strict=True)
        for group in by_scope(task.cells)
    ]
    jobs = [(one, group[0].press, [cell.budget for cell in group]) for _, one, _, group in groups]
    found = [
        _Row(task, cell, one, selection, choice, filling)
        for (task, one, filling, group), choice in zip(groups, in_halves(choose, jobs), strict=True)
        for cell, selection in zip(group, choice.selections, strict=True)
    ]
    for task, (one, _) in zip(tasks, filled, strict=True):
        if task.see:
            task.see(one, [(row.cell, row.selection) for row in found if row.task is task])
    return found


def _wanted(row: _Row) -> Wanted:
    asked = row.task.asked
    return Wanted(row.filled, row.selection, asked.max_new_tokens, asked.question, row.cell.codec)


def _about(row: _Row, decoding: Meter, batch: int, stored: int) -> dict[str, Any]:
    encoded, filled, selection = row.task.asked.encoded, row.filled, row.selection
    # A question that comes after the eviction is stored whole, in every head that keeps entries of its own.
    asked = len(row.task.asked.question)
    entries = selection.entries + asked * filled.layers * selection.heads + filled.beside(asked)
    since = entries - selection.entries - filled.beside()
    # Column sums are made during the prefill, and are a cost of the methods that choose by them.
    users = sum(cell.press.needs.column_sums for cell in row.task.cells)
    sums = row.filled.sums_seconds / users if row.cell.press.needs.column_sums else 0.0
    return {
        "prompt_tokens": len(encoded.ids),
        "truncated": encoded.truncated,
        "control_tokens": encoded.control_tokens,
        "prefill_seconds": round(row.filling.seconds - row.filled.sums_seconds, 4),
        "entries": entries,
        "bytes": stored + since * filled.entry_bytes,
        "ties": row.selection.ties,
        "lookahead_tokens": row.choice.ahead,
        "selection_seconds": round(row.choice.seconds / len(row.choice.selections) + sums, 4),
        "decode_seconds": round(decoding.seconds / batch, 4),
        "peak_bytes": max(row.filling.peak, row.choice.peak, decoding.peak),
    }


def _decode(wanted: Sequence[Wanted], record: Record | None) -> list[tuple[list[int], int, int]]:
    """Each answer's tokens, how many rows were decoded with it, and the bytes stored of its prompt."""
    sessions = [Session(one.filled, one.selection, codec=one.codec) for one in wanted]
    for session, one in zip(sessions, wanted, strict=True):
        if one.question:
            ask(session, one.question)
    found = decode_rows(sessions, [one.most for one in wanted], record)
    return [(tokens, len(wanted), session.bytes) for tokens, session in zip(found, sessions, strict=True)]


def decode(filled: Prefill, selections: Sequence[Selection], n: int) -> list[list[int]]:
    """Answers of up to n tokens on each selection, as one batch or as few as memory allows."""
    wanted = [Wanted(filled, selection, n) for selection in selections]
    return [tokens for tokens, *_ in in_halves(lambda some: _decode(some, None), wanted)]


def by_scope(grid: Sequence[Cell]) -> list[list[Cell]]:
    """Cells that share their scores: of one policy, at budgets that make no difference to it, however it is stored."""
    groups: dict[Any, list[Cell]] = {}
    for cell in grid:
        groups.setdefault((id(cell.press), cell.press.scope(cell.budget or 0)), []).append(cell)
    return list(groups.values())
