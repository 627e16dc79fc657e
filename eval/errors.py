"""The one exception that stands for a user's mistake, and the hint that goes with a misspelt name."""

from collections.abc import Iterable
from difflib import get_close_matches


class UserError(Exception):
    """Wrong input, told in one line: what was given, which limit it broke, what to do instead."""


def nearest(word: str, choices: Iterable[str]) -> str:
    """Return '; did you mean a, b?' for the closest of `choices`, or the whole list if none is close."""
    known = sorted(choices)
    close = get_close_matches(word, known, n=3, cutoff=0.5)
    return f"; did you mean {', '.join(close)}?" if close else f"; known: {', '.join(known)}"
