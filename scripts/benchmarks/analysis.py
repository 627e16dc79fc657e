"""What the analyses cost beside one answer, and what half precision changes about answers decoded together."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import fmean
from typing import Any

import torch

from .bench import METHODS, Bench, composed, load, run
from .measured import Measured, Row, Unavailable, shortest, trim

ANALYSIS = 2.5
LEAST = 512  # tokens of the shortest synthetic prompt
TASKS = ("syn_fact", "syn_code")


def analysis(bench: Bench) -> Measured:
    """Table 1's measurement of one synthetic example over one EchoKV answer to it, each with its prefill."""
    from eval.analysis import overlap  # here, for pandas would count for every peak of memory measured before
    from eval.analysis.settings import typed
    from eval.analysis.study import Study, case
    from eval.inputs.asked import Asked
    from eval.planning.plan import union_of_needs

    tokenizer, budget = _tokenizer(bench, "analysis"), bench.budgets[0]
    chosen = [f"data.length={max(LEAST, bench.length)}", "subset=syn_fact", "limit=1", "data.records=1"]
    config = composed(bench.options, "experiment=table1", "data=synthetic", *chosen, f"budget={budget}")
    assert config.analysis is not None
    study = Study.of(config, typed(config.analysis))
    (example,) = study.examples
    echokv = [cell for cell in bench.cells(["echokv"]) if cell.budget == budget]

    def measure() -> None:
        made = case(study, example, bench.model, tokenizer, union_of_needs(study.grid))
        overlap.measure(made, study.lookaheads(), budget)

    def answer() -> None:
        run(Asked.of(example, study.plan.protocol, bench.model, tokenizer), echokv, bench.model, bench.record)

    trim()
    ratio = shortest(measure) / shortest(answer)
    return Measured([Row("Table 1's measurement of one example / one EchoKV answer to it", ratio, ANALYSIS)])


def halves(bench: Bench) -> Measured:
    """In bfloat16: how many answers decoded as one batch are those decoded alone, and what that does to scores."""
    from eval.inputs.asked import Asked
    from eval.scoring.rows import points

    tokenizer = _tokenizer(bench, "halves")
    model = bench.model
    if model.dtype not in (torch.float16, torch.bfloat16):
        model, _ = load(bench.settings, bench.options.random, "bfloat16")
    cells = [cell for cell in bench.cells(METHODS) if cell.budget in (None, bench.budgets[0])]
    agreed, differences = [], []

    def decode(tokens: list[int]) -> str:
        return str(tokenizer.decode(tokens, skip_special_tokens=True))

    for example, protocol in _examples(bench):
        asked = Asked.of(example, protocol, model, tokenizer)
        together = [answer["tokens"] for answer in run(asked, cells, model, bench.record)]
        alone = [answer["tokens"] for cell in cells for answer in run(asked, [cell], model, bench.record)]
        batched, single = (
            points(example.subset, [{**example.record, "pred": decode(one)} for one in tokens], "difflib")
            for tokens in (together, alone)
        )
        agreed += [a == b for a, b in zip(together, alone, strict=True)]
        differences += [a - b for a, b in zip(batched, single, strict=True)]
    kind = str(model.dtype).removeprefix("torch.")
    said = f"{kind}, {len(agreed)} rows of {len(agreed) // len(cells)} examples"
    return Measured(
        [
            Row(f"{said}: share whose tokens together are those alone", fmean(agreed)),
            Row(f"{said}: score together - score alone, points", fmean(differences)),
            Row(f"{said}: largest difference of a row, points", max(map(abs, differences))),
        ]
    )


def _examples(bench: Bench) -> Iterator[tuple[Any, Any]]:
    """Synthetic examples of short answers, with the protocol they are asked under."""
    from eval.planning.plan import Plan

    wanted = [f"data.length={bench.options.synthetic}", f"subset=[{','.join(TASKS)}]"]
    config = composed(bench.options, "data=synthetic", *wanted, f"data.records={bench.options.examples}")
    plan = Plan.of(config)
    for example in plan.data.examples:
        yield example, plan.protocol


def _tokenizer(bench: Bench, part: str) -> Any:
    if bench.tokenizer is None:
        raise Unavailable(f"{part} needs a tokenizer, and the model's folder has none: put one there or leave it out")
    return bench.tokenizer
