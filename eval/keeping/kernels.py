"""Answers in half precision belong to the kernel that computed their prefill: those of two are not one result."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from eval.console.errors import UserError

EXACT = ("float32", "float64")  # here kernels differ by rounding that no score sees


def noted(folder: Path, name: str) -> list[Any]:
    """What each of the processes that wrote into a run's folder noted under a name; None if nothing."""
    found = []
    for path in folder.glob("runs/*.json"):
        with suppress(OSError, ValueError, AttributeError):
            found.append(json.loads(path.read_text(encoding="utf-8")).get(name))
    return found


def kernels(folder: Path) -> set[str]:
    """The kernels that the processes which wrote into a run's folder name; earlier versions named none."""
    return {name for name in noted(folder, "attention") if isinstance(name, str)}


def refuse_other_kernels(folder: Path, identity: Mapping[str, Any], own: set[str]) -> None:
    """Raise UserError if answers in a run's folder were prefilled by other kernels than `own`, and it matters."""
    model = identity.get("model")
    others = kernels(folder) - own
    if not own or not others or (isinstance(model, dict) and model.get("dtype") in EXACT):
        return
    raise UserError(
        f"{folder} holds half-precision answers whose prompts were computed by the attention kernel "
        f"{', '.join(sorted(others))}; this is {', '.join(sorted(own))}, which rounds differently: go on on such "
        "a machine, use model.dtype=float32, or another results= folder"
    )
