"""The paper's Tables 3, 4 and 5: what each of them shows, and the same from stored answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pandas as pd

from echokv.installed import called
from eval.console.errors import UserError
from eval.tables import cells, gates, notes, titles
from eval.tables.collect import Run
from eval.tables.layout import Table, layout
from eval.tables.options import Selected


@dataclass(frozen=True)
class Definition:
    """What one of the paper's tables shows."""

    model: str  # of the paper; another may stand in
    methods: tuple[str, ...] | None  # None: all that were run, without the components of Table 5
    budgets: tuple[int, ...] | None
    shown: tuple[str, ...] | None  # tasks with a column; None: all
    components: bool = False  # whether all methods are those of Table 5 too


MARKS = "Bold and underline: best and second best of each {}, FullKV apart."
COMPONENTS = ("stage1_only", "iterative_only")
TABLES = {
    "table3": Definition("mistral", None, None, None),
    "table4": Definition("qwen", None, None, None),
    "rivals": Definition("mistral", None, None, None, components=True),  # every policy at the same bytes
    "memory": Definition("mistral", None, None, None),  # policies and codecs at the same bytes
    "table5": Definition("mistral", ("laq", *COMPONENTS, "echokv"), (128,), ("multifieldqa_en", "hotpotqa")),
}


def build(
    name: str,
    definition: Definition,
    selected: Selected,
    against: str,
    errors: bool,
    settings: Sequence[str] = (),
    all_columns: bool = False,
    intervals: bool = True,
) -> tuple[Table, pd.DataFrame]:
    """Return a table and its cells.

    errors: whether standard errors are printed. settings: NAME=VALUE of those that tell it from similar tables.
    all_columns: tasks without any answer have a column as well. intervals: whether cells have theirs, as
    `eval.tables.cells.cells`.

    Raises:
        UserError: none of the table's methods was run.
    """
    answers = restricted(selected.scored, definition)
    everything = cells.cells(answers, selected.tasks, against, intervals)
    present = set(everything["subset"])
    shown = [task for task in definition.shown or selected.tasks if all_columns or task in present]
    kept = everything[everything["subset"].isin([*shown, cells.AVERAGE])]
    details = notes.details(answers, everything, selected)
    said = notes.notes(everything, details, selected, errors)
    table = layout(name, f"{describe(everything, selected, settings)}.", kept, shown, said, details, errors)
    rows = [row for block in table.blocks for row in block]
    if any(entry.place for row in rows for entry in row.entries):
        coded = any(row.heading not in ("", row.budget) for row in rows)
        alike = "number of bytes" if table.by_bytes else "budget and codec" if coded else "budget"
        table = replace(table, caption=f"{table.caption} {MARKS.format(alike)}")
    return table, everything


def describe(table: pd.DataFrame, selected: Selected, settings: Sequence[str] = ()) -> str:
    """Say what the scores are of, with which settings (NAME=VALUE), by which preset, on how many records."""
    single = table[table["subset"] != cells.AVERAGE]
    edits = sorted(set(single["edit"]) - {""})
    counts = f"n={single['n'].min()}" + (f" to {single['n'].max()}" if single["n"].nunique() > 1 else "") + " per task"
    run, preset = selected.answers.runs[0], selected.answers.preset
    words = [
        f"Scores (0 to 100) of {model_name(run)} on {data_name(run)}",
        *settings,
        f"preset {preset}" + (f" with {selected.answers.deviation}" if selected.answers.deviation else ""),
        *gates.question(selected.answers.runs),
        *(f"edit similarity by {edit}" for edit in edits),
        counts + (", partial" if notes.partial(table, selected.tasks) else ""),
    ]
    return "; ".join(words)


def model_name(run: Run) -> str:
    """Name the model and what a reader must know to weigh its scores."""
    name = str(run.shown.get("model") or run.identity["model"].get("name") or run.model)
    known = titles.settings("model", run.model)
    if known.get("title") and Path(str(known.get("name"))).name == Path(name).name:
        return str(known["title"])
    return f"{name} (random weights)" if "random" in f"{name} {run.model}".lower() else name


def data_name(run: Run) -> str:
    """Name the data: by its label, such as the name of a folder of records, else as its YAML does."""
    source = run.folder.parts[-3]
    data = run.identity.get("data")
    label = data.get("label") if isinstance(data, dict) else None
    return str(label or titles.title("data", source) or source)


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
    wanted = ~answers["method"].isin(() if definition.components else COMPONENTS)
    if definition.methods is not None:
        wanted = answers["method"].isin(definition.methods)
    if definition.budgets is not None:
        wanted &= answers["budget"].isin(definition.budgets)
    if not wanted.any():
        raise UserError(
            f"no answers of {', '.join(definition.methods or ['any method'])}; run them with {called()} first"
        )
    return answers[wanted]
