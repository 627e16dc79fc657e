"""Cost ratios, all from one run on one machine: `make bench`, or python scripts/bench.py --help.

Every figure is a ratio of two things measured here, so that it means the same on another machine. Prompts are
random token ids, cells decode a fixed number of tokens, and the code timed is the runner's own.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import math
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from hydra import compose, initialize_config_dir
from hydra.utils import instantiate
from omegaconf import OmegaConf
from transformers.utils.logging import disable_progress_bar

from echokv import Needs, Prefill, Press, Selection, decode_rows, load_model, prefill
from echokv.scores import attention_mass
from eval.asked import Asked
from eval.measure import Meter
from eval.plan import Cell
from eval.runner import answers

ROOT = Path(__file__).resolve().parent.parent
METHODS = ("full", "streamingllm", "h2o", "snapkv", "pyramidkv", "laq", "echokv")
BUDGETS = (128, 256, 512)


@dataclass(frozen=True)
class Row:
    """One measured ratio. bar: what it must not exceed (or, if `at_least`, fall below); None if there is none."""

    name: str
    value: float
    bar: float | None = None
    at_least: bool = False

    @property
    def verdict(self) -> str:
        if self.bar is None:
            return ""
        met = self.value >= self.bar if self.at_least else self.value <= self.bar
        return f"{'at least' if self.at_least else 'at most'} {self.bar:.3g}: {'met' if met else 'MISSED'}"


@dataclass(frozen=True)
class Bench:
    """The model under test, its presses and the settings of the run."""

    model: Any
    presses: dict[str, Press]
    length: int
    lengths: Sequence[int]
    tokens: int

    def ids(self, length: int) -> torch.Tensor:
        generator = torch.Generator().manual_seed(length)
        return torch.randint(100, self.model.config.vocab_size - 100, (length,), generator=generator)

    def fill(self, length: int, needs: Needs | None = None) -> Prefill:
        return prefill(self.model, self.ids(length), needs or Needs(window=32))

    def cells(self, methods: Sequence[str], budgets: Sequence[int] = BUDGETS) -> list[Cell]:
        store: Any = SimpleNamespace()  # nothing is stored
        return [
            Cell(name, budget, self.presses[name], store)
            for name in methods
            for budget in (budgets if self.presses[name].takes_budget else [None])
        ]

    @property
    def asked(self) -> Asked:
        return Asked(
            ids=tuple(self.ids(self.length).tolist()),
            text="",
            tokens_before=self.length,
            truncated=False,
            stop_ids=frozenset(),
            max_new_tokens=self.tokens,
            min_new_tokens=0,
        )

    def answer(self, cells: Sequence[Cell], rows: int | None = None) -> float:
        """Seconds of the runner's whole work for these cells: prefill, selections, decoding."""
        _trim()
        return seconds(lambda: list(answers(self.asked, cells, self.model, rows)))


def seconds(work: Callable[[], Any], repeats: int = 1) -> float:
    """The shortest of some runs."""
    times = []
    for _ in range(repeats):
        with Meter() as meter:
            work()
        times.append(meter.seconds)
    return min(times)


def _trim() -> None:
    """Give freed memory back to the system, so that it does not count for what is measured next."""
    if platform.system() == "Linux":
        ctypes.CDLL("libc.so.6").malloc_trim(0)


def selection(bench: Bench) -> list[Row]:
    """Selection time over prefill time per method and length, and how it grows."""
    bars = {"snapkv": 0.03, "pyramidkv": 0.03, "h2o window": 0.08, "h2o all": 0.45}
    presses = {name: press for name, press in bench.presses.items() if name not in ("full", "h2o")}
    h2o = type(bench.presses["h2o"])
    presses |= {"h2o window": h2o(queries="window"), "h2o all": h2o(queries="all")}  # type: ignore[call-arg]
    taken: dict[str, list[tuple[int, float]]] = {name: [] for name in presses}
    rows = []
    for length in bench.lengths:
        bench.fill(length)  # warm
        plain = seconds(lambda length=length: bench.fill(length), 2)
        with_sums = seconds(lambda length=length: bench.fill(length, Needs(column_sums=True)), 2)
        filled = bench.fill(length, Needs(window=32, column_sums=True))
        for name, press in presses.items():
            press.select(filled, 128)
            taken_here = seconds(lambda press=press, filled=filled: press.select(filled, 128), 3)
            if press.needs.column_sums:
                taken_here += max(0.0, with_sums - plain)
            taken[name].append((length, taken_here))
            bar = bars.get(name) if length == bench.length else None
            rows.append(Row(f"selection / prefill, {name}, {length} tokens", taken_here / plain, bar))
        if length == bench.length:
            rows.append(_echokv_against_steps(bench, filled))
    rows += [Row(f"growth exponent of selection, {name}", _slope(points)) for name, points in taken.items()]
    return rows


def _echokv_against_steps(bench: Bench, filled: Prefill) -> Row:
    """EchoKV's whole selection over the decode steps it contains, taken on a workspace of its size."""
    press: Any = bench.presses["echokv"]
    workspace = press.select(filled, press.workspace)
    whole = seconds(lambda: press.select(filled, 128), 3)
    steps = seconds(lambda: filled.session(workspace).advance(press.steps), 3)
    return Row(f"EchoKV selection / its {press.steps} decode steps", whole / steps, 1.3)


def _slope(points: list[tuple[int, float]]) -> float:
    """Exponent of the power law fitted to (length, seconds)."""
    if len(points) < 2:
        return math.nan
    xs, ys = [math.log(x) for x, _ in points], [math.log(max(y, 1e-9)) for _, y in points]
    mean_x, mean_y = sum(xs) / len(xs), sum(ys) / len(ys)
    over = sum((x - mean_x) * (y - mean_y) for x, y in zip(xs, ys, strict=True))
    return over / sum((x - mean_x) ** 2 for x in xs)


def grid(bench: Bench) -> list[Row]:
    """Every method at every budget together, over FullKV alone and over the same cells one by one."""
    cells = bench.cells(METHODS)
    bench.answer(cells[:1])  # warm
    full = bench.answer(cells[:1])
    together = bench.answer(cells)
    alone = sum(bench.answer([cell], 1) for cell in cells)
    return [
        Row(f"{len(cells)} cells together / FullKV alone", together / full, 2.0),
        Row(f"{len(cells)} cells together / one by one", together / alone, 1 / 7),
    ]


def scoring(bench: Bench) -> list[Row]:
    """Bytes of keys read per second by a scoring pass, as a share of a plain copy's."""
    filled = bench.fill(bench.length)
    queries = [filled.last_queries(layer, 8) for layer in range(filled.layers)]

    def score() -> None:
        for part, keys in zip(queries, filled.keys, strict=True):
            attention_mass(part, keys, filled.scaling)

    score()
    copy = seconds(lambda: [keys.clone() for keys in filled.keys], 5)
    return [Row("scoring pass with 8 queries, bandwidth / plain copy of the keys", copy / seconds(score, 5), 0.5, True)]


def rows(bench: Bench) -> list[Row]:
    """Tokens per second of 18 evicted rows in one batch, over one row at a time."""
    filled = bench.fill(bench.length)
    some = [bench.presses[name] for name in ("streamingllm", "snapkv", "pyramidkv")]
    nine = [press.select(filled, budget) for press in some for budget in BUDGETS]

    def decode(selections: Sequence[Selection]) -> None:
        decode_rows([filled.session(selection) for selection in selections], bench.tokens)

    decode(nine[:1])
    alone = 2 * sum(seconds(lambda selection=selection: decode([selection])) for selection in nine)
    return [
        Row("18 rows together / one at a time, tokens per second", alone / seconds(lambda: decode(nine * 2)), 5, True)
    ]


def memory(bench: Bench) -> list[Row]:
    """Peak memory of each method's whole answer over the peak of FullKV's prefill."""
    bench.fill(bench.length)
    _trim()
    with Meter() as full:
        bench.fill(bench.length)
    ratios = []
    for cell in bench.cells(METHODS, [128]):
        _trim()
        ((_, answer),) = answers(bench.asked, [cell], bench.model, 1)
        ratios.append(Row(f"peak memory / FullKV's prefill, {cell.method}", answer["peak_bytes"] / full.peak, 1.1))
    return ratios


def start(bench: Bench) -> list[Row]:
    """Seconds until `python run.py --help` has answered."""
    command = [sys.executable, "run.py", "--help"]
    took = seconds(lambda: subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL), 3)
    return [Row("python run.py --help, seconds", took, 2.0)]


PARTS: dict[str, Callable[[Bench], list[Row]]] = {
    "start": start,
    "selection": selection,
    "scoring": scoring,
    "memory": memory,
    "rows": rows,
    "grid": grid,
}


def main() -> int:
    """Measure the parts asked for, print a table and write it with the machine's name as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="smollm2", help="a name from conf/model")
    parser.add_argument("--set", nargs="*", default=[], help="further settings, such as model.name=/path")
    parser.add_argument("--length", type=int, default=4096, help="prompt tokens of the main measurements")
    parser.add_argument("--lengths", type=int, nargs="*", default=[1024, 2048, 4096], help="for growth")
    parser.add_argument("--tokens", type=int, default=64, help="new tokens per cell")
    parser.add_argument("--parts", nargs="*", choices=sorted(PARTS), default=list(PARTS))
    parser.add_argument("--out", type=Path, default=ROOT / "results" / "bench.json")
    options = parser.parse_args()
    disable_progress_bar()
    methods = f"method=[{','.join(METHODS)}]"
    with initialize_config_dir(str(ROOT / "conf"), version_base="1.3"):
        config: Any = OmegaConf.to_container(
            compose("config", [f"model={options.model}", methods, "preset=equal_bytes", *options.set]), resolve=True
        )
    settings = config["model"]
    model, _ = load_model(settings["name"], settings["dtype"], settings["device"], settings["attention"])
    presses = {name: instantiate(fields, _convert_="all") for name, fields in config["methods"].items()}
    bench = Bench(model, presses, options.length, options.lengths, options.tokens)
    found: list[Row] = []
    for part in options.parts:
        begun = time.perf_counter()
        for row in PARTS[part](bench):
            print(f"{row.value:9.3f}  {row.name:62} {row.verdict}", flush=True)
            found.append(row)
        print(f"{'':9}  ({part}: {time.perf_counter() - begun:.0f} s)", flush=True)
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else platform.processor() or platform.machine()
    about = {"device": device, "threads": torch.get_num_threads(), "torch": torch.__version__}
    options.out.parent.mkdir(parents=True, exist_ok=True)
    asked = {key: str(value) for key, value in vars(options).items()}
    options.out.write_text(json.dumps({**about, "options": asked, "rows": [asdict(row) for row in found]}, indent=1))
    print(f"written to {options.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
