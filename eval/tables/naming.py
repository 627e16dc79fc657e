"""What a table calls its rows: a method, or, where it was run with several settings, a variant named by what differs.

A method's fields are those of its part in a run's identity. `code` is a digest of what defines it outside the library.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from eval.tables import titles

ORDER = (  # of rows: ceiling and floor, then as in the paper's tables; other methods come last
    "full", "oracle", "random", "streamingllm", "h2o", "snapkv", "pyramidkv", "laq", "stage1_only",
    "iterative_only", "echokv",
)  # fmt: skip
FRAME = ["method", "variant", "budget", "budget_bytes"]  # columns of a data frame that say which row a line is of
CODE = "code"
PLUS = "+ "  # before a codec's name
_SHORTEST = 4  # digits of a digest that are shown
_NUMBER = re.compile(r"(\d+(?:\.\d+)?)")
_APART = {CODE: "code {}", "scoring": "scoring {}", "_target_": "class {}"}  # said in another way than field=value


@dataclass(frozen=True)
class Name:
    """A method and, where several of its settings stand in one table, what tells this one from the others."""

    method: str
    variant: str = ""

    def __str__(self) -> str:
        """As it is written on a command line: echokv steps=4."""
        return f"{self.method} {self.variant}".strip()

    @property
    def title(self) -> str:
        """As a reader sees it: EchoKV (steps=4), EchoKV + KIVI-2 (steps=4)."""
        return self.head + (f" ({self.settings})" if self.settings else "")

    @property
    def head(self) -> str:
        """The method, and how what it keeps is stored if not as it is: EchoKV + KIVI-2."""
        return f"{title(self.method)} {self.stored}".rstrip()

    @property
    def stored(self) -> str:
        """The codec, such as "+ KIVI-2"; "" for what is stored as it is."""
        first = self.variant.partition(", ")[0]
        return first if first.startswith(PLUS) else ""

    @property
    def settings(self) -> str:
        """The rest of the variant."""
        return self.variant.removeprefix(self.stored).removeprefix(", ") if self.stored else self.variant

    @property
    def order(self) -> tuple[Any, ...]:
        """What sorts rows as the paper's tables do, variants by their numbers."""
        words = _NUMBER.split(self.variant)
        return [*ORDER, self.method].index(self.method), self.method, *words[:1], *_numbers(words[1:])


@dataclass(frozen=True)
class Key:
    """A row at a budget, None for a method that takes none.

    room: the bytes that the budget was made of, None where tokens were given.
    """

    name: Name
    budget: int | None
    room: int | None = None

    @property
    def label(self) -> str:
        """As it is told in a sentence: echokv steps=4 128."""
        return str(self.name) if self.budget is None else f"{self.name} {self.budget}"

    @property
    def given(self) -> int | None:
        """What paired rows have alike: bytes where these were given, else tokens."""
        return self.room or self.budget

    @property
    def block(self) -> tuple[int, str]:
        """What rows that are marked against each other have alike: bytes, else tokens and how these are stored."""
        return self.given or 0, "" if self.room or self.budget is None else self.name.stored

    @property
    def heading(self) -> str:
        """What is said of such rows: 8,388,608 bytes; 128; 128 + KIVI-2. "" without a budget."""
        if self.room:
            return f"{self.room:,} bytes"
        return "" if self.budget is None else f"{self.budget} {self.name.stored}".rstrip()


def title(method: str) -> str:
    """Name a method for a reader, as its YAML does."""
    return titles.title("method", method) or method


def key_of(method: str, variant: str, budget: Any, room: Any = None) -> Key:
    """Return the key of a data frame's line, from its columns `FRAME`."""
    return Key(Name(method, variant), *(None if pd.isna(value) else int(value) for value in (budget, room)))


def key_in(row: Any) -> Key:
    """The same of a line as `itertuples` has it."""
    return key_of(*(getattr(row, name) for name in FRAME))


def names(grid: Sequence[tuple[str, Mapping[str, Any]]], complete: bool = False) -> list[Name]:
    """Name methods (a name and the fields that it ran with) by the fields in which those of one name differ.

    A field that one of them lacks, as results of earlier versions do, is compared among those that have it. A codec,
    the field "cache", is always named.

    complete: to lack a field is a difference as well; of those that some lack, the digest of the code is enough.
    """
    codecs = [dict(fields.get("cache", {})) for _, fields in grid]
    stored = [codec.pop("name", "") for codec in codecs]
    methods = [method for method, _ in grid]
    own = _variants(methods, [{k: v for k, v in fields.items() if k != "cache"} for _, fields in grid], complete)
    # Codecs are compared among rows of one method and one codec: how it is called has been said.
    of_codec = _variants(list(zip(methods, stored, strict=True)), codecs, complete)
    parts = zip(methods, (PLUS + name if name else "" for name in stored), own, of_codec, strict=True)
    return [Name(method, ", ".join(filter(None, said))) for method, *said in parts]


def _variants(keys: Sequence[Any], grid: Sequence[Mapping[str, Any]], complete: bool) -> list[str]:
    """For each of some settings, what tells it from those of the same key."""
    siblings: dict[Any, list[dict[str, str]]] = {}
    own = [{field: _text(value) for field, value in fields.items()} for fields in grid]
    for key, fields in zip(keys, own, strict=True):
        siblings.setdefault(key, []).append(fields)
    differing = {key: _differing(fields, complete) for key, fields in siblings.items()}
    return [
        ", ".join(_said(field, fields.get(field), values) for field, values in differing[key].items())
        for key, fields in zip(keys, own, strict=True)
    ]


def fields_of(identity: Mapping[str, Any], shared: Iterable[str]) -> dict[str, Any]:
    """What of a run's identity may tell its row from others: all but its parts in `shared`, its budget and name."""
    every = identity["method"] | {part: value for part, value in identity.items() if part not in {*shared, "method"}}
    return {field: value for field, value in every.items() if field not in ("name", "budget")}


def _differing(siblings: Sequence[Mapping[str, str]], complete: bool) -> dict[str, list[str]]:
    """The fields in which methods of one name differ, with all their values."""
    known = dict.fromkeys(field for fields in siblings for field in fields)
    values = {field: sorted({fields[field] for fields in siblings if field in fields}) for field in known}
    partly = [field for field in known if complete and any(field not in fields for fields in siblings)]
    told = [CODE] if CODE in partly else partly
    return {field: own for field, own in values.items() if len(own) > 1 or field in told}


def _said(field: str, value: str | None, values: Sequence[str]) -> str:
    if value is None:
        return f"{field} unknown"
    if field == CODE:
        value = value[
            : next(size for size in range(_SHORTEST, 99) if len({one[:size] for one in values}) == len(values))
        ]
    return _APART.get(field, field + "={}").format(value)


def _text(value: Any) -> str:
    """A setting's value as a command line has it."""
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"), sort_keys=True)


def _numbers(words: Sequence[str]) -> Iterable[float | str]:
    """Numbers and the text behind each, in turn."""
    for place, word in enumerate(words):
        yield word if place % 2 else float(word)
