"""Single examples as the page's data: every cell's answer and score, prompts, and which tokens were kept."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pandas as pd

from eval.keeping import selections
from eval.report.numbers import name_of, ordered, plain
from eval.tables.collect import Run
from eval.tables.naming import FRAME, key_of
from eval.tables.options import Selected

SHOWN = (
    "pred", "score", "new_tokens", "entries", "bytes",
    "prefill_seconds", "selection_seconds", "decode_seconds", "alone",
)  # fmt: skip


def scores(selected: Selected) -> dict[str, dict[str, Any]]:
    """Per task its examples in order and each cell's scores of them, None where there is no answer."""
    found = {}
    for name, part in selected.scored.groupby("subset", sort=False):
        ids = list(dict.fromkeys(part["_id"]))
        grid = {cell: list(map(plain, own["score"].reindex(ids))) for cell, own in _by_cell(part)}
        found[str(name)] = {"ids": ids, "scores": grid}
    return found


def examples(selected: Selected, subset: str) -> dict[str, Any]:
    """The examples of a task: what is asked of all cells, and per cell what it answered (`SHOWN`)."""
    part = selected.scored[selected.scored["subset"] == subset]
    first = part.drop_duplicates("_id").set_index("_id")
    ids = list(first.index)
    about = [
        {
            "id": name,
            "answers": list(row["answers"]),
            "length": plain(row["length"]),
            "tokens": plain(row.get("prompt_tokens")),
            "truncated": bool(row.get("truncated")),
        }
        for name, row in zip(ids, first.to_dict("records"), strict=True)
    ]
    answers = {}
    for cell, own in _by_cell(part):
        known = own.to_dict("index")
        answers[cell] = [[_shown(known[name], field) for field in SHOWN] if name in known else None for name in ids]
    return {"fields": SHOWN, "examples": about, "answers": answers}


def recorded(selected: Selected, subset: str, ids: Sequence[str]) -> Iterator[tuple[str, int, dict[str, Any], Run]]:
    """Stored selections of a task, for the answers' very texts: cell, place of the example in `ids`, row and run."""
    place = {name: number for number, name in enumerate(ids)}
    part = selected.scored[selected.scored["subset"] == subset]
    texts = dict(zip(part["_id"], part["fingerprint"], strict=True))
    for run in selected.answers.runs:
        for name, row in selections.rows(run.folder, subset).items():
            if texts.get(name) == row["fingerprint"]:
                yield name_of(run.key), place[name], row, run


def prompt(run: Run, digest: str) -> dict[str, Any]:
    """A prompt as pieces, one a token, and its evidence as half-open token ranges."""
    found = selections.prompt(run.folder, digest)
    return {"pieces": found.pieces, "evidence": found.evidence}


def _by_cell(part: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    groups = {key_of(*key): own for key, own in part.groupby(FRAME, dropna=False, sort=False)}
    for key in ordered(list(groups)):
        yield name_of(key), groups[key].set_index("_id")


def _shown(row: dict[str, Any], field: str) -> Any:
    if field == "alone":
        return row.get(field) is True  # of older answers, and of those decoded in a batch, the seconds are no row's own
    return row[field] if field == "pred" else plain(row[field])
