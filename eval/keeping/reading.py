"""The answers that lie in a run's folder, read: complete lines of its files, whoever wrote them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from eval.console.errors import UserError

_HALF = re.compile("[\ud800-\udfff]")  # of a surrogate pair, standing alone


def stored(folder: Path, subset: str) -> dict[str, dict[str, Any]]:
    """Every answer of a subset in a run's folder by `_id`, `readable`; of two for one example as `by_id`.

    Raises UserError for a line, other than a torn last one, that is not an answer, and for two answers to one
    `_id` with different texts.
    """
    return by_id(folder, subset, readable)


def readable(text: str) -> Any:
    """The value of a JSON text, with U+FFFD for each half of a surrogate pair. Raises ValueError for other text.

    JSON can name such a half ("\\ud800"), but no data frame, UTF-8 file or terminal takes it.
    """
    value = json.loads(text)
    # Only an escape can stand for a half, so other lines are not written out again.
    return json.loads(_HALF.sub("\ufffd", json.dumps(value, ensure_ascii=False))) if "\\u" in text else value


def parts(folder: Path, subset: str) -> list[Path]:
    """Return the files of a subset in a run's folder, in the order in which they count."""
    return sorted(path for path in folder.glob("*.jsonl") if path.name.split(".")[0] == subset)


def ids(path: Path) -> set[str]:
    """The `_id` of every answer in one file. Raises UserError for a line that is not an answer."""
    return {answer["_id"] for answer in _lines(path, readable)}


def stored_subsets(folder: Path) -> list[str]:
    """Return the names of the subsets that a run's folder has files of."""
    return sorted({path.name.split(".")[0] for path in folder.glob("*.jsonl")})


def by_id(folder: Path, subset: str, parse: Callable[[str], Any]) -> dict[str, dict[str, Any]]:
    """Every answer of a subset in a run's folder by `_id`, each line as `parse` has it.

    Of two for one example the one measured alone counts, or else that of the first file. Raises UserError as `stored`.
    """
    found: dict[str, dict[str, Any]] = {}
    for path in parts(folder, subset):
        for answer in _lines(path, parse):
            first = found.setdefault(answer["_id"], answer)
            if first.get("fingerprint") != answer.get("fingerprint"):
                raise UserError(
                    f"{path} and another file answer {answer['_id']!r} for different texts or subset settings; "
                    "move the older one away"
                )
            if answer.get("alone") and not first.get("alone"):  # its costs are its own
                found[answer["_id"]] = answer
    return found


def _lines(path: Path, parse: Callable[[str], Any]) -> Iterator[dict[str, Any]]:
    lines = path.read_bytes().split(b"\n")
    for number, line in enumerate(lines[:-1], 1):  # what follows the last newline is torn, or nothing
        try:
            answer = parse(line.decode("utf-8"))
        except (ValueError, RecursionError):
            answer = None
        if not isinstance(answer, dict) or not isinstance(answer.get("_id"), str):
            raise UserError(f"{path}, line {number}: not a stored answer; move the file away to redo its examples")
        yield answer
