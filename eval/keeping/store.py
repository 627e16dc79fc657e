"""Stored answers: one folder per run, append-only JSON lines, made so that no accident loses or mixes any.

A process writes only into files of its own, SUBSET.RUN.jsonl with a random RUN, never into one that it finds: two
processes need no lock, and folders of two machines are merged by copying one over the other. What a killed process
leaves is complete lines and at most one torn last line, which is ignored. docs/reliability.md says what is promised.
"""

from __future__ import annotations

import errno
import json
import os
import re
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

from eval.console.errors import UserError
from eval.keeping.kernels import refuse_other_kernels

FORMAT = 1
NAME = re.compile(r"\w[\w.+-]*")  # what may name a folder of answers
_HALF = re.compile("[\ud800-\udfff]")  # of a surrogate pair, standing alone


def digest(value: Any) -> str:
    """Eight hexadecimal digits of the SHA-256 of a value's canonical JSON."""
    text = json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:8]


@dataclass(frozen=True)
class RunKey:
    """What a run's answers depend on. `identity` holds all of it; the rest is there to be read.

    shown: names that may change without making another run, such as that of a model's folder.
    """

    data: str
    model: str
    method: str
    budget: int | None
    identity: dict[str, Any]
    shown: dict[str, Any] = field(default_factory=dict)

    @property
    def path(self) -> Path:
        """data/model/method-budget-hash."""
        budget = "" if self.budget is None else f"-{self.budget}"
        return Path(self.data) / self.model / f"{self.method}{budget}-{digest(self.identity)}"


class Store:
    """The answers of one run."""

    def __init__(self, root: Path, key: RunKey) -> None:
        """Open the run's folder under `root`; nothing is written before the first answer.

        Raises UserError if the folder was written by another format or for another identity, if answers to an
        archive of another SHA-256 lie beside it, or if a name in the key cannot be a folder's.
        """
        for name in (key.data, key.model, key.method):
            if not NAME.fullmatch(name):
                raise UserError(f"{name!r} cannot name a folder of answers; use letters, digits, '.', '+', '-' and '_'")
        self.key = key
        self.folder = root / key.path
        self._run: str | None = None
        self._files: dict[str, Path] = {}  # this process's own, each ending in a complete line
        manifest = self.folder / "manifest.json"
        if os.path.exists(manifest):  # unlike Path.exists this is False for a name that is too long
            _check(manifest, key.identity)
        _refuse_other_archive(self.folder, key.identity)

    def answers(self, subset: str) -> dict[str, dict[str, Any]]:
        """Every stored answer of a subset by `_id`, as it was appended.

        Of two for one example the one measured alone counts, or else that of the first file.

        Raises UserError for a line, other than a torn last one, that is not an answer.
        """
        return _by_id(self.folder, subset, json.loads)

    def refuse_other_kernels(self, made_by: dict[str, Any]) -> None:
        """Raise UserError if answers of another prefill kernel are stored, in half precision."""
        refuse_other_kernels(
            self.folder, self.key.identity, {made_by["attention"]} if "attention" in made_by else set()
        )

    def append(self, subset: str, answer: dict[str, Any], made_by: dict[str, Any]) -> None:
        """Write one answer through to the disk. `made_by` is kept once for each process that wrote.

        Raises UserError if the disk is full, the folder cannot be written to, or its answers are of another prefill
        kernel; what is stored stays.
        """
        line = _line(answer)
        try:
            # Taken out until the line is whole: after a failure the next answer begins another file.
            path = self._files.pop(subset, None) or self._create(subset, made_by)
            file = os.open(path, os.O_WRONLY | os.O_APPEND)
            try:
                written = 0
                while written < len(line):
                    written += os.write(file, line[written:])
                os.fsync(file)
            finally:
                os.close(file)
        except OSError as error:
            raise UserError(_write_failure(self.folder, error)) from error
        self._files[subset] = path

    def _create(self, subset: str, made_by: dict[str, Any]) -> Path:
        """Create this process's next file of the subset."""
        self.folder.mkdir(parents=True, exist_ok=True)
        manifest = self.folder / "manifest.json"
        if not manifest.exists():
            _write_whole(manifest, {"format": FORMAT, "identity": self.key.identity, "shown": self.key.shown})
        if self._run is None or (self.folder / f"{subset}.{self._run}.jsonl").exists():
            self._run = uuid.uuid4().hex[:12]
            _write_whole(self.folder / "runs" / f"{self._run}.json", made_by)
            self.refuse_other_kernels(made_by)  # of two processes that begin at once the later sees the other
        path = self.folder / f"{subset}.{self._run}.jsonl"
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644))
        return path


def stored(folder: Path, subset: str) -> dict[str, dict[str, Any]]:
    """Every answer of a subset in a run's folder by `_id`, `readable`; of two for one example as `Store.answers`.

    Raises UserError for a line, other than a torn last one, that is not an answer, and for two answers to one
    `_id` with different texts.
    """
    return _by_id(folder, subset, readable)


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


def stored_identity(folder: Path) -> dict[str, Any]:
    """Return what the answers in a run's folder depend on.

    Raises UserError for an unreadable manifest, another format, or settings that are not the folder's.
    """
    manifest = folder / "manifest.json"
    identity = _read(manifest)
    if not folder.name.endswith(f"-{digest(identity)}"):
        raise UserError(f"{manifest} names other settings than its folder's hash; use another results= folder")
    return identity


def shown(folder: Path) -> dict[str, Any]:
    """Names that a run's folder was given to be shown with its answers; none in folders of earlier versions."""
    with suppress(OSError, ValueError, AttributeError):
        found = json.loads((folder / "manifest.json").read_text(encoding="utf-8")).get("shown")
        return found if isinstance(found, dict) else {}
    return {}


def check_writable(root: Path) -> None:
    """Raise UserError if nothing can be written under `root`: better now than after the first answer."""
    probe = root / f".probe-{uuid.uuid4().hex[:8]}"
    try:
        root.mkdir(parents=True, exist_ok=True)
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise UserError(_write_failure(root, error)) from error


def _by_id(folder: Path, subset: str, parse: Callable[[str], Any]) -> dict[str, dict[str, Any]]:
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


def _check(manifest: Path, identity: dict[str, Any]) -> None:
    if _read(manifest) != json.loads(json.dumps(identity)):
        raise UserError(f"{manifest} names other settings than its folder's hash; use another results= folder")


def _read(manifest: Path) -> dict[str, Any]:
    try:
        content = json.loads(manifest.read_text(encoding="utf-8"))
        written, identity = content["format"], content["identity"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{manifest} is unreadable ({type(error).__name__}); use another results= folder") from error
    if written != FORMAT:
        raise UserError(
            f"{manifest.parent} was written in format {written}, this version writes format {FORMAT}: "
            "use another results= folder"
        )
    if not isinstance(identity, dict):
        raise UserError(f"{manifest} holds no settings; use another results= folder")
    return identity


def _refuse_other_archive(folder: Path, identity: dict[str, Any]) -> None:
    """An archive that changed between two runs or shards would split their answers over two folders."""
    own = identity.get("data")
    if not isinstance(own, dict) or "sha256" not in own:
        return
    for manifest in folder.parent.glob(f"{folder.name[:-8]}{'?' * 8}/manifest.json"):
        try:
            other = _read(manifest)
        except UserError:  # that folder's own affair
            continue
        data = other.get("data")
        if not isinstance(data, dict) or "sha256" not in data or data["sha256"] == own["sha256"]:
            continue
        if {**other, "data": {**data, "sha256": None}} == {**identity, "data": {**own, "sha256": None}}:
            raise UserError(
                f"the data archive is not the one that {manifest.parent} answers (another SHA-256): pin "
                "data.revision to the commit used there, or use another results= folder"
            )


def _line(answer: dict[str, Any]) -> bytes:
    try:
        return json.dumps(answer, ensure_ascii=False).encode() + b"\n"
    except UnicodeEncodeError:  # a lone surrogate, which JSON can hold and UTF-8 cannot
        return json.dumps(answer).encode() + b"\n"


def _write_whole(path: Path, content: dict[str, Any]) -> None:
    """Put a complete file in place, so that no reader sees half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}")
    scratch.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    os.replace(scratch, path)


def _write_failure(folder: Path, error: OSError) -> str:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"no space left for {folder}: free some and run the same command again; stored answers are kept"
    return f"cannot write to {folder} ({error.strerror}): choose a writable folder with results=PATH"
