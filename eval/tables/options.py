"""The options by which a command's answers are chosen, and the answers that they name, scored."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar, get_args

import pandas as pd

from eval.console.errors import UserError, nearest
from eval.inputs import subsets
from eval.scoring.metrics import Edit
from eval.tables import cells, collect
from eval.tables.collect import Answers, Run
from eval.tables.naming import Name
from eval.tables.presets import edit_of

T = TypeVar("T")
Of = Callable[[T, str], str]
RESULTS = Path("results")
AGAINST = "laq"  # what methods are compared with unless --against says otherwise


@dataclass(frozen=True)
class Selected:
    """The answers that a command chose, the same scored, and the table's tasks."""

    answers: Answers
    scored: pd.DataFrame
    tasks: list[str]


def options(parser: argparse.ArgumentParser, against: bool = True) -> None:
    """Add the options by which answers are chosen and scored."""
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder of the stored answers")
    parser.add_argument("--model", help="label of the model, such as smollm2")
    parser.add_argument("--data", help="source of the records: longbench, jsonl or synthetic")
    parser.add_argument("--subset", nargs="+", help="only these subsets or groups of subsets")
    parser.add_argument("--preset", help="only answers made under this preset")
    parser.add_argument("--where", nargs="+", default=[], metavar="NAME=VALUE", help="only runs with these settings")
    parser.add_argument("--edit", choices=get_args(Edit), help="edit similarity (default: the preset's)")
    if against:
        parser.add_argument("--against", default=AGAINST, help="method of the paired differences")


def taken(chosen: argparse.Namespace, names: Iterable[str]) -> list[str]:
    """Set the options `names` that are given as NAME=VALUE, and return the other words.

    Raises:
        UserError: a word is no NAME=VALUE, or the value of a switch is neither true nor false.
    """
    left, known = [], set(names)
    for word in chosen.settings:
        name, equals, value = word.partition("=")
        if not equals:
            raise UserError(f"{word!r}: write NAME=VALUE, such as against=snapkv")
        if name not in known:
            left.append(word)
        elif isinstance(getattr(chosen, name), bool):
            if value.lower() not in ("true", "false"):
                raise UserError(f"{name} is {value!r}; give true or false")
            setattr(chosen, name, value.lower() == "true")
        elif name in ("subset", "where"):
            setattr(chosen, name, value.strip("[]").split(","))
        elif name == "edit" and value not in get_args(Edit):
            raise UserError(f"edit is {value!r}; use {' or '.join(get_args(Edit))}")
        else:
            setattr(chosen, name, Path(value) if name == "results" else value)
    return left


def found(chosen: argparse.Namespace, model: str) -> list[Run]:
    """The runs in a folder of results that the options name. Raises UserError as `eval.tables.collect.find`."""
    where = dict(setting(text) for text in chosen.where)
    return collect.find(chosen.results, chosen.data or "longbench", chosen.model or model, where)


def select(chosen: argparse.Namespace, runs: Sequence[Run]) -> Selected:
    """Read and score the answers of some runs that the options name.

    Raises:
        UserError: as `eval.tables.collect`, and for an unknown subset, method or malformed option.
    """
    names = list(subsets.expand(chosen.subset)) if chosen.subset else None
    answers = collect.answers(runs, chosen.preset, names)
    scored = cells.scored(answers.frame, chosen.edit or edit_of(answers.preset), chosen.results / "scores")
    check_against(getattr(chosen, "against", AGAINST), (run.name for run in answers.runs))
    return Selected(answers, scored, cells.columns(scored, names))


def check_against(against: str, rows: Iterable[Name], default: bool = True) -> None:
    """Raise UserError if the row of the paired differences is not among those that were run.

    default: let the default one pass, for it is not always asked for: then there are no differences.
    """
    known = sorted(set(rows), key=lambda name: name.order)
    if against in map(str, known) or (default and against == AGAINST):
        return
    if variants := [f"'{name}'" for name in known if name.method == against]:
        raise UserError(f"--against {against!r} was run with several settings: choose one, {' or '.join(variants)}")
    raise UserError(f"--against {against!r} was not run{nearest(against, map(str, known))}")


def narrowed(some: Iterable[T], asked: Mapping[str, str | None], results: Path, of: Of[T] = getattr) -> list[T]:
    """Those of some groups of answers that have the values asked for by the names of options; None asks for any.

    of: a group's value of such a name.

    Raises:
        UserError: none of those that are left has a value.
    """
    left = list(some)
    for name, value in asked.items():
        known = {of(one, name) for one in left}
        if value is not None and value not in known:
            raise UserError(f"--{name} {value!r}: no such answers in {results}{nearest(value, known)}")
        left = [one for one in left if value in (None, of(one, name))]
    return left


def setting(text: str) -> tuple[str, str]:
    """Split NAME=VALUE. Raises UserError for anything else."""
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise UserError(f"--where {text!r}: write NAME=VALUE, such as method.workspace=1024")
    return name, value
