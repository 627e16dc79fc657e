"""Tables 3, 4 and 5 from stored answers: `python -m eval.tables table3 --model smollm2 --data jsonl`.

Writes NAME.csv (every number of every cell), NAME.tex and NAME.md to RESULTS/tables and prints the last. With
--by-length also NAME-by-length.csv: LongBench-E's scores by the records' length in words.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from eval import cells, collect, gates, latex
from eval.collect import Answers, Run
from eval.errors import UserError, command
from eval.inputs import subsets
from eval.layout import Table, layout, markdown, title
from eval.presets import edit_of


@dataclass(frozen=True)
class Definition:
    """What one of the paper's tables shows."""

    model: str  # of the paper; another may stand in
    methods: tuple[str, ...] | None  # None: all that were run, without the components of Table 5
    budgets: tuple[int, ...] | None
    shown: tuple[str, ...] | None  # tasks with a column; None: all


MARKS = "Bold and underline: best and second best of each budget, FullKV apart."
COMPONENTS = ("stage1_only", "iterative_only")
TABLES = {
    "table3": Definition("mistral", None, None, None),
    "table4": Definition("qwen", None, None, None),
    "table5": Definition("mistral", ("laq", *COMPONENTS, "echokv"), (128,), ("multifieldqa_en", "hotpotqa")),
}


@dataclass(frozen=True)
class Selected:
    """The answers that a command chose, the same scored, and the table's tasks."""

    answers: Answers
    scored: pd.DataFrame
    tasks: list[str]


def options(parser: argparse.ArgumentParser, against: bool = True) -> None:
    """Add the options by which answers are chosen and scored."""
    parser.add_argument("--results", type=Path, default=Path("results"), help="folder of the stored answers")
    parser.add_argument("--model", help="label of the model, such as smollm2")
    parser.add_argument("--data", default="longbench", help="source of the records: longbench, jsonl or synthetic")
    parser.add_argument("--subset", nargs="+", help="only these subsets or groups of subsets")
    parser.add_argument("--preset", help="only answers made under this preset")
    parser.add_argument("--where", nargs="+", default=[], metavar="NAME=VALUE", help="only runs with these settings")
    parser.add_argument("--edit", choices=("difflib", "levenshtein"), help="edit similarity (default: the preset's)")
    if against:
        parser.add_argument("--against", default="laq", help="method of the paired differences")


def select(chosen: argparse.Namespace, model: str) -> Selected:
    """Read and score the answers that the options name.

    Raises:
        UserError: as `eval.collect`, and for an unknown subset, method or malformed option.
    """
    where = dict(setting(text) for text in chosen.where)
    names = list(subsets.expand(chosen.subset)) if chosen.subset else None
    runs = collect.find(chosen.results, chosen.data, chosen.model or model, where)
    answers = collect.answers(runs, chosen.preset, names)
    scored = cells.scored(answers.frame, chosen.edit or edit_of(answers.preset), chosen.results / "scores")
    return Selected(answers, scored, cells.columns(scored, names))


def build(name: str, selected: Selected, against: str, errors: bool) -> tuple[Table, pd.DataFrame]:
    """Return a table and its cells.

    Raises:
        UserError: none of the table's methods was run.
    """
    definition = TABLES[name]
    answers = _restricted(selected.scored, definition)
    everything = cells.cells(answers, selected.tasks, against)
    shown = definition.shown or selected.tasks
    kept = everything[everything["subset"].isin([*shown, cells.AVERAGE])]
    notes = [*gates.warnings(everything, selected.answers.runs, selected.answers.runs[0].model)]
    notes += [f"Left out, not as the preset says: {run}." for run in selected.answers.left_out]
    notes += [*_stored(kept), *(f"Missing: {line}." for line in cells.missing(answers, selected.tasks))]
    if partial := _partial(everything, selected.tasks):
        notes.insert(0, partial)
    caption = f"{describe(everything, selected)}. {MARKS}"
    return layout(name, caption, kept, shown, notes, errors), everything


def describe(table: pd.DataFrame, selected: Selected) -> str:
    """Say what the scores are of, by which preset, on how many records."""
    single = table[table["subset"] != cells.AVERAGE]
    edits = sorted(set(single["edit"]) - {""})
    counts = f"n={single['n'].min()}" + (f" to {single['n'].max()}" if single["n"].nunique() > 1 else "") + " per task"
    run, preset = selected.answers.runs[0], selected.answers.preset
    words = [
        f"Scores (0 to 100) of {model_name(run)} on {run.folder.parts[-3]}",
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


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status, 1 with one line on stderr for wrong input."""
    parser = argparse.ArgumentParser(prog="python -m eval.tables", description="Tables 3, 4 and 5 of the paper.")
    parser.add_argument("name", choices=TABLES)
    parser.add_argument("--no-errors", action="store_true", help="print no standard errors")
    parser.add_argument("--by-length", action="store_true", help="write LongBench-E's scores by length as well")
    options(parser)
    return command(parser, arguments, _write)


def setting(text: str) -> tuple[str, str]:
    """Split NAME=VALUE. Raises UserError for anything else."""
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise UserError(f"--where {text!r}: write NAME=VALUE, such as method.workspace=1024")
    return name, value


def _write(chosen: argparse.Namespace) -> None:
    selected = select(chosen, TABLES[chosen.name].model)
    table, frame = build(chosen.name, selected, chosen.against, not chosen.no_errors)
    folder, texts = chosen.results / "tables", {"tex": latex.render(table), "md": markdown(table)}
    if chosen.by_length:
        lengths = cells.by_length(_restricted(selected.scored, TABLES[chosen.name]))
        write_files(folder, f"{chosen.name}-by-length", {"csv": lengths.to_csv(index=False)})
    write_files(folder, chosen.name, {"csv": frame.to_csv(index=False), **texts})
    print(texts["md"])


def _restricted(answers: pd.DataFrame, definition: Definition) -> pd.DataFrame:
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
    """Say where methods store different numbers of KV entries at the same nominal budget."""
    said = []
    for budget, rows in table[table["subset"] == cells.AVERAGE].groupby("budget"):
        least, most = (rows.loc[getattr(rows["entries"], which)()] for which in ("idxmin", "idxmax"))
        if most["entries"] > 1.01 * least["entries"]:
            said.append(
                f"KV entries stored at budget {budget}: from {least['entries']:,.0f} ({title(least['method'])}) "
                f"to {most['entries']:,.0f} ({title(most['method'])}) on average."
            )
    return said


if __name__ == "__main__":
    sys.exit(main())
