"""Files that were made for one model, such as importances of its heads: a note beside each says for which."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from eval.console.errors import UserError
from eval.planning.weights import Weights


def beside(path: Path) -> Path:
    """Where the note of a file lies."""
    return path.with_suffix(".about.json")


def note(path: Path, model: dict[str, Any], title: str, more: dict[str, Any]) -> None:
    """Say beside a file which model it is of; more: what else a reader should know."""
    content = {"title": title, "model": model, **more}
    beside(path).write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def check(who: str, files: Mapping[str, str], found: Weights) -> None:
    """Raise UserError if a file that a method or codec reads is of another model; one without a note passes.

    files: by the field that names each. Published ones have no note.
    """
    for field, path in files.items():
        about = beside(Path(path))
        if not about.is_file():
            continue
        try:
            said = json.loads(about.read_text(encoding="utf-8"))
            model, title = said["model"], said["title"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise UserError(f"cannot read {about}: make {path} again") from error
        if model != found.identity:
            raise UserError(f"{who}: {field}={path} is of {title}, this run of {found.title}: make one of this model")
