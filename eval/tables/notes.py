"""What stands under a table: two lines that a reader needs, and the details of which they are the short form."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from eval.inputs import subsets
from eval.tables import cells, gates
from eval.tables.options import Selected

STORED = "KV: entries stored, mean per answer."
ROOM = "Bytes: those that keys and values may take; Budget: the tokens per head that they have room for."
ERRORS = "± is the standard error over examples."


def notes(table: pd.DataFrame, details: Sequence[str], selected: Selected, errors: bool) -> tuple[str, ...]:
    """Say how to read the numbers and, in a second line, what weakens them; `details` has it all.

    table: the cells of all tasks. errors: whether standard errors are printed.
    """
    read = [
        ERRORS if errors and table["standard_error"].notna().any() else "",
        STORED,
        ROOM if table["budget_bytes"].notna().any() else "",
    ]
    warned = sum(line.startswith("Warning") for line in details)
    limit = gates.cut_at(table, selected.answers.runs)
    spelled = int((gates.control_tokens(selected.scored) > 0).sum())
    said = [
        short_of(table, selected.tasks),
        f"Prompts cut at {limit:,} tokens (paper: {gates.PROMPT_LIMIT:,})." if limit else "",
        f"Control tokens in {spelled} records." if spelled else "",
        f"{warned} warning{'s' if warned > 1 else ''}, listed with the table's source." if warned else "",
    ]
    return tuple(filter(None, (" ".join(filter(None, line)) for line in (read, said))))


def details(answers: pd.DataFrame, table: pd.DataFrame, selected: Selected) -> list[str]:
    """Say all that a reader may have to know of a table's answers (scored) and of its cells."""
    runs = selected.answers.runs
    said = [partial(table, selected.tasks), *gates.warnings(table, runs, runs[0].model)]
    said += gates.control_text(answers, runs)
    said += [f"Left out, not as the preset says: {run}." for run in selected.answers.left_out]
    said += [f"Missing: {line}." for line in cells.missing(answers, selected.tasks)]
    return list(filter(None, said))


def partial(table: pd.DataFrame, tasks: Sequence[str]) -> str:
    """Say which tasks have fewer records than LongBench, by what is at hand; "" if none."""
    said: dict[str, list[str]] = {}
    for task, n in _short(table, tasks):
        said.setdefault(f"n={n} of {task.records}" if n else "no data", []).append(task.column)
    listed = "; ".join(f"{what} ({', '.join(names)})" for what, names in said.items())
    return f"Partial data: {listed}." if said else ""


def short_of(table: pd.DataFrame, tasks: Sequence[str]) -> str:
    """The same in a few words."""
    short = _short(table, tasks)
    lacking = sum(n == 0 for _, n in short)
    some = len(short) - lacking
    said = [
        f"{some} of {len(tasks)} tasks with fewer records than LongBench" if some else "",
        f"{lacking} of {len(tasks)} without any" if lacking else "",
    ]
    return f"Partial data: {', '.join(filter(None, said))}." if short else ""


def _short(table: pd.DataFrame, tasks: Sequence[str]) -> list[tuple[subsets.Subset, int]]:
    """The tasks with fewer records than LongBench, and how many they have."""
    most = table.groupby("subset")["n"].max()
    known = [(subsets.load(name), int(most.get(name, 0))) for name in tasks]
    return [(task, n) for task, n in known if n < (task.records or 0)]
