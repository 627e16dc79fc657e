"""Which runs of a results folder make a table together: same data, model, protocol and preset.

Groups of the same data, model and preset are siblings; the settings in which they differ tell them apart.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from echokv.installed import called
from eval.console.errors import UserError
from eval.keeping import reading
from eval.keeping.manifests import digest
from eval.scoring.metrics import Edit
from eval.tables import cells, collect
from eval.tables.collect import ALIKE, Run
from eval.tables.options import Selected
from eval.tables.presets import edit_of

_LONGEST = 12  # characters of a setting's value that are shown: a digest of an archive needs no more
_LONGEST_NAME = 80  # characters of all of them in a file's name


@dataclass(frozen=True)
class Group:
    """The runs of one table under one preset.

    settings: the value of each setting in which siblings differ, by its dotted name in a manifest, short and safe in a
    file's name; no two siblings have the same.
    """

    data: str
    model: str
    preset: str
    runs: list[Run]
    settings: Mapping[str, str]

    @property
    def apart(self) -> list[str]:
        """The settings in which siblings differ as NAME=VALUE."""
        return [f"{name}={value}" for name, value in self.settings.items()]

    @property
    def name(self) -> str:
        """A file's name for this group and no other."""
        told = (f"{name.partition('.')[2] or name}_{value}" for name, value in self.settings.items())
        differing = _safe("-".join(told))
        if len(differing) > _LONGEST_NAME:
            differing = digest(self.apart)
        return "-".join(filter(None, [self.data, self.model, _safe(self.preset), differing]))


def find(
    results: Path, required: bool = True, where: Mapping[str, str] | None = None, begun: bool = False
) -> list[Group]:
    """Return the groups of all runs that have an answer, by data, model and preset.

    begun: those without any as well, which no preset is known of: it is "".
    where: only runs with these settings, as `eval.tables.collect.find`; of several models those that have such runs.

    Raises:
        UserError: no answers although they are required, or a folder of answers that cannot be read.
    """
    models = sorted({manifest.parent.parent for manifest in results.glob("*/*/*/manifest.json")})
    found: list[Group] = []
    for model in models:
        try:
            found += _of_model(results, model.parent.name, model.name, where)
        except UserError:
            if not where or len(models) == 1:
                raise
    found = [group for group in found if group.preset or begun]
    if required and not found:
        raise UserError(f"no answers in {results}: run {called()} first, or name another folder with --results")
    return found


def select(group: Group, results: Path, edit: Edit | None) -> Selected:
    """Read and score a group's answers.

    Raises:
        UserError: as `eval.tables.collect.answers`.
    """
    answers = collect.answers(group.runs, group.preset)
    scored = cells.scored(answers.frame, edit or edit_of(answers.preset), results / "scores")
    return Selected(answers, scored, cells.columns(scored))


def _of_model(results: Path, data: str, model: str, where: Mapping[str, str] | None) -> Iterator[Group]:
    together: dict[str, dict[str, list[Run]]] = {}
    for run in collect.find(results, data, model, where):
        alike = digest(_shared(run))
        for preset in _presets(run) or [""]:
            together.setdefault(preset, {}).setdefault(alike, []).append(run)
    for preset, siblings in sorted(together.items()):
        settings = _settings({alike: _shared(runs[0]) for alike, runs in siblings.items()})
        for alike, runs in sorted(siblings.items()):
            yield Group(data, model, preset, collect.named(runs), settings[alike])


def _shared(run: Run) -> dict[str, Any]:
    return {part: run.identity.get(part) for part in ALIKE}


def _settings(siblings: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """Name what tells siblings apart; they are given by a digest of all that their runs share."""
    flat = {alike: dict(_flat(shared)) for alike, shared in siblings.items()}
    found: dict[str, dict[str, str]] = {alike: {} for alike in siblings}
    for name in dict.fromkeys(name for values in flat.values() for name in values):
        values = {alike: own.get(name, "unset") for alike, own in flat.items()}
        digests = {alike: digest(value) for alike, value in values.items()}
        short = {alike: _safe(str(value))[:_LONGEST] for alike, value in values.items()}
        if len(set(digests.values())) > 1:
            # Two values may look alike once they are short, and where a file system ignores case.
            clear = len({text.lower() for text in short.values()}) == len(set(digests.values()))
            for alike, text in (short if clear else digests).items():
                found[alike][name] = text
    if len({tuple(own.items()) for own in found.values()}) < len(found):  # such as an empty setting and a missing one
        return {alike: {**own, "settings": alike} for alike, own in found.items()}
    return found


def _flat(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the settings in a manifest by their dotted names; places in a list are numbers."""
    if not isinstance(value, Mapping | list):
        yield name, value
        return
    for key, inner in value.items() if isinstance(value, Mapping) else enumerate(value):
        yield from _flat(inner, f"{name}.{key}".strip("."))


def _safe(text: str) -> str:
    return re.sub(r"[^\w.+-]+", "_", text)


def _presets(run: Run) -> Sequence[str]:
    files = {name: reading.parts(run.folder, name) for name in reading.stored_subsets(run.folder)}
    named = (_named(run.folder, name, tuple(path.stat().st_size for path in own)) for name, own in files.items())
    return sorted(set().union(*named))


@cache
def _named(folder: Path, subset: str, sizes: tuple[int, ...]) -> set[str]:
    """The presets that answers were made under; `sizes` of the files tell whether anything was added."""
    return {str(answer.get("preset")) for answer in reading.stored(folder, subset).values()}
