"""Score prediction files: `python -m eval.score PATH...`, the official form or this project's own.

Official (THUDM/LongBench, `pred.py`): `pred/MODEL/SUBSET.jsonl` with pred, answers, all_classes and length.
This project's rows have `_id` and `dataset` as well. One table per folder and, where rows name them, per
method and budget. In a folder of stored answers all files of a subset count as one. docs/tables.md describes the lines.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path

from eval.console.errors import UserError, command
from eval.inputs import subsets
from eval.inputs.data import parse_lines
from eval.keeping import store
from eval.scoring.rows import Row, Score, check_row, score_rows

Table = tuple[str, ...]  # folder, then the method and budget its rows name

_APART = ("method", "budget")  # rows that differ here belong to different tables
_ALIKE = ("model", "preset")  # rows that differ here make no table at all


def read_tables(paths: Iterable[Path]) -> dict[Table, dict[str, list[Row]]]:
    """Read prediction files and folders (searched for `*.jsonl` at any depth) into tables of rows by subset.

    Raises:
        UserError: nothing to read, bad rows, missing or repeated ids, several models or presets in one table.
    """
    tables: dict[Table, dict[str, list[Row]]] = {}
    for path in sorted({_first(file) for given in paths for file in _files(given)}):
        for row in _rows(path):
            table = (str(path.parent), *(f"{key} {row[key]}" for key in _APART if row.get(key) is not None))
            tables.setdefault(table, {}).setdefault(row["dataset"], []).append(row)
    for table, by_subset in tables.items():
        _check_alike(table, [row for rows in by_subset.values() for row in rows])
        for name, rows in by_subset.items():
            _check_ids(f"{', '.join(table)}, {name}", rows)
    return tables


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status, 1 with one line on stderr for wrong input."""
    parser = argparse.ArgumentParser(
        prog="python -m eval.score",
        description="Score LongBench predictions: code by both edit similarities, English summaries by the official "
        "Rouge-L and by rouge-score, LongBench-E also by the records' length in words (0-4k, 4-8k, 8k+).",
    )
    parser.add_argument("paths", nargs="+", type=Path, metavar="PATH", help="JSONL file, or folder of them")
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    return command(parser, arguments, _print)


def _print(options: argparse.Namespace) -> None:
    tables = read_tables(options.paths)
    scores = {table: _score_table(by_subset) for table, by_subset in tables.items()}
    if options.json:
        found = [{"table": list(table), "scores": [asdict(row) for row in rows]} for table, rows in scores.items()]
        print(json.dumps(found, indent=1, allow_nan=False))
    else:
        print("\n\n".join(_text(table, rows) for table, rows in scores.items()))


def _score_table(by_subset: dict[str, list[Row]]) -> list[Score]:
    order = {name: place for place, name in enumerate(subsets.names())}
    names = sorted(by_subset, key=lambda name: (name.endswith("_e"), order[name.removesuffix("_e")]))
    return [score for name in names for score in score_rows(subsets.load(name), by_subset[name])]


def _files(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise UserError(f"{path}: no such file or folder")
    found = list(path.rglob("*.jsonl"))
    if not found:
        raise UserError(f"{path}: no .jsonl files; expected SUBSET.jsonl with pred and answers on each line")
    return found


def _first(path: Path) -> Path:
    """The file that stands for its subset: in a folder of stored answers the first of those that processes wrote."""
    return store.parts(path.parent, path.name.split(".")[0])[0] if _is_stored(path) else path


def _is_stored(path: Path) -> bool:
    return (path.parent / "manifest.json").is_file()


def _rows(path: Path) -> list[Row]:
    rows = []
    for where, row in _stored(path) if _is_stored(path) else _lines(path):
        row.setdefault("dataset", path.stem)
        row.setdefault("all_classes", None)
        if not isinstance(row["dataset"], str):
            raise UserError(f"{where}: dataset must be the name of a subset, found {row['dataset']!r}")
        try:
            check_row(row, subsets.load(row["dataset"]))
        except UserError as error:
            raise UserError(f"{where}: {error}") from error
        rows.append(row)
    return rows


def _stored(path: Path) -> Iterable[tuple[str, Row]]:
    name = path.name.split(".")[0]
    return [(f"{path.parent}, _id {key!r}", row) for key, row in store.stored(path.parent, name).items()]


def _lines(path: Path) -> Iterable[tuple[str, Row]]:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}") from error
    return [(f"{path}, line {number}", row) for number, row in parse_lines(content, str(path))]


def _check_alike(table: Table, rows: Sequence[Row]) -> None:
    for key in _ALIKE:
        if len(found := sorted({str(row[key]) for row in rows if row.get(key) is not None})) > 1:
            raise UserError(f"{', '.join(table)}: several values of {key} ({', '.join(found)}); score them apart")


def _check_ids(where: str, rows: Sequence[Row]) -> None:
    """Official files have no ids at all; where some rows have one, all must, and each its own."""
    ids = [row.get("_id") for row in rows]
    if all(name is None for name in ids):
        return
    if missing := sum(name is None for name in ids):
        raise UserError(f"{where}: {missing} of {len(rows)} rows have no _id; give all rows one, or none")
    name, times = Counter(map(str, ids)).most_common(1)[0]
    if times > 1:
        raise UserError(f"{where}: _id {name!r} stands in {times} rows; keep one")


def _text(table: Table, scores: Sequence[Score]) -> str:
    lines = [", ".join(table), f"{'subset':<24}{'variant':<13}{'n':>5}{'score':>8}{'± s.e.':>8}"]
    for row in scores:
        error = "-" if row.error is None else f"{row.error:.2f}"
        line = f"{row.subset:<24}{row.edit or '':<13}{row.n:>5}{row.score:>8.2f}{error:>8}"
        for title, mean in (row.buckets or {}).items():
            line += f"  {title}: {'no records' if mean is None else f'{mean:.2f}'}"
        if row.expected is not None and row.n != row.expected:
            line += f"  ({'partial' if row.n < row.expected else 'too many'}: n={row.n} of {row.expected})"
        if row.failures:
            line += f"  (rouge raised on {row.failures}, scored 0)"
        lines.append(line)
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
