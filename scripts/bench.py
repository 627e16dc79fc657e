"""Cost ratios, all from one run on one machine: `make bench`, or python scripts/bench.py --help.

Every ratio is of two things measured here, so that it means the same on another machine. Prompts are random token
ids, cells decode a fixed number of tokens, and the code timed is the runner's own. What was found goes to a folder as
bench.json, bench.md and plots. On a GPU without weights or network: --model mistral --random --length 8192
--lengths 8192 16384 31500 --set model.dtype=bfloat16 model.name=scripts/benchmarks/shapes/mistral.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from benchmarks import plots
from benchmarks.against_kvpress import kvpress
from benchmarks.analysis import analysis, halves
from benchmarks.bench import Bench
from benchmarks.grid import grid
from benchmarks.measured import Measured, Point, Row, Unavailable
from benchmarks.neighbours import neighbours
from benchmarks.program import program
from benchmarks.rivals import rivals
from benchmarks.selection import rows, scoring, selection
from benchmarks.shares import shares
from benchmarks.start import start
from transformers.utils.logging import disable_progress_bar

from echokv import UsageError
from eval.answering.provenance import code_version, processor, without_paths
from eval.console.errors import Parser
from eval.console.mistakes import explain

ROOT = Path(__file__).resolve().parent.parent


# In this order answers and prefills of one part serve the next.
PARTS: dict[str, Callable[[Bench], Measured]] = {
    "start": start,
    "kvpress": kvpress,
    "grid": grid,
    "selection": selection,
    "scoring": scoring,
    "rows": rows,
    "analysis": analysis,
    "halves": halves,
    "neighbours": neighbours,
    "program": program,
    "rivals": rivals,
    "shares": shares,
}
ASKED_FOR = ("rivals", "shares")  # parts that are measured only where they are named


def arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = Parser(description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    add = parser.add_argument
    cache = (
        os.environ.get("ECHOKV_CACHE") or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "echokv"
    )
    add("--model", default="smollm2", help="a name from conf/model")
    add("--set", nargs="*", default=[], metavar="KEY=VALUE", help="further settings, such as model.name=/path")
    add("--random", action="store_true", help="random weights of the model's shape, read from its config.json")
    add("--length", type=int, default=4096, help="prompt tokens of the main measurements")
    add("--lengths", type=int, nargs="*", default=[1024, 2048, 4096, 8192], help="prompt tokens to see growth over")
    add("--tokens", type=int, default=64, help="new tokens per cell")
    add("--budgets", type=int, nargs="+", default=[128, 256, 512], help="tokens kept per head")
    add("--every", action="store_true", help="answer every cell alone, not one budget for all of H2O, LAQ and EchoKV")
    add(
        "--parts",
        nargs="+",
        choices=list(PARTS),
        help=f"what to measure; all but {' and '.join(ASKED_FOR)} if not given",
    )
    add("--examples", type=int, default=1, help="halves: examples of each task")
    add("--synthetic", type=int, default=512, help="halves: tokens of a prompt")
    add("--bandwidth", type=float, help="shares: the machine's limit in TB/s")
    add("--flops", type=float, help="shares: the machine's limit in TFLOP/s at the model's dtype")
    add("--mean", type=int, default=10600, help="shares: mean prompt tokens of the projection's examples")
    add("--kvpress", type=Path, default=Path(cache) / "kvpress", help="folder of kvpress's environment")
    add("--out", type=Path, default=ROOT / "results" / "bench", help="folder for what was found")
    options = parser.parse_args(given)
    for name in ("length", "tokens", "examples"):
        if getattr(options, name) < 1:
            parser.error(f"--{name} is {getattr(options, name)}; it must be at least 1")
    return options


def measure(options: argparse.Namespace) -> int:
    """Measure part by part, print a table and write it.

    Returns the exit status: 1 if a part that was asked for by its name could not be measured.
    """
    disable_progress_bar()
    bench = Bench.of(options)
    options.out.mkdir(parents=True, exist_ok=True)
    bench.warm()
    found: list[Row] = []
    points: list[Point] = []
    times: dict[str, float] = {}
    missing: dict[str, str] = {}
    for part in options.parts or [name for name in PARTS if name not in ASKED_FOR]:
        begun = time.perf_counter()
        try:
            made = PARTS[part](bench)
        except (Unavailable, torch.OutOfMemoryError) as error:
            missing[part], made = str(error).partition("\n")[0], Measured([])
            print(f"{'':9}  {part} is left out: {missing[part]}", file=sys.stderr, flush=True)
        for row in made.rows:
            print(f"{row.value:9.3f}  {row.name:72} {row.verdict}".rstrip(), flush=True)
        found, points = found + made.rows, points + made.points
        times[part] = round(time.perf_counter() - begun, 1)
        print(f"{'':9}  ({part}: {times[part]:.0f} s)", flush=True)
        write(options.out, {**about(bench), "left_out": missing, "part_seconds": times}, found, points)
    made_plots = plots.draw(options.out, points, options.tokens, options.length)
    print(f"written to {options.out}: bench.json, bench.md{''.join(f', {name}.pdf, .png' for name in made_plots)}")
    return 1 if missing and options.parts else 0


def about(bench: Bench) -> dict[str, Any]:
    """The machine, versions and settings that the figures are of."""
    cuda = bench.model.device.type == "cuda"
    given = {**vars(bench.options), "set": dict(one.partition("=")[::2] for one in bench.options.set)}
    options = {key: str(value) if isinstance(value, Path) else value for key, value in given.items()}
    return {
        "device": torch.cuda.get_device_name() if cuda else processor(),
        "threads": torch.get_num_threads(),
        "system": platform.platform(),
        "versions": {name: version(name) for name in ("torch", "transformers")} | {"python": platform.python_version()},
        "code": code_version(),
        "dtype": str(bench.model.dtype).removeprefix("torch."),
        "parameters": sum(weight.numel() for weight in bench.model.parameters()),
        "weights": "random" if bench.options.random else "as named",
        "options": without_paths(options),
    }


def write(folder: Path, head: dict[str, Any], found: list[Row], points: list[Point]) -> None:
    """bench.json, and the rows as a Markdown table."""
    content = {**head, "rows": [row.stored for row in found], "points": [asdict(point) for point in points]}
    (folder / "bench.json").write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    lines = [f"| {row.name} | {row.value:.3g} | {row.limit} | {row.verdict.rpartition(': ')[2]} |" for row in found]
    table = ["| measured | value | bar | |", "|---|---|---|---|", *lines]
    (folder / "bench.md").write_text("\n".join(table) + "\n", encoding="utf-8")


def main() -> int:
    """Run the command line; a user's mistake is one line and status 1."""
    try:
        return measure(arguments())
    except Exception as error:
        message = str(error) if isinstance(error, UsageError) else explain(error)
        if message is None:
            raise
        print(f"error: {message}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
