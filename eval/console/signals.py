"""Ctrl-C and SIGTERM end a run within seconds, wherever it is, with the exit status that shells expect."""

from __future__ import annotations

import os
import select
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

CAUGHT = (signal.SIGINT, signal.SIGTERM)
GRACE = 8.0  # seconds for leaving the example in flight; Slurm kills 30 s after SIGTERM by default

GO_ON = "stored answers are kept, the same command goes on from here"


class Interrupted(KeyboardInterrupt):
    """A signal asked the process to end. `status` is the exit status: 130 for SIGINT, 143 for SIGTERM."""

    def __init__(self, number: int) -> None:
        super().__init__(f"interrupted by {signal.Signals(number).name}")
        self.status = 128 + number


@contextmanager
def caught(grace: float = GRACE) -> Iterator[None]:
    """Within the block, SIGINT and SIGTERM raise Interrupted; a second one ends the process at once.

    Python delivers a signal between two of its instructions. For a call that takes longer than `grace` seconds (a
    hung network drive, say) a thread ends the process in its stead: the store loses nothing by that.
    """
    before = {number: signal.signal(number, _raise) for number in CAUGHT}
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    wakeup = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    threading.Thread(target=_watch, args=(reading, grace), daemon=True).start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(wakeup)
        for number, handler in before.items():
            signal.signal(number, handler)
        os.close(writing)  # ends the thread


def _raise(number: int, frame: FrameType | None) -> None:
    for one in CAUGHT:
        signal.signal(one, _leave)
    raise Interrupted(number)


def _leave(number: int, frame: FrameType | None) -> None:
    os._exit(128 + number)


def _watch(pipe: int, grace: float) -> None:
    """Wait for the first signal; then end the process unless the block is left within `grace` seconds."""
    with os.fdopen(pipe, "rb", buffering=0) as signals:
        while (number := signals.read(1)) and number[0] not in CAUGHT:
            continue  # another handler's signal
        if not number:
            return  # the block is left
        ready, _, _ = select.select([signals], [], [], grace)
        if ready and not signals.read(1):
            return
    print(f"interrupted by {signal.Signals(number[0]).name}: {GO_ON}", file=sys.stderr, flush=True)
    os._exit(128 + number[0])
