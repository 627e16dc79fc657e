"""JSON Lines files as bytes come: plain or gzipped, with or without a byte order mark, each line an object."""

from __future__ import annotations

import gzip
import io
import json
import re
import zlib
from pathlib import Path
from typing import Any, NoReturn

from eval.console.errors import UserError

LIMIT = 1 << 29  # bytes of one unpacked file; LongBench's largest is below 100 MB
ENDINGS = (".jsonl", ".jsonl.gz")

_MARK = b"\xef\xbb\xbf"
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


def stem(name: str) -> str:
    """A file's name without its ending."""
    return name.removesuffix(".gz").removesuffix(".jsonl")


def inside(folder: Path) -> dict[str, Path]:
    """The files of a folder by `stem`, those in its folder `data` after its own.

    Raises UserError for two of one name that differ in the ending alone.
    """
    found: dict[str, Path] = {}
    for place in (folder, folder / "data"):
        here: dict[str, Path] = {}
        for path in sorted(path for path in place.glob("*.jsonl*") if path.name.endswith(ENDINGS)):
            if (first := here.setdefault(stem(path.name), path)) != path:
                raise UserError(f"{first} and {path.name} are both there; move one away")
        found = {**here, **found}
    return found


def read(path: Path) -> bytes:
    """The content of a file, unpacked if its name ends in .gz. Raises UserError if it cannot be read."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}") from error
    return unpacked(content, str(path)) if path.suffix == ".gz" else content


def unpacked(content: bytes, origin: str) -> bytes:
    """The content of a gzip. Raises UserError if it is none, or unpacks to more than LIMIT bytes."""
    try:
        with gzip.open(io.BytesIO(content)) as stream:
            plain = stream.read(LIMIT + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise UserError(f"{origin}: not a readable gzip ({error}); make it again") from error
    if len(plain) > LIMIT:
        raise UserError(f"{origin} unpacks to more than {LIMIT >> 20} MiB")
    return plain


def parse_lines(content: bytes, origin: str) -> list[tuple[int, dict[str, Any]]]:
    """Parse JSONL into (line number, object) pairs; NaN and infinity are refused, empty lines skipped.

    Lines end with `\\n` alone: answers contain `\\r`, and `str.splitlines` would break records at U+2028.
    `origin` is the name used in complaints. Raises UserError: not UTF-8, not JSON objects, or no line at all.
    """
    parsed = []
    for number, line in enumerate(content.removeprefix(_MARK).split(b"\n"), start=1):
        where = f"{origin}, line {number}"
        if not line.strip():
            continue
        try:
            value = json.loads(line.decode("utf-8"), parse_constant=_refuse)
        except UnicodeDecodeError as error:
            raise UserError(f"{where}: not UTF-8 ({error.reason} at byte {error.start})") from error
        except (ValueError, RecursionError) as error:
            raise UserError(f"{where}: not JSON ({error})") from error
        if not isinstance(value, dict):
            raise UserError(f"{where}: expected a JSON object, found {type(value).__name__}")
        if _SURROGATE.search(line) and not _encodes(value):
            raise UserError(f"{where}: a lone surrogate (half of a \\u pair) is no text")
        parsed.append((number, value))
    if not parsed:
        raise UserError(f"{origin}: the file is empty; expected one JSON object per line")
    return parsed


def _encodes(value: Any) -> bool:
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON number")
