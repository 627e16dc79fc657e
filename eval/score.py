"""Score prediction files: `python -m eval.score PATH...`, the official form or this project's own.

Official (THUDM/LongBench, `pred.py`): `pred/MODEL/SUBSET.jsonl` with pred, answers, all_classes and length, and
`pred_e/MODEL/SUBSET.jsonl` for LongBench-E.
This project's rows have `_id` and `dataset` as well. One table per folder and, where rows name them, per
method and budget. In a folder of stored answers all files of a subset count as one. docs/tables.md describes the lines.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from echokv.installed import called
from eval.console.errors import Parser, command
from eval.inputs import subsets
from eval.scoring.predictions import Table, read_tables
from eval.scoring.rows import Row, Score, score_rows


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status, 1 with one line on stderr for wrong input."""
    parser = Parser(
        prog=called("score"),
        description="Score LongBench predictions: code by both edit similarities, English summaries by the official "
        "Rouge-L and by rouge-score, LongBench-E also by the records' length in words (0-4k, 4-8k, 8k+).",
    )
    parser.add_argument(
        "paths", nargs="+", type=Path, metavar="PATH", help="JSONL file (or .jsonl.gz), or folder of them"
    )
    parser.add_argument("--subset", metavar="NAME", help="what one file of another name holds, such as qasper_e")
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    return command(parser, arguments, _print)


def _print(options: argparse.Namespace) -> None:
    tables = read_tables(options.paths, options.subset)
    scores = {table: _score_table(by_subset) for table, by_subset in tables.items()}
    if options.json:
        found = [{"table": list(table), "scores": [asdict(row) for row in rows]} for table, rows in scores.items()]
        print(json.dumps(found, indent=1, allow_nan=False))
    else:
        print("\n\n".join(_text(table, rows) for table, rows in scores.items()))


def _score_table(by_subset: dict[str, list[Row]]) -> list[Score]:
    order = {name: place for place, name in enumerate(subsets.names())}
    names = sorted(by_subset, key=lambda name: (name.endswith("_e"), order[name.removesuffix("_e")]))
    return [score for name in names for score in score_rows(subsets.load(name), by_subset[name])]


def _text(table: Table, scores: Sequence[Score]) -> str:
    lines = [", ".join(table), f"{'subset':<24}{'variant':<13}{'n':>5}{'score':>8}{'± s.e.':>8}"]
    for row in scores:
        error = "-" if row.error is None else f"{row.error:.2f}"
        line = f"{row.subset:<24}{row.edit or '':<13}{row.n:>5}{row.score:>8.2f}{error:>8}"
        for title, mean in (row.buckets or {}).items():
            line += f"  {title}: {'no records' if mean is None else f'{mean:.2f}'}"
        if row.expected is not None and row.n != row.expected:
            line += f"  ({'partial' if row.n < row.expected else 'too many'}: n={row.n} of {row.expected})"
        if row.failures:
            line += f"  (rouge raised on {row.failures}, scored 0)"
        lines.append(line)
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
