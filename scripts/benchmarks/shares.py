"""How near the machine's limits the work comes, and hours of Table 3 projected from that: for GPUs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from eval.console.errors import UserError
from eval.inputs import subsets

from .bench import METHODS, Bench
from .measured import Measured, Row, power_law, shortest
from .selection import select_seconds
from .weights import inner, step_bytes


def shares(bench: Bench) -> Measured:
    """Seconds of prefills, selections and decode steps, with their shares of the limits that the user states.

    Raises UserError without --bandwidth and --flops.
    """
    if bench.options.bandwidth is None or bench.options.flops is None:
        raise UserError("shares needs the machine's limits: give --bandwidth in TB/s and --flops in TFLOP/s")
    flops, bandwidth = bench.options.flops * 1e12, bench.options.bandwidth * 1e12
    rows: list[Row] = []
    prefills: list[tuple[float, float]] = []
    selections: list[tuple[float, float]] = []
    lengths = sorted({*bench.options.lengths, bench.length}, key=lambda length: (length == bench.length, length))
    for length in lengths:
        whole = shortest(partial(bench.fill, length), 3, 10)
        prefills.append((length, whole))
        rows.append(Row(f"prefill, {length} tokens: seconds", whole))
        rows.append(
            Row(f"prefill, {length} tokens: share of the FLOP limit", prefill_flops(bench, length) / whole / flops)
        )
        filled, together = bench.filled(length), 0.0
        read = sum(keys.nbytes for keys in filled.keys)
        for name in METHODS[1:]:
            taken = select_seconds(bench.presses[name], filled, bench.budgets[0])
            together += taken
            rows.append(Row(f"selection, {name}, {length} tokens: seconds", taken))
            share = read / taken / bandwidth
            rows.append(Row(f"selection, {name}, {length} tokens: one read of the keys, share of bandwidth", share))
        selections.append((length, together))
    steps, more = _steps(bench, bandwidth)
    hours = projected_hours(prefills, selections, steps, bench.options.mean)
    said = f"Table 3, {len(bench.cells(METHODS))} cells, mean of {bench.options.mean} tokens: hours, projected"
    return Measured([*rows, *more, Row(said, hours)])


def _steps(bench: Bench, bandwidth: float) -> tuple[float, list[Row]]:
    """Seconds of a decode step of the whole grid, and rows on it and on one of FullKV."""
    filled, n = bench.filled(bench.length), max(2, bench.options.tokens)
    cells = bench.cells(METHODS)
    needs_sums = [name for name in METHODS if bench.presses[name].needs.column_sums]
    # For a method whose scores need more than this prefill SnapKV selects, which costs as much a step: one entry more,
    # because rows that are alike would be decoded once.
    chosen = [
        bench.presses["snapkv"].select(filled, (cell.budget or 0) + 1)
        if cell.method in needs_sums
        else cell.press.select(filled, cell.budget)
        for cell in cells
    ]
    rows, seconds = [], 0.0
    for some in (chosen[:1], chosen):
        whole = shortest(partial(bench.decode, filled, some, n), 3, 10)
        seconds = whole / (n - 1)  # the first token comes from the prefill
        read = step_bytes(bench.model) + sum(selection.bytes(filled) for selection in some)
        name = "FullKV" if len(some) == 1 else f"{len(some)} rows"
        rows.append(Row(f"decode step, {name}, {bench.length} tokens: seconds", seconds))
        share = read / seconds / bandwidth
        rows.append(Row(f"decode step, {name}, {bench.length} tokens: share of bandwidth", share))
    return seconds, rows


def prefill_flops(bench: Bench, length: int) -> float:
    """Operations of one prefill: two a weight and token, causal attention, and the head for the last token alone."""
    config = bench.model.config
    width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    head = config.vocab_size * config.hidden_size
    attention = 2 * config.num_attention_heads * width * length**2 * config.num_hidden_layers
    return float(2 * inner(bench.model) * length + 2 * head + attention)


def projected_hours(
    prefills: Sequence[tuple[float, float]], selections: Sequence[tuple[float, float]], step: float, mean: float
) -> float:
    """Hours of LongBench's English tasks, were every prompt of mean length and every answer as long as it may be.

    prefills, selections: (prompt tokens, seconds), read at the mean length off a power law through them; a single
    length is taken to grow in proportion. step: seconds of one token of all cells.
    """
    example = sum(_at(points, mean) for points in (prefills, selections))
    tasks = [subsets.load(name) for name in subsets.ENGLISH]
    return sum((task.records or 0) * (example + task.max_new_tokens * step) for task in tasks) / 3600


def _at(points: Sequence[tuple[float, float]], x: float) -> float:
    if len(points) == 1:
        return points[0][1] * x / points[0][0]
    exponent, factor = power_law(points)
    return float(factor * x**exponent)
