"""Table 1: how much of the true step-k query's choice the lookahead's query reproduces (EchoKV, section 3, Eq. 1).

    Overlap_k = mean over layers and KV groups of |I_B(Q) & I_B(q*_k)| / B

I_B is the top-B of Eq. 3 without pooling; q*_k are the step-k queries of a group's heads under greedy decoding on
the complete cache. Q is, read three ways: the lookahead's own step-k query ("overlap", the table's), all its
queries up to step k ("pooled"); "joint" compares the latter with all true queries up to step k.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from echokv import Lookahead, Prefill, Selection, Session, Stretch, advance
from echokv.scores import attention_mass
from echokv.selection import top_k
from eval.analysis import figures, report
from eval.analysis.settings import Overlap
from eval.analysis.study import Case, Study, collect
from eval.console.errors import UserError
from eval.scoring import statistics
from eval.tables import paper

ROWS = {"stage1_only": "frozen", "echokv": "refreshed"}  # of the paper's table
MEASURES = ("overlap", "pooled", "joint")
Masks = Bool[Tensor, "G n L"]


def table1(study: Study[Overlap]) -> None:
    """Measure, then write the table, its figure and every number."""
    presses, budget, shown = study.lookaheads(), study.budget(), _shown(study)
    measured = collect(study, {}, lambda case: measure(case, presses, budget))
    layers = flatten(measured.rows)
    rows = layers.groupby([*report.EXAMPLE, "method", "step"], sort=False, as_index=False).mean(numeric_only=True)
    longest = int(rows["step"].max())
    if max(shown) > longest:
        raise UserError(
            f"step {max(shown)} lies beyond the end of every answer, the longest has {longest} steps: ask for "
            f"analysis.shown=[1,{longest}], or decode past the end with methods.{next(iter(presses))}.eos=continue"
        )
    summary = _summary(rows)
    by_layer = report.summarise(layers.assign(measure="overlap"), ["method", "step", "layer", "measure"], "overlap")
    caption = (
        f"KV overlap with the true step-k query at budget {budget}: {study.described}, n={report.count(rows)} examples "
        f"of {', '.join(sorted(set(rows['dataset'])))}, mean over layers and KV groups, standard error over examples."
    )
    notes = _notes(study, measured.rows, presses)
    report.write(measured.folder, {"table1": summary, "table1_layers": by_layer, "table1_examples": rows})
    report.publish(measured.folder, "table1", _layout(summary, shown), caption, notes)
    figures.overlap(measured.folder, summary, by_layer)


def measure(case: Case, presses: dict[str, Lookahead], budget: int) -> dict[str, Any]:
    """Overlaps of every press at every step and layer; the oracle decodes once for all of them."""
    filled = case.filled
    true = oracle(filled, list(presses.values()))
    found: dict[str, Any] = {}
    for name, press in presses.items():
        rounds = press.rounds(filled, budget)
        fed = [token for part in rounds for token in part.tokens]
        n = min(len(fed), len(true.fed))
        grid = [
            layer_overlap(
                torch.cat([part.queries[layer] for part in rounds], dim=1)[:, :n],
                true.queries[layer][:, :n],
                filled.keys[layer],
                filled.scaling,
                min(budget, filled.length),
            )
            for layer in range(filled.layers)
        ]
        found[name] = {key: [report.rounded(layer[key]) for layer in grid] for key in MEASURES}
        found[name]["same"] = [mine == other for mine, other in zip(fed[:n], true.fed, strict=False)]
    return {"true_steps": len(true.fed), "fits": filled.length <= budget, "methods": found}


def oracle(filled: Prefill, presses: list[Lookahead]) -> Session:
    """Greedy decoding on the complete cache for as many steps as the longest lookahead, its queries recorded."""
    session = Session(filled, Selection.everything(filled.layers, filled.groups, filled.length), record=True)
    steps, stop = max(press.steps for press in presses), all(press.eos == "stop" for press in presses)
    advance(Stretch(session, steps, stop))
    return session


def layer_overlap(
    queries: Float[Tensor, "H n D"],
    true: Float[Tensor, "H n D"],
    keys: Float[Tensor, "G L D"],
    scaling: float,
    budget: int,
) -> dict[str, list[float]]:
    """Eq. 1 of one layer, per step, for the three readings of its query set."""
    own, own_pool = choices(queries, keys, scaling, budget)
    other, other_pool = choices(true, keys, scaling, budget)
    pairs = {"overlap": (own, other), "pooled": (own_pool, other), "joint": (own_pool, other_pool)}
    return {name: _shared(*pair, budget).tolist() for name, pair in pairs.items()}


def choices(
    queries: Float[Tensor, "H n D"], keys: Float[Tensor, "G L D"], scaling: float, budget: int
) -> tuple[Masks, Masks]:
    """I_B of each step's queries alone, and of those of all steps so far (Eq. 3), as masks over the prompt."""
    heads, n, dim = queries.shape
    groups, length, _ = keys.shape
    # As if every step had its own heads: their masses stay apart and each still reads its own KV head.
    apart = queries.reshape(heads * n, 1, dim)
    mass = attention_mass(apart, keys, scaling).view(groups, heads // groups, n, length).sum(dim=1)
    return mask(mass, budget), mask(mass.cumsum(dim=1), budget)


def mask(mass: Float[Tensor, "G n L"], budget: int) -> Masks:
    """The top-B of each row."""
    rows = mass.flatten(0, 1)
    indices, _ = top_k(rows, budget)
    return torch.zeros_like(rows, dtype=torch.bool).scatter_(1, indices, True).view(mass.shape)


def _shared(left: Masks, right: Masks, budget: int) -> Float[Tensor, " n"]:
    return ((left & right).sum(dim=-1).double() / budget).mean(dim=0)


def flatten(rows: list[dict[str, Any]]) -> pd.DataFrame:
    """One line per example, method, step (from 1) and layer. Raises UserError if every prompt fits the budget."""
    lines = []
    for row in (row for row in rows if not row["fits"]):
        for method, found in row["methods"].items():
            agreed = True
            for step, same in enumerate(found["same"]):
                agreed = agreed and same
                about = {"_id": row["_id"], "dataset": row["dataset"], "method": method, "step": step + 1}
                about |= {"same_token": float(same), "same_so_far": float(agreed)}
                lines += [
                    about | {"layer": layer} | {key: found[key][layer][step] for key in MEASURES}
                    for layer in range(len(found["overlap"]))
                ]
    if not lines:
        raise UserError("every prompt fits the budget, so that nothing is chosen: lower budget= or use longer prompts")
    return pd.DataFrame(lines)


def _summary(rows: pd.DataFrame) -> pd.DataFrame:
    measures = (*MEASURES, "same_token", "same_so_far")
    # Another token has another query whatever the workspace: where all tokens agree, only the workspace is at fault.
    rows = rows.assign(overlap_same_so_far=rows["overlap"].where(rows["same_so_far"] == 1))
    long = rows.melt([*report.EXAMPLE, "method", "step"], [*measures, "overlap_same_so_far"], "measure")
    summary = report.summarise(long, ["method", "step", "measure"], "value")
    published = paper.cells()
    printed = [
        published.get(f"1:{ROWS.get(line.method)}:k{line.step}") if line.measure == "overlap" else None
        for line in summary.itertuples()
    ]
    summary["paper"] = pd.Series(printed, dtype="float64")
    first, *others = dict.fromkeys(rows["method"])
    gains = [line for other in others for line in _gains(rows, first, other)]
    return pd.concat([summary, pd.DataFrame(gains)], ignore_index=True) if gains else summary


def _gains(rows: pd.DataFrame, first: str, other: str) -> list[dict[str, Any]]:
    """Paired differences from the first method, on the examples in which both reached the step."""
    table = rows.pivot(index=report.EXAMPLE, columns=["method", "step"], values="overlap")
    lines = []
    for step in sorted(set(rows["step"])):
        if (first, step) not in table or (other, step) not in table:
            continue
        pair = table[[(other, step), (first, step)]].dropna().to_numpy()
        if not len(pair):
            continue
        gain = statistics.difference([pair[:, 0]], [pair[:, 1]])
        about = {"method": f"{other} - {first}", "step": step, "measure": "overlap", "n": len(pair)}
        lines.append(about | {"mean": gain.mean, "error": gain.error, "low": gain.low, "high": gain.high, "p": gain.p})
    return lines


def _layout(summary: pd.DataFrame, shown: Sequence[int]) -> pd.DataFrame:
    """Steps as columns; under each method of ours what the paper prints for it."""
    lines = []
    for method, part in summary[summary["measure"] == "overlap"].groupby("method", sort=False):
        cells = {row.step: row for row in part.itertuples()}
        line = {f"k={k}": report.number(cells[k].mean, cells[k].error, 3) if k in cells else "" for k in shown}
        lines.append({"Workspace": " - ".join(map(report.title, str(method).split(" - ")))} | line)
        if part["paper"].notna().any():
            printed = {f"k={k}": f"{cells[k].paper:.2f}" if k in cells and cells[k].paper > 0 else "" for k in shown}
            lines.append({"Workspace": f"paper, {ROWS[str(method)]} (Mistral-7B)"} | printed)
    return pd.DataFrame(lines)


def _shown(study: Study[Overlap]) -> Sequence[int]:
    shown, longest = study.options.shown, max(press.steps for press in study.lookaheads().values())
    if max(shown) > longest:
        name = next(iter(study.lookaheads()))
        raise UserError(
            f"step {max(shown)} asked for, the lookahead makes {longest}: set methods.{name}.steps={max(shown)}"
        )
    return shown


def _notes(study: Study[Overlap], rows: list[dict[str, Any]], presses: dict[str, Lookahead]) -> list[str]:
    """What a reader must know to weigh the numbers."""
    notes = []
    if fits := sum(row["fits"] for row in rows):
        notes.append(f"Examples left out, for their prompt fits the budget: {fits}.")
    for name, press in presses.items():
        whole = sum(row["prompt_tokens"] <= (press.workspace or study.budget()) for row in rows)
        if whole:
            notes.append(f"The workspace of {report.title(name)} holds the whole prompt in {whole} of {len(rows)}.")
    short = sum(row["true_steps"] < max(press.steps for press in presses.values()) for row in rows)
    if short:
        notes.append(f"True answers that end before the last step and count up to their end only: {short}.")
    return notes
