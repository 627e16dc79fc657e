"""The YAMLs of conf/ as plain values, for what needs no composing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

try:
    from yaml import CSafeLoader as _Safe  # libyaml's: many times as fast, and safe by the same constructor
except ImportError:  # a PyYAML that was built without it
    from yaml import SafeLoader as _Safe  # type: ignore[assignment]

CONF = Path(__file__).resolve().parents[2] / "conf"


class Loader(_Safe):
    """Makes plain values alone, whatever tags a file has."""


def read(path: Path, loader: type[Loader] = Loader) -> Any:
    """The content of a YAML. Raises OSError, UnicodeDecodeError and yaml.YAMLError."""
    return yaml.load(path.read_text(encoding="utf-8"), Loader=loader)


def chosen(group: str, name: str) -> dict[str, Any] | None:
    """What conf/GROUP/NAME.yaml says, uncomposed; None where there is no such file."""
    path = CONF / group / f"{name}.yaml"
    if name not in {known.stem for known in path.parent.glob("*.yaml")}:  # a label may hold a path
        return None
    content = read(path)
    return content if isinstance(content, dict) else {}
