"""python -m eval.report: write results/report, a folder to open from disk; --serve shows it while a run goes on."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from echokv.installed import called
from eval.console.errors import Parser, command


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status, 1 with one line on stderr for wrong input."""
    parser = Parser(prog=called("report"), description=__doc__)
    parser.add_argument("--results", type=Path, default=Path("results"), help="folder of the stored answers")
    parser.add_argument("--out", type=Path, help="folder of the report (default: RESULTS/report)")
    parser.add_argument("--edit", choices=("difflib", "levenshtein"), help="edit similarity (default: the preset's)")
    parser.add_argument("--serve", action="store_true", help="show it on localhost and follow the runs")
    parser.add_argument("--port", type=int, default=8765, help="of --serve; 0 for a free one")
    return command(parser, arguments, _report)


def _report(chosen: argparse.Namespace) -> None:
    root = chosen.out or chosen.results / "report"
    from eval.report.build import build  # after the options: `--help` must not wait for pandas
    from eval.report.serve import serve

    def rebuild() -> None:
        built = build(chosen.results, root, chosen.edit)
        for problem in built.problems:
            print(f"no table of {problem}", file=sys.stderr)
        about = f"{built.tables} tables, {built.answers} answers, {built.recorded} of them with kept tokens"
        print(f"{root / 'index.html'}: {about}, {built.analyses} analyses", flush=True)

    rebuild()
    if chosen.serve:
        serve(chosen.results, root, chosen.port, rebuild)


if __name__ == "__main__":
    sys.exit(main())
