"""One run: every missing answer of every cell, with one prefill per example."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from transformers.utils.logging import disable_progress_bar

from echokv import Prefill, Selection, UsageError, decode_rows, load_model, prefill
from eval import examples as data
from eval.asked import Asked
from eval.errors import UserError
from eval.examples import Data, Example
from eval.measure import Meter
from eval.plan import Cell, Protocol, cells, union_of_needs
from eval.preview import preview
from eval.progress import Reporter
from eval.provenance import provenance
from eval.recorder import Recorder, See
from eval.store import check_writable
from eval.summary import summary


def run(config: dict[str, Any]) -> None:
    """Answer what is missing, store it, and print the table of all stored answers.

    config: the composed configuration (conf/config.yaml), resolved to plain values.
    Raises UserError for the user's mistakes and what the machine lacks; answers stored until then stay.
    """
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)  # its retries; what fails in the end is told
    inputs = data.load(config["data"], config["subset"], config["limit"], config["shard"])
    protocol = Protocol.of(config)
    rows = batch_size(config["decode_rows"])
    grid = cells(config, inputs, protocol)
    for warning in inputs.warnings:
        print(f"note: {warning}", file=sys.stderr)
    if not inputs.examples:
        print(f"shard {config['shard']} holds no example of these subsets: nothing to do", file=sys.stderr)
        return
    if config["inspect"] is not None:
        print(preview(config, protocol, inputs.examples))
        return
    todo = list(missing(grid, inputs.examples))
    asked = len(grid) * len(inputs.examples)
    left = sum(len(lacking) for _, lacking in todo)
    print(f"{asked - left} of {asked} answers are stored, {left} to do", file=sys.stderr)
    recorder = Recorder.of(config, grid, inputs.examples)
    try:
        if todo or (recorder and recorder.unseen):
            check_writable(Path(config["results"]))
            answer_all(config, protocol, todo, rows, inputs, recorder)
    except UsageError as error:
        raise UserError(str(error)) from error
    edit, label = config["preset"]["edit"], config["model"]["label"]
    print(summary(grid, inputs.examples, edit, label, Path(config["results"])))
    if recorder:
        print(recorder.said(), file=sys.stderr)


def batch_size(value: Any) -> int | None:
    """`decode_rows` as a number, None for auto. Raises UserError for anything else."""
    if value == "auto":
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise UserError(f"decode_rows is {value!r}; give a whole number of at least 1, or auto")
    return value


def missing(grid: Sequence[Cell], inputs: Sequence[Example]) -> Iterator[tuple[Example, list[Cell]]]:
    """The examples that some cells lack, with those cells.

    Raises UserError where an answer is stored for another text or other subset settings.
    """
    for subset, group in data.by_subset(inputs).items():
        stored = [(cell, cell.store.answers(subset)) for cell in grid]
        for example in group:
            lacking = []
            for cell, answers in stored:
                answer = answers.get(example.id)
                if answer is None:
                    lacking.append(cell)
                elif answer["fingerprint"] != example.fingerprint:
                    raise UserError(
                        f"{cell.store.folder} answers {example.id} of {subset} for another text or other subset "
                        "settings: use another results= folder"
                    )
            if lacking:
                yield example, lacking


def answer_all(
    config: dict[str, Any],
    protocol: Protocol,
    todo: Sequence[tuple[Example, list[Cell]]],
    rows: int | None,
    inputs: Data,
    recorder: Recorder | None = None,
) -> None:
    """Load the model and answer, one example at a time, every cell that lacks it."""
    settings = config["model"]
    disable_progress_bar()  # ours is the only one
    where = {key: settings[key] for key in ("dtype", "device", "attention", "revision", "device_map")}
    model, tokenizer = load_model(settings["name"], **where)
    made_by = provenance(config, model, inputs)
    preset, undone = config["preset"]["name"], 0
    with Reporter(len(todo)) as reporter:
        for example, lacking in todo:
            asked = Asked.of(example, protocol, model, tokenizer)
            try:
                see = recorder.watch(example, asked, tokenizer, made_by) if recorder else None
                for cell, answer in answers(asked, lacking, model, rows, see):
                    answer["pred"] = tokenizer.decode(answer.pop("tokens"), skip_special_tokens=True)
                    about = {"method": cell.method, "budget": cell.budget, "model": settings["label"], "preset": preset}
                    cell.store.append(example.subset.name, {**example.stored, **about, **answer}, made_by)
            except torch.OutOfMemoryError:
                torch.cuda.empty_cache()
                undone += 1
                reporter.say(
                    f"{example.id} ({len(asked.ids)} tokens) does not fit into the device's memory: left undone"
                )
            reporter.advance(example.subset.name)
    if recorder:
        recorder.complete(model, tokenizer, made_by)
    if undone:
        raise UserError(
            f"{undone} examples are left undone for lack of memory; the others are stored. Run the same command with "
            "model.device_map=auto, a smaller model.prompt_limit or a larger GPU"
        )


def answers(
    asked: Asked, grid: Sequence[Cell], model: Any, rows: int | None, see: See | None = None
) -> Iterator[tuple[Cell, dict[str, Any]]]:
    """Prefill once, select for every cell, decode all cells together; yield each cell's tokens and measurements.

    Costs that cells share are told in equal shares: a scoring among the budgets it served, a batch among its rows.
    see: called with the prefill and every cell's selection before anything is decoded; its time is nobody's.
    """
    ids = torch.tensor(asked.ids)
    with Meter() as filling:
        filled = prefill(model, ids, union_of_needs(grid), asked.stop_ids, asked.min_new_tokens)
    common = {
        "prompt_tokens": len(asked.ids),
        "truncated": asked.truncated,
        "prefill_seconds": round(filling.seconds, 4),
    }
    chosen: list[tuple[Cell, Selection, Meter, int]] = []
    for group in by_press(grid):
        with Meter() as choosing:
            selections = list(group[0].press.select_all(filled, [cell.budget for cell in group]))
        chosen += [(cell, sel, choosing, len(group)) for cell, sel in zip(group, selections, strict=True)]
    if see:
        see(filled, [(cell, selection) for cell, selection, _, _ in chosen])
    size = rows or len(chosen)
    for first in range(0, len(chosen), size):
        batch = chosen[first : first + size]
        with Meter() as decoding:
            decoded = in_batches(filled, [selection for _, selection, _, _ in batch], asked.max_new_tokens)
        for (cell, selection, choosing, share), (tokens, together) in zip(batch, decoded, strict=True):
            yield (
                cell,
                {
                    "tokens": tokens,
                    **common,
                    "new_tokens": len(tokens),
                    "entries": selection.entries,
                    "bytes": selection.bytes(filled),
                    "ties": selection.ties,
                    "selection_seconds": round(choosing.seconds / share, 4),
                    "decode_seconds": round(decoding.seconds / len(batch), 4),
                    "peak_bytes": max(filling.peak, choosing.peak, decoding.peak),
                    "rows": together,
                },
            )


def decode(filled: Prefill, selections: Sequence[Selection], n: int) -> list[list[int]]:
    """Answers of up to n tokens on each selection, as one batch or as few as memory allows."""
    return [tokens for tokens, _ in in_batches(filled, selections, n)]


def in_batches(filled: Prefill, selections: Sequence[Selection], n: int) -> list[tuple[list[int], int]]:
    """Answers with the number of rows of the batch each was decoded in; a batch too big for memory is halved.

    Raises torch.OutOfMemoryError if not even a single row fits.
    """
    try:
        found = decode_rows([filled.session(selection) for selection in selections], n)
        return [(tokens, len(selections)) for tokens in found]
    except torch.OutOfMemoryError:
        if len(selections) == 1:
            raise
    # Outside the except clause, whose traceback would keep the failed batch's tensors alive.
    torch.cuda.empty_cache()
    half = len(selections) // 2
    return in_batches(filled, selections[:half], n) + in_batches(filled, selections[half:], n)


def by_press(grid: Sequence[Cell]) -> list[list[Cell]]:
    """Cells of one method together, so that its budgets share their scoring."""
    groups: dict[str, list[Cell]] = {}
    for cell in grid:
        groups.setdefault(cell.method, []).append(cell)
    return list(groups.values())
