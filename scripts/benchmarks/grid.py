"""Every method at every budget from one prefill, over FullKV alone and over the same cells one by one."""

from __future__ import annotations

from collections.abc import Sequence

from eval.planning.plan import Cell

from .bench import METHODS, Bench
from .measured import Measured, Point, Row

COMPARED = ("snapkv", "pyramidkv", "streamingllm")  # kvpress has these as well
TOGETHER, ALONE, MEMORY = 1.7, 1 / 7, 1.05
PLOT = "cells"


def grid(bench: Bench) -> Measured:
    """Seconds of the grid over those of FullKV and of single answers, and what memory each method takes."""
    cells = bench.cells(METHODS)
    standing = {cell.label: stand_in(cell, cells, bench.options.every) for cell in cells}
    alone = {label: bench.answer([cell]) for label, cell in standing.items()}
    once = bench.answer(cells)  # as often as the single answers, for a fair ratio to them
    full, together = bench.answer(cells[:1], 2), bench.answer(cells, 2)
    one_by_one = sum(found.seconds for found in alone.values())
    measured = len({cell.label for cell in standing.values()})
    said = "" if measured == len(cells) else f", {measured} of {len(cells)} measured"
    name = f"{len(cells)} cells together"
    rows = [
        Row(f"{name} / FullKV alone", together.seconds / full.seconds, TOGETHER),
        Row(f"{name} / one by one{said}", once.seconds / one_by_one, ALONE),
    ]
    for method in METHODS[1:]:
        peak = max(alone[cell.label].peak for cell in cells if cell.method == method)
        rows.append(Row(f"peak memory of an answer / FullKV's, {method}", peak / full.peak, MEMORY))
    points = []
    for some in growing(bench, cells):
        seconds = [sum(alone[cell.label].seconds for cell in some), bench.answer(some).seconds]
        for line, taken in zip((f"one by one{said}", "together"), seconds, strict=True):
            points.append(Point(PLOT, line, len(some), taken / full.seconds))
    return Measured(rows, points)


def stand_in(cell: Cell, cells: Sequence[Cell], every: bool) -> Cell:
    """The cell whose answer alone counts for this one's.

    A method costs the same at each budget but for a few hundred keys a step, so unless `every` is asked for the
    middle one is measured and counts for all. SnapKV and PyramidKV are measured at each, beside kvpress.
    """
    if every or cell.budget is None or cell.method in COMPARED[:2]:
        return cell
    own = [one for one in cells if one.method == cell.method]
    return own[len(own) // 2]


def growing(bench: Bench, cells: list[Cell]) -> list[list[Cell]]:
    """FullKV, FullKV with one method, with three methods, and the whole grid."""
    full, budgets = cells[:1], len(bench.budgets)
    three = bench.cells(COMPARED)
    return [full, full + three[:budgets], full + three, cells]
