"""Titles of methods, models and data for a reader, from the `title` in their YAML; they are no part of an identity."""

from __future__ import annotations

from functools import cache
from typing import Any

from eval.console import conf


def title(group: str, name: str) -> str | None:
    """Return the title in conf/GROUP/NAME.yaml, None where there is none."""
    found = settings(group, name).get("title")
    return None if found is None else str(found)


@cache
def settings(group: str, name: str) -> dict[str, Any]:
    """Return what conf/GROUP/NAME.yaml says of NAME, uncomposed; empty where there is no such file."""
    content: Any = conf.chosen(group, name) or {}
    for part in (f"{group}s", group, name):  # as a package of Hydra's places it
        content = content.get(part) or content
    return content if isinstance(content, dict) else {}
