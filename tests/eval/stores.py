"""Folders of stored answers as run.py leaves them, made without a model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from eval.keeping.manifests import FORMAT, digest

PROTOCOL = {
    "chat": "official",
    "truncation": "template_first",
    "stop": "tokenizer",
    "min_length": "all",
    "generation": "checkpoint",
    "question": "within",
    "control_text": "token",
    "prompt_limit": 7600,
    "template_options": {},
}
CLASSES = {"trec": ["Food", "Date"], "syn_trec": ["blue whale", "plaice"]}
RIGHT = {"trec": "Food", "passage_retrieval_en": "Paragraph 7", "passage_count": "7", "lcc": "return x + 1"}
RUN = "0123456789ab"  # of the process that wrote
ENTRIES = {"full": 900_000, "echokv": 11_520}  # what a row stores; others the query heads' three-fold


def identity(method: str, budget: int | None, /, **changes: Any) -> dict[str, Any]:
    """A manifest's settings; `changes` by part: model=..., protocol=..., method=..., data=..."""
    parts: dict[str, Any] = {
        "data": {"source": "longbench", "sha256": ["ab"]},
        "model": {"name": "smollm2", "revision": None, "dtype": "float32", "attention": "sdpa"},
        "method": {"name": method, "granularity": "query_head"},
        "protocol": PROTOCOL,
    }
    return {"budget": budget} | changes | {part: values | changes.get(part, {}) for part, values in parts.items()}


def answer(subset: str, number: int, pred: str, method: str, budget: int | None, model: str) -> dict[str, Any]:
    """One line of a store; it is right if `pred` is."""
    return {
        "_id": f"{subset}-{number}",
        "pred": pred,
        "answers": [RIGHT.get(subset, "blue whale")],
        "all_classes": CLASSES.get(subset),
        "length": 1000,
        "dataset": subset,
        "fingerprint": f"f{number}",
        "method": method,
        "budget": budget,
        "model": model,
        "preset": "paper",
        "prompt_tokens": 2000,
        "truncated": False,
        "new_tokens": 4,
        "entries": ENTRIES.get(method, 34_560),
        "bytes": 512 * ENTRIES.get(method, 34_560),
        "ties": 0,
        "prefill_seconds": 1.5,
        "selection_seconds": 0.1,
        "decode_seconds": 0.2,
        "peak_bytes": 10**9,
        "rows": 7,
    }


def write(
    results: Path,
    method: str,
    budget: int | None,
    right: dict[str, list[bool]],
    /,
    *,
    label: str = "smollm2",
    source: str = "longbench",
    change: dict[str, Any] | None = None,
    **settings: Any,
) -> Path:
    """Store a run: per subset, which of its examples 0, 1, ... are answered rightly.

    change: fields to set in every answer. settings: changes of the identity by part.
    """
    about = identity(method, budget, **settings)
    name = f"{method}-{digest(about)}" if budget is None else f"{method}-{budget}-{digest(about)}"
    folder = results / source / label / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "manifest.json").write_text(json.dumps({"format": FORMAT, "identity": about}))
    for subset, marks in right.items():
        rows = [
            answer(subset, number, RIGHT.get(subset, "blue whale") if good else "no", method, budget, label)
            for number, good in enumerate(marks)
        ]
        lines = [json.dumps(row | (change or {})) + "\n" for row in rows]
        (folder / f"{subset}.{RUN}.jsonl").write_text("".join(lines))
    return folder


def pattern(good: int, n: int) -> list[bool]:
    """`good` right answers among n."""
    return [number < good for number in range(n)]
