"""LongBench records: from the hub's `data.zip`, from a folder, a zip or one JSONL file, each record checked.

`datasets` 4 and later refuses the hub repository's loading script, and its automatic parquet branch is an
older edition; the archive itself is the official data (THUDM/LongBench on the hub, now zai-org/LongBench).
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any
from zipfile import BadZipFile, ZipFile

from eval.console.errors import UserError, nearest
from eval.inputs import jsonlines, subsets

Record = dict[str, Any]

REPOSITORY = "zai-org/LongBench"

_KINDS: Mapping[str, Callable[[Any], bool]] = {
    "a non-empty string or a whole number": lambda value: (
        type(value) is int or (isinstance(value, str) and bool(value.strip()))
    ),
    "a non-empty string": lambda value: isinstance(value, str) and bool(value.strip()),
    "a string": lambda value: isinstance(value, str),
    "a string or null": lambda value: value is None or isinstance(value, str),
    "a list with at least one string": lambda value: bool(value) and _strings(value),
    "a list of strings or null": lambda value: value is None or _strings(value),
    "a number of words, 0 or more": lambda value: type(value) is int and value >= 0,
}
_FIELDS = {
    "_id": "a non-empty string or a whole number",
    "input": "a string",
    "context": "a non-empty string",
    "answers": "a list with at least one string",
    "length": "a number of words, 0 or more",
    "dataset": "a string",
    "language": "a string or null",
    "all_classes": "a list of strings or null",
}


@dataclass(frozen=True)
class Loaded:
    """The records of one subset and where they are from."""

    records: Sequence[Record]
    source: str  # path, or repository at revision
    sha256: str  # of the archive, or of the JSONL file where there is none
    warning: str | None  # says that records are short of, or beyond, the official number


def read_jsonl(path: str | Path) -> list[Record]:
    """Read the records of one JSONL file.

    Raises:
        UserError: the file cannot be read, or a line is not a LongBench record (told with its number).
    """
    return parse_records(jsonlines.read(Path(path)), str(path))


def load_folder(path: str | Path, subset: str) -> Loaded:
    """Read a subset from a folder (`SUBSET.jsonl`, also below `data/`), a zip of one, or one JSONL file.

    Raises:
        UserError: nothing there for this subset, unknown subset, or bad content.
    """
    path = Path(path)
    if path.is_dir():
        return _from_folder(path, subset)
    if path.suffix == ".zip" and path.is_file():
        return load_zip(path, subset, str(path))
    return _from_file(path, subset)


def parse_records(content: bytes, origin: str) -> list[Record]:
    """Parse and check JSONL: UTF-8, one record per line; `origin` is the name used in complaints. An `_id` may be a
    number and becomes a text."""
    records: list[Record] = []
    seen: dict[str, int] = {}
    for number, record in jsonlines.parse_lines(content, origin):
        where = f"{origin}, line {number}"
        _check(record, where)
        first = seen.setdefault(record["_id"], number)
        if first != number:
            raise UserError(f"{where}: _id {record['_id']!r} is already that of line {first}; ids must differ")
        records.append(record)
    return records


def _strings(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _check(record: Record, where: str) -> None:
    if missing := [key for key in _FIELDS if key not in record]:
        raise UserError(f"{where}: no {', '.join(missing)}; a LongBench record has {', '.join(_FIELDS)}")
    for key, kind in _FIELDS.items():
        if not _KINDS[kind](record[key]):
            raise UserError(f"{where}: {key} must be {kind}, found {_short(record[key])}")
    record["_id"] = str(record["_id"])
    if "evidence" in record:
        record["evidence"] = [_span(span, len(record["context"]), where) for span in record["evidence"] or ()]


def _span(span: Any, length: int, where: str) -> list[int]:
    """Return an evidence span as `[start, end]`; objects with these two keys are accepted as well."""
    pair: Any = [span.get("start"), span.get("end")] if isinstance(span, dict) else span
    whole = isinstance(pair, list) and len(pair) == 2 and all(type(edge) is int for edge in pair)
    if not whole or not 0 <= pair[0] < pair[1] <= length:
        raise UserError(f"{where}: evidence must be [start, end) within the context, found {_short(span)}")
    return list(pair)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}…"


def present(path: Path) -> tuple[str, ...]:
    """The subsets that a folder or a zip holds, in the order of tables; of a single file what it is named after.

    Raises UserError if there is none.
    """
    if path.is_file() and path.suffix != ".zip":
        return (jsonlines.stem(path.name),)
    files = _members(path) if path.is_file() else jsonlines.inside(path)
    found = tuple(name for name in (*subsets.names(), *subsets.groups()["longbench_e"]) if name in files)
    if not found:
        others = f" (but {', '.join(f'{name}.jsonl' for name in sorted(files)[:3])})" if files else ""
        raise UserError(
            f"{path} holds no SUBSET.jsonl of a known subset{others}; name a folder, a zip or a file in data.path. "
            f"{subsets.OWN_TASK}"
        )
    return found


def _from_folder(folder: Path, subset: str) -> Loaded:
    files = jsonlines.inside(folder)
    if subset not in files:
        subsets.load(subset)  # a misspelt name is the likelier mistake
        raise UserError(f"{folder}: no {subset}.jsonl{nearest(subset, files) if files else ' and no other'}")
    return _from_file(files[subset], subset)


def _from_file(path: Path, subset: str) -> Loaded:
    content = jsonlines.read(path)
    return _loaded(content, str(path), sha256(content).hexdigest(), subset)


def _members(path: Path) -> dict[str, str]:
    """The JSONL files of a zip by their stem, at its top or one folder deep.

    Raises UserError for what is no zip, and for two files of one name.
    """
    found: dict[str, str] = {}
    with _opened(path) as archive:
        for name in sorted(archive.namelist()):
            if name.endswith(jsonlines.ENDINGS) and name.count("/") < 2:
                stem = jsonlines.stem(name.rpartition("/")[2])
                if (first := found.setdefault(stem, name)) != name:
                    raise UserError(f"{path}: 2 files for {stem} ({first}, {name}); expected one data/{stem}.jsonl")
    return found


@contextmanager
def _opened(path: Path) -> Iterator[ZipFile]:
    """A zip, its errors told in one line."""
    try:
        with ZipFile(path) as archive:
            yield archive
    except (BadZipFile, OSError, RuntimeError, EOFError, zlib.error) as error:
        raise UserError(f"{path}: not a readable zip ({error}); download it again") from error


def load_zip(path: Path, subset: str, source: str) -> Loaded:
    """Read one member into memory; nothing is unpacked, so the paths in the archive can do no harm.

    source: what the archive is, to be told. Raises UserError for a subset that is not in it, and for bad content.
    """
    members = _members(path)
    if subset not in members:
        subsets.load(subset)
        there = nearest(subset, members) if members else " and no other"
        raise UserError(f"{path}: no {subset}.jsonl{there}")
    name = members[subset]
    with _opened(path) as archive, archive.open(name) as member:
        content = member.read(jsonlines.LIMIT + 1)
    if len(content) > jsonlines.LIMIT:
        raise UserError(f"{path}: {name} unpacks to more than {jsonlines.LIMIT >> 20} MiB; not LongBench's")
    if name.endswith(".gz"):
        content = jsonlines.unpacked(content, f"{path}:{name}")
    return _loaded(content, f"{source}:{name}", digest_of(path), subset)


def digest_of(path: Path) -> str:
    """SHA-256 of a file, read once for all subsets of an archive."""
    about = path.stat()
    return _digest(path, about.st_size, about.st_mtime_ns)


@cache
def _digest(path: Path, size: int, changed: int) -> str:
    """size, changed: another file at the same place has others."""
    total = sha256()
    with path.open("rb") as stream:
        while block := stream.read(1 << 20):
            total.update(block)
    return total.hexdigest()


def _loaded(content: bytes, source: str, digest: str, subset: str) -> Loaded:
    records = parse_records(content, source)
    expected = subsets.load(subset).records
    warning = None
    if expected is not None and len(records) != expected:
        warning = f"{subset}: {len(records)} of {expected} official records in {source}; scores are partial"
    return Loaded(tuple(records), source, digest, warning)
