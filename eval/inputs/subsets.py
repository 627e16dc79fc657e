"""The tasks: what LongBench fixes for each of its subsets, read from `conf/subsets/NAME.yaml`.

A file more there is a task more: docs/tables.md, "Records", describes the keys.

LongBench-E holds other records of the same tasks: `hotpotqa_e` is `hotpotqa` with its own record count, which
stands in `conf/longbench_e.yaml`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from eval.console import conf
from eval.console.errors import UserError, nearest

# The order of the columns in the tables of the KV-cache papers (EchoKV, Tables 3 and 4).
ENGLISH = (
    "narrativeqa", "qasper", "multifieldqa_en", "hotpotqa", "2wikimqa", "musique", "gov_report", "qmsum",
    "multi_news", "trec", "triviaqa", "samsum", "passage_count", "passage_retrieval_en", "lcc", "repobench-p",
)  # fmt: skip
CHINESE = ("multifieldqa_zh", "dureader", "vcsum", "lsht", "passage_retrieval_zh")

OWN_TASK = 'A task of your own needs a file conf/subsets/NAME.yaml: see docs/tables.md, "Records"'

_KINDS: Mapping[str, Callable[[Any], bool]] = {
    "a text": lambda value: isinstance(value, str) and bool(value.strip()),
    "true or false": lambda value: isinstance(value, bool),
    "a whole number of at least 1": lambda value: type(value) is int and value >= 1,
    "a whole number of at least 1, or null": lambda value: value is None or (type(value) is int and value >= 1),
    "a text with {context} in it, or null": lambda value: (
        value is None or (isinstance(value, str) and "{context}" in value)
    ),
    "of letters, digits, '-' and '_'": lambda value: bool(re.fullmatch(r"\w[\w-]*", str(value))),
}
_KEYS = {
    "name": "of letters, digits, '-' and '_'",  # it begins the names of files, and a dot ends it there
    **dict.fromkeys(("column", "group", "metric", "language"), "a text"),
    **dict.fromkeys(("first_line", "chat", "newline_stop"), "true or false"),
    **dict.fromkeys(("max_new_tokens", "version"), "a whole number of at least 1"),
    "records": "a whole number of at least 1, or null",
    "template": "a text with {context} in it, or null",
}


@dataclass(frozen=True)
class Subset:
    """One task, official values (THUDM/LongBench, `LongBench/config`, `pred.py` and `eval.py`)."""

    name: str
    column: str  # short title in tables
    group: str  # column group in tables
    metric: str  # key of `eval.scoring.metrics.METRICS`, or the import path of a function like those
    language: str
    max_new_tokens: int
    first_line: bool  # score the prediction's first line alone
    chat: bool  # goes into the chat template under the official chat rule
    newline_stop: bool  # a newline ends the answer under the official stop rule
    records: int | None  # official number of records, None if open
    version: int
    template: str | None  # None: the official LongBench text


def names() -> tuple[str, ...]:
    """Return every subset that has a YAML: LongBench in table order, then the others by name."""
    known = {path.stem for path in (conf.CONF / "subsets").glob("*.yaml")}
    ordered = [name for name in (*ENGLISH, *CHINESE) if name in known]
    return (*ordered, *sorted(known.difference(ordered)))


def load(name: str) -> Subset:
    """Return the subset `name`; `NAME_e` is the LongBench-E edition.

    Raises:
        UserError: there is no such subset, or its YAML has missing or unknown keys or a wrong value.
    """
    counts = _extended()
    base = name.removesuffix("_e")
    if name.endswith("_e") and base in counts:
        return replace(_read(base), name=name, records=counts[base])
    return _read(name)


def groups() -> dict[str, tuple[str, ...]]:
    """Return the named lists of subsets that stand for their members wherever subsets are listed."""
    return {
        "english": ENGLISH,
        "chinese": CHINESE,
        "all": (*ENGLISH, *CHINESE),
        "longbench_e": tuple(f"{name}_e" for name in _extended()),
        "synthetic": tuple(name for name in names() if name.startswith("syn_")),
    }


def expand(words: Iterable[str]) -> tuple[str, ...]:
    """Replace group names by their members, keep the order, drop repeats.

    Raises:
        UserError: a word is neither a group nor a subset.
    """
    known = groups()
    members = [name for word in words for name in known.get(word, (word,))]
    for name in members:
        load(name)
    return tuple(dict.fromkeys(members))


def _yaml(path: Path) -> dict[str, Any]:
    try:
        content = conf.read(path)
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}; a file of this program is missing: install it again") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: not a YAML file ({' '.join(str(error).split())})") from error
    if not isinstance(content, dict):
        raise UserError(f"{path}: expected a mapping of keys to values")
    return content


@cache
def _extended() -> dict[str, int]:
    return _yaml(conf.CONF / "longbench_e.yaml")


@cache
def _read(name: str) -> Subset:
    if name not in names():
        known = (*names(), *groups()["longbench_e"])
        close = get_close_matches(name, known, cutoff=0.5)
        raise UserError(f"unknown subset {name!r}{nearest(name, close) if close else f'. {OWN_TASK}'}")
    path = conf.CONF / "subsets" / f"{name}.yaml"
    content = _yaml(path)
    if wrong := sorted(map(str, _KEYS.keys() ^ content.keys())):
        raise UserError(f"{path}: missing or unknown keys: {', '.join(wrong)}")
    for key, kind in _KEYS.items():
        if not _KINDS[kind](content[key]):
            raise UserError(f"{path}: {key} must be {kind}, found {content[key]!r}")
    if content["name"] != name:
        raise UserError(f"{path}: its name is {content['name']!r}; name and file must agree")
    return Subset(**content)
