"""What a method's choice leads to on an example: its answer, the evidence it kept, and how true its choice was.

- score: of the answer, in percent, by the task's metric.
- retained: share of evidence tokens in the final cache, in percent, where the example names evidence.
- fidelity: share of the final cache, in percent, that the true queries would have put there too. They are those of
  the first `steps` steps of greedy decoding on the complete cache, together; their choice is Eq. 3's top-k without
  pooling, for each layer and head as many tokens as the method keeps. It moves where scores are too coarse to.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor

from echokv import Prefill, Selection, Session, Stretch, advance
from echokv.scores import attention_mass, sum_groups
from eval.analysis.study import Case, Load, Measured, Study, collect
from eval.answering.answers import by_scope, decode
from eval.answering.together import choose
from eval.inputs import evidence
from eval.planning.plan import Cell
from eval.scoring import official

VALUES = ("score", "retained", "fidelity")
COLUMNS = {"score": "score", "retained": "retained (%)", "fidelity": "agreement (%)"}
AXES = {"score": "score (0 to 100)", "retained": "evidence retained (%)", "fidelity": "agreement with oracle (%)"}


def outcomes(study: Study[Any], load: Load | None = None) -> tuple[pd.DataFrame, Measured]:
    """Measure what is missing; one line per example and cell, `number` being the example's place in the data.

    The study's options are those of `Outcomes`.
    """
    steps = study.options.steps
    measured = collect(study, {"steps": steps}, lambda case: measure(case, study.grid, steps), load=load)
    edit = study.plan.preset.edit
    lines = []
    for number, (example, row) in enumerate(zip(study.examples, measured.rows, strict=True)):
        record = example.record
        for cell in row["cells"]:
            points = official.score(cell["pred"], record["answers"], example.subset, record["all_classes"], edit=edit)
            about = {"_id": row["_id"], "number": number, "dataset": row["dataset"], "score": 100 * points}
            kept = {key: None if cell[key] is None else 100 * cell[key] for key in ("retained", "fidelity")}
            lines.append(about | {key: cell[key] for key in ("method", "budget", "entries")} | kept)
    frame = pd.DataFrame(lines)
    frame["budget"] = frame["budget"].astype("Int64")
    return frame.astype(dict.fromkeys(VALUES, "float64")), measured


def measure(case: Case, grid: Sequence[Cell], steps: int) -> dict[str, Any]:
    """Answers and choices of all cells; the oracle decodes once, the answers as one batch."""
    filled = case.filled
    found = evidence.locate(case.example, case.encoded, case.tokenizer, ())
    tokens = found.tokens if found else ()
    true = true_queries(filled, steps)
    groups = by_scope(grid)
    choices = choose([(filled, group[0].press, [cell.budget for cell in group]) for group in groups])
    chosen = [
        (cell, selection)
        for group, choice in zip(groups, choices, strict=True)
        for cell, selection in zip(group, choice.selections, strict=True)
    ]
    answers = decode(filled, [selection for _, selection in chosen], case.max_new_tokens)
    return {
        "evidence_tokens": len(tokens),
        "cells": [
            {
                "method": cell.row,
                "budget": cell.budget,
                "pred": case.tokenizer.decode(answer, skip_special_tokens=True),
                "entries": selection.entries,
                "retained": round(evidence.retained(selection, tokens), 6) if tokens else None,
                "fidelity": round(fidelity(selection, true, filled), 6),
            }
            for (cell, selection), answer in zip(chosen, answers, strict=True)
        ],
    }


def true_queries(filled: Prefill, steps: int) -> list[Float[Tensor, "H n D"]]:
    """Queries of the first steps of greedy decoding on the complete cache, at most to the answer's end."""
    whole = Selection.everything(filled.layers, filled.groups, filled.length)
    session = Session(filled, whole, record=True)
    advance(Stretch(session, steps))
    return session.queries


def fidelity(selection: Selection, true: Sequence[Float[Tensor, "H n D"]], filled: Prefill) -> float:
    """Share of the kept tokens that an equally large choice by the true queries holds, mean over layers and heads.

    A head that keeps nothing does not count.
    """
    shares: list[float] = []
    for layer, sizes in enumerate(selection.kept):
        mass = attention_mass(true[layer], filled.keys[layer], filled.scaling)
        if selection.heads != filled.heads:
            mass = sum_groups(mass, filled.groups)
        kept = torch.tensor(sizes, device=mass.device)
        best = mass.topk(max(sizes), dim=-1).indices  # best first
        own = torch.arange(best.shape[1], device=mass.device) < kept[:, None]
        held = (selection.held(layer).to(mass.device).gather(1, best) & own).sum(dim=1)
        shares += (held.double() / kept)[kept > 0].tolist()
    return sum(shares) / len(shares)
