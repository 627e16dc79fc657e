"""What do they cost there? Seconds and memory of prefills, selections and decode steps, and what Table 3 would take."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import torch

from echokv import Needs, Session
from echokv.causal import kernel
from echokv.graphs import cuda_graph
from echokv.rows import Rows

from .bench import Bench
from .figures import Figure

# What Table 3 is made of: 3,750 examples of 10,600 tokens on average, and the steps of all until the last of an
# example's 19 rows ends, at the lengths of published answers.
EXAMPLES, MEAN, STEPS = 3_750, 10_600, 380_000


def prefills(bench: Bench) -> Iterator[Figure]:
    yield Figure("kernel of the prefill's attention", kernel(bench.model))
    for length in bench.lengths:
        if not bench.dry:
            torch.cuda.reset_peak_memory_stats()
        taken = bench.seconds[f"prefill {length}"] = bench.took(lambda n=length: bench.prefill(n), 2)  # type: ignore[misc]
        yield Figure(f"prefill of {length} tokens, s", taken)
        yield bench.cost(f"its peak memory, GB ({length} tokens)", bench.peak(), 24.0)
        sums = bench.took(lambda n=length: bench.prefill(n, Needs(column_sums=True)), 1) - taken  # type: ignore[misc]
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
        taken = bench.took(partial(bench.chosen, filled), 1)
        bench.seconds[f"selection {length}"] = taken
        yield Figure(f"selection of 18 cells, one method after the other, s ({length} tokens)", taken)
        some = bench.chosen(filled)
        for said, own in (("FullKV", some[:1]), ("19 rows", some)):
            opened = Rows([Session(filled, one) for one in own], 64)
            taken = bench.took(partial(_step, opened, opened.step), 8)
            bench.seconds[f"{said} {length}"] = taken
            yield Figure(f"a step of {said}, ms ({length} tokens)", 1e3 * taken)
            if bench.dry:
                continue
            begun = bench.now()
            replay = cuda_graph(opened.step, bench.device)
            yield Figure(f"recording it, s ({said}, {length} tokens)", bench.now() - begun)
            again = bench.took(partial(_step, opened, replay), 20)
            bench.seconds[f"{said} {length}"] = min(taken, again)
            yield Figure(f"a recorded step of {said}, ms ({length} tokens)", 1e3 * again)
        yield bench.cost(f"peak memory so far, GB ({length} tokens)", bench.peak(), 28.0)


def _step(opened: Rows, work: Callable[[], object]) -> None:
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
