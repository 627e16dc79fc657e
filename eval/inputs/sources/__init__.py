"""Where records come from: a source is a class that a YAML of conf/data names by `_target_`, with its settings.

A source of one's own is any such class, by its import path; docs/tables.md, "Records", describes a record.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from eval.console.errors import UserError
from eval.console.fields import Section, checked
from eval.console.imported import imported
from eval.inputs.data import Loaded


class Source(Protocol):
    """Records of some subsets."""

    @property
    def name(self) -> str:
        """Names the folder of the answers to its records."""

    @property
    def identity(self) -> dict[str, Any]:
        """What of the settings the records depend on, as JSON values. Each answer also holds its record's digest."""

    def subsets(self) -> Sequence[str]:
        """The subsets, or groups of them, that there are; empty where the settings must name them."""

    def read(self, subset: str) -> Loaded:
        """The records of one subset. Raises UserError for what is missing or malformed."""


def source_class(path: str) -> Any:
    """The class at an import path. Raises UserError if there is none."""
    return imported(path, "data._target_")


def made(path: str, settings: Mapping[str, Any]) -> Source:
    """The source that a YAML of conf/data names. Raises UserError for a class or settings that make none."""
    kind = source_class(path)
    try:
        source = checked(kind, settings, "data.") if _is_section(kind) else kind(**settings)
    except TypeError as error:
        raise UserError(f"data source {path}: {' '.join(str(error).split())}") from error
    if lacking := [name for name in ("name", "identity", "subsets", "read") if not hasattr(source, name)]:
        raise UserError(f"data source {path} has no {', '.join(lacking)}: see eval/inputs/sources/__init__.py")
    own: Source = source
    return own


def _is_section(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Section)
