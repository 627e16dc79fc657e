"""Words beside marks: each where it covers neither a mark nor another word, else nowhere."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

Box = tuple[float, float, float, float]  # left, bottom, right, top in points
_PLACES = tuple((dx, dy) for far in (5, 9, 14) for dx, dy in ((far, 2), (far, -7), (-far, 2), (-far, -7), (0, far)))
_WIDE, _TALL = 4.0, 6.0  # points of a digit of size 6


def name_marks(panel: Any, marks: Sequence[tuple[float, float, str, str]]) -> None:
    """Write text beside the marks (x, y, text, colour) of a panel that has been drawn once; no text takes none."""
    points = panel.transData.transform([mark[:2] for mark in marks]) * 72 / panel.figure.dpi
    taken: list[Box] = [(x - 3, y - 3, x + 3, y + 3) for x, y in points]
    for (x, y), (across, up, text, colour) in zip(points, marks, strict=True):
        for dx, dy in _PLACES if text else ():
            wide = _WIDE * len(text)
            left = x + dx - (wide if dx < 0 else 0 if dx else wide / 2)
            box = (left, y + dy, left + wide, y + dy + _TALL)
            if not any(_cross(box, other) for other in taken):
                taken.append(box)
                where = {"xy": (across, up), "xytext": (left - x, dy), "textcoords": "offset points"}
                panel.annotate(text, **where, fontsize=6, color=colour)
                break


def _cross(one: Box, other: Box) -> bool:
    """Whether two boxes have a place in common."""
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]
