"""The options by which a command's answers are chosen, and the answers that they name, scored."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from eval.console.errors import UserError, nearest
from eval.inputs import subsets
from eval.tables import cells, collect
from eval.tables.collect import Answers
from eval.tables.naming import Name
from eval.tables.presets import edit_of

AGAINST = "laq"  # what methods are compared with unless --against says otherwise


@dataclass(frozen=True)
class Selected:
    """The answers that a command chose, the same scored, and the table's tasks."""

    answers: Answers
    scored: pd.DataFrame
    tasks: list[str]


def options(parser: argparse.ArgumentParser, against: bool = True) -> None:
    """Add the options by which answers are chosen and scored."""
    parser.add_argument("--results", type=Path, default=Path("results"), help="folder of the stored answers")
    parser.add_argument("--model", help="label of the model, such as smollm2")
    parser.add_argument("--data", default="longbench", help="source of the records: longbench, jsonl or synthetic")
    parser.add_argument("--subset", nargs="+", help="only these subsets or groups of subsets")
    parser.add_argument("--preset", help="only answers made under this preset")
    parser.add_argument("--where", nargs="+", default=[], metavar="NAME=VALUE", help="only runs with these settings")
    parser.add_argument("--edit", choices=("difflib", "levenshtein"), help="edit similarity (default: the preset's)")
    if against:
        parser.add_argument("--against", default=AGAINST, help="method of the paired differences")


def select(chosen: argparse.Namespace, model: str) -> Selected:
    """Read and score the answers that the options name.

    Raises:
        UserError: as `eval.tables.collect`, and for an unknown subset, method or malformed option.
    """
    where = dict(setting(text) for text in chosen.where)
    names = list(subsets.expand(chosen.subset)) if chosen.subset else None
    runs = collect.find(chosen.results, chosen.data, chosen.model or model, where)
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


def setting(text: str) -> tuple[str, str]:
    """Split NAME=VALUE. Raises UserError for anything else."""
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise UserError(f"--where {text!r}: write NAME=VALUE, such as method.workspace=1024")
    return name, value
