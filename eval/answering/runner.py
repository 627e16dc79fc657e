"""One run: every missing answer of every cell, with one prefill per example."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from transformers.utils.logging import disable_progress_bar

from echokv import UsageError, load_model
from echokv.graphs import check_graphs
from eval.answering.answers import Task, fitting
from eval.answering.preview import preview
from eval.answering.provenance import provenance
from eval.answering.recorder import Recorder
from eval.answering.summary import summary
from eval.console.errors import UserError
from eval.console.progress import Reporter
from eval.inputs import examples as data
from eval.inputs.asked import Asked
from eval.inputs.examples import Data, Example
from eval.inputs.protocol import Protocol
from eval.keeping.store import check_writable
from eval.planning.plan import Cell, cells


def run(config: dict[str, Any]) -> None:
    """Answer what is missing, store it, and print the table of all stored answers.

    config: the composed configuration (conf/config.yaml), resolved to plain values.
    Raises UserError for the user's mistakes and what the machine lacks; answers stored until then stay.
    """
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)  # its retries; what fails in the end is told
    inputs = data.load(config["data"], config["subset"], config["limit"], config["shard"])
    if not inputs.sizes:
        raise UserError("subset is an empty list; give a name or a group, or leave it out for all that the data has")
    protocol = Protocol.of(config)
    rows = batch_size(config["decode_rows"])
    if not isinstance(config["decode_graph"], bool):
        raise UserError(f"decode_graph is {config['decode_graph']!r}; give true or false")
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
    recorder = Recorder.of(config, grid, inputs.examples)
    unseen = f"; selections of {len(recorder.unseen)} examples to record" if recorder and recorder.unseen else ""
    print(f"{asked - left} of {asked} answers are stored, {left} to do{unseen}", file=sys.stderr)
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


def batches(todo: Sequence[tuple[Example, list[Cell]]], rows: int | None) -> Iterator[list[tuple[Example, list[Cell]]]]:
    """Examples whose answers are decoded together: one, or as many as `rows` answers make."""
    group: list[tuple[Example, list[Cell]]] = []
    for one in todo:
        if group and sum(len(lacking) for _, lacking in [*group, one]) > (rows or 0):
            yield group
            group = []
        group.append(one)
    if group:
        yield group


def answer_all(
    config: dict[str, Any],
    protocol: Protocol,
    todo: Sequence[tuple[Example, list[Cell]]],
    rows: int | None,
    inputs: Data,
    recorder: Recorder | None = None,
) -> None:
    """Load the model and answer, one example (or one batch of examples) at a time, every cell that lacks it."""
    settings = config["model"]
    disable_progress_bar()  # ours is the only one
    where = {key: settings[key] for key in ("dtype", "device", "attention", "revision", "device_map")}
    model, tokenizer = load_model(settings["name"], **where)
    if config["decode_graph"]:
        check_graphs(model)
    made_by = provenance(config, model, inputs)
    preset, undone = config["preset"]["name"], 0
    with Reporter(len(todo)) as reporter:
        for group in batches(todo, rows):
            tasks = {}
            for example, lacking in group:
                asked = Asked.of(example, protocol, model, tokenizer)
                see = recorder.watch(example, asked, tokenizer, made_by) if recorder else None
                tasks[Task(asked, lacking, see)] = example
            for task, cell, answer in fitting(list(tasks), model, rows, config["decode_graph"]):
                example = tasks[task]
                if cell is None:
                    undone += 1
                    size = len(task.asked.encoded.ids)
                    reporter.say(f"{example.id} ({size} tokens) does not fit into the device's memory: left undone")
                    continue
                answer["pred"] = tokenizer.decode(answer.pop("tokens"), skip_special_tokens=True)
                about = {"method": cell.method, "budget": cell.budget, "model": settings["label"], "preset": preset}
                cell.store.append(example.subset.name, {**example.stored, **about, **answer}, made_by)
            for example, _ in group:
                reporter.advance(example.subset.name)
    if recorder:
        recorder.complete(model, tokenizer, made_by)
    if undone:
        raise UserError(
            f"{undone} examples are left undone for lack of memory; the others are stored. Run the same command with "
            "model.device_map=auto, a smaller model.prompt_limit or a larger GPU"
        )
