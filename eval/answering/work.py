"""The part of a run that needs the model: what is missing is answered and stored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from echokv import UsageError, load_tokenizer
from echokv.graphs import step_recorder
from echokv.rows import Record
from eval.answering.answers import Task, fitting
from eval.answering.loading import check_model, loaded
from eval.answering.provenance import provenance
from eval.answering.recorder import Recorder
from eval.answering.sizing import shares
from eval.console.errors import UserError
from eval.console.progress import Reporter
from eval.inputs.asked import Asked
from eval.inputs.examples import Example
from eval.keeping.rounding import ROWS
from eval.planning.plan import Cell, Plan
from eval.planning.recording import Recording
from eval.planning.todo import Lacking, batches


def answer_all(plan: Plan, todo: Sequence[Lacking], recording: Recording | None = None) -> None:
    """Load the model and answer, one example (or one batch of examples) at a time, every cell that lacks it.

    Raises UserError for the user's mistakes and what the machine lacks; answers stored until then stay.
    """
    try:
        undone = _answer_all(plan, todo, recording)
    except UsageError as error:
        raise UserError(str(error)) from error
    if undone:
        raise UserError(
            f"{undone} examples are left undone for lack of memory; the others are stored. Run the same command with "
            "model.device_map=auto, a smaller model.prompt_limit or a larger GPU"
        )


def _answer_all(plan: Plan, todo: Sequence[Lacking], recording: Recording | None) -> int:
    """The number of examples that did not fit into memory."""
    # What is wrong with settings, files, template or prompt is told before weights are read.
    known, tokenizer = load_tokenizer(plan.model.name, plan.model.revision)
    check_model(plan.grid, known)
    for example, _ in todo[:1]:
        Asked.of(example, plan.protocol, known, tokenizer)
    model, tokenizer = loaded(plan.model)
    how, undone = plan.answering, 0
    made_by = provenance(plan.settings, model, plan.data)
    if how.alone:
        todo = [(example, [cell]) for example, cells in todo for cell in cells]
    parts = [(share, {**made_by, ROWS: share.rows}) for share in shares(plan, model, todo)]
    for share, noted in parts:
        for store in {id(cell): cell.store for _, cells in share.todo for cell in cells}.values():
            store.refuse_other_rounding(noted)
    recorder = Recorder(recording, plan.protocol) if recording else None
    with Reporter(sum(len(share.todo) for share, _ in parts)) as reporter:
        record = step_recorder(how.graphs, model, reporter.say)
        for share, noted in parts:
            if share.said:
                reporter.say(share.said)
            for group in batches(share.todo, share.rows):
                tasks = {}
                for example, lacking in group:
                    asked = Asked.of(example, plan.protocol, model, tokenizer)
                    see = recorder.watch(example, asked, tokenizer, made_by) if recorder else None
                    tasks[Task(asked, lacking, see)] = example
                undone += _answer(plan, tasks, model, tokenizer, noted, reporter, record)
    if recorder:
        recorder.complete(model, tokenizer, made_by)
    return undone


def _answer(
    plan: Plan,
    tasks: Mapping[Task, Example],
    model: Any,
    tokenizer: Any,
    noted: dict[str, Any],
    reporter: Reporter,
    record: Record | None,
) -> int:
    """Answer some examples together and store each answer; how many examples did not fit into memory."""
    undone = 0
    for task, cell, answer in fitting(list(tasks), model, noted[ROWS], record):
        example = tasks[task]
        if cell is None:
            undone += 1
            size = len(task.asked.encoded.ids)
            reporter.say(f"{example.id} ({size} tokens) does not fit into the device's memory: left undone")
            continue
        answer["pred"] = tokenizer.decode(answer.pop("tokens"), skip_special_tokens=True)
        cell.store.append(example.subset.name, {**_about(plan, example, cell), **answer}, noted)
    for example in tasks.values():
        reporter.advance(example.subset.name)
    return undone


def _about(plan: Plan, example: Example, cell: Cell) -> dict[str, Any]:
    """What a stored answer says of itself; `alone` that its seconds and its peak are its own."""
    about = {"method": cell.method, "budget": cell.budget, "model": plan.model.label, "preset": plan.preset.name}
    return {**example.stored, **about, **({"alone": True} if plan.answering.alone else {})}
