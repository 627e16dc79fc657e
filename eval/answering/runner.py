"""One run: every missing answer of every cell, and the table of all. Loads nothing heavy where nothing is missing."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from eval.answering import announce
from eval.answering.summary import summary
from eval.console.errors import UserError
from eval.keeping.store import check_writable
from eval.planning.earlier import notes
from eval.planning.plan import Plan
from eval.planning.settings import Settings
from eval.planning.todo import missing

if TYPE_CHECKING:
    from eval.planning.recording import Recording


def run(settings: Settings) -> None:
    """Answer what is missing, store it, and print the table of all stored answers.

    Raises UserError for the user's mistakes and what the machine lacks; answers stored until then stay.
    """
    print(announce.said(settings), file=sys.stderr, flush=True)
    carry_out(Plan.of(settings))


def carry_out(plan: Plan) -> None:
    """`run`, of a plan that is made."""
    grid, examples, inspect = plan.grid, plan.data.examples, plan.settings.inspect
    for warning in (*plan.data.warnings, *notes([cell.store for cell in grid], plan.results)):
        print(f"note: {warning}", file=sys.stderr)
    if not examples:
        print(f"shard {plan.settings.shard} holds no example of these subsets: nothing to do", file=sys.stderr)
        return
    if inspect is not None:
        from eval.answering.preview import preview

        print(preview(plan.model, plan.protocol, examples[:inspect]))
        return
    recording = fill(plan)
    print(summary(grid, examples, plan.preset.edit, str(plan.model.label), plan.results))
    if recording:
        print(recording.said(), file=sys.stderr)


def fill(plan: Plan) -> Recording | None:
    """Answer what is missing and store it; what was recorded of selections, if that is asked for."""
    grid, examples = plan.grid, plan.data.examples
    if plan.settings.record.selections and plan.protocol.question == "after":
        raise UserError("record.selections shows prompts with their question: use preset.question=within")
    todo = list(missing(grid, examples, plan.answering.alone))
    asked, left = len(grid) * len(examples), sum(len(lacking) for _, lacking in todo)
    recording = None
    if plan.settings.record.selections:
        from eval.planning.recording import Recording

        recording = Recording.of(plan.results, grid, examples)
    unseen = len(recording.unseen) if recording else 0
    more = f"; selections of {unseen} examples to record" if unseen else ""
    print(f"{asked - left} of {asked} answers are stored, {left} to do{more}", file=sys.stderr)
    if todo or unseen:
        from eval.answering.work import answer_all

        check_writable(plan.results)
        answer_all(plan, todo, recording)
    return recording
