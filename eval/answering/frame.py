"""A run as a data frame, for notebooks: the same answers, in the same place, as the command would make.

`from echokv.harness import evaluate` finds it wherever the harness lies.
"""

from __future__ import annotations

from typing import Any

import pandas as pd

from echokv.installed import called
from eval.answering.runner import fill
from eval.console.errors import UserError
from eval.inputs.examples import by_subset
from eval.planning.plan import Plan
from eval.scoring.memory import points
from eval.tables.chosen import settings_of

COST = ("entries", "bytes", "new_tokens", "selection_seconds")


def evaluate(*settings: str) -> pd.DataFrame:
    """Answer what is missing and return one line for each example and row, in the order of the settings.

    settings: words of run.py's command line, such as "method=[snapkv,echokv]", "budget=128", "limit=2".

    Columns: dataset, _id, method (with what tells variants apart), budget (none for FullKV), score (0 to 100), pred,
    entries and bytes stored, new_tokens, selection_seconds.

    Raises UserError for settings that are wrong or ask for no answers, and for what the machine lacks.
    """
    plan = Plan.of(settings_of(settings))
    if plan.settings.inspect is not None:
        raise UserError(f"inspect shows prompts and answers none: leave it out, or use {called()}")
    if not plan.data.examples:
        raise UserError(f"shard {plan.settings.shard} holds no example of these subsets: nothing to evaluate")
    fill(plan)
    lines: list[dict[str, Any]] = []
    for name, group in by_subset(plan.data.examples).items():
        for cell in plan.grid:
            stored = cell.store.answers(name)
            answers = [stored[example.id] for example in group]
            scores = points(plan.results / "scores", group[0].subset, answers, plan.preset.edit)
            for answer, score in zip(answers, scores, strict=True):
                about = {"dataset": name, "_id": answer["_id"], "method": cell.row, "budget": cell.budget}
                cost = {field: answer[field] for field in COST}
                lines.append({**about, "score": score, "pred": answer["pred"], **cost})
    return pd.DataFrame(lines).astype({"budget": "Int64"})
