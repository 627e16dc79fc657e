"""Which heads find what an answer needs: importance by probes, for policies that give heads unequal budgets.

After HeadKV's R2 (Fu et al., ICLR 2025, section 3.2; its public detection code): FullKV decodes the answer to records
whose evidence is known. At each step and in each head, of the N keys of highest attention, N evidence tokens in all,
those that are evidence give what they receive, divided by N. The first step is the prompt's last token. A record
counts if the answer is right.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor

from echokv import Needs, Selection, Session, decode_rows
from echokv.scores import accumulator
from eval.analysis import report
from eval.analysis.settings import Heads
from eval.analysis.study import Case, Study, collect, loader
from eval.console.errors import UserError
from eval.inputs import evidence
from eval.planning import made_for
from eval.planning.settings import Settings
from eval.planning.weights import weights
from eval.scoring import official

LEAST = 20  # records that count
RIGHT = 50.0  # an answer is right above this score


def heads(settings: Settings, options: Heads) -> None:
    """Measure records of every length, then write the file of scores, the note beside it and a table by layer.

    Raises UserError for records without evidence, and where too few are answered or no head finds anything.
    """
    if "length" not in settings.data.own:
        raise UserError("heads makes records of several lengths: it needs data=synthetic")
    load = loader(settings.model)
    rows: list[dict[str, Any]] = []
    for length in options.lengths:
        study = Study.of(settings.of_data(length=length), options, f"{options.name}_length{length}")
        evidence.require(study.examples, [])
        rows += collect(study, {}, measure, Needs(window=1), load).rows
    right = [row for row in rows if row["heads"] is not None and row["score"] > RIGHT]
    print(f"{len(right)} of {len(rows)} records are answered and count")
    if len(right) < LEAST:
        raise UserError(
            f"{len(right)} records count, at least {LEAST} are needed: raise data.records, or take easier tasks"
        )
    scores = torch.tensor([row["heads"] for row in right], dtype=torch.float64)
    if not scores.any():
        raise UserError("no head looks at the evidence when the answer is given: nothing can be told apart")
    _publish(study, options, scores, rows, right[0]["layers"])


def measure(case: Case) -> dict[str, Any]:
    """The score of FullKV's answer, and of every head the attention on evidence, [layers, H]; None without evidence."""
    found = evidence.locate(case.example, case.encoded, case.tokenizer, [])
    filled = case.filled
    whole = Selection.everything(filled.layers, filled.groups, filled.length)
    session = Session(filled, whole, record=True)
    (tokens,) = decode_rows([session], case.max_new_tokens)
    answer = case.tokenizer.decode(tokens, skip_special_tokens=True)
    record = case.example.record
    score = 100 * official.score(answer, record["answers"], case.example.subset, record["all_classes"])
    if found is None or not found.tokens:
        return {"score": score, "layers": None, "heads": None}
    importance = []
    for layer in range(filled.layers):
        queries = [filled.last_queries(layer, 1), *([session.queries[layer]] if session.queries else [])]
        keys = [filled.keys[layer], *([session.tail_keys[layer]] if session.tail_keys else [])]
        paid = found_attention(torch.cat(queries, dim=1), torch.cat(keys, dim=1), filled.scaling, found.tokens)
        importance.append(report.rounded(paid.tolist()))
    return {"score": score, "layers": list(filled.places), "heads": importance}


def found_attention(
    queries: Float[Tensor, "H n D"], keys: Float[Tensor, "G M D"], scaling: float, tokens: Sequence[int]
) -> Float[Tensor, " H"]:
    """What each head's queries, the last of which sees all keys, pay to evidence among the N keys they look at most."""
    n, length, count = queries.shape[1], keys.shape[1], len(tokens)
    dtype = accumulator(queries.dtype)
    every = keys.to(dtype).repeat_interleave(len(queries) // len(keys), dim=0)
    logits = queries.to(dtype) @ every.mT * scaling
    columns = torch.arange(length, device=keys.device)
    last = torch.arange(length - n, length, device=keys.device)
    paid = logits.masked_fill(columns > last[:, None], -torch.inf).softmax(dim=-1)
    best = paid.topk(count, dim=-1)
    evident = torch.zeros(length, dtype=torch.bool, device=keys.device)
    evident[list(tokens)] = True
    return (best.values * evident[best.indices]).sum(dim=(1, 2)) / count


def reliability(scores: Float[Tensor, "runs layers H"]) -> tuple[float, float]:
    """Rank correlation of the heads' means over every second run with those over the others; and what it comes to for
    all runs together (Spearman and Brown)."""
    halves = pd.DataFrame({place: scores[place::2].mean(dim=0).flatten().tolist() for place in range(2)})
    half = float(halves.corr(method="spearman").iloc[0, 1])
    return half, 2 * half / (1 + half)


def _publish(
    study: Study[Heads], options: Heads, scores: Tensor, rows: list[dict[str, Any]], layers: Sequence[int]
) -> None:
    identity = weights(study.plan.model.name, study.plan.model.revision).identity
    records = [row["fingerprint"] for row in rows]
    folder = study.place(options.name, {"analysis": options.name, "records": records}).folder
    folder.mkdir(parents=True, exist_ok=True)
    path, runs = folder / "heads.json", len(scores)
    by_head = scores.permute(1, 2, 0).tolist()
    content = {
        f"{layer}-{head}": each for layer, own in zip(layers, by_head, strict=True) for head, each in enumerate(own)
    }
    path.write_text(json.dumps(content) + "\n", encoding="utf-8")
    half, whole = reliability(scores)
    about = {"records": records, "runs": runs, "halves": half, "reliability": whole}
    made_for.note(path, identity, study.model, about)
    means = scores.mean(dim=0)
    shares = 100 * means / means.sum()
    table = pd.DataFrame(
        {
            "Layer": [str(layer) for layer in layers],
            "% of all": [f"{float(own.sum()):.1f}" for own in shares],
            "Best head": [str(int(own.argmax())) for own in shares],
            "% of all, best head": [f"{float(own.max()):.1f}" for own in shares],
        }
    )
    caption = f"Importance of query heads by layer: {study.described}, {runs} of {len(rows)} records count."
    note = f"Rank correlation of two halves of these records {half:.2f}; of all, by Spearman and Brown, {whole:.2f}."
    report.publish(folder, "heads", table, caption, [note])
    print(f"use it with methods.headkv.importance={path}")
