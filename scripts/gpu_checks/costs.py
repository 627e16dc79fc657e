"""What do they cost there? Seconds and memory of prefills, selections and decode steps, and what Table 3 would take."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import torch
from benchmarks.weights import step_bytes

from echokv import Needs, Prefill, Selection, Session
from echokv.causal import causal_attention, kernel
from echokv.graphs import cuda_graph
from echokv.rows import Rows

from .bench import Bench
from .figures import Figure

# What Table 3 is made of: 3,750 examples of 10,600 tokens on average, and the steps of all until the last of an
# example's 19 rows ends, at the lengths of published answers.
EXAMPLES, MEAN, STEPS = 3_750, 10_600, 380_000


def machine(bench: Bench) -> Iterator[Figure]:
    """Its limits: all shares are of these."""
    there = torch.empty(bench.copied, dtype=torch.uint8, device=bench.device)
    copy = torch.empty_like(there)
    bench.rate = 2 * there.numel() / bench.took(lambda: copy.copy_(there))
    yield Figure("a plain copy, TB/s read and written", bench.rate / 1e12)
    size = bench.square
    square = torch.randn(size, size, dtype=bench.dtypes[0], device=bench.device)
    yield Figure("a product of matrices, TFLOP/s", 2 * size**3 / bench.took(lambda: square @ square) / 1e12)


def prefills(bench: Bench) -> Iterator[Figure]:
    yield Figure("kernel of the prefill's attention", kernel(bench.model))
    shape = (1, bench.model.config.num_attention_heads, bench.lengths[0], bench.model.config.head_dim)
    query = torch.randn(shape, dtype=bench.dtypes[0], device=bench.device)
    key = query[:, : bench.model.config.num_key_value_heads].clone()
    names = bench.launched(lambda: causal_attention(query, key, key, 0.1))
    yield Figure("the longest that it launches", max(names, default=(0, "nothing"))[1][:60])
    for length in bench.lengths:
        if not bench.dry:
            torch.cuda.reset_peak_memory_stats()
        taken = bench.seconds[f"prefill {length}"] = bench.took(partial(bench.prefill, length), 2)
        yield Figure(f"prefill of {length} tokens, s", taken)
        yield bench.cost(f"its peak memory, GB ({length} tokens)", bench.peak(), 24.0)
        sums = bench.took(partial(bench.prefill, length, Needs(column_sums=True)), 1) - taken
        yield bench.cost(f"column sums / prefill ({length} tokens)", sums / taken, 0.3)
    known, fresh = bench.lengths[0], []
    for length in range(known + 1, known + 5):
        begun = bench.now()
        bench.prefill(length)
        fresh.append(bench.now() - begun)
    yield bench.cost(
        "a prompt length not seen before / a known one", min(fresh) / bench.seconds[f"prefill {known}"], 1.05
    )


def steps(bench: Bench) -> Iterator[Figure]:
    for length in bench.lengths:
        filled = bench.prefill(length)
        yield from _selection(bench, filled)
        some = bench.chosen(filled)
        for said, own in (("FullKV", some[:1]), ("19 rows", some)):
            yield from _step(bench, said, filled, own)
        yield bench.cost(f"peak memory so far, GB ({length} tokens)", bench.peak(), 28.0)


def _selection(bench: Bench, filled: Prefill) -> Iterator[Figure]:
    """All cells of Table 3, side by side."""
    length, work = filled.length, partial(bench.chosen, filled)
    taken = bench.seconds[f"selection {length}"] = bench.took(work, 2)
    yield Figure(f"selection of 18 cells, s ({length} tokens)", taken)
    share = taken / bench.seconds[f"prefill {length}"]
    yield bench.cost(f"selection of 18 cells / prefill ({length} tokens)", share, 0.3)
    yield bench.counted(f"launches of a selection of 18 cells ({length} tokens)", len(bench.launched(work)), 12_000)
    yield bench.cost(f"waits of a selection of 18 cells ({length} tokens)", bench.waits(work), 100)


def _step(bench: Bench, said: str, filled: Prefill, some: list[Selection]) -> Iterator[Figure]:
    """A decode step of some rows, as it is and replayed."""
    told, opened = f"({said}, {filled.length} tokens)", Rows([Session(filled, one) for one in some], 64)
    plain = bench.took(partial(_again, opened, opened.step), 8)
    yield Figure(f"a decode step, ms {told}", 1e3 * plain)
    yield bench.counted(f"its launches {told}", len(bench.launched(partial(_again, opened, opened.step))), 1_400)
    yield bench.cost(f"its waits {told}", bench.waits(opened.step), 0)
    best = plain
    if not bench.dry:
        begun = bench.now()
        replay = cuda_graph(opened.step, bench.device)
        yield Figure(f"recording it, s {told}", bench.now() - begun)
        replayed = bench.took(partial(_again, opened, replay), 20)
        yield Figure(f"a recorded step, ms {told}", 1e3 * replayed)
        best = min(plain, replayed)
    bench.seconds[f"{said} {filled.length}"] = best
    least = (step_bytes(bench.model) + sum(one.bytes(filled) for one in some)) / bench.rate
    share = f"the quicker one / a copy's time for what it reads {told}"
    yield bench.cost(share, best / least, 2.0) if len(some) > 1 else Figure(share, best / least)


def _again(opened: Rows, work: Callable[[], object]) -> None:
    work()
    opened.column.fill_(0)  # for ever the first token after the prompt


def projected(bench: Bench) -> Iterator[Figure]:
    """Hours of Table 3 from what was measured, between the two lengths in proportion; nobody ran it."""
    short, long = bench.lengths
    share = 0.1 if bench.dry else (MEAN - short) / (long - short)

    def mean(name: str) -> float:
        return (1 - share) * bench.seconds[f"{name} {short}"] + share * bench.seconds[f"{name} {long}"]

    seconds = EXAMPLES * (mean("prefill") + mean("selection")) + STEPS * mean("19 rows")
    said = f"Table 3, hours, PROJECTED: {EXAMPLES} examples of {MEAN} tokens, {STEPS} steps of 19 rows"
    yield bench.cost(said, seconds / 3600, 1.2)
