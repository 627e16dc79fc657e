"""Give way to other work on the same cores: beside it a run should lose its share of them, and no more.

The threads of a parallel region wait for each other. libgomp, the OpenMP of torch's Linux wheels, has them spin for
milliseconds before they sleep, which is quickest while the cores are theirs alone. Beside another busy process a thread
that spins holds the very core that the thread it waits for needs. No fixed number of spins serves both. But libgomp
spins for microseconds only while a process has more OpenMP threads than cores: so as long as others work here, one more
team of them is kept, asleep. Nothing else changes: no count of threads, no division of work, no bit of an answer.
"""

import ctypes
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

CHOSEN = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")  # a user who sets one has decided
INTERVAL = 0.25  # seconds between two looks at the machine
CALM = 2.0  # seconds without others after which spinning is worth while again
NOTABLE, FAINT = 0.2, 0.1  # cores lacking from which on others count, and below which they have gone
_SOFT = 1  # OpenMP 5.0, omp_pause_soft
_STAT = Path("/proc/stat")


class Waits(Protocol):
    """How long this process's threads spin."""

    def spare(self) -> int | None:
        """Cores that it leaves to others; None if it has no threads that could spin."""
        ...

    def shorten(self) -> None: ...

    def restore(self) -> None: ...


@contextmanager
def giving_way() -> Iterator[None]:
    """While the block runs, a thread watches the machine's load and has OpenMP spin less while others work.

    Does nothing where the user has set how threads wait, where the system is not Linux, or for an OpenMP that is not
    GNU's. torch may be imported before or within the block.
    """
    ended = threading.Event()
    if _STAT.exists() and not any(name in os.environ for name in CHOSEN):
        threading.Thread(target=watch, args=(ended, Others().look, Libgomp()), daemon=True).start()
    try:
        yield
    finally:
        ended.set()


def watch(ended: threading.Event, others: Callable[[], float], waits: Waits, interval: float = INTERVAL) -> None:
    """Shorten the waits at the first sight of others that need our cores; restore them `CALM` seconds after the last.

    others: cores' worth of work of other processes since the last call.
    """
    short, calm = False, 0
    while not ended.wait(interval):
        taken, spare = others(), waits.spare()
        if spare is None:
            continue
        lacking = taken - spare
        calm = 0 if lacking > (FAINT if short else NOTABLE) else calm + 1
        if not calm and not short:
            waits.shorten()
            short = True
        elif short and calm * INTERVAL >= CALM:
            waits.restore()
            short = False


class Libgomp:
    """The waits of GNU's OpenMP, once torch has loaded it."""

    def spare(self) -> int | None:
        count = getattr(sys.modules.get("torch"), "get_num_threads", None)
        threads: int = count() if count else 1
        symbols = ctypes.CDLL(None)  # torch makes the libraries that it stands on known to the whole process
        if threads < 2 or not (hasattr(symbols, "GOMP_parallel") and hasattr(symbols, "omp_pause_resource_all")):
            return None
        self._gomp, self._spare = symbols, max(0, len(os.sched_getaffinity(0)) - threads)
        return self._spare

    def shorten(self) -> None:
        """Keep a team in the calling thread, just large enough for more threads than cores.

        Its region calls a function that does nothing, and ends; the team stays asleep for the next one.
        """
        nothing = ctypes.cast(self._gomp.omp_get_thread_num, ctypes.c_void_p)
        self._gomp.GOMP_parallel(nothing, None, self._spare + 2, 0)

    def restore(self) -> None:
        """End the calling thread's team. So does the end of the thread."""
        self._gomp.omp_pause_resource_all(_SOFT)


class Others:
    """What other processes do on the cores that this one may use."""

    def __init__(self) -> None:
        self._before = self._now()

    def look(self) -> float:
        """Cores' worth of work that others did since the last look."""
        before, now = self._before, self._now()
        self._before = now
        seconds, busy, own = (b - a for a, b in zip(before, now, strict=True))
        return max(0.0, (busy - own) / seconds)

    def _now(self) -> tuple[float, float, float]:
        busy = busy_seconds(_STAT.read_text(encoding="ascii"), os.sched_getaffinity(0))
        return time.perf_counter(), busy, time.process_time()


def busy_seconds(stat: str, cores: set[int]) -> float:
    """Seconds that these cores have worked, for whomever, or were taken by a hypervisor (proc(5), /proc/stat)."""
    ticks = 0
    for name, *fields in map(str.split, stat.splitlines()):
        if name.startswith("cpu") and name != "cpu" and int(name[3:]) in cores:
            user, nice, system, _idle, _iowait, *interrupts_and_stolen = map(int, fields[:8])
            ticks += user + nice + system + sum(interrupts_and_stolen)
    return ticks / os.sysconf("SC_CLK_TCK")
