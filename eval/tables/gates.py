"""Protocol gates: the published prompt limit, scores that a faithful run of a 7B model meets, what explains a miss.

Sources: EchoKV (arXiv 2611.05903v1), Tables 3 and 4. Table 3 was made with a software stack whose FullKV scores
on code lie 1.6 to 1.8 above those that the SnapKV and AdaKV repositories publish; both count as met.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pandas as pd

from eval.inputs import subsets
from eval.inputs.tokens import spelled
from eval.tables import paper
from eval.tables.collect import Run
from eval.tables.naming import key_in

BAND = 0.5
PROMPT_LIMIT = 31_500  # tokens at which prompts were most probably cut for Tables 3 and 4: SnapKV's and LAQ's limit
_OLDER_STACK = {"lcc": 55.33, "repobench-p": 52.87}  # Mistral, FullKV, AdaKV repository


@dataclass(frozen=True)
class Gate:
    """The band in which a method's score on a task must lie, and the likely cause if it does not."""

    method: str
    budget: int | None
    subset: str
    low: float
    high: float
    cause: str


_CHAT = "the chat rule differs (published: Mistral without a template, Qwen with it on all tasks)"
_FULL_CAUSES = {
    "multi_news": "the newline may act as a stop token",
    "samsum": "the newline stop, the first-line rule or the chat rule differs",
    "lcc": f"another edit similarity, tokenizer version or {_CHAT}",
    "repobench-p": f"another edit similarity, tokenizer version or {_CHAT}",
    "narrativeqa": f"prompts may be truncated at another length than {PROMPT_LIMIT} tokens",
}
_SELECTION = (
    Gate("snapkv", 128, "trec", 47.5, 48.0, "one selection per KV head gives 45.0; published: per query head"),
    Gate("snapkv", 128, "passage_retrieval_en", 65.7, 68.3, "one selection per KV head gives 64.5"),
    Gate("pyramidkv", 128, "trec", 66.0, 66.0, "a window of 32 gives 51.0; published: 8"),
    Gate("h2o", 128, "trec", 39.0, 39.0, "scores of all queries, not of the last 32, may be in use"),
)


def gates(model: str) -> list[Gate]:
    """Return the gates of a model, none for one that no published row exists for."""
    if model not in paper.TABLE_OF_MODEL:
        return []
    found = []
    for subset in subsets.ENGLISH:
        published = paper.score(model, "full", None, subset)
        assert published is not None, f"no published FullKV score of {subset}"
        older = _OLDER_STACK.get(subset, published) if model == "mistral" else published
        found.append(Gate("full", None, subset, older, published, _FULL_CAUSES.get(subset, _CHAT)))
    return found + (list(_SELECTION) if model == "mistral" else [])


def cut_at(cells: pd.DataFrame, runs: Sequence[Run]) -> int | None:
    """Return where LongBench's prompts were cut if not where the paper's were; all runs have one limit."""
    limit = runs[0].identity.get("protocol", {}).get("prompt_limit")
    of_longbench = cells["records"].fillna(0).gt(0).any()
    return limit if of_longbench and isinstance(limit, int) and limit != PROMPT_LIMIT else None


def other_limit(cells: pd.DataFrame, runs: Sequence[Run]) -> Iterator[str]:
    """Yield a line if LongBench's prompts were cut at another length than the paper's."""
    if limit := cut_at(cells, runs):
        yield f"Prompts were cut at {limit:,} tokens; the paper's were most probably cut at {PROMPT_LIMIT:,}."


def control_tokens(answers: pd.DataFrame) -> pd.Series:
    """Return how many control tokens the text of each record spells; answers of earlier versions do not say."""
    records = answers.drop_duplicates(["subset", "_id"])
    return records.get("control_tokens", pd.Series(0, records.index)).fillna(0)


def control_text(answers: pd.DataFrame, runs: Sequence[Run]) -> Iterator[str]:
    """Yield a line if records spell control tokens in their text: how many do, and what was made of it."""
    rule = runs[0].identity.get("protocol", {}).get("control_text")
    if said := spelled(list(control_tokens(answers)), rule):
        yield said


def question(runs: Sequence[Run]) -> Iterator[str]:
    """Yield a phrase if methods chose without the question; all runs have one protocol."""
    if runs[0].identity.get("protocol", {}).get("question") == "after":
        yield "methods choose from the context alone, the question comes after"


def warnings(cells: pd.DataFrame, runs: Sequence[Run], model: str) -> Iterator[str]:
    """Yield a line for another prompt limit than the paper's, and one for each gate not met or not tried.

    A gate is tried on all records of a task, of what is stored as it is; those of the evictions only where selection is
    per query head.
    """
    yield from other_limit(cells, runs)
    known = gates(model)
    granularity = {run.key: run.identity["method"].get("granularity") for run in runs}
    if known and not any(run.method == "full" for run in runs):
        yield "Protocol gate not tried: FullKV was not run."
    for gate in known:
        rows = cells[(cells["method"] == gate.method) & (cells["subset"] == gate.subset)]
        rows = rows[rows["budget"].isna() if gate.budget is None else rows["budget"] == gate.budget]
        for row in rows.itertuples():
            key = key_in(row)
            if not key.name.stored and (gate.budget is None or granularity[key] == "query_head"):
                yield from _tried(gate, f"{key.label} on {gate.subset}", row.score, row.n, row.records)


def _tried(gate: Gate, name: str, score: float, n: int, records: int) -> Iterator[str]:
    band = f"{gate.low:.2f}" if gate.low == gate.high else f"{gate.low:.2f} to {gate.high:.2f}"
    if n < records:
        yield f"Protocol gate not tried: {name} has {n} of {records} records."
    elif not gate.low - BAND <= score <= gate.high + BAND:
        yield f"Warning: {name} scores {score:.2f}, published {band} (band {BAND}): {gate.cause}."
