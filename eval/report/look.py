"""The colour, marker and dash of every method, the same in figures and on the page.

The methods of the paper have looks of their own; others take the next free one. In grey they are told apart by their
markers, filled or hollow, and by the dashes of their lines.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

SHAPES = {  # of the page (https://github.com/d3/d3-shape#symbols), degrees clockwise -> marker of matplotlib
    ("circle", 0): "o",
    ("square", 0): "s",
    ("triangle", 0): "^",
    ("triangle", 180): "v",
    ("triangle", 90): ">",
    ("triangle", 270): "<",
    ("diamond2", 0): "D",
    ("diamond", 0): "d",
    ("star", 0): "*",
    ("hexagon", 0): "h",
    ("cross", 0): "P",
    ("cross", 45): "X",
}


@dataclass(frozen=True)
class Look:
    """How the marks and lines of a method are drawn.

    light, dark: its colour on a light and on a dark ground. dash: lengths of strokes and gaps in line widths, empty for
    a solid line.
    """

    light: str
    dark: str
    symbol: str
    turn: int
    filled: bool
    dash: tuple[float, ...]

    @property
    def lines(self) -> dict[str, Any]:
        """What matplotlib's `plot` takes to draw it on paper."""
        return {
            "color": self.light,
            "linestyle": (0, self.dash) if self.dash else "-",
            "marker": SHAPES[self.symbol, self.turn],
            "markerfacecolor": self.light if self.filled else "white",
        }

    @property
    def told(self) -> dict[str, Any]:
        """The same for the page."""
        return asdict(self)


DASHES = ((), (5, 2), (1, 1.5), (6, 2, 1, 2), (3, 1.5), (9, 2.5), (6, 2, 1, 2, 1, 2))
KNOWN = {
    "full": Look("#5b6675", "#a9b4c2", "circle", 0, False, DASHES[1]),
    "streamingllm": Look("#8a5a2b", "#d0a274", "cross", 0, True, DASHES[6]),
    "h2o": Look("#c26a00", "#f0a23c", "square", 0, True, DASHES[4]),
    "snapkv": Look("#1f83b8", "#6cc0ee", "triangle", 0, True, DASHES[2]),
    "pyramidkv": Look("#00806a", "#3fc7a6", "diamond2", 0, True, DASHES[3]),
    "laq": Look("#b04a86", "#e58cc0", "star", 0, True, DASHES[5]),
    "stage1_only": Look("#c23b22", "#ff8a70", "triangle", 180, True, DASHES[1]),
    "iterative_only": Look("#6a55b5", "#b3a1f5", "hexagon", 0, True, DASHES[2]),
    "echokv": Look("#0b4f9c", "#6ea8ff", "circle", 0, True, DASHES[0]),
}
# As far from those and from each other as colours of their kind go (distance in OKLab), and dark or light enough for
# marks (contrast 3:1 and more).
_COLOURS = (
    ("#789800", "#b4cf3f"), ("#680048", "#f8c8e8"), ("#203800", "#d8f8b0"), ("#a078e8", "#9a83c4"),
    ("#683000", "#cf7a14"), ("#003858", "#0b9bd6"), ("#d068b8", "#d868d0"), ("#206000", "#7ad060"),
    ("#981840", "#d86080"), ("#401880", "#a878e0"), ("#b08090", "#e0b0c8"), ("#005858", "#52e2e2"),
    ("#782888", "#f0a8f8"), ("#609888", "#7fa89c"), ("#584058", "#b89098"),
)  # fmt: skip
_MARKERS = [
    *((*shape, True) for shape in (("cross", 45), ("triangle", 90), ("diamond", 0), ("triangle", 270))),
    *((*shape, False) for shape in SHAPES if shape != ("circle", 0)),
]


def looks(names: Iterable[str]) -> dict[str, Look]:
    """Give every row of a table a look, a method's own where it has one; others are dealt in the order of their names.

    names: as a command line has them (`eval.tables.naming.Name`), variants among them.
    """
    wanted = sorted(set(names))
    others = [name for name in wanted if name not in KNOWN]
    return {name: look for name, look in KNOWN.items() if name in wanted} | {
        name: another(place) for place, name in enumerate(others)
    }


def another(place: int) -> Look:
    """Look number `place` of what is no method of the paper: the first 15 have their own colour and marker."""
    # Every time around, markers move on by one against the colours.
    around, colour = divmod(place, len(_COLOURS))
    symbol, turn, filled = _MARKERS[(colour + around) % len(_MARKERS)]
    return Look(*_COLOURS[colour], symbol, turn, filled, DASHES[place % len(DASHES)])
