"""Where the kept prompt tokens of a run's answers are stored, and which are not: `record.selections=true`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from eval.console.errors import UserError
from eval.inputs.examples import Example, by_subset
from eval.keeping import selections
from eval.keeping.store import Store
from eval.planning.plan import Cell
from eval.planning.todo import Lacking


@dataclass(frozen=True)
class Recording:
    """A store of selections for each cell, by its label.

    unseen: examples that are answered but whose selections are not stored, each with the cells in question.
    """

    stores: Mapping[str, Store]
    unseen: tuple[Lacking, ...]

    @classmethod
    def of(cls, results: Path, grid: Sequence[Cell], examples: Sequence[Example]) -> Recording:
        """Raises UserError for stored selections of another text."""
        stores = {cell.label: Store(results / selections.FOLDER, cell.store.key) for cell in grid}
        return cls(stores, tuple(_unseen(stores, grid, examples)))

    @property
    def place(self) -> Path:
        """The folder of the runs' folders."""
        return next(iter(self.stores.values())).folder.parent

    def said(self) -> str:
        """How much room the selections of these cells take."""
        folders = [store.folder for store in self.stores.values()]
        files = [path for folder in folders for path in folder.glob("*.jsonl")]
        prompts = list((self.place / selections.PROMPTS).glob("*.json"))
        size, texts = (sum(path.stat().st_size for path in some) / 1e6 for some in (files, prompts))
        return f"selections of {len(folders)} cells: {size:.2f} MB, and {texts:.2f} MB of prompts, in {self.place}"


def _unseen(stores: Mapping[str, Store], grid: Sequence[Cell], examples: Sequence[Example]) -> Iterator[Lacking]:
    for subset, group in by_subset(examples).items():
        stored = [(cell, cell.store.answers(subset), stores[cell.label].answers(subset)) for cell in grid]
        for example in group:
            cells = []
            for cell, answers, kept in stored:
                if example.id not in kept:
                    cells += [cell] if example.id in answers else []
                elif kept[example.id]["fingerprint"] != example.fingerprint:
                    raise UserError(f"{stores[cell.label].folder} holds selections of another text: move it away")
            if cells:
                yield example, cells
