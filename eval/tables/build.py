"""The paper's Tables 3, 4 and 5: what each of them shows, and the same from stored answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from eval.console.errors import UserError
from eval.inputs import subsets
from eval.tables import cells, gates
from eval.tables.collect import Run
from eval.tables.layout import MISSING, Table, layout
from eval.tables.naming import Name
from eval.tables.options import Selected


@dataclass(frozen=True)
class Definition:
    """What one of the paper's tables shows."""

    model: str  # of the paper; another may stand in
    methods: tuple[str, ...] | None  # None: all that were run, without the components of Table 5
    budgets: tuple[int, ...] | None
    shown: tuple[str, ...] | None  # tasks with a column; None: all


MARKS = "Bold and underline: best and second best of each budget, FullKV apart."
ERRORS = "± is the standard error over examples."
COMPONENTS = ("stage1_only", "iterative_only")
TABLES = {
    "table3": Definition("mistral", None, None, None),
    "table4": Definition("qwen", None, None, None),
    "table5": Definition("mistral", ("laq", *COMPONENTS, "echokv"), (128,), ("multifieldqa_en", "hotpotqa")),
}


def build(
    name: str, selected: Selected, against: str, errors: bool, settings: Sequence[str] = ()
) -> tuple[Table, pd.DataFrame]:
    """Return a table and its cells.

    errors: whether standard errors are printed. settings: NAME=VALUE of those that tell it from similar tables.

    Raises:
        UserError: none of the table's methods was run.
    """
    definition = TABLES[name]
    answers = restricted(selected.scored, definition)
    everything = cells.cells(answers, selected.tasks, against)
    shown = definition.shown or selected.tasks
    kept = everything[everything["subset"].isin([*shown, cells.AVERAGE])]
    notes = [*gates.warnings(everything, selected.answers.runs, selected.answers.runs[0].model)]
    notes += gates.control_text(answers, selected.answers.runs)
    notes += [f"Left out, not as the preset says: {run}." for run in selected.answers.left_out]
    notes += [*_stored(kept), *(f"Missing: {line}." for line in cells.missing(answers, selected.tasks))]
    if partial := _partial(everything, selected.tasks):
        notes.insert(0, partial)
    if errors and kept["standard_error"].notna().any():
        notes.insert(0, ERRORS)
    caption = f"{describe(everything, selected, settings)}. {MARKS}"
    return layout(name, caption, kept, shown, notes, errors), everything


def describe(table: pd.DataFrame, selected: Selected, settings: Sequence[str] = ()) -> str:
    """Say what the scores are of, with which settings (NAME=VALUE), by which preset, on how many records."""
    single = table[table["subset"] != cells.AVERAGE]
    edits = sorted(set(single["edit"]) - {""})
    counts = f"n={single['n'].min()}" + (f" to {single['n'].max()}" if single["n"].nunique() > 1 else "") + " per task"
    run, preset = selected.answers.runs[0], selected.answers.preset
    words = [
        f"Scores (0 to 100) of {model_name(run)} on {run.folder.parts[-3]}",
        *settings,
        f"preset {preset}" + (f" with {selected.answers.deviation}" if selected.answers.deviation else ""),
        *(f"edit similarity by {edit}" for edit in edits),
        counts + (", partial" if _partial(table, selected.tasks) else ""),
    ]
    return "; ".join(words)


def model_name(run: Run) -> str:
    """Name the model and what a reader must know to weigh its scores."""
    name = str(run.identity["model"]["name"])
    if name == "smollm2":
        return "SmolLM2-135M-Instruct (a 135M model)"
    return f"{name} (random weights)" if "random" in f"{name} {run.model}".lower() else name


def write_files(folder: Path, name: str, texts: Mapping[str, str]) -> None:
    """Write `name` with each ending and its text into `folder`.

    Raises:
        UserError: the folder cannot be written to.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for ending, text in texts.items():
            (folder / f"{name}.{ending}").write_text(text, encoding="utf-8")
    except OSError as error:
        raise UserError(f"cannot write to {folder} ({error.strerror}): choose another --results") from error


def restricted(answers: pd.DataFrame, definition: Definition) -> pd.DataFrame:
    """Return the answers that the table shows.

    Raises:
        UserError: there are none.
    """
    wanted = ~answers["method"].isin(COMPONENTS)
    if definition.methods is not None:
        wanted = answers["method"].isin(definition.methods)
    if definition.budgets is not None:
        wanted &= answers["budget"].isin(definition.budgets)
    if not wanted.any():
        raise UserError(f"no answers of {', '.join(definition.methods or ['any method'])}; run them with run.py first")
    return answers[wanted]


def _partial(table: pd.DataFrame, tasks: Sequence[str]) -> str:
    """Say which tasks have fewer records than LongBench, by what is at hand."""
    said: dict[str, list[str]] = {}
    for task in map(subsets.load, tasks):
        counts = table.loc[table["subset"] == task.name, "n"]
        n = int(counts.max()) if len(counts) else 0
        if n < (task.records or 0):
            said.setdefault(f"n={n} of {task.records}" if n else "no data", []).append(task.column)
    return (
        "Partial data: " + "; ".join(f"{what} ({', '.join(names)})" for what, names in said.items()) + "."
        if said
        else ""
    )


def _stored(table: pd.DataFrame) -> list[str]:
    """Say how many KV entries every method stores: the same nominal budget may be several times as much.

    A method that lacks a task has no average that could be held beside the others'.
    """
    said = []
    budgets = table.groupby("budget", dropna=False)
    for budget, rows in sorted(budgets, key=lambda part: 0 if pd.isna(part[0]) else part[0]):
        averages = rows[rows["subset"] == cells.AVERAGE]
        stored = {Name(row.method, row.variant): row.entries for row in averages.itertuples()}
        known = {Name(row.method, row.variant) for row in rows.itertuples()}
        told = [
            f"{name.title} {stored[name]:,.0f}" if name in stored else f"{name.title} {MISSING}"
            for name in sorted(known, key=lambda name: name.order)
        ]
        where = "without a budget" if pd.isna(budget) else f"at budget {budget}"
        said.append(f"KV entries stored {where}, mean per answer: {'; '.join(told)}.")
    return said
