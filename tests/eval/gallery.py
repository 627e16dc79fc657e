"""Made-up tables of several sizes, to look at: few and many methods and tasks, own methods among them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

from eval.inputs.subsets import ENGLISH
from eval.report.look import KNOWN
from tests.eval import kept
from tests.eval.stores import write

PAPER = ("streamingllm", "h2o", "snapkv", "pyramidkv", "laq", "echokv")
OWN = ("keynorm", "random_half", "my_own_method_with_a_long_name", *(f"variant_{letter}" for letter in "abcdefghij"))
EVERY = tuple(name for name in KNOWN if name not in ("kvpress", "stage1_only"))
METHODS = {2: ("full", "echokv"), 7: ("full", *PAPER), 20: ("full", *PAPER, *OWN), 26: EVERY}
TASKS = {3: ("hotpotqa", "trec", "lcc"), 16: ENGLISH}
SIZES = [(methods, tasks) for methods in METHODS for tasks in TASKS]
BUDGETS = (128, 256, 512)
WORDS = ("the ", "quiet ", "river ", "carried ", "seven ", "letters ", "past ", "an ", "old ", "mill", ".\n")


def label(methods: int, tasks: int) -> str:
    """The name of the made-up model that a table of this size is of."""
    return f"made-up-{methods}x{tasks}"


def fabricate(results: Path, sizes: Sequence[tuple[int, int]] = SIZES, examples: int = 6) -> None:
    """Store answers for a table of each size, and the kept tokens of one example of each method."""
    for methods, tasks in sizes:
        for place, method in enumerate(METHODS[methods]):
            for budget in (None,) if method == "full" else BUDGETS if methods < 20 else BUDGETS[: 1 + (tasks == 3)]:
                noise = random.Random(f"{method} {budget}")
                chance = 0.85 if budget is None else 0.15 + 0.03 * place + 0.15 * BUDGETS.index(budget)
                right = {name: [noise.random() < chance for _ in range(examples)] for name in TASKS[tasks]}
                if tasks == 3 and methods == 2 and budget == 512:
                    del right["lcc"]
                entries = 900_000 if budget is None else budget * (90 if method == "echokv" else 270)
                stored = {"entries": entries, "bytes": 512 * entries}
                run = write(results, method, budget, right, label=label(methods, tasks), change=stored)
                text = [WORDS[number % len(WORDS)] for number in range(400)]
                kept.write(run, "hotpotqa", 0, text, {"laq": ("W1",), "echokv": ("W1", "W2")}.get(method, ()), place)
