"""What every analysis shares: examples measured one at a time, each stored before the next, resumed like a run."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any, Generic, TypeVar

import torch

from echokv import Lookahead, Needs, Prefill, UsageError, load_tokenizer, prefill
from eval.analysis.settings import Analysis
from eval.answering.loading import check_model, loaded
from eval.answering.provenance import provenance
from eval.console.errors import UserError
from eval.console.progress import Reporter
from eval.inputs import examples
from eval.inputs.asked import Asked
from eval.inputs.examples import Example
from eval.inputs.truncation import Encoded
from eval.keeping.store import RunKey, Store, check_writable
from eval.planning.plan import Cell, Plan, union_of_needs
from eval.planning.settings import Model, Settings
from eval.planning.todo import missing
from eval.tables.build import model_name
from eval.tables.collect import Run
from eval.tables.naming import Name

Options = TypeVar("Options", bound=Analysis)
Load = Callable[[], tuple[Any, Any]]


@dataclass(frozen=True)
class Case:
    """One example, its prompt as the model got it, and the prefill of that."""

    example: Example
    encoded: Encoded
    filled: Prefill
    tokenizer: Any
    max_new_tokens: int


@dataclass(frozen=True)
class Study(Generic[Options]):
    """One analysis: what it is of, and its own settings.

    part: what its rows are stored under, where an analysis makes several studies; else its own name.
    """

    plan: Plan
    options: Options
    part: str

    @classmethod
    def of(cls, settings: Settings, options: Options, part: str | None = None) -> Study[Options]:
        """Raises UserError for data, methods or settings that make no run, as `run.py` does."""
        if settings.cache:
            raise UserError("analyses are of caches that are stored as they are: use cache=none")
        plan = Plan.of(settings)
        for warning in plan.data.warnings:
            print(f"note: {warning}", file=sys.stderr)
        if not plan.data.examples:
            raise UserError(f"shard {settings.shard} holds no example of these subsets: nothing to measure")
        return cls(plan, options, part or options.name)

    @property
    def name(self) -> str:
        return self.options.name

    @property
    def examples(self) -> tuple[Example, ...]:
        return self.plan.data.examples

    @property
    def grid(self) -> tuple[Cell, ...]:
        return self.plan.grid

    @property
    def methods(self) -> dict[str, dict[str, Any]]:
        """Each method's fields."""
        return {cell.row: cell.fields for cell in self.grid}

    @property
    def model(self) -> str:
        """The model's label."""
        return str(self.plan.model.label)

    @property
    def described(self) -> str:
        """The model as a caption names it, with what a reader must know to weigh its numbers."""
        cell = self.grid[0]
        key = cell.store.key
        return model_name(Run(cell.store.folder, Name(cell.method), cell.budget, key.identity, key.shown))

    def place(self, part: str, identity: dict[str, Any]) -> Store:
        """Where what the analysis makes of these settings is kept: results/analysis/NAME/DATA/MODEL/PART-HASH."""
        budgets = {cell.budget for cell in self.grid} - {None}
        budget = budgets.pop() if len(budgets) == 1 else None
        root = self.plan.results / "analysis" / self.name
        return Store(root, RunKey(self.plan.data.name, self.model, part, budget, identity))

    def budget(self) -> int:
        """The one budget. Raises UserError if there are several."""
        found = {cell.budget for cell in self.grid if cell.budget is not None}
        if len(found) != 1:
            raise UserError(f"{self.name} is for one budget, {sorted(found)} given: write budget=128")
        return found.pop()

    def lookaheads(self) -> dict[str, Lookahead]:
        """The methods. Raises UserError if one of them decodes nothing ahead."""
        found = {}
        for cell in self.grid:
            if not isinstance(cell.press, Lookahead):
                raise UserError(
                    f"{self.name} compares lookahead queries, and {cell.method} decodes nothing ahead: "
                    "choose among laq, stage1_only, iterative_only and echokv"
                )
            found[cell.row] = cell.press
        return found


@dataclass(frozen=True)
class Measured:
    """The stored rows of the chosen examples, in their order, and the folder that they are in."""

    rows: list[dict[str, Any]]
    folder: Path


def loader(model: Model) -> Load:
    """A function that loads the model and its tokenizer when first called."""
    return cache(partial(loaded, model))


def collect(
    study: Study[Any],
    identity: dict[str, Any],
    measure: Callable[[Case], dict[str, Any]],
    needs: Needs | None = None,
    load: Load | None = None,
) -> Measured:
    """Measure the examples that no stored row is of, and return the rows of all.

    identity: the settings of the analysis that change what `measure` returns.
    needs: what the prefill must record besides what the methods want.
    load: loads the model; by default the study's own.

    Raises UserError for mistakes of the user and what the machine lacks; rows stored until then stay.
    """
    key = {"analysis": {"name": study.name, **identity}, "cells": [cell.store.key.identity for cell in study.grid]}
    store = study.place(study.part, key)
    place = Cell(study.name, None, study.grid[0].policy, store)
    todo = [example for example, _ in missing([place], study.examples)]
    total = len(study.examples)
    print(f"{study.part}: {total - len(todo)} of {total} examples are measured, {len(todo)} to do", file=sys.stderr)
    try:
        if todo:
            check_writable(study.plan.results)
            _measure_all(study, store, todo, measure, needs or Needs(), load or loader(study.plan.model))
    except UsageError as error:
        raise UserError(str(error)) from error
    stored = {name: store.answers(name) for name in examples.by_subset(study.examples)}
    return Measured([stored[example.subset.name][example.id] for example in study.examples], store.folder)


def _measure_all(
    study: Study[Any],
    store: Store,
    todo: Sequence[Example],
    measure: Callable[[Case], dict[str, Any]],
    needs: Needs,
    load: Load,
) -> None:
    check_model(study.grid, load_tokenizer(study.plan.model.name, study.plan.model.revision)[0])
    model, tokenizer = load()
    made_by = provenance(study.plan.settings, model, study.plan.data)
    store.refuse_other_rounding(made_by)
    undone = 0
    with Reporter(len(todo)) as reporter:
        for example in todo:
            try:
                row = _row(study, example, model, tokenizer, measure, union_of_needs(study.grid) | needs)
                store.append(example.subset.name, row, made_by)
            except torch.OutOfMemoryError:
                undone += 1
                reporter.say(f"{example.id} does not fit into the device's memory: left undone")
            reporter.advance(example.subset.name)
    if undone:
        raise UserError(
            f"{undone} examples are left undone for lack of memory; the others are stored. Run the same command with "
            "model.device_map=auto, a smaller model.prompt_limit or a larger GPU"
        )


def _row(
    study: Study[Any],
    example: Example,
    model: Any,
    tokenizer: Any,
    measure: Callable[[Case], dict[str, Any]],
    needs: Needs,
) -> dict[str, Any]:
    made = case(study, example, model, tokenizer, needs)
    about = {
        "_id": example.id,
        "dataset": example.subset.name,
        "fingerprint": example.fingerprint,
        "model": study.model,
        "prompt_tokens": made.filled.length,
        "truncated": made.encoded.truncated,
    }
    return about | measure(made)


def case(study: Study[Any], example: Example, model: Any, tokenizer: Any, needs: Needs) -> Case:
    """Prepare one example exactly as a run does."""
    asked = Asked.of(example, study.plan.protocol, model, tokenizer)
    if asked.question:
        raise UserError("analyses are of prompts that end with their question: use preset.question=within")
    encoded = asked.encoded
    rules = (asked.stop_ids, asked.min_new_tokens, asked.generation, tokenizer)
    filled = prefill(model, torch.tensor(encoded.ids), needs, *rules)
    return Case(example, encoded, filled, tokenizer, asked.max_new_tokens)
