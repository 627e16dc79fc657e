"""What `cache=kvquant_c` knows of a model beforehand: ranges of key channels, and the points that its codes name.

After KVQuant (Hooper et al., NeurIPS 2024, sections 3.1 to 3.3), without Fisher weights: the points are those of least
squared distance to the numbers within their ranges, all of equal weight. The same sequences are read twice: the first
time for the ranges, then numbers in units of their ranges are counted in fine bins, from which the best points follow.
Nothing is drawn at random.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import Any

import pandas as pd
import torch
from jaxtyping import Float, Int
from torch import Tensor

from echokv import Prefill, UsageError, load_tokenizer, prefill
from echokv.calibrated import Calibration
from echokv.kvquant import normal_float, outliers
from echokv.pointed import ends
from echokv.scores import accumulator
from eval.analysis import report
from eval.analysis.points import Counts, distances, points
from eval.analysis.settings import Calibrate
from eval.analysis.study import Study, loader
from eval.console.errors import UserError
from eval.console.progress import Reporter
from eval.inputs.asked import Asked
from eval.inputs.examples import by_subset
from eval.keeping.store import check_writable
from eval.planning import made_for
from eval.planning.weights import weights


def calibrate(study: Study[Calibrate]) -> None:
    """Read the text twice, then write the calibration, the note beside it and a table of errors by layer.

    Raises UserError where there is too little text, or sequences longer than the model's positions.
    """
    options = study.options
    check_writable(study.plan.results)
    try:
        texts, used = sequences(study)
        model, _ = loader(study.plan.model)()
        with Reporter(2 * len(texts)) as reporter:

            def filled(what: str) -> Iterator[Prefill]:
                for ids in texts:
                    yield prefill(model, ids)
                    reporter.advance(what)

            low, high = ranges(filled("ranges"), options)
            keys, values = counts(filled("points"), low, high, options)
        of_keys, of_values = ({int(bits): points(one, 2**bits) for bits in options.bits} for one in (keys, values))
    except UsageError as error:
        raise UserError(str(error)) from error
    except torch.OutOfMemoryError as error:
        raise UserError(
            f"{options.length} tokens do not fit into the device's memory: take analysis.length= less"
        ) from error
    _publish(study, Calibration(low, high, of_keys, of_values, options.share), keys, values, used)


def sequences(study: Study[Calibrate]) -> tuple[list[Int[Tensor, " length"]], list[str]]:
    """The prompts as the model gets them, joined and cut, and the fingerprints of those that it takes.

    First come the first examples of all tasks, then the second ones. Raises UserError where there are too few.
    """
    options, plan = study.options, study.plan
    known, tokenizer = load_tokenizer(plan.model.name, plan.model.revision)
    if options.length > (most := known.config.max_position_embeddings):
        raise UserError(f"analysis.length is {options.length}; this model has {most} positions: take no more")
    turns = zip_longest(*by_subset(study.examples).values())
    wanted, ids, used = options.sequences * options.length, list[int](), list[str]()
    for example in (one for turn in turns for one in turn if one):
        if len(ids) < wanted:
            ids += Asked.of(example, plan.protocol, known, tokenizer).encoded.ids
            used.append(example.fingerprint)
    if len(ids) < wanted:
        raise UserError(
            f"the {len(used)} prompts have {len(ids):,} tokens, and {options.sequences} sequences of {options.length} "
            "are wanted: give more records, or take fewer by analysis.sequences="
        )
    return list(torch.tensor(ids[:wanted]).view(options.sequences, options.length)), used


def before_rope(filled: Prefill, layer: int, sinks: int) -> Float[Tensor, "G n D"]:
    """The keys of all tokens but the first ones as they are before RoPE."""
    keys = filled.keys[layer]
    to = filled.angles(layer, torch.arange(filled.length))
    return to.undo(keys.to(accumulator(keys.dtype)))[:, sinks:]


def ranges(read: Iterator[Prefill], options: Calibrate) -> tuple[Tensor, Tensor]:
    """Lowest and highest number of each key channel that is no outlier, both [layers, G, D]."""
    left_out = outliers(options.sequences * (options.length - options.sinks), options.share)
    highest: list[Tensor] = []  # of each layer the highest numbers of x and of -x, [2, G, left_out + 1, D]
    for filled in read:
        for layer in range(filled.layers):
            keys = before_rope(filled, layer, options.sinks)
            both = torch.cat([*highest[layer : layer + 1], torch.stack([keys, -keys])], dim=2)
            highest[layer : layer + 1] = [both.topk(min(left_out + 1, both.shape[2]), dim=2).values]
    high, low = torch.stack([layer[:, :, -1].cpu() for layer in highest], dim=1)
    return -low, high


def counts(read: Iterator[Prefill], low: Tensor, high: Tensor, options: Calibrate) -> tuple[Counts, Counts]:
    """Numbers of keys and of values that are no outliers, in units of half the width of their range.

    low, high: of key channels, [layers, G, D]; values have ranges by token, of one KV head each.
    """
    found = Counts.none(len(low)), Counts.none(len(low))
    for filled in read:
        for layer in range(filled.layers):
            keys = before_rope(filled, layer, options.sinks)
            lowest, highest = (part[layer][:, None].to(keys) for part in (low, high))
            found[0].add(layer, _units(keys, lowest, highest, (keys >= lowest) & (keys <= highest)))
            values = filled.values[layer][:, options.sinks :].flatten(0, 1).to(keys.dtype).T
            lowest, highest, far = ends(values, outliers(len(values), options.share))
            inside = torch.ones_like(values, dtype=torch.bool).scatter(0, far, False)
            found[1].add(layer, _units(values, lowest, highest, inside))
    return found


def _units(numbers: Tensor, low: Tensor, high: Tensor, inside: Tensor) -> Float[Tensor, " n"]:
    half = ((high - low) / 2).clamp(min=torch.finfo(numbers.dtype).tiny)
    return ((numbers - (low + high) / 2) / half)[inside]


def _publish(study: Study[Calibrate], made: Calibration, keys: Counts, values: Counts, used: Sequence[str]) -> None:
    options, plan = study.options, study.plan
    about: dict[str, Any] = {**options.model_dump(exclude={"name", "kind"}), "data": plan.data.name, "records": used}
    folder = study.place(options.name, {"analysis": options.name, **about}).folder
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "calibration.safetensors"
    made.save(path)
    made_for.note(path, weights(plan.model.name, plan.model.revision).identity, study.model, about)
    table = {"Layer": list(map(str, range(len(made.low))))}
    for bits in options.bits:
        plain = torch.tensor(normal_float(bits)).expand(len(made.low), -1)
        for kind, counted, own in (("Keys", keys, made.keys[bits]), ("Values", values, made.values[bits])):
            shares = 100 * distances(counted, own) / distances(counted, plain)
            table[f"{kind}, {bits} bits"] = [f"{share:.0f}" for share in shares.tolist()]
    caption = (
        f"Squared distance from the points that were found, in % of that from NormalFloat's: {study.described}, "
        f"{options.sequences} sequences of {options.length:,} tokens from {len(used)} prompts ({plan.data.name})."
    )
    note = "Of the numbers that the points were found for, those within their ranges; no answer was looked at."
    report.publish(folder, options.name, pd.DataFrame(table), caption, [note])
    print(f"use it with cache=kvquant_c cache.file={path}")
