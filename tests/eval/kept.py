"""Stored selections as run.py leaves them, made without a model."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from eval.keeping import selections
from eval.keeping.selections import FINAL, Step
from tests.eval.stores import RUN

LAYERS, HEADS = 3, 2


def step(name: str, length: int, size: int, seed: int) -> Step:
    """Some tokens in each layer and head: `size` of `length` in the first head, fewer in the others, at least one."""
    random = np.random.default_rng(seed)
    ranks = random.permuted(np.tile(np.arange(length), (LAYERS * HEADS, 1)), axis=1)
    kept = [np.sort(row[: max(1, size - place % HEADS)]) for place, row in enumerate(ranks)]
    return Step(name, length, tuple(kept[first : first + HEADS] for first in range(0, LAYERS * HEADS, HEADS)))


def write(
    run: Path, subset: str, number: int, pieces: Sequence[str], names: Sequence[str], seed: int = 0
) -> list[Step]:
    """Store the steps of one answer of a run and the prompt; returns them. The first three tokens are evidence."""
    steps = [step(name, len(pieces), max(1, len(pieces) // 4), seed + place) for place, name in enumerate(names)]
    size = len(pieces) if run.name.startswith("full") else max(1, len(pieces) // 8)
    found = [*steps, step(FINAL, len(pieces), size, seed + 9)]
    row = {"_id": f"{subset}-{number}", "fingerprint": f"f{number}", "prompt": f"p{number}"}
    row |= {"prompt_tokens": len(pieces), "steps": [selections.pack(one) for one in found]}
    folder = selections.folder(run)
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f"{subset}.{RUN}.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps(row) + "\n")
    prompts = folder.parent / selections.PROMPTS
    prompts.mkdir(exist_ok=True)
    content = {"pieces": list(pieces), "evidence": [[0, 3]]}
    (prompts / f"p{number}.json").write_text(json.dumps(content), encoding="utf-8")
    return found
