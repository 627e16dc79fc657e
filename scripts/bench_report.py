"""Times the report in Chromium: `python scripts/bench_report.py`, for 19 cells x 16 tasks x 50 examples.

The answers are made up; one example has a prompt of 31,000 tokens with selections of 32 layers and 8 heads. A time
runs from the input to the frame that shows its effect, reading files from the disk included. Fails over a limit.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from eval.inputs import subsets
from eval.keeping import selections
from eval.keeping.manifests import FORMAT, digest
from eval.keeping.selections import FINAL, Step
from eval.report.browser import chromium
from eval.report.build import build

METHODS = ("streamingllm", "h2o", "snapkv", "pyramidkv", "laq", "echokv")
BUDGETS = (128, 512, 1024)
CELLS = [("full", None), *((method, budget) for budget in BUDGETS for method in METHODS)]
EXAMPLES, LENGTH, LAYERS, HEADS = 50, 31_000, 32, 8
LOAD, INTERACTION = 2000.0, 100.0  # milliseconds
WORDS = ("the", "quiet", "river", "carried", "seven", "letters", "past", "an", "old", "mill", "nobody", "kept", "count")
TABLE = "table=longbench/bench/paper"
EXAMPLE = f"#/example?{TABLE}&task=hotpotqa&n=0&a=echokv-1024&b=laq-1024"

# Both wait for READY and the frame after. They are source texts: the page's policy forbids it to make code of strings.
READ = """async () => {
  const begun = performance.now();
  while (!(READY)) {
    if (performance.now() - begun > 20000) throw new Error("nothing happens");
    await new Promise((done) => setTimeout(done, 1));
  }
  await new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
  return performance.now() - FROM;
}"""
ACT = """async () => {
  window.before = document.querySelector(".example")?.dataset.turn;
  document.querySelector(".table")?.removeAttribute("data-built");
  const acted = performance.now();
  ACTION
  return (READ)();
}"""


def fabricate(results: Path) -> None:
    """Write made-up answers of all cells, and selections of one long example."""
    noise = random.Random(0)
    for method, budget in CELLS:
        folder = _folder(results, method, budget)
        for place, subset in enumerate(subsets.ENGLISH):
            lines = [json.dumps(_answer(subset, number, method, budget, noise)) for number in range(EXAMPLES)]
            (folder / f"{subset}.bench{place}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
        _select(folder, method, budget)


def _folder(results: Path, method: str, budget: int | None) -> Path:
    identity = {
        "data": {"source": "longbench"},
        "model": {"name": "bench"},
        "method": {"name": method},
        "budget": budget,
        "protocol": {"prompt_limit": 31_500},
    }
    name = f"{method}-{digest(identity)}" if budget is None else f"{method}-{budget}-{digest(identity)}"
    folder = results / "longbench" / "bench" / name
    folder.mkdir(parents=True)
    (folder / "manifest.json").write_text(json.dumps({"format": FORMAT, "identity": identity}), encoding="utf-8")
    return folder


def _answer(subset: str, number: int, method: str, budget: int | None, noise: random.Random) -> dict[str, Any]:
    about = subsets.load(subset)
    text = " ".join(noise.choices(WORDS, k=min(60, about.max_new_tokens)))
    classes = ["river", "mill"] if about.metric == "classification" else None
    answer = {"retrieval": "Paragraph 3", "count": "7", "classification": "river"}.get(about.metric, "the old river")
    stored = (budget or LENGTH) * LAYERS * HEADS
    return {
        "_id": f"{subset}-{number}", "pred": text, "answers": [answer],
        "all_classes": classes, "length": 9000, "dataset": subset, "fingerprint": f"{number}", "method": method,
        "budget": budget, "model": "bench", "preset": "paper", "prompt_tokens": LENGTH, "truncated": True,
        "new_tokens": 20, "entries": stored, "bytes": stored * 512, "ties": 0, "prefill_seconds": 3.0,
        "selection_seconds": 0.2, "decode_seconds": 0.5, "peak_bytes": 10**10, "rows": 19,
    }  # fmt: skip


def _select(run: Path, method: str, budget: int | None) -> None:
    noise = np.random.default_rng(1)
    ahead = {"laq": ("W1",), "echokv": ("W1", "W2")}.get(method, ())
    sizes = [(name, 1024) for name in ahead] + [(FINAL, budget or LENGTH)]
    steps = []
    for name, size in sizes:
        ranks = noise.random((LAYERS * HEADS, LENGTH)).argpartition(size - 1, axis=1)[:, :size]
        kept = np.sort(ranks, axis=1).reshape(LAYERS, HEADS, size)
        steps.append(selections.pack(Step(name, LENGTH, tuple(kept))))
    row = {"_id": "hotpotqa-0", "fingerprint": "0", "prompt": "bench", "prompt_tokens": LENGTH, "steps": steps}
    folder = selections.folder(run)
    folder.mkdir(parents=True)
    (folder / "hotpotqa.bench.jsonl").write_text(json.dumps(row) + "\n", encoding="utf-8")
    prompts = folder.parent / selections.PROMPTS
    prompts.mkdir(exist_ok=True)
    pieces = [f"{WORDS[place % len(WORDS)]}{'.' + chr(10) if place % 90 == 89 else ' '}" for place in range(LENGTH)]
    (prompts / "bench.json").write_text(
        json.dumps({"pieces": pieces, "evidence": [[15_000, 15_040]]}), encoding="utf-8"
    )


def _choose(name: str, value: str) -> str:
    chosen = f'document.getElementById("{name}")'
    return f'{chosen}.value = "{value}"; {chosen}.dispatchEvent(new Event("change"));'


def _press(name: str) -> str:
    return f'document.getElementById("{name}").click();'


def _shows(name: str, value: str, what: str) -> str:
    return f'document.getElementById("{name}")?.value === "{value}" && document.querySelector("{what}")'


BUILT = "document.querySelector('.table[data-built]')"
TURNED = "document.querySelector('.example')?.dataset.turn > (window.before ?? 0)"
SHOWN = f"{BUILT} || document.querySelector('.prompt .t, .drawing svg, .list .tabulator-row')"
CELL = "document.querySelectorAll('.entry')[40].focus();"
KEY_E = "dispatchEvent(new KeyboardEvent('keydown', {key: 'e'}));"
FIND = "const box = document.getElementById('find'); box.value = 'letters'; box.dispatchEvent(new Event('input'));"
HIDDEN = "document.querySelector('#key-h2o[aria-pressed=false]') && document.querySelector('.drawing svg')"
AGAINST = _shows("method", "snapkv", ".drawing svg")
LISTED = _shows("when", "better", ".list .tabulator-row")
TABLES, COSTS = f"#/tables?{TABLE}", f"#/costs?{TABLE}"
INTERACTIONS = (  # page, what is done, how, when it is there
    (TABLES, "table: show differences", _press("show-difference"), BUILT),
    (TABLES, "table: show stored bytes", _press("show-bytes"), BUILT),
    (TABLES, "table: colour against LAQ", _choose("against", "laq"), BUILT),
    (TABLES, "table: details of a cell", CELL, "document.querySelector('#tip')"),
    (f"#/budgets?{TABLE}", "budgets: hide a method", _press("key-h2o"), HIDDEN),
    (COSTS, "costs: another task", _choose("task", "trec"), _shows("task", "trec", ".drawing svg")),
    (f"#/differences?{TABLE}", "differences: another method", _choose("method", "snapkv"), AGAINST),
    (f"#/examples?{TABLE}", "examples: where A beats B", _choose("when", "better"), LISTED),
    (EXAMPLE, "example: another method", _choose("a", "snapkv-1024"), TURNED),
    (EXAMPLE, "example: step W2", _press("sa-W2"), TURNED),
    (EXAMPLE, "example: layer 5", _choose("layer", "5"), TURNED),
    (f"{EXAMPLE}&layer=5", "example: head 3", _choose("head", "3"), TURNED),
    (EXAMPLE, "example: side by side", _press("look-two"), TURNED),
    (EXAMPLE, "example: difference", _press("look-difference"), TURNED),
    (f"{EXAMPLE}&look=two", "example: layer 5, side by side", _choose("layer", "5"), TURNED),
    (EXAMPLE, "example: a token", "document.querySelectorAll('.prompt .t')[200].click();", TURNED),
    (EXAMPLE, "example: jump to the evidence", KEY_E, TURNED),
    (EXAMPLE, "example: find a word", FIND, TURNED),
)  # fmt: skip


def _reading(ready: str, since: str) -> str:
    return READ.replace("READY", ready).replace("FROM", since)


def measure(root: Path, repeats: int) -> Iterator[tuple[str, float, float]]:
    """Yield each thing done, its median time in milliseconds, and its limit."""
    address = (root / "index.html").resolve().as_uri()
    with chromium() as browser:
        for what, view, ready in (
            ("load: tables", TABLES, BUILT),
            ("load: example of 31,000 tokens", EXAMPLE, "document.querySelector('.prompt .t')"),
        ):
            times = []
            for _ in range(repeats):
                page = browser.new_page(viewport={"width": 1280, "height": 900})
                page.goto(address + view, wait_until="commit")
                times.append(page.evaluate(_reading(ready, "0")))  # since the navigation began
                page.close()
            yield what, statistics.median(times), LOAD
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        for view, what, action, ready in INTERACTIONS:
            times = []
            for _ in range(repeats):
                page.goto("about:blank")
                page.goto(address + view)
                page.evaluate(_reading(SHOWN, "0"))
                page.wait_for_timeout(300)
                times.append(page.evaluate(ACT.replace("ACTION", action).replace("READ", _reading(ready, "acted"))))
            yield what, statistics.median(times), INTERACTION


def main() -> int:
    """Print one line a measurement; returns 1 if one is over its limit."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5, help="of each measurement; the median counts")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        results, root = Path(name) / "results", Path(name) / "report"
        fabricate(results)
        built = build(results, root)
        size = sum(path.stat().st_size for path in root.rglob("*") if path.is_file())
        print(f"{built.answers} answers, {built.recorded} with kept tokens, report of {size / 1e6:.1f} MB")
        slow = 0
        for what, time, limit in measure(root, chosen.repeats):
            over = time > limit
            slow += over
            print(f"{what:34} {time:7.0f} ms  (limit {limit:.0f} ms){'  OVER' if over else ''}", flush=True)
    return 1 if slow else 0


if __name__ == "__main__":
    sys.exit(main())
