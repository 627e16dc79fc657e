"""Figures for a paper: `python -m eval.figures` writes PDF and PNG of budget curves, costs and paired differences.

Where what is kept is stored in several ways, also score against stored bytes.

One folder RESULTS/figures/DATA-MODEL-PRESET a table, with the settings behind it in which it differs from another of
that name; methods in the paper's order, told apart by marker and dash as well as by colour.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from echokv.installed import called
from eval.console.errors import Parser, UserError, command
from eval.report import canvas, curves, groups, memory, numbers, plots
from eval.report.look import looks
from eval.tables import cells
from eval.tables.options import AGAINST, check_against

DRAWN = ("budgets", "tasks", "costs", "bytes", "differences")


def write(results: Path, against: str) -> Iterator[Path]:
    """Write the figures of every table and yield their folders.

    Raises:
        UserError: no answers, none of the method to compare with, or a folder that cannot be written to.
    """
    found = groups.find(results)
    names = {run.name for group in found for run in group.runs}
    check_against(against, list(names))
    look = looks(map(str, names))
    for group in found:
        selected = groups.select(group, results, None)
        frame = numbers.cells_of(selected)
        present = [task for task in (cells.AVERAGE, *selected.tasks) if task in set(frame["subset"])]
        folder = results / "figures" / group.name
        drawn = curves.figures(frame, present, look)
        if cells.AVERAGE in present:
            drawn["costs"] = plots.costs(frame, look)
            if (stored := memory.by_bytes(frame)) is not None:
                drawn["bytes"] = stored
        if (compared := plots.differences(selected, against, present, look)) is not None:
            drawn["differences"] = compared
        try:
            folder.mkdir(parents=True, exist_ok=True)
            for name, figure in drawn.items():
                canvas.save(figure, folder, name)
            for path in (folder / f"{name}.{ending}" for name in {*DRAWN} - {*drawn} for ending in ("pdf", "png")):
                path.unlink(missing_ok=True)  # of earlier answers or of another --against
        except OSError as error:
            raise UserError(f"cannot write to {folder} ({error.strerror}): choose another --results") from error
        yield folder


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status, 1 with one line on stderr for wrong input."""
    parser = Parser(prog=called("figures"), description="Figures for a paper, PDF and PNG.")
    parser.add_argument("--results", type=Path, default=Path("results"), help="folder of the stored answers")
    parser.add_argument("--against", default=AGAINST, help="method of the paired differences")
    return command(parser, arguments, _print)


def _print(chosen: argparse.Namespace) -> None:
    for folder in write(chosen.results, chosen.against):
        print(folder, flush=True)


if __name__ == "__main__":
    sys.exit(main())
