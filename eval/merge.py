"""Merge results folders of several machines: `python -m eval.merge FOLDER... INTO`.

Files of answers have names that never collide, so two machines never wrote the same one. What an earlier merge
copied may be older than its original, though, and a plain copy back would cut the original short: here the longer
file stays, whichever side it is on.
"""

from __future__ import annotations

import argparse
import os
import sys
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path

from echokv.installed import called
from eval.console.errors import Parser, UserError, command
from eval.keeping import manifests
from eval.keeping.rounding import of_folder, refuse_other


def merge(source: Path, into: Path) -> int:
    """Bring every run in `source` into `into` and return the number of files that this added or lengthened.

    Raises UserError if a run's settings or, in half precision, prefill kernels or batches differ, or a file is not the
    beginning of its namesake: then nothing of that file is touched. Also for a full disk or a folder that cannot be
    read or written to.
    """
    changed = 0
    try:
        for manifest in sorted(source.rglob("manifest.json")):
            target = into / manifest.parent.relative_to(source)
            identity = manifests.identity(manifest.parent)
            if (target / "manifest.json").exists() and manifests.identity(target) != identity:
                raise UserError(f"{target} and {manifest.parent} were made with different settings; keep them apart")
            refuse_other(target, identity, of_folder(manifest.parent))
            for file in _files(manifest.parent):
                changed += _bring(file, target / file.relative_to(manifest.parent))
    except OSError as error:
        raise UserError(f"{error.filename or into}: {error.strerror}; stored answers are kept") from error
    return changed


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status, 1 with one line on stderr for wrong input."""
    parser = Parser(prog=called("merge"), description="Merge results folders.")
    parser.add_argument("folders", nargs="+", type=Path, metavar="FOLDER", help="results folders of other machines")
    parser.add_argument("into", type=Path, metavar="INTO", help="results folder that takes them in")
    return command(parser, arguments, _merge)


def _merge(options: argparse.Namespace) -> None:
    for folder in options.folders:
        if not any(folder.rglob("manifest.json")):
            raise UserError(f"{folder} holds no stored answers")
        print(f"{folder}: {merge(folder, options.into)} files added or lengthened in {options.into}")


def _files(run: Path) -> Iterator[Path]:
    """The run's own files, the manifest first; what a killed process left half-made begins with a dot."""
    for pattern in ("manifest.json", "runs/*.json", "*.jsonl"):
        yield from sorted(path for path in run.glob(pattern) if not path.name.startswith("."))


def _bring(file: Path, target: Path) -> bool:
    """Whether `target` had to be written: it was missing, or a shorter beginning of `file`."""
    content = file.read_bytes()
    present = target.read_bytes() if target.exists() else None
    if present is not None:
        if file.suffix != ".jsonl" or present.startswith(content):
            return False
        if not content.startswith(present):
            raise UserError(f"{target} and {file} differ, so one was edited; move one away")
    target.parent.mkdir(parents=True, exist_ok=True)
    scratch = target.with_name(f".{target.name}.{uuid.uuid4().hex[:8]}")
    with scratch.open("wb") as stream:
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())
    os.replace(scratch, target)
    return True


if __name__ == "__main__":
    sys.exit(main())
