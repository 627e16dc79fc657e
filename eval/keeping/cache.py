"""What is kept only because it costs time to find again: small JSON files in a folder of our own.

Losing them costs that time and nothing else, so whatever is damaged, or cannot be written, counts as not there.
"""

from __future__ import annotations

import json
import os
import uuid
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any


def folder() -> Path:
    """$ECHOKV_CACHE, or `echokv` in the user's cache folder. Raises RuntimeError for a user without a home."""
    if own := os.environ.get("ECHOKV_CACHE"):
        return Path(own)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "echokv"


def read(kind: str, key: str) -> Any:
    """What was last written under this key, None if nothing readable was."""
    with suppress(OSError, ValueError, KeyError, TypeError, RuntimeError, RecursionError):
        content = json.loads(_file(kind, key).read_text(encoding="utf-8"))
        if content["key"] == key:  # a file that was copied or renamed is another's
            return content["value"]
    return None


def write(kind: str, key: str, value: Any) -> None:
    """Keep a JSON value in place of the one before; of two processes that write at once one's is kept whole."""
    with suppress(OSError, RuntimeError, TypeError, ValueError):
        path = _file(kind, key)
        path.parent.mkdir(parents=True, exist_ok=True)
        scratch = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}")
        scratch.write_text(json.dumps({"key": key, "value": value}), encoding="utf-8")
        os.replace(scratch, path)


def stamp(path: Path) -> list[int]:
    """What changes when a file's content does: size, times of modification and of change in nanoseconds.

    The second time is the file system's own: a copy that keeps the first (`cp -p`, `rsync -t`) is still told apart.
    Raises OSError if there is no such file.
    """
    found = path.stat()
    return [found.st_size, found.st_mtime_ns, found.st_ctime_ns]


def _file(kind: str, key: str) -> Path:
    return folder() / kind / f"{sha256(key.encode('utf-8', 'surrogatepass')).hexdigest()[:32]}.json"
