"""Stored answers as a data frame, one row an answer, with everything refused that one table cannot hold."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pandas as pd

from echokv.installed import called
from eval.console.errors import UserError, nearest
from eval.inputs import subsets
from eval.keeping import manifests, reading
from eval.scoring.rows import check_row
from eval.tables import naming
from eval.tables.naming import FRAME, Key, Name
from eval.tables.presets import deviation

MEASURED = ("entries", "bytes", "prefill_seconds", "selection_seconds", "decode_seconds", "peak_bytes", "new_tokens")
ALIKE = ("data", "model", "protocol")  # runs that differ here make no table


@dataclass(frozen=True)
class Run:
    """A folder of stored answers and what they depend on.

    name: its row's in a table with others (`named`). shown: names that its folder was given to be shown. room: the
    bytes that the budget was made of, where settings say so (`eval.tables.chosen`).
    """

    folder: Path
    name: Name
    budget: int | None
    identity: dict[str, Any]
    shown: dict[str, Any] = field(default_factory=dict)
    room: int | None = None

    @property
    def method(self) -> str:
        return self.name.method

    @property
    def key(self) -> Key:
        return Key(self.name, self.budget, self.room)

    @property
    def model(self) -> str:
        """The model's label."""
        return self.folder.parent.name

    @property
    def settings(self) -> str:
        """The hash that stands for all of the run's settings."""
        return self.folder.name.rsplit("-", 1)[-1]

    @property
    def label(self) -> str:
        return self.key.label


@dataclass(frozen=True)
class Answers:
    """The runs of a table and one row an answer, all of one preset."""

    runs: list[Run]
    frame: pd.DataFrame
    preset: str
    deviation: str  # rules in which all of the runs differ from the preset
    left_out: tuple[str, ...]  # runs that differ from it while others follow it


def find(results: Path, data: str, model: str, where: Mapping[str, str] | None = None) -> list[Run]:
    """Return the runs in `results/DATA/MODEL`, without those that have another value for a setting in `where`.

    where: settings by their dotted names in a manifest, such as {"method.workspace": "1024"}. A run that has no
        such setting stays.

    Raises:
        UserError: no such folder or no run in it, an unreadable manifest, or a setting that no run has.
    """
    folder = results / data / model
    if not folder.is_dir():
        present = sorted({str(path.parent.parent.relative_to(results)) for path in results.glob("*/*/*/manifest.json")})
        remedy = nearest(f"{data}/{model}", present) if present else f"; answer the examples first with {called()}"
        raise UserError(f"no answers of {model} on {data} in {results}{remedy}")
    runs = [_run(path.parent) for path in sorted(folder.glob("*/manifest.json"))]
    known = {name for run in runs for name in _settings(run.identity)}
    for name in where or {}:
        if runs and name not in known:
            raise UserError(f"--where {name}: no run in {folder} has this setting{nearest(name, known)}")
    kept = [run for run in runs if _matches(run, where or {})]
    if not kept:
        settings = " ".join(f"{name}={value}" for name, value in (where or {}).items())
        raise UserError(f"{folder} holds no run{f' with {settings}' if settings else ''}; see its manifest.json files")
    return kept


def named(runs: Sequence[Run]) -> list[Run]:
    """Name runs that stand together, no two of one budget alike: by the settings in which those of a method differ.

    Where nothing that both record tells two of them apart, such as a result of an earlier version and its newer twin,
    what one of them lacks does, else the hash of all settings.
    """
    grid = [(run.method, naming.fields_of(run.identity, ALIKE)) for run in runs]
    for complete in (False, True):
        found = [replace(run, name=name) for run, name in zip(runs, naming.names(grid, complete), strict=True)]
        counts = Counter(run.key for run in found)
        if not (twins := {run.method for run in found if counts[run.key] > 1}):
            return found
    return [
        replace(run, name=Name(run.method, ", ".join(filter(None, [run.name.variant, f"run {run.settings}"]))))
        if run.method in twins
        else run
        for run in found
    ]


def answers(runs: Sequence[Run], preset: str | None = None, names: Sequence[str] | None = None) -> Answers:
    """Return the stored answers of runs that may stand in one table.

    preset: only answers made under it; None if all were made under one.
    names: subsets to take; None for all.

    Where some runs follow the preset's protocol and others do not, the latter are left out.

    Raises:
        UserError: settings that differ where they must agree, several presets, an unknown subset, an empty file, an
            answer that cannot be scored, different inputs under one _id.
    """
    # A run may be there at several numbers of bytes.
    found = [row for run in {run.folder: run for run in runs}.values() for row in _answers(run, names)]
    if not found:
        raise UserError(f"{runs[0].folder.parent} holds no answers of {', '.join(names or ['any subset'])}")
    preset = _preset(sorted({row["preset"] for row in found}), preset)
    found = [row for row in found if row["preset"] == preset]
    used = [run for run in runs if run.folder in {row["folder"] for row in found}]
    apart = {run.folder: deviation(run.identity.get("protocol", {}), preset, run.model) for run in used}
    kept = used if all(apart.values()) else [run for run in used if not apart[run.folder]]
    _check_alike(kept)
    out = dict.fromkeys(f"{run.folder.name} ({apart[run.folder]})" for run in used if run not in kept)
    kept = named(kept)
    rows: dict[Path, list[dict[str, Any]]] = {}
    for row in found:
        rows.setdefault(row.pop("folder"), []).append(row)
    frame = pd.DataFrame(
        row | dict(zip(FRAME, (run.method, run.name.variant, run.budget, run.room), strict=True))
        for run in kept
        for row in rows[run.folder]
    ).astype({"budget": "Int64", "budget_bytes": "Int64"})
    _check_inputs(frame)
    return Answers(kept, frame, preset, apart[kept[0].folder], tuple(out))


def _run(folder: Path) -> Run:
    identity = manifests.identity(folder)
    try:
        name = Name(identity["method"]["name"])
        return Run(folder, name, identity["budget"], identity, manifests.shown(folder))
    except (KeyError, TypeError) as error:
        raise UserError(f"{folder / 'manifest.json'} names no method and budget; move it away") from error


def _settings(identity: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """A run's settings by their dotted names, values as text."""
    found: dict[str, str] = {}
    for name, value in identity.items():
        found |= _settings(value, f"{prefix}{name}.") if isinstance(value, Mapping) else {f"{prefix}{name}": str(value)}
    return found


def _matches(run: Run, where: Mapping[str, str]) -> bool:
    own = _settings(run.identity)
    return all(own.get(name, value) == value for name, value in where.items())


def _answers(run: Run, names: Sequence[str] | None) -> Iterable[dict[str, Any]]:
    for name in reading.stored_subsets(run.folder):
        if names is not None and name not in names:
            continue
        where = f"{run.folder}, {name}"
        try:
            subset, rows = subsets.load(name), reading.stored(run.folder, name)
        except UserError as error:
            raise UserError(f"{where}: {error}") from error
        if not rows:
            raise UserError(f"{where}: the files hold no answer; run the same command again to finish, or delete them")
        for row in rows.values():
            try:
                _check(row, subset, run.model)
            except UserError as error:
                raise UserError(f"{where}, _id {row['_id']!r}: {error}") from error
            yield {**row, "subset": name, "settings": run.settings, "folder": run.folder}


def _check(row: dict[str, Any], subset: subsets.Subset, model: str) -> None:
    row.setdefault("all_classes", None)
    check_row(row, subset)
    if row.get("dataset", subset.name) != subset.name:
        raise UserError(f"dataset is {row['dataset']!r} in the file of {subset.name}; move the line to its own file")
    for name in ("model", "preset", "fingerprint"):
        if not isinstance(row.get(name), str):
            raise UserError(f"{name} must be a string; answers made by run.py have it")
    if row["model"] != model:
        raise UserError(f"answered by {row['model']!r}, in the folder of {model!r}; move the line to its own folder")
    for name in MEASURED:
        value = row.get(name)
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise UserError(f"{name} must be a number, found {value!r}")


def _preset(present: Sequence[str], asked: str | None) -> str:
    if asked is None and len(present) > 1:
        raise UserError(f"answers of several presets ({', '.join(present)}) make no table: choose one with --preset")
    if asked is not None and asked not in present:
        raise UserError(f"no answers of preset {asked!r}{nearest(asked, present)}")
    return asked or present[0]


def _check_inputs(frame: pd.DataFrame) -> None:
    texts = frame.groupby(["subset", "_id"])["fingerprint"].nunique()
    for subset, name in texts.index[texts > 1]:
        raise UserError(f"_id {name!r} of {subset} stands for different inputs in different runs: redo the older ones")


def _check_alike(runs: Sequence[Run]) -> None:
    for run in runs:
        for part in ALIKE:
            if run.identity.get(part) != runs[0].identity.get(part):
                names = _apart({part: runs[0].identity.get(part)}, {part: run.identity.get(part)})
                raise UserError(
                    f"{runs[0].folder.name} and {run.folder.name} make no table, they differ in {part} ({names}); "
                    "choose with --where NAME=VALUE or --preset"
                )


def _apart(left: Any, right: Any, name: str = "") -> str:
    """Name the settings in which two identities differ."""
    if isinstance(left, dict) and isinstance(right, dict):
        keys = [key for key in sorted({*left, *right}) if left.get(key) != right.get(key)]
        return ", ".join(_apart(left.get(key), right.get(key), f"{name}.{key}".strip(".")) for key in keys)
    return f"{name}: {left}, {right}"
