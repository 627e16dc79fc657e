"""Selections made side by side: what several policies, budgets and examples decode ahead is one batch of rows.

A policy asks for tokens where it needs them, in the middle of its work, and knows of no batch. Each therefore works
in a greenlet of its own, which rests when it asks; once all of them rest, their sessions are fed together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import torch
from greenlet import getcurrent, greenlet

from echokv import Prefill, Press, Selection
from echokv.session import Stretch, advance
from eval.answering.measure import Meter

Item = TypeVar("Item")
Made = TypeVar("Made")


@dataclass(frozen=True)
class Choice:
    """Selections of one press, one for each of its budgets, and what they cost.

    seconds: of the scoring, with an equal share of each batch of lookahead steps. peak: bytes. ahead: lookahead
    tokens fed, T_eff of EchoKV and LAQ.
    """

    selections: list[Selection]
    seconds: float
    peak: int
    ahead: int


@dataclass(eq=False)
class _Work:
    """A press at work on a prefill, or resting until `asked` has been fed."""

    task: Any
    asked: list[Stretch] = field(default_factory=list)
    selections: list[Selection] = field(default_factory=list)
    seconds: float = 0.0
    peak: int = 0
    ahead: int = 0

    def go_on(self) -> None:
        """Work until the next rest or the end."""
        with Meter() as meter:
            said = self.task.switch()
        if self.task.dead:
            self.asked, self.selections = [], said
        else:
            self.asked = [stretch for stretch in said if stretch.steps > 0]
        self.charge(meter, 1.0)

    def charge(self, meter: Meter, share: float) -> None:
        self.seconds += meter.seconds * share
        self.peak = max(self.peak, meter.peak)

    def note(self, fed: Sequence[int]) -> None:
        """Count what was fed to each stretch asked for, and drop those that are over."""
        self.ahead += sum(fed)
        for stretch, n in zip(self.asked, fed, strict=True):
            stretch.steps -= n
        self.asked = [stretch for stretch in self.asked if not stretch.over]


@torch.no_grad()  # one mode for all: a policy that sets its own rests and goes on among others
def choose(jobs: Sequence[tuple[Prefill, Press, Sequence[int | None]]]) -> list[Choice]:
    """What each press selects of its prefill at its budgets; all prefills are of one model."""
    hub = getcurrent()
    resting = {id(prefill): replace(prefill, feeder=hub.switch) for prefill, _, _ in jobs}

    def start(prefill: Prefill, press: Press, budgets: Sequence[int | None]) -> _Work:
        return _Work(greenlet(lambda: list(press.select_all(resting[id(prefill)], budgets))))

    works = [start(*job) for job in jobs]
    for work in works:
        _until_it_wants_tokens(work)
    while waiting := [work for work in works if work.asked]:
        steps = min(stretch.steps for work in waiting for stretch in work.asked)
        parts = [[replace(stretch, steps=steps) for stretch in work.asked] for work in waiting]
        with Meter() as meter:
            advance([part for some in parts for part in some])
        for work, some in zip(waiting, parts, strict=True):
            work.charge(meter, len(some) / sum(map(len, parts)))
            work.note([steps - part.steps for part in some])
            if not work.asked:
                _until_it_wants_tokens(work)
    return [Choice(work.selections, work.seconds, work.peak, work.ahead) for work in works]


def _until_it_wants_tokens(work: _Work) -> None:
    work.go_on()
    while not work.asked and not work.task.dead:
        work.go_on()


def in_halves(
    work: Callable[[Sequence[Item]], Iterable[Made]],
    items: Sequence[Item],
    alone: Callable[[Item], Made] | None = None,
) -> Iterator[Made]:
    """What `work` makes of the items, in as few calls as memory allows; of a single item as it comes.

    alone: what stands for an item that does not fit even alone. Raises torch.OutOfMemoryError without it.
    """
    try:
        found = work(items)
        yield from found if len(items) == 1 else list(found)
        return
    except torch.OutOfMemoryError:
        if len(items) == 1 and alone is None:
            raise
    # Outside the except clause, whose traceback would keep the failed batch's tensors alive.
    torch.cuda.empty_cache()
    if len(items) == 1 and alone:
        yield alone(items[0])
        return
    half = len(items) // 2
    yield from in_halves(work, items[:half], alone)
    yield from in_halves(work, items[half:], alone)
