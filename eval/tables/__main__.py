"""Tables of stored answers, the paper's and our own: `python -m eval.tables table3 --model smollm2 --data jsonl`.

With settings of run.py instead, `python -m eval.tables table3 model=smollm2 data=jsonl data.path=records/`, it takes
the answers of these very runs, with the methods and budgets of conf/experiment unless the settings say otherwise.

Writes NAME.csv (every number of every cell), NAME.tex and NAME.md to RESULTS/tables and prints the last. With
--by-length also NAME-by-length.csv: LongBench-E's scores by the records' length in words.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace

from echokv.installed import called
from eval.console.errors import Parser, UserError, command
from eval.tables import cells, latex
from eval.tables.build import TABLES, build, restricted, write_files
from eval.tables.collect import Run
from eval.tables.layout import markdown
from eval.tables.options import RESULTS, found, options, select, taken

OWN = ("against", "edit", "no_errors", "all_columns", "by_length")  # options that are no setting of run.py


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status, 1 with one line on stderr for wrong input."""
    parser = Parser(prog=called("tables"), description="Tables 3, 4 and 5 of the paper, and two of our own.")
    parser.add_argument("name", choices=TABLES)
    parser.add_argument("settings", nargs="*", metavar="NAME=VALUE", help="settings of run.py; options as well")
    parser.add_argument("--no-errors", action="store_true", help="print no standard errors")
    parser.add_argument("--all-columns", action="store_true", help="show tasks without any answer as well")
    parser.add_argument("--by-length", action="store_true", help="write LongBench-E's scores by length as well")
    options(parser)
    return command(parser, arguments, _write)


def _write(chosen: argparse.Namespace) -> None:
    words, definition = taken(chosen, OWN), TABLES[chosen.name]
    if words:
        runs = _named(chosen, words)
        definition = replace(definition, methods=None, budgets=None, components=True)  # the settings name them
    else:
        runs = found(chosen, definition.model)
    selected = select(chosen, runs)
    against, errors = chosen.against, not chosen.no_errors
    table, frame = build(chosen.name, definition, selected, against, errors, chosen.where, chosen.all_columns)
    folder, texts = chosen.results / "tables", {"tex": latex.render(table), "md": markdown(table)}
    if chosen.by_length:
        lengths = cells.by_length(restricted(selected.scored, definition))
        write_files(folder, f"{chosen.name}-by-length", {"csv": lengths.to_csv(index=False)})
    write_files(folder, chosen.name, {"csv": frame.to_csv(index=False), **texts})
    print(texts["md"])


def _named(chosen: argparse.Namespace, words: Sequence[str]) -> list[Run]:
    """The runs that settings name; of the options, they set those that say the same in another way."""
    if ways := [f"--{name}" for name in ("model", "data", "preset", "subset", "where") if getattr(chosen, name)]:
        raise UserError(
            f"{ways[0]} beside settings such as {words[0]}: settings name runs by themselves, options find them"
        )
    if not any(word.startswith("experiment=") for word in words):
        words = [f"experiment={chosen.name}", *words]
    if chosen.results != RESULTS:
        words = [*words, f"results={chosen.results}"]
    from eval.tables import chosen as named  # composing takes Hydra, which the options do without

    settings = named.settings_of(words)
    chosen.results, chosen.preset, chosen.subset = settings.results, settings.preset.name, settings.subset
    return named.runs(settings, words)


if __name__ == "__main__":
    sys.exit(main())
