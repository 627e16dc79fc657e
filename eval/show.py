"""Results in the terminal: `python -m eval.show` for the tables, `python -m eval.show EXAMPLE` for one example.

An example's prompt is shaded by how many (layer, head) pairs keep each token; stretches that none keeps are folded. In
a file or a pipe, which have no colours, marks stand for the shades.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from echokv.installed import called
from eval.console.errors import Parser, UserError, command, nearest
from eval.inputs import subsets
from eval.keeping import reading, selections
from eval.keeping.selections import FINAL, Step
from eval.report import groups
from eval.report.shading import key, shaded
from eval.tables import collect, layout
from eval.tables.build import TABLES, build
from eval.tables.collect import Run
from eval.tables.options import narrowed, setting


def table_of(made: layout.Table, columns: Sequence[int]) -> Table:
    """Some columns of a table: bold the best, underlined the second best of a block, standard errors beside."""
    shown = Table()
    shown.add_column("Method", no_wrap=True)
    shown.add_column("B", justify="right", no_wrap=True)
    shown.add_column("KV", justify="right", no_wrap=True)
    for column in columns:
        shown.add_column(Text(made.columns[column]), justify="right", no_wrap=True)
    for block in made.blocks:
        for row in block:
            shown.add_row(Text(row.title), row.budget, row.stored, *(_entry(row.entries[column]) for column in columns))
        shown.add_section()
    return shown


def print_table(made: layout.Table, console: Console) -> None:
    """Print a table, below each other the groups of tasks that do not fit beside each other."""
    console.print(Text(f"{made.name}: {made.caption}", style="italic"))
    for columns in _fitting(made, console):
        shown = table_of(made, columns)
        shown.width = _width(shown, console)  # where even one column is wider than the terminal, it stays whole
        console.print(shown, crop=False)
    for note in (*made.notes, *made.details):
        console.print(Text(note, style="dim"))
    console.print()


def _fitting(made: layout.Table, console: Console) -> list[list[int]]:
    """The columns as parts that each fit the terminal: groups of tasks together, one by one where they do not fit."""

    def fits(columns: Sequence[int]) -> bool:
        return _width(table_of(made, columns), console) <= console.width

    places = iter(range(len(made.columns)))
    groups = [*(list(islice(places, width)) for _, width in made.groups), list(places)]
    parts: list[list[int]] = [[]]
    for group in groups:
        for some in [group] if fits(group) else [[column] for column in group]:
            if parts[-1] and not fits([*parts[-1], *some]):
                parts.append([])
            parts[-1] += some
    return parts


def _width(table: Table, console: Console) -> int:
    """The width at which nothing of a table is cut."""
    return Measurement.get(console, console.options.update(width=10_000), table).maximum


def _entry(entry: layout.Entry) -> Text:
    text = Text(entry.text, style={1: "bold", 2: "underline"}.get(entry.place, ""))
    return text.append(f" ±{entry.error}", style="not bold not underline dim") if entry.error else text


def example(chosen: argparse.Namespace, console: Console) -> None:
    """Print one example: its answers, and its prompt as one method's cache holds it.

    Raises:
        UserError: an unknown or ambiguous example, no selection of it, or a step, layer or head that is not there.
    """
    run, subset, row, answer = _found(chosen)
    step = _step(selections.steps(row), chosen)
    prompt = selections.prompt(run.folder, row["prompt"])
    layers = None if chosen.layer is None else [chosen.layer]
    pairs = (len(step.layers) if layers is None else 1) * (len(step.layers[0]) if chosen.head is None else 1)
    shares = step.counts(layers, chosen.head) / pairs
    head = Text(f"{subsets.load(subset).column} {row['_id']}", style="bold")
    shown = "final cache" if step.name == FINAL else step.name
    head.append(f"\n{run.label}, {shown}, {step.length} tokens, {pairs} (layer, head) pairs")
    console.print(head)
    console.print(Text(f"accepted: {' | '.join(answer['answers'])}\nanswered: {answer['pred'].strip()}"))
    colour = console.color_system is not None and not console.no_color
    console.print(key(colour), "")
    console.print(shaded(prompt, shares, answer["answers"], chosen.whole, colour))


def _found(chosen: argparse.Namespace) -> tuple[Run, str, dict[str, Any], dict[str, Any]]:
    """The run, subset, stored selection and answer that the options name."""
    wanted = subsets.expand(chosen.subset) if chosen.subset else None
    stored = [(run, name) for run in _of_method(chosen) for name in wanted or reading.stored_subsets(run.folder)]
    known = {_id for run, subset in stored for _id in reading.stored(run.folder, subset)}
    fitting = {chosen.example} & known or {_id for _id in known if _id.startswith(chosen.example)}
    if not fitting:
        who = f"{chosen.method} has no answer to {chosen.example!r}"
        raise UserError(f"{who}{nearest(chosen.example, known, most=3)}")
    kept = [(run, subset, row) for run, subset in stored for row in selections.rows(run.folder, subset).values()]
    hits = [(run, subset, row) for run, subset, row in kept if row["_id"] in fitting]
    if not hits:
        some = sorted({row["_id"] for _, _, row in kept})
        such = f"; {len(some)} examples have some, such as {', '.join(some[:3])}" if some else ""
        what = f"no kept tokens of {chosen.example!r} by {chosen.method} are stored"
        raise UserError(f"{what}: run it again with record.selections=true{such}")
    if len(hits) > 1:
        names = ", ".join(f"{run.folder.name} {row['_id']}" for run, _, row in hits[:4])
        raise UserError(
            f"{len(hits)} fit ({names}{', ...' if len(hits) > 4 else ''}): give the whole _id, and narrow with "
            "--budget, --subset, --data, --model or --where"
        )
    run, subset, row = hits[0]
    answer = reading.stored(run.folder, subset).get(row["_id"])
    if answer is None or answer["fingerprint"] != row["fingerprint"]:
        raise UserError(f"{run.folder} has no answer to {row['_id']!r} in that text: run the same command again")
    return run, subset, row, answer


def _of_method(chosen: argparse.Namespace) -> list[Run]:
    """Those of the method and the budget asked for; a method without a budget has any."""
    runs = _runs(chosen)
    known = {str(run.name) if " " in chosen.method else run.method for run in runs}
    runs = [run for run in runs if chosen.method in (run.method, str(run.name))]
    if not runs:
        raise UserError(f"--method {chosen.method!r} was not run{nearest(chosen.method, known)}")
    budgets = sorted({run.budget for run in runs if run.budget is not None})
    if chosen.budget is not None and budgets and chosen.budget not in budgets:
        raise UserError(f"--budget {chosen.budget}: {chosen.method} was run at {', '.join(map(str, budgets))}")
    return [run for run in runs if None in (chosen.budget, run.budget) or run.budget == chosen.budget]


def _runs(chosen: argparse.Namespace) -> list[Run]:
    """Runs of the data and model asked for, of all where neither is."""
    where = dict(setting(text) for text in chosen.where)
    folders = sorted({path.parent.parent for path in chosen.results.glob("*/*/*/manifest.json")})
    if not folders:
        raise UserError(f"no answers in {chosen.results}: run {called()} first, or name another folder with --results")
    asked = {"data": chosen.data, "model": chosen.model}
    folders = narrowed(folders, asked, chosen.results, _part)
    parts = [collect.find(chosen.results, path.parent.name, path.name, where) for path in folders]
    return [run for part in parts for run in collect.named(part)]


def _part(folder: Path, name: str) -> str:
    """What a folder of runs is of: data or model."""
    return (folder.parent if name == "data" else folder).name


def _step(steps: Sequence[Step], chosen: argparse.Namespace) -> Step:
    by_name = {step.name: step for step in steps}
    if chosen.step not in by_name:
        raise UserError(f"step {chosen.step!r} is not there{nearest(chosen.step, by_name)}")
    step = by_name[chosen.step]
    for name, value, size in (("layer", chosen.layer, len(step.layers)), ("head", chosen.head, len(step.layers[0]))):
        if value is not None and not 0 <= value < size:
            raise UserError(f"--{name} {value} is not there: give 0 to {size - 1}")
    return step


def tables_of(chosen: argparse.Namespace, console: Console) -> None:
    """Print one table for each data, model and preset.

    Raises:
        UserError: no answers, or answers that make no table.
    """
    asked = {"data": chosen.data, "model": chosen.model, "preset": chosen.preset}
    for group in narrowed(groups.find(chosen.results), asked, chosen.results):
        selected = groups.select(group, chosen.results, None)
        errors = not chosen.no_errors  # nothing that takes resampling is printed
        made, _ = build("table3", TABLES["table3"], selected, "", errors, group.apart, intervals=False)
        name = f"{group.data} {group.model} {group.preset}"
        print_table(replace(made, name=name), console)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status, 1 with one line on stderr for wrong input."""
    parser = Parser(prog=called("show"), description="Results in the terminal.")
    parser.add_argument("example", nargs="?", help="the _id of an example or how it begins; without it, the tables")
    parser.add_argument("--results", type=Path, default=Path("results"), help="folder of the stored answers")
    parser.add_argument("--data", help="only this source of records: longbench, jsonl or synthetic")
    parser.add_argument("--model", help="only this model, by its label")
    parser.add_argument("--preset", help="of tables: only this preset")
    parser.add_argument("--no-errors", action="store_true", help="of tables: no standard errors")
    parser.add_argument("--subset", nargs="+", help="of an example: only these subsets")
    parser.add_argument(
        "--method", default="echokv", help="of an example: whose cache, such as laq or 'echokv steps=4'"
    )
    parser.add_argument("--budget", type=int, help="of an example: at which budget")
    parser.add_argument("--where", nargs="+", default=[], metavar="NAME=VALUE", help="of an example: only such runs")
    parser.add_argument("--step", default=FINAL, help=f"W1, W2, ... or {FINAL}")
    parser.add_argument("--layer", type=int, help="only this layer")
    parser.add_argument("--head", type=int, help="only this head")
    parser.add_argument("--whole", action="store_true", help="fold nothing")
    parser.add_argument("--width", type=int, help="columns (default: the terminal's)")
    return command(parser, arguments, _print)


def _print(chosen: argparse.Namespace) -> None:
    console = Console(width=chosen.width, highlight=False)
    (example if chosen.example else tables_of)(chosen, console)


if __name__ == "__main__":
    sys.exit(main())
