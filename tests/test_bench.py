"""scripts/bench.py: its arithmetic, what it writes, and a whole run on a tiny model with random weights."""

import json
import math
import random
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from baselines.pyramidkv import PyramidKV
from baselines.snapkv import SnapKV
from baselines.streaming_llm import StreamingLLM
from echokv import UsageError
from eval.console.errors import UserError
from eval.inputs import subsets
from eval.planning.plan import Cell
from eval.planning.policies import Given
from eval.planning.settings import Model
from eval.scoring.rows import check_row
from scripts import bench_report
from scripts.benchmarks import against_kvpress, shares
from scripts.benchmarks.bench import Bench, load
from scripts.benchmarks.grid import stand_in
from scripts.benchmarks.measured import Row, Unavailable, power_law, shortest
from scripts.benchmarks.start import call
from scripts.benchmarks.weights import step_bytes

ROOT = Path(__file__).resolve().parent.parent
SHAPE: Any = SimpleNamespace(layers=3, length=1000)  # of a prefill, all that budgets of layers depend on
PARTS = [
    "grid",
    "selection",
    "scoring",
    "rows",
    "analysis",
    "halves",
    "neighbours",
    "program",
    "rivals",
    "shares",
    "kvpress",
]


@pytest.mark.parametrize(
    ("row", "met", "verdict"),
    [
        (Row("a", 2.0, 2.0), True, "at most 2: met"),
        (Row("a", 2.001, 2.0), False, "at most 2: MISSED"),
        (Row("a", 0.5, 0.5, at_least=True), True, "at least 0.5: met"),
        (Row("a", 0.499, 0.5, at_least=True), False, "at least 0.5: MISSED"),
        (Row("a", math.nan, 2.0), False, "at most 2: MISSED"),
        (Row("a", 2.0), None, ""),
    ],
)
def test_verdict(row: Row, met: bool | None, verdict: str) -> None:
    assert row.met is met
    assert row.verdict == row.stored["verdict"] == verdict


def test_power_law() -> None:
    exponent, factor = power_law([(x, 3 * x**1.5) for x in (64, 128, 1024)])
    assert (exponent, factor) == (pytest.approx(1.5), pytest.approx(3))
    with pytest.raises(ValueError, match="two points"):
        power_law([(64, 1.0), (64, 2.0)])


@pytest.mark.parametrize(("repeats", "limit", "runs"), [(3, math.inf, 3), (3, 1e-9, 1)])
def test_shortest_stops_at_its_limit(repeats: int, limit: float, runs: int) -> None:
    begun: list[int] = []
    assert shortest(lambda: begun.append(1), repeats, limit) > 0
    assert len(begun) == runs


def cell(method: str, budget: int | None, press: Any = None) -> Cell:
    return Cell(method, budget, Given(press), None)  # type: ignore[arg-type]


def test_which_answers_count_for_which_cells() -> None:
    cells = [cell("full", None), *(cell(name, size) for name in ("snapkv", "echokv") for size in (128, 256, 512))]
    assert [stand_in(one, cells, True) for one in cells] == cells
    counted = [stand_in(one, cells, False).label for one in cells]
    assert counted == ["full", "snapkv 128", "snapkv 256", "snapkv 512", "echokv 256", "echokv 256", "echokv 256"]


@pytest.mark.parametrize("length", [1000, 4096, 8191, 31500])
@pytest.mark.parametrize("budget", [128, 256, 512])
def test_kvpress_is_asked_to_keep_as_much(length: int, budget: int) -> None:
    bench: Any = SimpleNamespace(ids=lambda length: torch.zeros(length, dtype=torch.long))
    for method, press in (("snapkv", SnapKV()), ("streamingllm", StreamingLLM())):
        asked = against_kvpress.request(bench, cell(method, budget, press), length)
        assert int(length * (1 - asked["settings"]["compression_ratio"])) == budget
    asked = against_kvpress.request(bench, cell("pyramidkv", budget, PyramidKV()), length)
    assert length * (1 - asked["settings"]["compression_ratio"]) == pytest.approx(budget)
    assert asked["settings"]["window_size"] == PyramidKV().window


def test_kvpress_that_cannot_be_had(tmp_path: Path) -> None:
    taken = tmp_path / "file"
    taken.write_text("")
    with pytest.raises(Unavailable, match="environment cannot be made"):
        against_kvpress.environment(taken / "environment")
    with (
        against_kvpress.worker(Path(sys.executable), tmp_path / "log") as ask,
        pytest.raises(Unavailable, match="No module named 'kvpress'"),
    ):
        ask(model="none")


def test_rows_against_kvpress(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Ours take 1 s a cell and 1.5 s together; kvpress, a stand-in here, 2, 4 and 10 s, and one entry less once."""
    presses = {"snapkv": SnapKV(), "pyramidkv": PyramidKV(total="exact"), "streamingllm": StreamingLLM()}
    cells = [cell(name, 64, press) for name, press in presses.items()]
    cells.insert(2, cell("streamingllm", 32, StreamingLLM()))  # the one at 64 counts for both
    kept = {name: [2 * size for size in press.layer_budgets(64, SHAPE)] for name, press in presses.items()}

    def answer(some: list[Cell]) -> Any:
        about = [{"entries": sum(kept[one.method]), "tokens": [7, 8, 9, 9]} for one in some]
        return SimpleNamespace(seconds=1.0 if len(some) == 1 else 1.5, answers=about)

    theirs = {
        "": {"kvpress": "0.5.5", "torch": "2"},  # to the model itself it answers with versions
        "SnapKVPress": {"seconds": 2.0, "kept": [127, 128, 128], "tokens": [1, 1, 1, 1]},
        "PyramidKVPress": {"seconds": 4.0, "kept": kept["pyramidkv"][::-1], "tokens": [1, 1, 1, 1]},
        "StreamingLLMPress": {"seconds": 10.0, "kept": kept["streamingllm"], "tokens": [7, 8, 9, 0]},
    }

    def ask(press: str = "", **_: Any) -> dict[str, Any]:
        return theirs[press]

    bench: Any = SimpleNamespace(
        cells=lambda methods: cells,
        answer=answer,
        warm=lambda: 32,
        ids=lambda length: torch.zeros(length, dtype=torch.long),
        length=SHAPE.length,
        settings=Model(name="folder"),
        options=SimpleNamespace(out=tmp_path, kvpress=tmp_path, tokens=4, random=False, every=False),
        model=SimpleNamespace(
            dtype=torch.float32, device="cpu", config=SimpleNamespace(num_hidden_layers=3, num_key_value_heads=2)
        ),
    )
    monkeypatch.setattr(against_kvpress, "environment", lambda folder: folder)
    monkeypatch.setattr(against_kvpress, "worker", lambda python, log: nullcontext(ask))
    found = {row.name: row.value for row in against_kvpress.kvpress(bench).rows}
    assert found == {
        "ours, 4 cells together / kvpress, one by one, 3 of 4 measured": 1.5 / 26,
        "one cell: ours / kvpress, median of these": 0.25,
        "snapkv 64: ours / kvpress": 0.5,
        "pyramidkv 64: ours / kvpress": 0.25,
        "streamingllm 64: ours / kvpress": 0.1,
        "snapkv 64: entries kept by kvpress / ours": 383 / 384,
        "pyramidkv 64: entries kept by kvpress / ours, split among the layers in another way": 1.0,
        "tokens that agree with kvpress's, streamingllm": 0.75,
    }


def test_work_of_a_7b_model() -> None:
    """Mistral-7B has 7,241,732,096 weights; 131 TFLOP of a prefill at 8k are those of the published shape."""
    config = AutoConfig.from_pretrained(ROOT / "scripts" / "benchmarks" / "shapes" / "mistral")
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    bench: Any = SimpleNamespace(model=model)
    weights, ends = 7_241_732_096, 32_000 * 4096
    assert sum(weight.numel() for weight in model.parameters()) == weights
    assert step_bytes(model) == 2 * (weights - ends)
    causal = sum(4 * 128 * 32 * 32 * seen for seen in range(1, 8193))  # query-key and weight-value products
    naive = 2 * (weights - 2 * ends) * 8192 + 2 * ends + causal
    assert shares.prefill_flops(bench, 8192) == pytest.approx(naive, rel=1e-4)


def test_projected_hours() -> None:
    tasks = [subsets.load(name) for name in subsets.ENGLISH]
    records = sum(task.records or 0 for task in tasks)
    tokens = sum((task.records or 0) * task.max_new_tokens for task in tasks)
    prefills = [(length, 1e-8 * length**2) for length in (8000, 16000)]
    selections = [(8000, 0.8)]
    hours = shares.projected_hours(prefills, selections, step=0.05, mean=10_000)
    assert hours == pytest.approx((records * (1.0 + 1.0) + tokens * 0.05) / 3600)


@pytest.fixture(scope="module")
def run(tiny_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """All parts that need no network, and one that finds none."""
    out = tmp_path_factory.mktemp("bench")
    blocked = out / "file"
    blocked.write_text("")
    command = [sys.executable, "scripts/bench.py", "--set", f"model.name={tiny_folder}", "--out", str(out)]
    command += ["--length", "96", "--lengths", "64", "96", "--tokens", "4", "--budgets", "40", "48"]
    command += ["--synthetic", "512", "--bandwidth", "0.01", "--flops", "0.1"]
    command += ["--kvpress", str(blocked / "environment"), "--parts", *PARTS]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    return SimpleNamespace(done=done, out=out)


def test_a_run_writes_what_it_found(run: Any) -> None:
    found = json.loads((run.out / "bench.json").read_text())
    assert set(found["part_seconds"]) == set(PARTS)
    assert found["options"]["length"] == 96
    assert found["threads"] >= 1
    assert {"torch", "transformers"} <= set(found["versions"])
    assert all(math.isfinite(row["value"]) for row in found["rows"])
    for row in found["rows"]:
        assert row["verdict"] == Row(row["name"], row["value"], row["bar"], row["at_least"]).verdict
        assert row["name"] in run.done.stdout
    names = " ".join(row["name"] for row in found["rows"])
    for part in ("13 cells together / FullKV alone", "peak memory", "selection / prefill, h2o all, 64 tokens"):
        assert part in names
    for part in (
        "growth exponent",
        "scoring pass with 8",
        "12 rows together",
        "bfloat16",
        "hours, projected",
        "two side by side / one",
        "full cache: tokens per second / transformers' own",
        "bytes stored at its end / after the prompt",
        "growth of memory in its second half",
        "feeding it / prefilling all anew",
        "selecting and recording / prefill, dapq",
        "kvzip: tokens of these passes",
    ):
        assert part in names
    assert (run.out / "bench.md").read_text().count("\n") == len(found["rows"]) + 2
    for name in ("cells", "selection"):
        assert (run.out / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        assert (run.out / f"{name}.pdf").read_bytes().startswith(b"%PDF")
    ends = {point["line"]: (point["x"], point["y"]) for point in found["points"] if point["plot"] == "cells"}
    together = next(row["value"] for row in found["rows"] if row["name"] == "13 cells together / FullKV alone")
    assert ends["together"] == (13, together)


def test_a_part_asked_for_that_cannot_be_measured(run: Any) -> None:
    assert run.done.returncode == 1
    assert run.done.stderr.count("kvpress is left out: kvpress's environment cannot be made") == 1
    assert "Traceback" not in run.done.stderr
    assert list(json.loads((run.out / "bench.json").read_text())["left_out"]) == ["kvpress"]


def test_a_command_that_fails_is_no_time() -> None:
    with pytest.raises(Unavailable, match=r"failed \(no such"):
        call("-c", "import sys; sys.exit('no such')")


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (["--length", "0"], "--length is 0; it must be at least 1"),
        (["--lenght", "5"], "unknown option --lenght; did you mean --length"),
        (["--parts", "gird"], "unknown --parts 'gird'; did you mean grid?"),
    ],
    ids=["value", "option", "part"],
)
def test_a_wrong_command_line_is_one_line(given: list[str], told: str) -> None:
    command = [sys.executable, "scripts/bench.py", *given]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.startswith(f"error: {told}")
    assert done.stderr.count("\n") == 1


def test_a_prompt_beyond_the_model(tiny_folder: Path) -> None:
    options = {
        "model": "smollm2",
        "set": [f"model.name={tiny_folder}"],
        "random": False,
        "tokens": 64,
        "budgets": [128],
    }
    with pytest.raises(UserError, match="40064 tokens asked for; the model has 32768 positions: lower --length"):
        Bench.of(SimpleNamespace(**options, length=40_000, lengths=[64]))


def test_a_random_model_needs_a_shape(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="give a folder with its config"):
        load(Model(name=str(tmp_path), dtype="float32", device="cpu"), random=True)


@pytest.mark.parametrize("subset", subsets.ENGLISH)
def test_answers_made_up_to_time_the_report_suit_their_metrics(subset: str) -> None:
    answer = bench_report._answer(subset, 0, "echokv", 128, random.Random(0))
    check_row(answer, subsets.load(subset))
