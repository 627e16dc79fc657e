"""Against NVIDIA's kvpress: the same model, token ids, kept sizes and number of new tokens, cell by cell.

kvpress pins an older transformers, so it runs in a virtual environment of its own, made on first use.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from types import SimpleNamespace
from typing import Any

import torch

from echokv import Press
from eval.planning.plan import Cell

from .bench import Bench, weights
from .grid import COMPARED, stand_in
from .measured import Measured, Row, Unavailable

HERE = Path(__file__).resolve().parent
PINS = HERE / "kvpress.txt"
PRESSES = {"snapkv": "SnapKVPress", "pyramidkv": "PyramidKVPress", "streamingllm": "StreamingLLMPress"}
TOGETHER, SINGLE = 1 / 5, 1.0
LIMIT = 1800  # seconds that making the environment may take


def kvpress(bench: Bench) -> Measured:
    """Our cells together and alone over kvpress's cells one by one.

    Raises Unavailable if its environment cannot be made or its process ends with an error.
    """
    cells = bench.cells(COMPARED)
    standing = [stand_in(cell, cells, bench.options.every) for cell in cells]
    rows, theirs = [], {}
    log = Path(bench.options.out) / "kvpress.log"
    with worker(environment(bench.options.kvpress), log) as ask:
        made = ask(
            model=weights(bench),
            dtype=str(bench.model.dtype).removeprefix("torch."),
            device=str(bench.model.device),
            attention=bench.settings.attention,
            threads=torch.get_num_threads(),
        )
        print(f"{'':9}  beside it: {', '.join(' '.join(pair) for pair in made.items())}", flush=True)
        short = bench.warm()
        ask(**request(bench, cells[0], short), tokens=4)
        measured = list({cell.label: cell for cell in standing}.values())
        for cell in measured:
            ours = bench.answer([cell])
            theirs[cell.label] = ask(**request(bench, cell, bench.length), tokens=bench.options.tokens)
            rows.append(Row(f"{cell.label}: ours / kvpress", ours.seconds / theirs[cell.label]["seconds"]))
    one_by_one = sum(theirs[cell.label]["seconds"] for cell in standing)
    said = "" if len(measured) == len(cells) else f", {len(measured)} of {len(cells)} measured"
    together = bench.answer(cells).seconds
    single = median(row.value for row in rows)
    return Measured(
        [
            Row(f"ours, {len(cells)} cells together / kvpress, one by one{said}", together / one_by_one, TOGETHER),
            Row("one cell: ours / kvpress, median of these", single, SINGLE),
            *rows,
            *_differences(bench, measured, theirs),
        ]
    )


def request(bench: Bench, cell: Cell, length: int) -> dict[str, Any]:
    """What the worker is asked for a cell: the press that keeps as many entries.

    kvpress takes the share to remove and rounds what it keeps down, so half an entry is added.
    """
    press: Any = cell.press
    budget = min(cell.budget or length, length)
    settings = {"compression_ratio": max(0.0, 1 - (budget + 0.5) / length) if budget < length else 0.0}
    if cell.method == "streamingllm":
        settings["n_sink"] = press.n_sink
    else:
        settings |= {"window_size": press.window, "kernel_size": press.kernel}
    if cell.method == "pyramidkv":  # whose layers round for themselves
        settings |= {"compression_ratio": max(0.0, 1 - budget / length), "beta": press.beta}
    return {"press": PRESSES[cell.method], "settings": settings, "ids": bench.ids(length).tolist()}


def _differences(bench: Bench, cells: list[Cell], theirs: dict[str, Any]) -> Iterator[Row]:
    """Where kvpress kept other numbers of entries than we did, and whether StreamingLLM's answers agree.

    SnapKV and PyramidKV average over neighbours where ours take the largest, so that their tokens may differ.
    """
    same = []
    for cell in cells:
        kept, (ours,) = theirs[cell.label]["kept"], bench.answer([cell]).answers
        if kept != _layers(bench, cell.press, cell.budget or 0):
            split = "" if sum(kept) != ours["entries"] else ", split among the layers in another way"
            yield Row(f"{cell.label}: entries kept by kvpress / ours{split}", sum(kept) / ours["entries"])
        if cell.method == "streamingllm":
            same += [a == b for a, b in zip(theirs[cell.label]["tokens"], ours["tokens"], strict=True)]
    yield Row("tokens that agree with kvpress's, streamingllm", sum(same) / len(same))


def _layers(bench: Bench, press: Press, budget: int) -> list[int]:
    """Entries of each layer under a press that selects per KV head."""
    config = bench.model.config
    shape: Any = SimpleNamespace(layers=config.num_hidden_layers, length=bench.length)  # what the split depends on
    return [min(size, bench.length) * config.num_key_value_heads for size in press.layer_budgets(budget, shape)]


def environment(folder: Path) -> Path:
    """The Python of kvpress's environment, which is made if it is not there or was made from other pins.

    Raises Unavailable, such as without a network.
    """
    python, made = folder / "bin" / "python", folder / "made-from.txt"
    constraints = (HERE.parent.parent / "constraints.txt").read_text(encoding="utf-8").splitlines()
    torch_pin = next(line for line in constraints if line.startswith("torch=="))
    pins = f"{PINS.read_text(encoding='utf-8')}{torch_pin}\n"
    if made.is_file() and made.read_text(encoding="utf-8") == pins:
        return python
    print(f"{'':9}  making kvpress's environment in {folder}, some minutes", flush=True)
    install = [
        str(python),
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "-r",
        str(PINS),
        torch_pin,
    ]
    for command in ([sys.executable, "-m", "venv", str(folder)], install):
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise Unavailable(f"kvpress's environment cannot be made in {folder} ({error}): try again") from error
        if done.returncode:
            said = [line for line in done.stderr.splitlines() if "error" in line.lower()] or done.stderr.splitlines()
            raise Unavailable(
                f"kvpress's environment cannot be made in {folder} ({' '.join(said[-1:])[:160]}): "
                "it needs a network, or leave this part out with --parts"
            )
    made.write_text(pins, encoding="utf-8")
    return python


@contextmanager
def worker(python: Path, log: Path) -> Iterator[Any]:
    """A running worker, as a function that sends one request and returns the reply; its messages go to `log`.

    Raises Unavailable in the function if the worker has ended.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    without_ours = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    with (
        log.open("w", encoding="utf-8") as messages,
        subprocess.Popen(
            [str(python), "-P", str(HERE / "kvpress_worker.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=messages,
            text=True,
            env=without_ours,
        ) as process,
    ):

        def ask(**content: Any) -> dict[str, Any]:
            assert process.stdin is not None
            assert process.stdout is not None
            try:
                process.stdin.write(json.dumps(content) + "\n")
                process.stdin.flush()
            except BrokenPipeError:
                pass  # it ended; the missing reply tells
            line = process.stdout.readline()
            if not line:
                said = log.read_text(encoding="utf-8").splitlines()
                raise Unavailable(f"kvpress's process ended ({' '.join(said[-1:])[:160]}): see {log}")
            reply: dict[str, Any] = json.loads(line)
            return reply

        try:
            yield ask
        finally:
            process.kill()
