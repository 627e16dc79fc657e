"""Which runs of a results folder make a table together: same data, model, protocol and preset, one run a cell."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from eval import store
from eval.errors import UserError
from eval.scoring.metrics import Edit
from eval.store import digest
from eval.tables import cells, collect
from eval.tables.collect import Run
from eval.tables.options import Selected
from eval.tables.presets import edit_of

_ALIKE = ("data", "model", "protocol")  # what runs of one table share


@dataclass(frozen=True)
class Group:
    """The runs of one table under one preset. `left_out` says which were not taken, and why."""

    data: str
    model: str
    preset: str
    runs: list[Run]
    left_out: tuple[str, ...]


def find(results: Path) -> list[Group]:
    """Return the groups of all runs that have an answer, by data, model and preset.

    Raises:
        UserError: no answers, or a folder of answers that cannot be read.
    """
    models = sorted({manifest.parent.parent for manifest in results.glob("*/*/*/manifest.json")})
    found = [group for model in models for group in _of_model(results, model.parent.name, model.name)]
    if not found:
        raise UserError(f"no answers in {results}: run python run.py first, or name another folder with --results")
    return found


def select(group: Group, results: Path, edit: Edit | None) -> Selected:
    """Read and score a group's answers.

    Raises:
        UserError: as `eval.tables.collect.answers`.
    """
    answers = collect.answers(group.runs, group.preset)
    scored = cells.scored(answers.frame, edit or edit_of(answers.preset), results / "scores")
    return Selected(answers, scored, cells.columns(scored))


def _of_model(results: Path, data: str, model: str) -> Iterator[Group]:
    together: dict[tuple[str, str], list[Run]] = {}
    for run in collect.find(results, data, model):
        alike = digest([run.identity.get(part) for part in _ALIKE])
        for preset in _presets(run):
            together.setdefault((preset, alike), []).append(run)
    for (preset, _), runs in sorted(together.items()):
        newest = {run.key: run for run in sorted(runs, key=_written)}
        older = [run for run in runs if newest[run.key] is not run]
        left_out = tuple(f"{run.folder.name}: {newest[run.key].folder.name} is newer" for run in older)
        yield Group(data, model, preset, list(newest.values()), left_out)


def _presets(run: Run) -> Sequence[str]:
    rows = (row for name in store.stored_subsets(run.folder) for row in store.stored(run.folder, name).values())
    return sorted({str(row.get("preset")) for row in rows})


def _written(run: Run) -> float:
    files = (path for name in store.stored_subsets(run.folder) for path in store.parts(run.folder, name))
    return max(path.stat().st_mtime for path in files)
