"""What a run shows while it goes on: a live bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from types import TracebackType

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from eval.console.errors import printable

SECONDS = 10.0  # between two plain lines


class Reporter:
    """Context manager around a run of `total` examples; everything goes to standard error."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._done = 0
        self._begun = self._said = time.monotonic()
        columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
        console = Console(stderr=True)
        self._bar = Progress(
            TextColumn("{task.description}"), *columns, console=console, disable=not console.is_terminal
        )
        self._task = self._bar.add_task("", total=total)

    def __enter__(self) -> Reporter:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()
        if isinstance(error, KeyboardInterrupt):
            self.say(f"{self._done} of {self._total} examples were answered, the one in flight is dropped")

    def say(self, text: str) -> None:
        """Print a line above the bar."""
        text = printable(text)
        if self._bar.disable:
            print(text, file=sys.stderr, flush=True)
        else:
            self._bar.console.print(text, markup=False, highlight=False)

    def advance(self, name: str) -> None:
        """Count one example of a subset as answered."""
        self._done += 1
        self._bar.update(self._task, advance=1, description=name)
        now = time.monotonic()
        if self._bar.disable and (now - self._said >= SECONDS or self._done == self._total):
            self._said = now
            left = (now - self._begun) / self._done * (self._total - self._done)
            self.say(f"{self._done}/{self._total} examples, {name}, {now - self._begun:.0f} s, about {left:.0f} s left")
