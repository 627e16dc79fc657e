"""What a setting names by an import path: a class or a function, the user's own among them."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from eval.console.errors import UserError


def imported(path: str, setting: str) -> Any:
    """The class or function that `path` (package.module.name) names.

    setting: what names it, for the message. Raises UserError if there is no such thing, or importing it fails.
    """
    module, _, name = path.rpartition(".")
    if not module:
        raise UserError(f"{setting}: {path!r} is no import path; give package.module.name")
    try:
        found = getattr(import_module(module), name, None)
    except Exception as error:  # whatever importing a user's module may raise
        why = f"{type(error).__name__}: {' '.join(str(error).split())}"
        raise UserError(f"{setting}: cannot import {module} ({why})") from error
    if found is None:
        raise UserError(f"{setting}: {module} has no {name}")
    return found
