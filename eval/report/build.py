"""Writes the report's folder: the page, its libraries, and the data as scripts that work from a disk.

A page opened from a disk may not fetch files, but it may load scripts. So every data file is one call that hands over
a string of JSON; the page loads what a view needs. Nothing of a data set ever becomes markup or code: it is a string
literal in the file and text nodes in the page.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from echokv.installed import called
from eval.console.errors import UserError
from eval.keeping.manifests import digest
from eval.report import analyses, answers, groups, look, numbers
from eval.report.groups import Group
from eval.scoring.metrics import Edit
from eval.tables.options import Selected

HERE = Path(__file__).parent
OTHERS = 15  # looks for series that are no methods
MARK = '<meta name="generator" content="eval.report">'  # in index.html: the folder is a report


@dataclass
class Folder:
    """The folder written to; a file that has its content already is left alone, one that was not asked for goes."""

    root: Path
    kept: set[Path] = field(default_factory=set)

    def put(self, name: str, content: bytes) -> None:
        path = self.root / name
        self.kept.add(path)
        if path.is_file() and path.stat().st_size == len(content) and path.read_bytes() == content:
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        scratch = path.with_name(f".{path.name}.new")
        scratch.write_bytes(content)
        scratch.replace(path)

    def data(self, name: str, value: Any) -> None:
        """Write data/NAME.js."""
        # Twice: the inner JSON is parsed by the page, for a key such as __proto__ is code in an object literal.
        text = json.dumps(json.dumps(value, allow_nan=False, separators=(",", ":")))
        self.put(f"data/{name}.js", f"report.receive({json.dumps(name)}, {text});\n".encode("ascii"))

    def clean(self) -> None:
        """Delete what earlier builds left of data and libraries."""
        for part in ("data", "csv", "page", "vendor"):
            for path in (self.root / part).rglob("*"):
                if path.is_file() and path not in self.kept:
                    path.unlink()


@dataclass(frozen=True)
class Built:
    """What a report shows, in numbers."""

    tables: int
    answers: int
    recorded: int  # answers with their selections
    analyses: int
    problems: tuple[str, ...]  # tables that could not be made


def build(results: Path, root: Path, edit: Edit | None = None) -> Built:
    """Write the report on `results` into `root`.

    Raises:
        UserError: nothing to show, a folder that is no report, or one that cannot be written to.
    """
    found = groups.find(results, required=not analyses.find(results))
    try:
        folder = _open(root)
        built = _write(folder, results, found, edit)
        folder.clean()
    except OSError as error:
        raise UserError(f"cannot write to {root} ({error.strerror}): choose another folder with --out") from error
    return built


def _open(root: Path) -> Folder:
    index = root / "index.html"
    if root.is_dir() and any(root.iterdir()) and not (index.is_file() and MARK in index.read_text(encoding="utf-8")):
        raise UserError(f"{root} holds other files: name a new folder with --out")
    folder = Folder(root)
    for path in [*(HERE / "page").iterdir(), *(HERE / "vendor").iterdir()]:
        name = path.name if path.name == "index.html" else f"{path.parent.name}/{path.name}"
        folder.put(name, path.read_bytes())
    return folder


def _write(folder: Folder, results: Path, found: list[Group], edit: Edit | None) -> Built:
    tables: list[dict[str, Any]] = []
    problems: list[str] = []
    counted, recorded = 0, 0
    for group in found:
        try:
            selected = groups.select(group, results, edit)
        except UserError as error:
            problems.append(f"{group.data}/{group.model}, preset {group.preset}: {error}")
            continue
        name = f"t{len(tables)}"
        frame = numbers.cells_of(selected)
        table = numbers.table(group, selected, frame)
        kept = _examples(folder, name, selected)
        key = "/".join([group.data, group.model, group.preset, *group.apart])
        tables.append({"id": name, "key": key, **table, "recorded": kept, "csv": f"csv/{name}.csv"})
        folder.data(f"{name}/differences", numbers.differences(numbers.by_cell(selected), selected.tasks))
        folder.put(f"csv/{name}.csv", frame.to_csv(index=False).encode())
        counted += len(selected.scored)
        recorded += sum(kept.values())
    measured = list(_analyses(folder, results))
    if not tables and not measured:
        raise UserError("; ".join(problems))
    names = {row["method"] for table in tables for row in table["rows"]} | {
        name for one in measured for name in one["methods"]
    }
    overview = {
        "tables": tables,
        "analyses": measured,
        "problems": problems,
        "looks": {name: one.told for name, one in look.looks(names).items()},
        "commands": {name: called(name) for name in ("analysis", "compare")},
        "styles": [look.another(place).told for place in range(OTHERS)],
    }
    folder.data("overview", overview)
    folder.data("stamp", digest(overview))
    return Built(len(tables), counted, recorded, len(measured), tuple(problems))


def _examples(folder: Folder, name: str, selected: Selected) -> dict[str, int]:
    """Write the examples of a table; returns how many selections each task has."""
    known = answers.scores(selected)
    folder.data(f"{name}/scores", known)
    found = {}
    for subset, about in known.items():
        kept: dict[str, list[str | None]] = {}
        prompts: dict[str, Any] = {}
        for cell, place, row, run in answers.recorded(selected, subset, about["ids"]):
            kept.setdefault(cell, [None] * len(about["ids"]))[place] = row["prompt"]
            prompts[row["prompt"]] = run
            told = {"length": row["prompt_tokens"], "steps": row["steps"]}
            folder.data(f"{name}/{subset}/{place}/{cell}", told)
        for text, run in prompts.items():
            folder.data(f"{name}/prompts/{text}", answers.prompt(run, text))
        folder.data(f"{name}/{subset}", {**answers.examples(selected, subset), "prompts": kept})
        found[subset] = sum(text is not None for row in kept.values() for text in row)
    return found


def _analyses(folder: Folder, results: Path) -> Iterator[Mapping[str, Any]]:
    for place, analysis in enumerate(analyses.find(results)):
        files: list[dict[str, Any]] = []
        methods: set[str] = set()
        for path, frame in analyses.frames(analysis):
            name = f"a{place}-{path.stem}"
            folder.put(f"csv/{name}.csv", path.read_bytes())
            if frame is not None:
                folder.data(f"analyses/{name}", frame)
                methods |= analyses.methods(frame)
            files.append({"title": path.stem, "csv": f"csv/{name}.csv", "data": frame and f"analyses/{name}"})
        yield {"name": analysis.name, "where": analysis.where, "files": files, "methods": sorted(methods)}
