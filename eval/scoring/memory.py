"""Scores kept from one table to the next, of what may take long: Rouge-L and metrics of the user's own.

The `rouge` package takes a tenth of a second per summary.

The file's name holds a digest of the code that scores, so that a change there starts an empty one. Of a user's metric
that is its module, what this imports from outside, and which packages are installed; what else it reads is not seen.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from hashlib import sha256
from importlib.metadata import distributions, version
from pathlib import Path
from typing import Any

from eval.console.errors import UserError
from eval.inputs.subsets import Subset
from eval.keeping import digests
from eval.keeping.manifests import digest
from eval.scoring import chinese, metrics, official, rouge_l
from eval.scoring import rows as plain
from eval.scoring.metrics import Edit

SLOW = ("rouge", "rouge_zh")
CODE = (chinese, metrics, official, plain, rouge_l)  # all that a score of ours comes from


def points(folder: Path, subset: Subset, rows: Sequence[dict[str, Any]], edit: Edit) -> list[float]:
    """Score rows like `eval.scoring.rows.points`; what takes long is looked up in `folder` and added to it.

    Raises:
        UserError: the folder cannot be written to, and as `eval.scoring.rows.points`.
    """
    if (name := _file(subset.metric)) is None:
        return plain.points(subset, rows, edit)
    path = folder / name
    known = _read(path)
    keys = [_key(subset, row) for row in rows]
    new = {key: row for key, row in zip(keys, rows, strict=True) if key not in known}
    if new:
        known |= dict(zip(new, plain.points(subset, list(new.values()), edit), strict=True))
        _write(path, known)
    return [known[key] for key in keys]


def _key(subset: Subset, row: dict[str, Any]) -> str:
    """Stand for everything that a score depends on, besides code."""
    content = [subset.metric, subset.first_line, row["pred"], row["answers"], row["all_classes"]]
    return sha256(json.dumps(content).encode()).hexdigest()[:24]


def _file(metric: str) -> str | None:
    """The name of the file that keeps a metric's scores; None if it is quick, or its code has no file."""
    if metric in SLOW:
        return f"rouge-{_code()}.json"
    module = metric.rpartition(".")[0]
    own = digests.digest(digests.reached([module], [module]).items()) if module else None
    if own is None:
        return None
    installed = sorted(f"{one.name} {one.version}" for one in distributions())
    return f"own-{digest([own, _code(), *installed])}.json"


def _code() -> str:
    sources = [Path(str(module.__file__)).read_text(encoding="utf-8") for module in CODE]
    return digest([*sources, version("rouge"), version("jieba")])


def _read(path: Path) -> dict[str, float]:
    """Return what is kept; nothing if the file is missing or damaged, for it can be made again."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def _write(path: Path, scores: dict[str, float]) -> None:
    scratch = path.with_suffix(f".{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        scratch.write_text(json.dumps(scores), encoding="utf-8")
        os.replace(scratch, path)
    except OSError as error:
        raise UserError(f"cannot write to {path.parent} ({error.strerror}): choose another --results") from error
