"""Table 2: position without content. How well does a query moved to step k's position choose (EchoKV, section 4.2)?

Overlap as in Eq. 1, one step k, by layer. The true query sits at position L + k - 1; each approximation is moved
there by the model's own rotation. The paper names three and says little of two of them:

- prompt: the last prompt query, as in Eq. 2.
- locked, "a real anchor query from a compressed workspace": the lookahead's first query; "locked_latest" takes the
  one before step k instead.
- linear, "linearly extrapolate query content": the straight line through the content (the query before rotation)
  of the lookahead's first two steps; "linear_prompt" draws it through the last prompt query and the first step.
- lookahead: the lookahead's own step-k query, which has both position and content, to compare with.
"""

from __future__ import annotations

from typing import Any

import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor

from echokv import Lookahead, Prefill
from eval.analysis import figures, report
from eval.analysis.overlap import layer_overlap, oracle
from eval.analysis.settings import Positions
from eval.analysis.study import Case, Study, collect, loader
from eval.console.errors import UserError
from eval.tables import paper

STRATEGIES = ("locked", "locked_latest", "linear", "linear_prompt", "prompt", "lookahead")


def table2(study: Study[Positions]) -> None:
    """Measure, then write the table, its figure and every number."""
    budget = study.budget()
    name, press = _only(study)
    step = _step(study, name, press)
    load = loader(study.plan.model)
    if study.options.layers is not None:  # better now than after the work
        layers(study, load()[0].config.num_hidden_layers)
    measured = collect(study, {"step": step}, lambda case: measure(case, press, budget, step), load=load)
    reached = [row for row in measured.rows if row["overlap"] is not None]
    if not reached:
        raise UserError(
            f"step {step} lies beyond the end of every answer whose prompt exceeds the budget: decode past the end "
            f"with methods.{name}.eos=continue, or use other data"
        )
    rows = pd.DataFrame(
        {"_id": row["_id"], "dataset": row["dataset"], "strategy": strategy, "layer": layer, "overlap": value}
        for row in reached
        for strategy, values in row["overlap"].items()
        for layer, value in enumerate(values)
    )
    summary = report.summarise(rows, ["strategy", "layer"], "overlap")
    printed = [paper.cells().get(f"2:{row.layer}:{row.strategy}") for row in summary.itertuples()]
    summary["paper"] = pd.Series(printed, dtype="float64") if step == 3 else float("nan")
    chosen = layers(study, int(rows["layer"].max()) + 1)
    caption = (
        f"KV overlap with the true query of step {step} at budget {budget}, by layer: {study.described}, "
        f"n={len(reached)} examples of {', '.join(sorted(set(rows['dataset'])))}; the workspace is that of "
        f"{report.title(name)}. Standard errors over examples; Mistral-7B's printed value in brackets."
    )
    left_out = len(measured.rows) - len(reached)
    notes = [f"Examples left out, for they end before step {step} or fit the budget: {left_out}."] if left_out else []
    report.write(measured.folder, {"table2": summary, "table2_examples": rows})
    report.publish(measured.folder, "table2", _layout(summary, chosen), caption, notes)
    figures.positions(measured.folder, summary, step)


def measure(case: Case, press: Lookahead, budget: int, step: int) -> dict[str, Any]:
    """Per strategy the overlap of each layer; None for an answer that ends before the step or a prompt that fits."""
    filled = case.filled
    rounds = press.rounds(filled, budget)
    true = oracle(filled, [press])
    steps = min(sum(len(part.tokens) for part in rounds), len(true.fed))
    if steps < step or filled.length <= budget:
        return {"overlap": None}
    found: dict[str, list[float]] = {strategy: [] for strategy in STRATEGIES}
    for layer in range(filled.layers):
        queries = torch.cat([part.queries[layer] for part in rounds], dim=1)
        approximations = moved(filled, layer, queries, step)
        stacked = torch.stack([approximations[strategy] for strategy in STRATEGIES], dim=1)
        target = true.queries[layer][:, step - 1 : step].expand_as(stacked)
        shares = layer_overlap(stacked, target, filled.keys[layer], filled.scaling, budget)["overlap"]
        for strategy, share in zip(STRATEGIES, report.rounded(shares), strict=True):
            found[strategy].append(share)
    return {"overlap": found}


def moved(filled: Prefill, layer: int, queries: Float[Tensor, "H n D"], step: int) -> dict[str, Float[Tensor, "H D"]]:
    """Each approximation of the step's query, at its position; `queries` are the lookahead's, of at least `step`."""
    target = torch.tensor([filled.length + step - 1])

    def there(index: int) -> Float[Tensor, "H D"]:
        """Content of lookahead query `index` (from 0; -1 is the last prompt query) at the target position."""
        query = filled.last_queries(layer, 1)[:, 0] if index < 0 else queries[:, index]
        return filled.rotate(layer, query, filled.length + index, target)[:, 0]

    prompt, first, second = there(-1), there(0), there(1)
    return {
        "prompt": prompt,
        "locked": first,
        "locked_latest": there(step - 2),
        # Rotation is linear: a line through contents is the same line through the contents once rotated.
        "linear": first + (step - 1) * (second - first),
        "linear_prompt": prompt + step * (first - prompt),
        "lookahead": queries[:, step - 1],
    }


def layers(study: Study[Positions], count: int) -> list[int]:
    """The layers to print: those asked for, else the first, the last and three between. Raises UserError."""
    asked = study.options.layers
    if asked is None:
        return sorted({min(count - 1, round(part * count / 4)) for part in range(5)})
    for layer in asked:
        if not 0 <= layer < count:
            raise UserError(f"analysis.layers names layer {layer!r}; {study.model} has layers 0 to {count - 1}")
    return list(asked)


def _only(study: Study[Positions]) -> tuple[str, Lookahead]:
    presses = study.lookaheads()
    if len(presses) > 1:
        raise UserError(f"table2 takes its workspace from one method, {len(presses)} given: write method=stage1_only")
    return next(iter(presses.items()))


def _step(study: Study[Positions], name: str, press: Lookahead) -> int:
    """Raises UserError for a step that the lookahead does not make."""
    step = study.options.step
    if step > press.steps:
        raise UserError(f"step {step} asked for, the lookahead makes {press.steps}: set methods.{name}.steps={step}")
    return step


def _layout(summary: pd.DataFrame, chosen: list[int]) -> pd.DataFrame:
    cells = {(row.strategy, row.layer): row for row in summary.itertuples()}
    lines = []
    for layer in chosen:
        line = {"Layer": str(layer)}
        for strategy in STRATEGIES:
            row = cells[strategy, layer]
            printed = f" [{row.paper:.3f}]" if row.paper > 0 else ""
            line[strategy.replace("_", ", ")] = report.number(row.mean, row.error, 3) + printed
        lines.append(line)
    return pd.DataFrame(lines)
