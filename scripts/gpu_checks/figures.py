"""What a check found, and the page of all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Figure:
    """One line of the page. ok: None where nothing is asked of it."""

    said: str
    value: float | str
    bar: str = ""
    ok: bool | None = None


def at_most(said: str, value: float, bar: float) -> Figure:
    return Figure(said, value, f"at most {bar:g}", value <= bar)


def at_least(said: str, value: float, bar: float) -> Figure:
    return Figure(said, value, f"at least {bar:g}", value >= bar)


def yes(true: bool) -> tuple[str, str, bool]:
    """Value, bar and verdict of a figure that is to be true."""
    return ("yes" if true else "no"), "yes", true


def page(found: Sequence[tuple[str, Figure]], head: str) -> str:
    """The figures as text, one a line."""
    lines = [head, ""]
    for part, one in found:
        value = one.value if isinstance(one.value, str) else f"{one.value:.4g}"
        mark = {None: "", True: "pass", False: "FAIL"}[one.ok]
        lines.append(f"{part:10} {one.said:96} {value:>10}  {one.bar:16} {mark}".rstrip())
    return "\n".join(lines)
