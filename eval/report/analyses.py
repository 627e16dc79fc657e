"""What `python -m eval.analysis` wrote, as the page's data: one entry per CSV file of summaries."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from eval.console.errors import UserError
from eval.report.numbers import significant

MOST = 20_000  # rows shown; a longer file is only offered to download
DETAIL = ("_examples",)  # files of single examples, likewise


@dataclass(frozen=True)
class Analysis:
    """One analysis of one model: its files, the one named like the analysis first."""

    name: str
    where: str  # data/model/run, or less
    files: tuple[Path, ...]


def find(results: Path) -> list[Analysis]:
    """Return the analyses that have written a CSV file, by name."""
    root = results / "analysis"
    folders: dict[Path, list[Path]] = {}
    for path in sorted(root.rglob("*.csv")):
        folders.setdefault(path.parent, []).append(path)
    found = []
    for folder, files in folders.items():
        name, *where = folder.relative_to(root).parts or ("analysis",)
        files.sort(key=lambda path: (path.stem != name, path.stem))
        found.append(Analysis(name, "/".join(where), tuple(files)))
    return found


def frames(analysis: Analysis) -> Iterator[tuple[Path, dict[str, Any] | None]]:
    """Yield each file and, unless it holds single examples, its columns and rows.

    Raises:
        UserError: a file that is no CSV.
    """
    for path in analysis.files:
        if path.stem.endswith(DETAIL):
            yield path, None
            continue
        try:
            frame = pd.read_csv(path)
        except (ValueError, OSError) as error:
            raise UserError(f"{path} is no readable CSV file: run the analysis again") from error
        values = [[_value(value) for value in row] for row in frame.itertuples(index=False)]
        yield path, {"columns": list(frame.columns), "rows": values} if len(values) <= MOST else None


def methods(frame: dict[str, Any]) -> set[str]:
    """The methods that a frame has rows of."""
    places = [place for place, column in enumerate(frame["columns"]) if column == "method"]
    return {str(row[place]) for row in frame["rows"] for place in places if row[place] is not None}


def _value(value: Any) -> Any:
    if isinstance(value, str):
        return value
    return str(value) if isinstance(value, bool) else significant(value)
