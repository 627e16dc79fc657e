"""Selections made side by side: what several policies, budgets and examples decode ahead is one batch of rows.

A policy that decodes ahead is a generator, which rests where it wants a session fed. Once all of them rest, their
sessions are fed together.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import TypeVar

import torch

from echokv import Prefill, Press, Selection, Stretch, UsageError, advance
from echokv.session import Ahead
from eval.answering.measure import Meter
from eval.console.foreign import blamed

Item = TypeVar("Item")
Made = TypeVar("Made")


@dataclass(frozen=True)
class Choice:
    """Selections of one press, one for each of its budgets, and what they cost.

    seconds: of the scoring, with all of what it shares with other presses, and an equal share of each batch of
    lookahead steps. peak: bytes. ahead: lookahead
    tokens fed, T_eff of EchoKV and LAQ.
    """

    selections: list[Selection]
    seconds: float
    peak: int
    ahead: int


@dataclass(eq=False)
class _Work:
    """A press at work on a prefill, or resting until `asked` has been fed."""

    prefill: Prefill
    course: Ahead[list[Selection]]
    asked: Stretch | None = None
    selections: list[Selection] = field(default_factory=list)
    seconds: float = 0.0
    peak: int = 0
    ahead: int = 0
    used: set[Hashable] = field(default_factory=set)  # of what presses share

    def go_on(self) -> None:
        """Work until tokens are wanted, or to the end."""
        self.prefill.shared.bill()
        with Meter() as meter:
            try:
                self.asked = next(self.course)
                while self.asked.steps == 0:
                    self.asked = next(self.course)
            except StopIteration as end:
                self.asked, self.selections = None, end.value
        self.charge(meter, 1.0)
        bill = self.prefill.shared.bill()
        self.seconds += sum(seconds for key, seconds in bill.items() if key not in self.used)
        self.used |= bill.keys()

    def charge(self, meter: Meter, share: float) -> None:
        self.seconds += meter.seconds * share
        self.peak = max(self.peak, meter.peak)


@torch.no_grad()  # one mode for all: a policy that sets its own rests and goes on among others
def choose(jobs: Sequence[tuple[Prefill, Press, Sequence[int | None]]]) -> list[Choice]:
    """What each press selects of its prefill at its budgets; all prefills are of one model."""
    with ExitStack() as held:
        for prefill, _, _ in jobs:
            held.enter_context(prefill.shared.held())
        return _chosen([_Work(prefill, selecting(press, prefill, budgets)) for prefill, press, budgets in jobs])


def _chosen(works: list[_Work]) -> list[Choice]:
    for work in works:
        work.go_on()
    while waiting := [(work, work.asked) for work in works if work.asked]:
        steps = min(asked.steps for _, asked in waiting)
        parts = [replace(asked, steps=steps) for _, asked in waiting]
        with Meter() as meter:
            advance(*parts)
        for (work, asked), part in zip(waiting, parts, strict=True):
            work.charge(meter, 1 / len(parts))
            fed = steps - part.steps
            work.ahead += fed
            asked.steps -= fed
            if asked.over:
                work.go_on()
    return [Choice(work.selections, work.seconds, work.peak, work.ahead) for work in works]


def selecting(press: Press, prefill: Prefill, budgets: Sequence[int | None]) -> Ahead[list[Selection]]:
    """`Press.selecting`. Raises UserError for an error in the code of a user's own press."""
    with blamed(type(press).__name__, UsageError, torch.OutOfMemoryError):
        return (yield from press.selecting(prefill, budgets))


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
