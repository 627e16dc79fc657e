"""The colour, marker and dash of every method, the same in figures and on the page.

The methods of conf/method have looks of their own; others take the next free one. In grey they are told apart by their
markers, filled or hollow, and by the dashes of their lines. A family is drawn together where there are many methods:
its colours are told apart by colour-blind eyes as well, those of two families need not be.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from eval.tables.naming import PLUS, Name

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
    ("star", 180): (5, 1, 180),
    ("asterisk", 0): (6, 2, 0),
    ("plus", 0): "+",
    ("times", 0): "x",
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
REFERENCES, OTHERS = "references", "other methods"
FAMILIES = {
    REFERENCES: {
        "full": Look("#5b6675", "#a9b4c2", "circle", 0, False, DASHES[1]),
        "oracle": Look("#21242a", "#f0f5fd", "asterisk", 0, True, DASHES[2]),
        "random": Look("#8e929a", "#6d7279", "times", 0, True, DASHES[4]),
    },
    "the paper's": {
        "streamingllm": Look("#8a5a2b", "#d0a274", "cross", 0, True, DASHES[6]),
        "h2o": Look("#c26a00", "#f0a23c", "square", 0, True, DASHES[4]),
        "snapkv": Look("#1f83b8", "#6cc0ee", "triangle", 0, True, DASHES[2]),
        "pyramidkv": Look("#00806a", "#3fc7a6", "diamond2", 0, True, DASHES[3]),
        "laq": Look("#b04a86", "#e58cc0", "star", 0, True, DASHES[5]),
        "echokv": Look("#0b4f9c", "#6ea8ff", "circle", 0, True, DASHES[0]),
    },
    "queries to come": {
        "stage1_only": Look("#c23b22", "#ff8a70", "triangle", 180, True, DASHES[1]),
        "iterative_only": Look("#6a55b5", "#b3a1f5", "hexagon", 0, True, DASHES[2]),
        "expected_attention": Look("#6d3045", "#b66c16", "diamond", 0, False, DASHES[0]),
        "dapq": Look("#e16c10", "#f6cdc0", "star", 0, False, DASHES[5]),
        "kvzip": Look("#8a2f11", "#fcbe62", "cross", 45, False, DASHES[3]),
    },
    "queries of the prompt": {
        "tova": Look("#738262", "#aaab3f", "triangle", 270, True, DASHES[0]),
        "chunkkv": Look("#517306", "#bdfd4c", "square", 0, False, DASHES[1]),
        "critical_snapkv": Look("#484929", "#868604", "triangle", 90, True, DASHES[3]),
        "defensivekv": Look("#8c8d15", "#bad696", "triangle", 180, False, DASHES[6]),
    },
    "shares of heads and layers": {
        "ada_snapkv": Look("#7076b1", "#9385a5", "triangle", 0, False, DASHES[2]),
        "ada_pyramidkv": Look("#7d83f7", "#f1c5fe", "diamond2", 0, False, DASHES[3]),
        "critical_ada_snapkv": Look("#4d50a2", "#8389fe", "triangle", 90, False, DASHES[6]),
        "ada_echokv": Look("#320ea6", "#6a68f9", "hexagon", 0, False, DASHES[0]),
        "headkv": Look("#5c57e7", "#979fdd", "cross", 45, True, DASHES[4]),
        "cake": Look("#482f62", "#8270c7", "diamond", 0, True, DASHES[5]),
    },
    "keys and values alone": {
        "knorm": Look("#2d4608", "#f5e87d", "cross", 0, False, DASHES[0]),
        "keydiff": Look("#b78a16", "#a2c028", "triangle", 270, False, DASHES[2]),
        "lagkv": Look("#706822", "#9f8b48", "star", 180, True, DASHES[5]),
    },
    OTHERS: {
        "kvpress": Look("#1f4acf", "#327ee3", "plus", 0, True, DASHES[1]),
    },
}
KNOWN = {method: look for own in FAMILIES.values() for method, look in own.items()}
# Of others: as far from the paper's and from each other as colours of their kind go (distance in OKLab), and dark or
# light enough for marks (contrast 3:1 and more).
_COLOURS = (
    ("#789800", "#b4cf3f"), ("#680048", "#f8c8e8"), ("#203800", "#d8f8b0"), ("#a078e8", "#9a83c4"),
    ("#683000", "#cf7a14"), ("#003858", "#0b9bd6"), ("#d068b8", "#d868d0"), ("#206000", "#7ad060"),
    ("#981840", "#d86080"), ("#401880", "#a878e0"), ("#b08090", "#e0b0c8"), ("#005858", "#52e2e2"),
    ("#782888", "#f0a8f8"), ("#609888", "#7fa89c"), ("#584058", "#b89098"),
)  # fmt: skip
_MARKERS = [
    *((*shape, True) for shape in (("cross", 45), ("triangle", 90), ("diamond", 0), ("triangle", 270))),
    *((*shape, False) for shape in list(SHAPES)[1:12]),
]


def family(name: Name) -> str:
    """The rows that one is drawn together with: those of its codec, else those of its method's family."""
    if name.stored:
        return name.stored.removeprefix(PLUS)
    return next((title for title, own in FAMILIES.items() if name.method in own), OTHERS)


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
    """Look number `place` of what is no method of conf/method: the first 15 have their own colour and marker."""
    # Every time around, markers move on by one against the colours.
    around, colour = divmod(place, len(_COLOURS))
    symbol, turn, filled = _MARKERS[(colour + around) % len(_MARKERS)]
    return Look(*_COLOURS[colour], symbol, turn, filled, DASHES[place % len(DASHES)])
