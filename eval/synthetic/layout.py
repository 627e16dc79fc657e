"""Lay out the pieces of a synthetic context: token estimate, scattering, joining with exact spans."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from random import Random

# One token each: a word, a digit, the space before a number, line ends with indentation, any other sign.
_TOKEN = re.compile(r"[A-Za-z]+|[0-9]| (?=[0-9])|\n\s*|[^\sA-Za-z0-9]")

# No evidence lies in the last so many tokens of a context: there a recent window alone would answer.
TAIL = 128


@dataclass(frozen=True)
class Piece:
    """A stretch of context; `evidence` marks the ones that bear the answer."""

    text: str
    evidence: bool = False


@dataclass(frozen=True)
class Draft:
    """What a task writes: the fields of a record that depend on its text."""

    context: str
    evidence: list[list[int]]
    question: str
    answers: list[str]
    classes: list[str] | None = None


def tokens(text: str) -> int:
    """Estimate the tokens of `text` under a byte-pair vocabulary with single digits."""
    return len(_TOKEN.findall(text))


def scatter(count: int, slots: int, dispersion: float, rng: Random) -> list[int]:
    """Return `count` ascending slots out of range(slots), their distances proportional to `dispersion`.

    0 puts all into one slot, 1 puts one into each of `count` equal parts of the range. The draws do not depend
    on `dispersion`, so that two settings of one record differ in the placing alone.
    """
    base = rng.random()
    parts = [(i + rng.random()) / count for i in range(count)]
    return [min(slots - 1, int(slots * (base * (1 - dispersion) + part * dispersion))) for part in parts]


def early_slots(rows: Iterable[Sequence[str]]) -> int:
    """Return the number of sentences that lie before the last TAIL tokens; at least one."""
    costs = [tokens(sentence) for row in rows for sentence in row]
    tail = 0
    while len(costs) > 1 and tail < TAIL:
        tail += costs.pop()
    return len(costs)


def weave(rows: Iterable[Sequence[str]], inserts: Iterable[tuple[int, Piece]]) -> list[list[Piece]]:
    """Insert each (slot, piece) before sentence number `slot`, counted through all of `rows`."""
    waiting: dict[int, list[Piece]] = {}
    for slot, piece in inserts:
        waiting.setdefault(slot, []).append(piece)
    woven: list[list[Piece]] = []
    number = 0
    for row in rows:
        line: list[Piece] = []
        for sentence in row:
            line += [*waiting.pop(number, []), Piece(sentence)]
            number += 1
        woven.append(line)
    assert not waiting, f"slots beyond the last sentence: {sorted(waiting)}"
    return woven


def join(rows: Iterable[Iterable[Piece]], between: str = " ", after: str = "\n\n") -> tuple[str, list[list[int]]]:
    """Join pieces by `between`, rows by `after`; return the text and [start, end) of each evidence."""
    parts: list[str] = []
    spans: list[list[int]] = []
    length = 0
    for i, row in enumerate(rows):
        for j, piece in enumerate(row):
            gap = between if j else after if i else ""
            start = length + len(gap)
            length = start + len(piece.text)
            parts += [gap, piece.text]
            if piece.evidence:
                spans.append([start, length])
    return "".join(parts), spans
