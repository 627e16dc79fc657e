"""How far the runs in a results folder are: `python -m eval.status [RESULTS] [--subsets english] [--watch]`.

All is read from the store: what is answered, what each run set out to answer, and what answers have cost. A method at
a budget is to have what its own runs set out to answer, and the subsets named with --subsets.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from echokv.installed import called
from eval.answering.progress import FRESH, Progress, has_answers, progress, seconds_left
from eval.console.errors import Parser, UserError, command
from eval.inputs import subsets
from eval.report import groups
from eval.tables.collect import Run


def standing(results: Path, wanted: Sequence[str] = ()) -> list[Progress]:
    """How far all runs are, named as in the other commands: runs that make a table together by what tells them apart.

    Raises UserError if there are no answers, or a folder of the store is damaged.
    """
    found = groups.find(results, required=False, begun=True)
    if not found:
        raise UserError(f"{results} holds no stored answers; name the folder that runs were given by results=")
    titles = (" ".join(filter(None, [f"{group.data}/{group.model}", group.preset, *group.apart])) for group in found)
    rows = ({run.folder: run.label for run in sorted(group.runs, key=_order)} for group in found)
    return progress(dict(zip(titles, rows, strict=True)), wanted)


def render(lines: Sequence[Progress]) -> Group:
    """Tables for a terminal, methods and budgets that stand alike in one row."""
    return Group(*(part for title in dict.fromkeys(line.table for line in lines) for part in _table(title, lines)))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status, 1 with one line on stderr for wrong input."""
    parser = Parser(prog=called("status"), description="How far the stored runs are.")
    parser.add_argument("results", nargs="?", type=Path, help="folder of the stored answers (default: results)")
    parser.add_argument("--subsets", default="", metavar="NAME,...", help="subsets or groups that are to be answered")
    parser.add_argument("--watch", nargs="?", const="5", metavar="SECONDS", help="go on until nothing is missing")
    try:
        return command(parser, arguments, _print)
    except KeyboardInterrupt:
        return 130


def _print(options: argparse.Namespace) -> None:
    results, seconds = options.results, options.watch
    if results is None and seconds is not None and not _is_number(seconds):  # --watch RESULTS
        results, seconds = Path(seconds), "5"
    results = results or Path("results")
    wanted = subsets.expand(options.subsets.split(",")) if options.subsets else ()
    if seconds is None:
        Console().print(render(standing(results, wanted)))
    elif not _is_number(seconds) or not float(seconds) > 0:
        raise UserError(f"--watch {seconds}: give the seconds between two looks, more than 0")
    else:
        _watch(results, wanted, float(seconds))


def _order(run: Run) -> tuple[Any, ...]:
    return run.name.order, run.budget or 0


def _is_number(word: str) -> bool:
    try:
        return math.isfinite(float(word))
    except ValueError:
        return False


def _watch(results: Path, wanted: Sequence[str], seconds: float) -> None:
    """Show the tables until nothing is missing; a run that has yet to store its first answer is waited for."""
    with Live(auto_refresh=False) as live:
        while True:
            lines = standing(results, wanted) if has_answers(results) else []
            waiting = Text(f"{results} holds no stored answers yet: waiting for the first (Ctrl-C ends)")
            live.update(render(lines) if lines else waiting, refresh=True)
            if lines and not any(line.missing for line in lines):
                return
            time.sleep(seconds)


def _table(title: str, lines: Sequence[Progress]) -> Iterator[Table | Text]:
    lines = [line for line in lines if line.table == title]
    cells = list(dict.fromkeys(line.cell for line in lines))
    table = Table("subset", "methods and budgets", title=Text(title), title_justify="left")
    for heading in ("done", "running", "missing"):
        table.add_column(heading, justify="right")
    alike: dict[tuple[str, int, int, int], list[str]] = defaultdict(list)
    for line in lines:
        alike[line.subset, line.done, line.running, line.missing].append(line.cell)
    order = list(dict.fromkeys(line.subset for line in lines))
    for (subset, *numbers), group in sorted(alike.items(), key=lambda row: order.index(row[0][0])):
        who = f"all {len(cells)}" if len(group) == len(cells) > 1 else "; ".join(group)
        table.add_row(Text(subset), Text(who), *map(str, numbers))
    yield table
    yield Text(_total(lines))


def _total(lines: Sequence[Progress]) -> str:
    done, missing = sum(line.done for line in lines), sum(line.missing for line in lines)
    if not missing:
        return f"all {done} answers are stored\n"
    running, left = len(frozenset().union(*(line.at_work for line in lines))), seconds_left(lines)
    at_work = (
        f"{running} process{'es' if running > 1 else ''} answered in the last {FRESH / 60:.0f} minutes"
        if running
        else "none is running"
    )
    time_left = "" if left is None else f", about {_duration(left / max(1, running))} left"
    each = " for each" if running > 1 and left is not None else ""
    return f"{done} of {done + missing} answers are stored; {at_work}{time_left}{each}\n"


def _duration(seconds: float) -> str:
    hours, rest = divmod(round(seconds), 3600)
    return f"{hours} h {rest // 60} min" if hours else f"{rest // 60} min {rest % 60} s"


if __name__ == "__main__":
    sys.exit(main())
