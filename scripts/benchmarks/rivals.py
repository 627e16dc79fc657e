"""What each policy of conf/method costs before the first token, over the prefill."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from hydra.utils import instantiate

from echokv import Needs, Prefill, Press, prefill
from eval.console.conf import CONF

from .bench import Bench, composed
from .measured import Measured, Row, shortest

SCORES, MOMENTS, PROBE = 0.03, 0.15, 1.1
# FullKV chooses nothing; the part `selection` measures H2O with either of its queries; kvpress is another package.
ELSEWHERE = ("full", "h2o", "kvpress")
NO_BAR = ("laq", "echokv", "stage1_only", "iterative_only", "ada_echokv", "oracle", "kvzip")  # these run the model


def rivals(bench: Bench) -> Measured:
    """Seconds of each policy's selection, with what it has the prefill record, over those of a prefill.

    Each chooses at the first budget, or at its least. HeadKV's importances are uniform, which costs as much as a
    file's. Without a tokenizer, policies that have texts spelled are left out.
    """
    presses = chosen(bench)
    whole = shortest(partial(bench.fill, bench.length), 3, 30)
    needs = Needs()
    for press in presses.values():
        needs |= press.needs
    filled, recorded = _filled(bench, needs)
    rows = []
    for name, press in presses.items():
        budget = max(bench.budgets[0], press.least_budget)
        press.select(filled, budget)  # what is made once for the model, such as a projection, is made
        taken = shortest(partial(press.select, filled, budget), 3, 10) + (recorded if press.needs.moments else 0.0)
        rows.append(Row(f"selecting and recording / prefill, {name}", taken / whole, bar(name, press, bench)))
        rows += _passes(name, press, filled)
    return Measured(rows)


def chosen(bench: Bench) -> dict[str, Press]:
    """The policies that can be measured here."""
    names = sorted(path.stem for path in (CONF / "method").glob("*.yaml") if path.stem not in ELSEWHERE)
    config = composed(bench.options, f"method=[{','.join(names)}]", "methods.headkv.heads=uniform")
    presses: dict[str, Press] = {name: instantiate(fields, _convert_="all") for name, fields in config.methods.items()}
    return {name: press for name, press in presses.items() if bench.tokenizer or not press.needs.texts}


def bar(name: str, press: Press, bench: Bench) -> float | None:
    """What the policy may cost: one that scores what the prefill left, or its queries' moments, or runs a probe."""
    if name in NO_BAR:
        return None
    probe: Any = press
    if name == "dapq":
        return PROBE * (probe.n_first + probe.n_last) / bench.length
    return MOMENTS if press.needs.moments else SCORES


def _filled(bench: Bench, needs: Needs) -> tuple[Prefill, float]:
    """A prefill with all that the policies need, and the seconds that the moments took in the quicker of two."""
    found = [prefill(bench.model, bench.ids(bench.length), needs, tokenizer=bench.tokenizer) for _ in range(2)]
    return found[-1], min(one.moments_seconds for one in found)


def _passes(name: str, press: Any, filled: Prefill) -> Iterator[Row]:
    """Of KVzip, which runs the model over its prompt again: how often, and over how many tokens."""
    if name == "kvzip":
        replays = press.replays(filled)
        yield Row("kvzip: forward passes beside the prefill", len(replays))
        tokens = sum(len(ids) for *_, ids in replays)
        yield Row("kvzip: tokens of these passes / the prompt's", tokens / filled.length)
