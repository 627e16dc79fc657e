"""Giving way: whose work counts, when waits are shortened, and that a real run beside a real process does it."""

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eval.answering import neighbours

ROOT = Path(__file__).resolve().parents[3]
linux = pytest.mark.skipif(not Path("/proc/stat").exists(), reason="needs /proc/stat, which this system does not have")


@given(
    st.lists(st.lists(st.integers(0, 10**9), min_size=8, max_size=10), min_size=1, max_size=12),
    st.sets(st.integers(0, 11)),
)
def test_busy_seconds(table: list[list[int]], cores: set[int]) -> None:
    """Everything but idle (the fourth) and waiting for a disk (the fifth); guests are within user and nice already."""
    total = " ".join(str(sum(column)) for column in zip(*(row[:8] for row in table), strict=True))
    lines = [f"cpu  {total}", *(f"cpu{core} {' '.join(map(str, row))}" for core, row in enumerate(table)), "ctxt 5", ""]
    expected = 0
    for core, row in enumerate(table):
        for place, ticks in enumerate(row[:8]):
            if core in cores and place not in (3, 4):
                expected += ticks
    found = neighbours.busy_seconds("\n".join(lines), cores)
    assert found * os.sysconf("SC_CLK_TCK") == pytest.approx(expected)


class Noted:
    """Waits that note what they are told."""

    def __init__(self, spare: int | None) -> None:
        self.leaves, self.told = spare, ""

    def spare(self) -> int | None:
        self.told += "."
        return self.leaves

    def shorten(self) -> None:
        self.told += "short"

    def restore(self) -> None:
        self.told += "long"


def watched(loads: list[float], spare: int | None) -> str:
    ended, waits = threading.Event(), Noted(spare)
    left = list(loads)

    def others() -> float:
        if len(left) == 1:
            ended.set()
        return left.pop(0)

    neighbours.watch(ended, others, waits, 0)
    return waits.told


@pytest.mark.parametrize(
    ("loads", "spare", "told"),
    [
        ([0.1, 0.19, 0.15], 0, "..."),  # an editor is no neighbour
        ([0, 0.5, 0.5, 0.15], 0, "..short.."),  # at once, and not again
        ([0.5, *[0.05] * 7, 0.3, *[0.05] * 8, 0], 0, f".short{16 * '.'}long."),  # only after two calm seconds
        ([0.5, *[0.05] * 8, 0.5], 0, f".short{8 * '.'}long.short"),
        ([1.1, 2.1, 2.3, 2.15], 2, "...short."),  # as much as is left to others is no loss
        ([5.0, 5.0], None, ".."),  # one thread waits for nobody
    ],
)
def test_when_waits_are_shortened(loads: list[float], spare: int | None, told: str) -> None:
    assert watched(loads, spare) == told


@pytest.fixture
def busy() -> Iterator[None]:
    """A process that is busy on the cores of this one."""
    with subprocess.Popen([sys.executable, "-S", "-c", "while True: pass"]) as process:
        yield
        process.kill()


@linux
@pytest.mark.usefixtures("busy")
def test_others_are_seen() -> None:
    others = neighbours.Others()
    threading.Event().wait(1)
    assert 0.3 < others.look() <= len(os.sched_getaffinity(0)) + 0.1


@linux
def test_own_work_is_not_that_of_others() -> None:
    """Two looks around a second of own work: others did what was measured, less than all that the cores did."""
    others = neighbours.Others()
    before = others._now()
    while others._now()[2] - before[2] < 1:
        sum(range(1000))
    _, busy, own = (b - a for a, b in zip(before, others._now(), strict=True))
    assert own == pytest.approx(1, abs=0.2)
    assert others.look() == pytest.approx(max(0, busy - own) / (others._before[0] - before[0]), abs=0.2)


# Prints how many threads the process has beside one that makes its waits short: before, meanwhile, and after.
SCRIPT = """
import os, threading, torch
from eval.answering.neighbours import Libgomp
torch.randn(200, 20000) + 1
count = lambda: len(os.listdir("/proc/self/task"))

def hold():
    waits = Libgomp()
    before = count(), waits.spare()
    waits.shorten()
    held = count()
    waits.restore()
    print(*before, held, count())

thread = threading.Thread(target=hold)
thread.start()
thread.join()
"""
# Waits, within the block, until a thread more than its own watcher is there.
BESIDE = """
import os, time, torch
from eval.answering.neighbours import giving_way
torch.randn(200, 20000) + 1
count = lambda: len(os.listdir("/proc/self/task"))
before, end = count(), time.monotonic() + float({seconds})
with giving_way():
    while count() < before + 2 and time.monotonic() < end:
        time.sleep(0.1)
    print(count() - before)
"""


def run(script: str, **settings: str) -> list[int]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("OMP_", "GOMP_", "KMP_", "MKL_"))}
    environment = kept | {"OMP_NUM_THREADS": str(len(os.sched_getaffinity(0)))} | settings
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return [int(word) for word in done.stdout.split()]


def gnu() -> None:
    if len(os.sched_getaffinity(0)) < 2 or not list(Path(next(iter(sys.modules["torch"].__path__))).glob("lib/*gomp*")):
        pytest.skip("needs two cores and a torch that brings GNU's OpenMP")


@linux
def test_one_more_thread_than_cores() -> None:
    gnu()
    before, spare, held, after = run(SCRIPT)
    assert spare == 0
    assert (held, after) == (before + 1, before)


@linux
@pytest.mark.usefixtures("busy")
@pytest.mark.parametrize(
    ("settings", "more"),
    [
        ({}, 2),  # the watcher and the thread that makes waits short
        ({"OMP_NUM_THREADS": "1"}, 1),
        ({"OMP_WAIT_POLICY": "ACTIVE"}, 0),  # what the user has set stays
        ({"GOMP_SPINCOUNT": "300000"}, 0),
        ({"KMP_BLOCKTIME": "1"}, 0),
    ],
)
def test_a_process_beside_a_busy_one(settings: dict[str, str], more: int) -> None:
    gnu()
    assert run(BESIDE.format(seconds=20 if more == 2 else 2), **settings) == [more]
