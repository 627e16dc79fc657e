"""Files of predictions, LongBench's own or stored answers: found, read, checked and told apart by table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from eval.console.errors import UserError
from eval.inputs import jsonlines, subsets
from eval.keeping import reading
from eval.scoring.rows import Row, check_row

Table = tuple[str, ...]  # folder, then the method and budget its rows name

EXTENDED = "pred_e"  # LongBench's pred.py writes LongBench-E's predictions below it, under the plain subsets' names
_APART = ("method", "budget")  # rows that differ here belong to different tables
_ALIKE = ("model", "preset")  # rows that differ here make no table at all


def read_tables(paths: Iterable[Path], subset: str | None = None) -> dict[Table, dict[str, list[Row]]]:
    """Read prediction files and folders (searched at any depth) into tables of rows by subset.

    subset: what the rows are of that do not say so, for a file whose name does not say it either.

    Raises:
        UserError: nothing to read, bad rows, missing or repeated ids, several models or presets in one table.
    """
    files = sorted({_first(file) for given in paths for file in _files(given)})
    _check_names(files, subset)
    tables: dict[Table, dict[str, list[Row]]] = {}
    for path in files:
        for row in _rows(path, subset):
            table = (str(path.parent), *(f"{key} {row[key]}" for key in _APART if row.get(key) is not None))
            tables.setdefault(table, {}).setdefault(row["dataset"], []).append(row)
    for table, by_subset in tables.items():
        _check_alike(table, [row for rows in by_subset.values() for row in rows])
        for name, rows in by_subset.items():
            _check_ids(f"{', '.join(table)}, {name}", rows)
    return tables


def _files(path: Path) -> list[Path]:
    if path.is_file():
        if path.suffix == ".zip":
            raise UserError(f"{path}: predictions are not read from a zip: unpack it, and give the folder")
        return [path]
    if not path.is_dir():
        raise UserError(f"{path}: no such file or folder")
    found = [file for file in path.rglob("*.jsonl*") if file.name.endswith(jsonlines.ENDINGS)]
    if not found:
        raise UserError(f"{path}: no .jsonl files; expected SUBSET.jsonl with pred and answers on each line")
    return found


def _first(path: Path) -> Path:
    """The file that stands for its subset: in a folder of stored answers the first of those that processes wrote."""
    return reading.parts(path.parent, path.name.split(".")[0])[0] if _is_stored(path) else path


def _is_stored(path: Path) -> bool:
    return (path.parent / "manifest.json").is_file()


def _check_names(files: Sequence[Path], subset: str | None) -> None:
    """Raise UserError for two files of which both would count as one subset of one table."""
    if subset is not None and len(files) > 1:
        raise UserError(f"--subset {subset} says what one file holds; there are {len(files)}: score them apart")
    firsts: dict[Path, Path] = {}
    for path in files:
        if (first := firsts.setdefault(path.with_name(jsonlines.stem(path.name)), path)) != path:
            raise UserError(f"{first} and {path.name} are both there; move one away")


def _rows(path: Path, subset: str | None) -> list[Row]:
    rows = []
    for where, row in _stored(path) if _is_stored(path) else _lines(path):
        if "dataset" not in row:
            row["dataset"] = subset or _named(path)
        elif subset is not None and row["dataset"] != subset:
            raise UserError(f"{where}: dataset is {row['dataset']!r}, not {subset!r} as --subset says")
        row.setdefault("all_classes", None)
        if not isinstance(row["dataset"], str):
            raise UserError(f"{where}: dataset must be the name of a subset, found {row['dataset']!r}")
        try:
            check_row(row, subsets.load(row["dataset"]))
        except UserError as error:
            raise UserError(f"{where}: {error}") from error
        rows.append(row)
    return rows


def _named(path: Path) -> str:
    """The subset that a file of predictions is named after, of LongBench-E where its folder says so.

    Raises UserError if there is no such subset.
    """
    name = jsonlines.stem(path.name)
    whole = path.absolute().parents
    if EXTENDED in {folder.name for folder in whole[:2]} and not name.endswith("_e"):
        name += "_e"
    try:
        subsets.load(name)
    except UserError as error:
        raise UserError(f"{path}: its name says no subset ({error}): add --subset NAME") from error
    return name


def _stored(path: Path) -> Iterable[tuple[str, Row]]:
    name = path.name.split(".")[0]
    return [(f"{path.parent}, _id {key!r}", row) for key, row in reading.stored(path.parent, name).items()]


def _lines(path: Path) -> Iterable[tuple[str, Row]]:
    lines = jsonlines.parse_lines(jsonlines.read(path), str(path))
    return [(f"{path}, line {number}", row) for number, row in lines]


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
