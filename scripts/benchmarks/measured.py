"""What the parts of the benchmark hand back, and how they take time."""

from __future__ import annotations

import ctypes
import math
import platform
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from eval.answering.measure import Meter


class Unavailable(Exception):
    """What a part needs cannot be had here; told in one line."""


@dataclass(frozen=True)
class Row:
    """One measured number. bar: what it must not exceed (or, if `at_least`, fall below); None if there is none."""

    name: str
    value: float
    bar: float | None = None
    at_least: bool = False

    @property
    def met(self) -> bool | None:
        """Whether the bar is met; None without one."""
        if self.bar is None:
            return None
        return self.value >= self.bar if self.at_least else self.value <= self.bar

    @property
    def limit(self) -> str:
        return "" if self.bar is None else f"{'at least' if self.at_least else 'at most'} {self.bar:.3g}"

    @property
    def verdict(self) -> str:
        return "" if self.bar is None else f"{self.limit}: {'met' if self.met else 'MISSED'}"

    @property
    def stored(self) -> dict[str, Any]:
        return {**asdict(self), "verdict": self.verdict}


@dataclass(frozen=True)
class Point:
    """One mark of a plot: on which line, and where."""

    plot: str
    line: str
    x: float
    y: float


@dataclass(frozen=True)
class Measured:
    """What a part found."""

    rows: list[Row]
    points: list[Point] = field(default_factory=list)


def shortest(work: Callable[[], Any], repeats: int = 1, limit: float = math.inf) -> float:
    """Seconds of the shortest of some runs; no further run is begun once `limit` seconds have gone into them."""
    times: list[float] = []
    while len(times) < repeats and sum(times) < limit:
        with Meter() as meter:
            work()
        times.append(meter.seconds)
    return min(times)


def power_law(points: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Exponent b and factor a of the least-squares line y = a * x**b through the logarithms of (x, y).

    Raises ValueError with fewer than two different x.
    """
    xs, ys = [math.log(x) for x, _ in points], [math.log(max(y, 1e-9)) for _, y in points]
    if len(set(xs)) < 2:
        raise ValueError("a power law needs two points")
    mean_x, mean_y = sum(xs) / len(xs), sum(ys) / len(ys)
    over = sum((x - mean_x) * (y - mean_y) for x, y in zip(xs, ys, strict=True))
    exponent = over / sum((x - mean_x) ** 2 for x in xs)
    return exponent, math.exp(mean_y - exponent * mean_x)


def trim() -> None:
    """Give freed memory back to the system, so that it does not count for what is measured next."""
    if platform.system() == "Linux":
        ctypes.CDLL("libc.so.6").malloc_trim(0)
