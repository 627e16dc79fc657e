"""Results in the terminal: `python -m eval.show` for the tables, `python -m eval.show EXAMPLE` for one example.

An example's prompt is shaded by how many (layer, head) pairs keep each token; stretches that none keeps are folded.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.style import Style
from rich.table import Table
from rich.text import Text

from eval import selections, store
from eval.errors import UserError, command, nearest
from eval.inputs import subsets
from eval.report import groups
from eval.selections import FINAL, Prompt, Step
from eval.tables import collect, layout
from eval.tables.build import build
from eval.tables.collect import Run
from eval.tables.options import setting

LEVELS = (0.0, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8)  # shares of the pairs above which a stronger shade is used
SHADES = ("#17324d", "#1a4166", "#1d5080", "#205f99", "#246fb3", "#2a80cc", "#3191e6")
AROUND = 6  # tokens shown around one that is kept


def table_of(made: layout.Table) -> Table:
    """A table as printed: bold the best, underlined the second best of a budget, standard errors beside."""
    shown = Table(title=f"{made.name}: {made.caption}", title_justify="left", caption="\n".join(made.notes))
    shown.caption_justify = "left"
    shown.add_column("Method", no_wrap=True)
    shown.add_column("B", justify="right")
    for column in made.columns:
        shown.add_column(Text(column), justify="right", no_wrap=True)
    for block in made.blocks:
        for row in block:
            shown.add_row(Text(row.title), row.budget, *map(_entry, row.entries))
        shown.add_section()
    return shown


def _entry(entry: layout.Entry) -> Text:
    text = Text(entry.text, style={1: "bold", 2: "underline"}.get(entry.place, ""))
    return text.append(f" ±{entry.error}", style="not bold not underline dim") if entry.error else text


def shaded(prompt: Prompt, shares: np.ndarray, answers: Sequence[str], whole: bool) -> Text:
    """A prompt with shaded tokens, its evidence underlined and its answers bold.

    shares: float [length], the share of pairs that keep each token. whole: fold nothing.
    """
    evidence = np.zeros(len(prompt.pieces), dtype=bool)
    for first, last in prompt.evidence:
        evidence[first:last] = True
    said = _answers(prompt.pieces, answers)
    near = np.convolve((shares > 0) | evidence, np.ones(2 * AROUND + 1), mode="full")[AROUND:-AROUND] > 0
    text, folded = Text(), 0
    for piece, share, is_evidence, is_answer, show in zip(prompt.pieces, shares, evidence, said, near, strict=True):
        if not (show or whole):
            folded += 1
            continue
        if folded:
            text.append(f" [{folded} tokens that none keeps] ", style="dim italic")
            folded = 0
        level = sum(share > least for least in LEVELS)
        style = Style(
            color="#f0f4fa" if level else None,
            bgcolor=SHADES[level - 1] if level else None,
            underline=bool(is_evidence),
            bold=bool(is_answer),
        )
        text.append(piece.replace("\n", "↵\n") if level else piece, style=style)
    return text.append(f" [{folded} tokens that none keeps]", style="dim italic") if folded else text


def _answers(pieces: Sequence[str], answers: Sequence[str]) -> np.ndarray:
    """bool [length]: the tokens of every place where an answer stands, whatever its case."""
    text = "".join(pieces).lower()
    ends = np.cumsum([len(piece) for piece in pieces])
    marks = np.zeros(len(pieces), dtype=bool)
    for answer in (answer.strip().lower() for answer in answers):
        at = text.find(answer) if answer else -1
        while at >= 0:
            first, last = np.searchsorted(ends, [at, at + len(answer) - 1], side="right")
            marks[first : last + 1] = True
            at = text.find(answer, at + len(answer))
    return marks


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
    key = Text("kept by: ")
    for least, colour in zip(LEVELS, SHADES, strict=True):
        key.append(f" >{100 * least:.0f}% ", style=Style(color="#f0f4fa", bgcolor=colour))
    console.print(
        key.append("  ").append("evidence", style="underline").append("  ").append("answer", style="bold"), ""
    )
    console.print(shaded(prompt, shares, answer["answers"], chosen.whole))


def _found(chosen: argparse.Namespace) -> tuple[Run, str, dict[str, Any], dict[str, Any]]:
    """The run, subset, stored selection and answer that the options name."""
    runs = [run for run in _runs(chosen) if run.method == chosen.method]
    if chosen.budget is not None:
        runs = [run for run in runs if run.budget in (None, chosen.budget)]
    kept = [
        (run, subset, row)
        for run in runs
        for subset in chosen.subset or store.stored_subsets(selections.folder(run.folder))
        for row in selections.rows(run.folder, subset).values()
    ]
    if not kept:
        what = f"{chosen.method} {chosen.budget or ''}".strip()
        raise UserError(f"no kept tokens of {what} are stored: run it again with record.selections=true")
    known = sorted({str(row["_id"]) for _, _, row in kept})
    fitting = {name for name in known if name == chosen.example} or {
        name for name in known if name.startswith(chosen.example)
    }
    hits = [(run, subset, row) for run, subset, row in kept if row["_id"] in fitting]
    if not hits:
        such = f"{len(known)} examples have some, such as {', '.join(known[:3])}"
        raise UserError(f"no kept tokens of {chosen.example!r} by {chosen.method}: {such}")
    if len(hits) > 1:
        names = ", ".join(f"{run.folder.name} {row['_id']}" for run, _, row in hits[:4])
        raise UserError(
            f"{len(hits)} fit ({names}{', ...' if len(hits) > 4 else ''}): give the whole _id, and narrow with "
            "--budget, --subset, --data, --model or --where"
        )
    run, subset, row = hits[0]
    answer = store.stored(run.folder, subset).get(row["_id"])
    if answer is None or answer["fingerprint"] != row["fingerprint"]:
        raise UserError(f"{run.folder} has no answer to {row['_id']!r} in that text: run the same command again")
    return run, subset, row, answer


def _runs(chosen: argparse.Namespace) -> list[Run]:
    """Runs of the data and model asked for, of all where neither is."""
    where = dict(setting(text) for text in chosen.where)
    folders = sorted({path.parent.parent for path in chosen.results.glob("*/*/*/manifest.json")})
    folders = [path for path in folders if chosen.data in (None, path.parent.name)]
    folders = [path for path in folders if chosen.model in (None, path.name)]
    if not folders:
        raise UserError(f"no such answers in {chosen.results}: run python run.py first, or check --data and --model")
    return [run for path in folders for run in collect.find(chosen.results, path.parent.name, path.name, where)]


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
    shown = 0
    for group in groups.find(chosen.results):
        asked = {"data": chosen.data, "model": chosen.model, "preset": chosen.preset}
        if any(value not in (None, getattr(group, name)) for name, value in asked.items()):
            continue
        selected = groups.select(group, chosen.results, None)
        made, _ = build("table3", selected, "laq", not chosen.no_errors)
        name = f"{group.data} {group.model} {group.preset}"
        notes = (*made.notes, *(f"Left out: {run}." for run in group.left_out))
        console.print(table_of(layout.Table(name, made.caption, made.groups, made.columns, made.blocks, notes)))
        shown += 1
    if not shown:
        raise UserError(f"no such answers in {chosen.results}: check --data, --model and --preset")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status, 1 with one line on stderr for wrong input."""
    parser = argparse.ArgumentParser(prog="python -m eval.show", description="Results in the terminal.")
    parser.add_argument("example", nargs="?", help="the _id of an example or how it begins; without it, the tables")
    parser.add_argument("--results", type=Path, default=Path("results"), help="folder of the stored answers")
    parser.add_argument("--data", help="only this source of records: longbench, jsonl or synthetic")
    parser.add_argument("--model", help="only this model, by its label")
    parser.add_argument("--preset", help="of tables: only this preset")
    parser.add_argument("--no-errors", action="store_true", help="of tables: no standard errors")
    parser.add_argument("--subset", nargs="+", help="of an example: only these subsets")
    parser.add_argument("--method", default="echokv", help="of an example: whose cache")
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
