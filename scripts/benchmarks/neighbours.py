"""What a run costs beside other work on the same cores: a busy process, or a second such run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

from eval.answering.neighbours import CALM, CHOSEN

from .bench import Bench
from .grid import COMPARED
from .measured import Measured, Row, Unavailable

SCRIPTS = Path(__file__).resolve().parents[1]
LENGTH, TOKENS = 1024, 24
BUSY, PAIR, ALONE = 2.0, 1.7, 1.03
REPEATS = 3
Worker = subprocess.Popen[str]


def neighbours(bench: Bench) -> Measured:
    """Seconds of prefill and decoding of evicted rows beside others over those alone, each in a process of its own.

    Raises Unavailable on a GPU, whose work waits for no core, and if a process ends with an error.
    """
    if bench.model.device.type != "cpu":
        raise Unavailable("how threads wait for each other is measured on a CPU")
    with ExitStack() as stack:
        begin = partial(worker, bench)
        # One after the other: of two that load at once the one that only spins takes minutes.
        one, other, default = (stack.enter_context(begin(gives_way)) for gives_way in (True, True, False))
        time.sleep(2 * CALM)
        ours, spinning = [], []
        for _ in range(REPEATS):
            ours += answer([one])
            spinning += answer([default])
        alone = min(ours)
        pair = max(answer([one, other]))
        with busy():
            time.sleep(CALM)  # both may have been noticed
            beside = answer([one])[0]
    said = f"{2 * len(COMPARED) * len(bench.budgets)} rows, {length(bench)} tokens, {TOKENS} new"
    return Measured(
        [
            Row(f"{said}, alone: seconds", alone),
            Row(f"{said}: beside one busy process / alone", beside / alone, BUSY),
            Row(f"{said}: two side by side / one", pair / alone, PAIR),
            Row(f"{said}: alone / with OpenMP's default waits", alone / min(spinning), ALONE),
        ]
    )


def length(bench: Bench) -> int:
    """Tokens of the prompt; fewer than usual where the whole run is about shorter ones."""
    return min(LENGTH, bench.length)


@contextmanager
def worker(bench: Bench, gives_way: bool) -> Iterator[Worker]:
    """A process with the same model that answers on demand; it waits as its OpenMP does unless it gives way."""
    options = bench.options
    asked = {"model": options.model, "set": options.set, "random": options.random, "budgets": options.budgets}
    asked |= {"length": length(bench), "lengths": [length(bench)], "tokens": TOKENS}
    how = "give way" if gives_way else "spin"
    command = [sys.executable, "-m", "benchmarks.neighbour", json.dumps(asked), how]
    environment = {name: value for name, value in os.environ.items() if name not in CHOSEN}
    process = subprocess.Popen(
        command, cwd=SCRIPTS, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with process:
        try:
            reply(process)
            yield process
        finally:
            process.kill()


def answer(workers: Sequence[Worker]) -> list[float]:
    """Seconds of one answer by each, all at once."""
    for process in workers:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    return [reply(process) for process in workers]


def reply(process: Worker) -> float:
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise Unavailable("a process that should answer beside others ended: its message stands above")
    return float(line)


@contextmanager
def busy() -> Iterator[None]:
    """Another process that has always something to do."""
    with subprocess.Popen([sys.executable, "-S", "-c", "while True: pass"]) as process:
        try:
            yield
        finally:
            process.kill()
