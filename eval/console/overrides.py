"""name=value on the command line, where the value is a text that Hydra's grammar has another meaning for."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from functools import cache
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException

_NO_TEXT = ("[", "{", "(", "'", '"')  # a list, a mapping, or quoted already
_SWEEPS = {"-m", "--multirun"}


def quoted(words: Sequence[str]) -> list[str]:
    """The words of a command line, each value that Hydra cannot read in quotes: ~/records, a=b, records[1].

    In a sweep every one of several values. What is no name=value, or begins as a list does, is left as it is.
    """
    sweep = bool(_SWEEPS & set(words))
    return [_quoted(word, sweep) for word in words]


def _quoted(word: str, sweep: bool) -> str:
    name, equals, value = word.partition("=")
    if word.startswith("-") or not equals or value.startswith(_NO_TEXT) or _reads(word):
        return word
    parts = value.split(",") if sweep else [value]
    return f"{name}=" + ",".join(part if _reads(f"{name}={part}") else _in_quotes(part) for part in parts)


def _in_quotes(text: str) -> str:
    """In Hydra's quotes, where a backslash counts only in front of one."""
    return "'" + re.sub(r"(\\*)('|$)", lambda found: found[1] * 2 + ("\\'" if found[2] else ""), text, count=0) + "'"


def _reads(word: str) -> bool:
    try:
        _parser().parse_override(word)
    except HydraException:
        return False
    return True


@cache
def _parser() -> Any:
    return OverridesParser.create()


def keep_texts(content: dict[str, Any], overrides: Iterable[str], names: Collection[str]) -> None:
    """Put back what stood on the command line where a text looks like a number: revision 2e00731 is not infinity.

    names: the settings that are texts. Changes `content`.
    """
    for word in overrides:
        name, _, text = word.lstrip("+").partition("=")
        if name not in names:
            continue
        *sections, last = name.split(".")
        place: Any = content
        for section in sections:
            place = place.get(section) if isinstance(place, dict) else None
        if isinstance(place, dict) and isinstance(place.get(last), int | float):
            place[last] = text
