"""Tables 3, 4 and 5 from stored answers: `python -m eval.tables table3 --model smollm2 --data jsonl`.

Writes NAME.csv (every number of every cell), NAME.tex and NAME.md to RESULTS/tables and prints the last. With
--by-length also NAME-by-length.csv: LongBench-E's scores by the records' length in words.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from eval.console.errors import Parser, command
from eval.tables import cells, latex
from eval.tables.build import TABLES, build, restricted, write_files
from eval.tables.layout import markdown
from eval.tables.options import options, select


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status, 1 with one line on stderr for wrong input."""
    parser = Parser(prog="python -m eval.tables", description="Tables 3, 4 and 5 of the paper.")
    parser.add_argument("name", choices=TABLES)
    parser.add_argument("--no-errors", action="store_true", help="print no standard errors")
    parser.add_argument("--all-columns", action="store_true", help="show tasks without any answer as well")
    parser.add_argument("--by-length", action="store_true", help="write LongBench-E's scores by length as well")
    options(parser)
    return command(parser, arguments, _write)


def _write(chosen: argparse.Namespace) -> None:
    selected = select(chosen, TABLES[chosen.name].model)
    against, errors = chosen.against, not chosen.no_errors
    table, frame = build(chosen.name, selected, against, errors, chosen.where, chosen.all_columns)
    folder, texts = chosen.results / "tables", {"tex": latex.render(table), "md": markdown(table)}
    if chosen.by_length:
        lengths = cells.by_length(restricted(selected.scored, TABLES[chosen.name]))
        write_files(folder, f"{chosen.name}-by-length", {"csv": lengths.to_csv(index=False)})
    write_files(folder, chosen.name, {"csv": frame.to_csv(index=False), **texts})
    print(texts["md"])


if __name__ == "__main__":
    sys.exit(main())
