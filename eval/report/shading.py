"""A prompt as text in which every token shows how many (layer, head) pairs keep it: by colour, or by plain marks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np
from rich.style import Style
from rich.text import Text

from eval.keeping.selections import Prompt

LEVELS = (0.0, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8)  # shares of the pairs above which a stronger shade is used
SHADES = ("#17324d", "#1a4166", "#1d5080", "#205f99", "#246fb3", "#2a80cc", "#3191e6")
AROUND = 6  # tokens shown around one that is kept


@dataclass(frozen=True)
class Look:
    """How tokens are shown. level: of `LEVELS`, 0 for those that no pair keeps."""

    level: int = 0
    evidence: bool = False
    answer: bool = False
    folded: bool = False  # not a token but a word about some that are not shown


def shaded(prompt: Prompt, shares: np.ndarray, answers: Sequence[str], whole: bool, colour: bool = True) -> Text:
    """A prompt with shaded tokens, its evidence underlined and its answers bold.

    shares: float [length], the share of pairs that keep each token. whole: fold nothing. colour: False for marks that
    a file can hold, as `key` explains them.
    """
    parts = _parts(prompt, shares, answers, whole)
    if colour:
        return Text.assemble(*((text, _style(look)) for look, text in parts))
    runs = groupby(parts, key=lambda part: part[0])
    return Text("".join(_marked(look, "".join(text for _, text in run)) for look, run in runs))


def key(colour: bool = True) -> Text:
    """What the shades or the marks mean."""
    said = [(Look(level), f" >{100 * least:.0f}% ") for level, least in enumerate(LEVELS, 1)]
    said += [(Look(), "  "), (Look(evidence=True), "evidence"), (Look(), "  "), (Look(answer=True), "answer")]
    if colour:
        return Text.assemble("kept by: ", *((text, _style(look)) for look, text in said))
    return Text("kept by: " + " ".join(_marked(look, text.strip()) for look, text in said if text.strip()))


def _parts(prompt: Prompt, shares: np.ndarray, answers: Sequence[str], whole: bool) -> Iterator[tuple[Look, str]]:
    """Yield the tokens that are shown, and a word about those between them."""
    evidence = np.zeros(len(prompt.pieces), dtype=bool)
    for first, last in prompt.evidence:
        evidence[first:last] = True
    said = _answers(prompt.pieces, answers)
    near = np.convolve((shares > 0) | evidence, np.ones(2 * AROUND + 1), mode="full")[AROUND:-AROUND] > 0
    folded = 0
    for piece, share, is_evidence, is_answer, show in zip(prompt.pieces, shares, evidence, said, near, strict=True):
        if not (show or whole):
            folded += 1
            continue
        if folded:
            yield Look(folded=True), f" [{folded} tokens that none keeps] "
            folded = 0
        level = sum(share > least for least in LEVELS)
        look = Look(level, bool(is_evidence), bool(is_answer))
        yield look, piece.replace("\n", "↵\n") if level else piece
    if folded:
        yield Look(folded=True), f" [{folded} tokens that none keeps]"


def _style(look: Look) -> Style:
    return Style(
        color="#f0f4fa" if look.level else None,
        bgcolor=SHADES[look.level - 1] if look.level else None,
        underline=look.evidence,
        bold=look.answer,
        dim=look.folded,
        italic=look.folded,
    )


def _marked(look: Look, text: str) -> str:
    """The text of neighbours that look alike: [LEVEL:kept], _evidence_, *answer*."""
    for mark in "*" * look.answer + "_" * look.evidence:
        text = f"{mark}{text}{mark}"
    return f"[{look.level}:{text}]" if look.level else text


def _answers(pieces: Sequence[str], answers: Sequence[str]) -> np.ndarray:
    """bool [length]: the tokens of every place where an answer stands, whatever its case."""
    text = "".join(pieces).lower()
    ends = np.cumsum([len(piece) for piece in pieces])
    marks = np.zeros(len(pieces), dtype=bool)
    for answer in (answer.strip().lower() for answer in answers):
        at = text.find(answer) if answer else -1
        while at >= 0:
            first, last = np.searchsorted(ends, [at, at + len(answer) - 1], side="right")
            marks[first : last + 1] = True
            at = text.find(answer, at + len(answer))
    return marks
