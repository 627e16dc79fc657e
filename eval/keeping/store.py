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
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from eval.console.errors import UserError
from eval.keeping import manifests
from eval.keeping.manifests import digest, write_whole
from eval.keeping.reading import by_id
from eval.keeping.rounding import refuse_other, rounding

NAME = re.compile(r"\w[\w.+-]*")  # what may name a folder of answers


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
        manifests.check(self.folder, key.identity)
        manifests.refuse_other_archive(self.folder, key.identity)

    def answers(self, subset: str) -> dict[str, dict[str, Any]]:
        """Every stored answer of a subset by `_id`, as it was appended.

        Of two for one example the one measured alone counts, or else that of the first file.

        Raises UserError for a line, other than a torn last one, that is not an answer.
        """
        return by_id(self.folder, subset, json.loads)

    def refuse_other_rounding(self, made_by: dict[str, Any]) -> None:
        """Raise UserError if answers are stored, in half precision, that another kernel or batch rounded."""
        refuse_other(self.folder, self.key.identity, rounding(made_by))

    def append(self, subset: str, answer: dict[str, Any], made_by: dict[str, Any]) -> None:
        """Write one answer through to the disk. `made_by` is kept once for each process that wrote.

        Raises UserError if the disk is full, the folder cannot be written to, or its answers are of another prefill
        kernel or batch; what is stored stays.
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
        manifests.write(self.folder, self.key.identity, self.key.shown)
        if self._run is None or (self.folder / f"{subset}.{self._run}.jsonl").exists():
            self._run = uuid.uuid4().hex[:12]
            note = self.folder / "runs" / f"{self._run}.json"
            write_whole(note, made_by)
            try:
                self.refuse_other_rounding(made_by)  # of two processes that begin at once the later sees the other
            except UserError:
                note.unlink()  # it has no answers, and is not to stand in the way of others
                raise
        path = self.folder / f"{subset}.{self._run}.jsonl"
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644))
        return path


def check_writable(root: Path) -> None:
    """Raise UserError if nothing can be written under `root`: better now than after the first answer."""
    probe = root / f".probe-{uuid.uuid4().hex[:8]}"
    try:
        root.mkdir(parents=True, exist_ok=True)
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise UserError(_write_failure(root, error)) from error


def _line(answer: dict[str, Any]) -> bytes:
    try:
        return json.dumps(answer, ensure_ascii=False).encode() + b"\n"
    except UnicodeEncodeError:  # a lone surrogate, which JSON can hold and UTF-8 cannot
        return json.dumps(answer).encode() + b"\n"


def _write_failure(folder: Path, error: OSError) -> str:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"no space left for {folder}: free some and run the same command again; stored answers are kept"
    return f"cannot write to {folder} ({error.strerror}): choose a writable folder with results=PATH"
