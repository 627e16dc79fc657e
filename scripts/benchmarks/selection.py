"""Selecting, scoring and decoding on one prefill: seconds over those of the prefill, a copy, single rows."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import torch

from echokv import Prefill, Press, Session, Stretch, advance, prefill
from echokv.scores import attention_mass

from .bench import Bench
from .grid import COMPARED
from .measured import Measured, Point, Row, power_law, shortest

BARS = {"snapkv": 0.03, "pyramidkv": 0.03, "h2o window": 0.08, "h2o all": 0.3}
STEPS, BANDWIDTH, ROWS = 1.3, 0.5, 6.0
PLOT = "selection"


def selection(bench: Bench) -> Measured:
    """Selection time over prefill time per method and length, and how it grows."""
    presses = {name: press for name, press in bench.presses.items() if name not in ("full", "h2o")}
    h2o: Any = bench.presses["h2o"]
    presses |= {f"h2o {queries}": replace(h2o, queries=queries) for queries in ("window", "all")}
    rows, points = [], []
    # The main length comes last: its prefill serves the parts that follow.
    for length in sorted({*bench.options.lengths, bench.length}, key=lambda length: (length == bench.length, length)):
        whole = shortest(partial(bench.fill, length), 2, 10)
        points.append(Point(PLOT, "prefill", length, whole))
        filled = bench.filled(length)
        for name, press in presses.items():
            taken = select_seconds(press, filled, bench.budgets[0])
            points.append(Point(PLOT, name, length, taken))
            bar = BARS.get(name) if length == bench.length else None
            rows.append(Row(f"selection / prefill, {name}, {length} tokens", taken / whole, bar))
    rows.append(_against_steps(bench))
    if len({point.x for point in points}) > 1:
        for line in dict.fromkeys(point.line for point in points):
            exponent, _ = power_law([(point.x, point.y) for point in points if point.line == line])
            said = "the prefill" if line == "prefill" else f"selection, {line}"
            rows.append(Row(f"growth exponent of {said}", exponent))
    return Measured(rows, points)


def select_seconds(press: Press, filled: Prefill, budget: int) -> float:
    """Seconds of one selection, with what the column sums that it needs add to the quicker of two prefills."""
    seconds = 0.0
    if press.needs.column_sums:
        found = [prefill(filled.model, filled.ids, press.needs) for _ in range(2)]
        filled, seconds = found[-1], min(one.sums_seconds for one in found)
    press.select(filled, budget)
    return seconds + shortest(lambda: press.select(filled, budget), 2, 5)


def _against_steps(bench: Bench) -> Row:
    """EchoKV's whole selection over the decode steps it contains, taken on a workspace of its size."""
    press: Any = bench.presses["echokv"]
    filled = bench.filled(bench.length)
    workspace = press.select(filled, min(press.workspace, bench.length))
    whole = shortest(lambda: press.select(filled, bench.budgets[0]), 3)
    steps = shortest(lambda: advance(Stretch(Session(filled, workspace), press.steps)), 3)
    return Row(f"EchoKV selection / its {press.steps} decode steps", whole / steps, STEPS)


def scoring(bench: Bench) -> Measured:
    """Bytes of keys read per second by a scoring pass as a share of a plain copy's, and what bounds the pass."""
    filled = bench.filled(bench.length)
    copies = [torch.zeros_like(keys) for keys in filled.keys]  # memory in use already: a first write would cost more

    def copy() -> None:
        for target, keys in zip(copies, filled.keys, strict=True):
            target.copy_(keys)

    copy()
    copied = shortest(copy, 20, 2)
    rows = []
    for n in (1, 8):
        scored, products = _passes(filled, n)
        queries = "1 query" if n == 1 else f"{n} queries"
        rows += [
            Row(f"scoring pass with {queries}, bandwidth / plain copy of the keys", copied / scored, BANDWIDTH, True),
            Row(f"scoring pass with {queries}, seconds / its bare matrix products", scored / products),
            Row(f"bare matrix products with {queries}, bandwidth / plain copy of the keys", copied / products),
        ]
    return Measured(rows)


def _passes(filled: Prefill, n: int) -> tuple[float, float]:
    """Seconds of scoring all layers with n queries a head, and of nothing but the products of queries and keys."""
    queries = [filled.last_queries(layer, n) for layer in range(filled.layers)]
    grouped = [part.reshape(filled.groups, -1, part.shape[-1]) for part in queries]
    logits = torch.empty(*grouped[0].shape[:2], filled.length, dtype=grouped[0].dtype, device=grouped[0].device)

    def score() -> None:
        for part, keys in zip(queries, filled.keys, strict=True):
            attention_mass(part, keys, filled.scaling)

    def multiply() -> None:
        for part, keys in zip(grouped, filled.keys, strict=True):
            torch.bmm(part, keys.mT, out=logits)

    score()
    multiply()
    return shortest(score, 20, 2), shortest(multiply, 20, 2)


def rows(bench: Bench) -> Measured:
    """Tokens per second of evicted rows in one batch, over one row at a time: half of the rows, counted twice."""
    filled = bench.filled(bench.length)
    tokens = max(2, bench.options.tokens // 4)
    some, others = (
        [bench.presses[name].select(filled, budget + more) for name in COMPARED for budget in bench.budgets]
        for more in (0, 1)  # the same rows twice would be decoded once
    )
    bench.decode(filled, some[:1], tokens)
    alone = 2 * sum(shortest(partial(bench.decode, filled, [selection], tokens)) for selection in some)
    together = shortest(partial(bench.decode, filled, some + others, tokens), 2)
    name = f"{2 * len(some)} rows together / one at a time, tokens per second, {tokens} new tokens"
    return Measured([Row(name, alone / together, ROWS, True)])
