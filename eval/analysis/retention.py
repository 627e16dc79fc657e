"""Table 6: how much of the evidence the workspaces and the final caches retain (EchoKV, section 6.2).

Per example the share of evidence tokens that a selection holds, mean over layers and KV heads (query heads where a
method selects for those). Workspaces are those that `rounds` visits: W1, and W2 and so on after each refresh. Their
size is the workspace's, not the budget's. The final cache is what `select` leaves at each budget.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

from echokv import Lookahead
from echokv.decoding import alone
from eval.analysis import figures, report
from eval.analysis.settings import Retention
from eval.analysis.study import Case, Study, collect
from eval.answering.answers import by_scope
from eval.answering.together import selecting
from eval.console.errors import UserError
from eval.inputs import evidence, subsets
from eval.planning.plan import Cell
from eval.tables import paper

COLUMNS = {("laq", "W1"): "laq_w", ("echokv", "W1"): "echokv_w1", ("echokv", "W2"): "echokv_w2"}  # of the paper's


def table6(study: Study[Retention]) -> None:
    """Measure, then write both tables, the figure and every number."""
    stand_in = list(subsets.expand(study.options.stand_in))
    evidence.require(study.examples, stand_in)
    measured = collect(study, {"stand_in": sorted(stand_in)}, lambda case: measure(case, study.grid, stand_in))
    lines = flatten(measured.rows)
    rows = pd.concat([lines, _repairs(lines)], ignore_index=True)
    summary = _summary(rows)
    found = account(measured.rows)
    report.write(measured.folder, {"table6": summary, "table6_examples": rows, "table6_evidence": found})
    about = f"{study.described}, n={report.count(rows)} examples, means over examples with standard errors"
    title = f"Evidence tokens retained (%) in the workspaces: {about}; Mistral-7B's printed value in brackets."
    spaces = summary[summary["selection"] != "final"]
    if len(spaces):
        report.publish(measured.folder, "table6", _layout(spaces), title, _notes(found))
    title = f"Evidence tokens retained (%) in the final cache: {about}."
    final = _layout(summary[summary["selection"] == "final"])
    report.publish(measured.folder, "table6_final", final, title, [] if len(spaces) else _notes(found))
    figures.retention(measured.folder, summary)


def measure(case: Case, grid: Sequence[Cell], stand_in: Sequence[str]) -> dict[str, Any]:
    """Retention of every workspace and final cache; None for an example without evidence in the prompt."""
    found = evidence.locate(case.example, case.encoded, case.tokenizer, stand_in)
    about: dict[str, Any] = {"source": None, "evidence_tokens": 0, "spans": 0, "lost": 0, "retained": None}
    if found is None:
        return about
    about |= {"source": found.source, "evidence_tokens": len(found.tokens), "spans": found.spans, "lost": found.lost}
    if not found.tokens:
        return about
    filled = case.filled
    kept = []
    for group in by_scope(grid):
        press, budgets = group[0].press, [cell.budget for cell in group]
        workspaces = []
        if isinstance(press, Lookahead):
            scopes = {press.scope(budget): budget for budget in budgets if budget is not None}
            for own in scopes.values():
                shown = None if press.workspace is not None else own
                spaces = [part.workspace for part in press.rounds(filled, own)]
                workspaces += [(f"W{place}", shown, space) for place, space in enumerate(spaces, 1)]
        finals = zip(budgets, alone(selecting(press, filled, budgets)), strict=True)
        for name, budget, selection in [*workspaces, *(("final", budget, chosen) for budget, chosen in finals)]:
            share = selection.entries / (filled.layers * selection.heads * filled.length)
            kept.append(
                {
                    "method": group[0].row,
                    "selection": name,
                    "budget": budget,
                    "retained": round(evidence.retained(selection, found.tokens), 6),
                    "of_prompt": round(share, 6),
                }
            )
    return about | {"retained": kept}


def flatten(rows: Sequence[dict[str, Any]]) -> pd.DataFrame:
    """One line per example and selection, in percent. Raises UserError if all evidence was truncated away."""
    lines = [
        {"_id": row["_id"], "dataset": row["dataset"], "source": row["source"]}
        | {**kept, "retained": 100 * kept["retained"], "of_prompt": 100 * kept["of_prompt"]}
        for row in rows
        for kept in row["retained"] or ()
    ]
    if not lines:
        raise UserError("truncation took all evidence of all examples: raise model.prompt_limit or use shorter prompts")
    frame = pd.DataFrame(lines)
    frame["budget"] = frame["budget"].astype("Int64")
    return frame


def _repairs(lines: pd.DataFrame) -> pd.DataFrame:
    """What each refresh gained, on the examples in which it took place."""
    spaces = lines[lines["selection"] != "final"]
    last = max((int(name[1:]) for name in spaces["selection"]), default=1)
    keys = ["_id", "dataset", "source", "method", "budget"]
    parts = []
    for place in range(2, last + 1):
        after, before = (spaces[spaces["selection"] == f"W{which}"] for which in (place, place - 1))
        pairs = after.merge(before, on=keys, suffixes=("", "_before"))
        pairs["retained"] -= pairs["retained_before"]
        pairs["of_prompt"] -= pairs["of_prompt_before"]
        pairs["selection"] = f"W{place} - W{place - 1}"
        parts.append(pairs[[*keys, "selection", "retained", "of_prompt"]])
    return pd.concat(parts) if parts else lines.iloc[:0]


def _summary(rows: pd.DataFrame) -> pd.DataFrame:
    """Per task, and over all examples where there are several tasks; the share of the prompt that was kept beside."""
    tasks = rows if rows["dataset"].nunique() == 1 else pd.concat([rows, rows.assign(dataset="all", source="")])
    by = ["dataset", "source", "method", "selection", "budget"]
    summary = report.summarise(tasks, by, "retained")
    kept = tasks.groupby(by, sort=False, dropna=False)["of_prompt"].mean().reset_index()
    summary = summary.merge(kept, on=by, how="left")
    printed = [
        paper.cells().get(f"6:{row.dataset}:{COLUMNS.get((row.method, row.selection))}") for row in summary.itertuples()
    ]
    summary["paper"] = pd.Series(printed, dtype="float64")
    return summary


def _layout(summary: pd.DataFrame) -> pd.DataFrame:
    """One line per method and selection, one column per task, and how much of the prompt a selection holds."""
    lines = []
    for (method, selection, budget), part in summary.groupby(
        ["method", "selection", "budget"], sort=False, dropna=False
    ):
        name = report.title(method) + ("" if selection == "final" else f" {selection}")
        size = "" if pd.isna(budget) else str(budget)
        line = {"Selection": name, "Budget": size, "% of prompt": f"{part['of_prompt'].mean():.1f}"}
        for row in part.itertuples():
            printed = f" [{row.paper:.1f}]" if row.paper > 0 else ""
            line[_column(row)] = report.number(row.mean, row.error, 1) + printed
        lines.append(line)
    return pd.DataFrame(lines).fillna("")


def _column(row: Any) -> str:
    title = "All" if row.dataset == "all" else subsets.load(row.dataset).column
    return f"{title}, stand-in" if row.source == evidence.STAND_IN else title


def account(rows: Sequence[dict[str, Any]]) -> pd.DataFrame:
    """Per task and source of evidence, how much there was and what of it truncation took.

    examples: measured. without: of them, that name no evidence. spans: named by the others. truncated: spans that
    truncation cut out or into. gone: examples that lost all theirs. tokens: evidence tokens left in the prompts.
    """
    lines = [
        {
            "dataset": row["dataset"],
            "source": row["source"],
            "examples": 1,
            "without": int(row["source"] is None),
            "spans": row["spans"],
            "truncated": row["lost"],
            "gone": int(row["source"] is not None and not row["evidence_tokens"]),
            "tokens": row["evidence_tokens"],
        }
        for row in rows
    ]
    return pd.DataFrame(lines).groupby(["dataset", "source"], sort=False, dropna=False, as_index=False).sum()


def _notes(found: pd.DataFrame) -> list[str]:
    """What was left out, what was truncated away, and which evidence is a stand-in."""
    notes = []
    if without := found["without"].sum():
        notes.append(f"{without} of {found['examples'].sum()} examples name no evidence and are left out.")
    for row in found[found["truncated"] > 0].itertuples():
        gone = f"; examples that lost all of theirs and are left out: {row.gone}" if row.gone else ""
        notes.append(
            f"{_column(row)}: truncation touched {row.truncated} of {row.spans} evidence spans, which are not "
            f"counted{gone}."
        )
    if names := sorted(found.loc[found["source"] == evidence.STAND_IN, "dataset"]):
        notes.append(f"Evidence of {', '.join(names)} is a stand-in: where an answer string stands in the context.")
    return notes
