"""Answers in half precision depend on what rounds: the kernel of their prefill, and how many rows are one batch.

Neither is a setting where the machine decides it, so processes note it beside the answers, and those of two kernels or
of two numbers are not one result.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Set
from contextlib import suppress
from pathlib import Path
from typing import Any

from eval.console.errors import UserError

EXACT = ("float32", "float64")  # here what rounds differently differs by what no score sees
KERNEL, ROWS = "attention", "decode_rows"
DIFFERS = {
    KERNEL: "whose prompts were computed by the attention kernel {}; this is {}, which rounds differently: go on on "
    "such a machine, use model.dtype=float32, or another results= folder",
    ROWS: "of which those of {} were decoded as one batch, here of {}, which rounds differently: run it again where "
    "they lie, use model.dtype=float32, or keep the folders apart",
}

Rounding = Mapping[str, Set[Any]]


def rounding(noted: Mapping[str, Any]) -> Rounding:
    """What rounds, of what one process notes; earlier versions named no kernel and decoded one example at a time."""
    found = {name: {noted[name]} for name in (KERNEL, ROWS) if name in noted}
    return {name: values for name, values in found.items() if name != KERNEL or values != {None}}


def of_folder(folder: Path) -> dict[str, set[Any]]:
    """What rounded in the processes that wrote into a run's folder."""
    found: dict[str, set[Any]] = {}
    for noted in _notes(folder):
        for name, values in rounding({ROWS: None, **noted}).items():
            found.setdefault(name, set()).update(values)
    return found


def refuse_other(folder: Path, identity: Mapping[str, Any], own: Rounding) -> None:
    """Raise UserError if answers in a run's folder were rounded otherwise than `own` are, and it matters."""
    model = identity.get("model")
    if isinstance(model, dict) and model.get("dtype") in EXACT:
        return
    stored = of_folder(folder)
    for name, differs in DIFFERS.items():
        others = stored.get(name, set()) - own.get(name, set())
        if others and own.get(name):
            raise UserError(f"{folder} holds half-precision answers {differs.format(_said(others), _said(own[name]))}")


def _notes(folder: Path) -> Iterator[dict[str, Any]]:
    for path in folder.glob("runs/*.json"):
        with suppress(OSError, ValueError):
            noted = json.loads(path.read_text(encoding="utf-8"))
            if isinstance(noted, dict):
                yield noted


def _said(values: Set[Any]) -> str:
    return ", ".join(sorted("one example" if value is None else str(value) for value in values))
