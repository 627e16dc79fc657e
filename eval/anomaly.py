"""Is it the chat template, or the generation settings? FullKV under both rules of each: `python -m eval.anomaly`.

Table 4 prints FullKV scores of 6.62 on lcc and 9.79 on repobench-p for Qwen (section 5.2). Two rules of the public
scripts are suspects. They put code and few-shot tasks into the chat template, which LongBench keeps out of it; and they
call transformers' `generate`, which applies the checkpoint's generation settings, a repetition penalty among them.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import NamedTuple

import pandas as pd

from echokv.installed import called
from eval.console.errors import Parser, UserError, command
from eval.inputs import subsets
from eval.scoring import statistics
from eval.tables import cells, collect, gates, paper
from eval.tables.build import model_name, write_files
from eval.tables.options import options, setting
from eval.tables.presets import edit_of

CODE = ("lcc", "repobench-p")
ALPHA = 0.05
FIRST = f"run {called()} -m experiment=anomaly preset.chat=all,official preset.generation=checkpoint,bare"


class Corner(NamedTuple):
    """A pair of rules: preset.chat and preset.generation."""

    chat: str
    generation: str

    def __str__(self) -> str:
        return f"{self.chat}, {self.generation}"


CORNERS = tuple(Corner(*pair) for pair in product(("all", "official"), ("checkpoint", "bare")))


@dataclass(frozen=True)
class Effect:
    """What changing one rule does while the other stays, from `off` to `on`."""

    rule: str
    on: Corner
    off: Corner
    cause: str
    held: str


EFFECTS = (
    *(
        Effect("chat template", Corner("all", kept), Corner("official", kept), "the template", held)
        for kept, held in (("checkpoint", "with the generation settings"), ("bare", "without the generation settings"))
    ),
    *(
        Effect(
            "checkpoint's generation settings", Corner(kept, "checkpoint"), Corner(kept, "bare"), "the settings", held
        )
        for kept, held in (("all", "in the chat template"), ("official", "as LongBench has the template"))
    ),
)


@dataclass(frozen=True)
class Square:
    """FullKV's scored answers at the four corners, on the tasks that all of them have.

    differences: one line per effect and task, `p_holm` corrected for all of them.
    """

    answers: dict[Corner, pd.DataFrame]
    tasks: list[str]
    scores: pd.DataFrame
    differences: pd.DataFrame
    model: str
    notes: tuple[str, ...]


def compare(chosen: argparse.Namespace) -> Square:
    """Read and compare FullKV's answers at the four corners.

    Raises:
        UserError: answers of a corner are missing, and as `eval.tables.collect`.
    """
    where = {"method.name": "full"} | dict(map(setting, chosen.where))
    runs = collect.find(chosen.results, chosen.data or "longbench", chosen.model or "qwen", where)
    names = list(subsets.expand(chosen.subset)) if chosen.subset else None
    answers = {}
    for corner in CORNERS:
        own = [run for run in runs if (_rule(run, "chat"), _rule(run, "generation")) == corner]
        if not own:
            rules = f"preset.chat={corner.chat} preset.generation={corner.generation}"
            raise UserError(f"{runs[0].folder.parent} has no FullKV answers with {rules}; {FIRST}")
        found = collect.answers(own, chosen.preset, names)
        scored = cells.scored(found.frame, chosen.edit or edit_of(found.preset), chosen.results / "scores")
        answers[corner] = scored.assign(method=str(corner), variant="")
    shared = set.intersection(*(set(part["subset"]) for part in answers.values()))
    if not shared:
        raise UserError(f"the four pairs of rules were run on different tasks; {FIRST}")
    tasks = [name for name in subsets.ENGLISH if name in shared] or sorted(shared)
    differences = pd.concat(_differences(answers, effect, tasks) for effect in EFFECTS)
    differences["p_holm"] = statistics.holm(list(differences["p"]))
    together = pd.concat(answers.values())
    notes = tuple(gates.control_text(together, runs))
    return Square(answers, tasks, cells.cells(together, tasks, ""), differences, model_name(runs[0]), notes)


def _rule(run: collect.Run, name: str) -> str | None:
    value: str | None = run.identity["protocol"].get(name)
    return value


def _differences(answers: dict[Corner, pd.DataFrame], effect: Effect, tasks: Sequence[str]) -> pd.DataFrame:
    pair = pd.concat([answers[effect.on], answers[effect.off]])
    table = cells.cells(pair, tasks, str(effect.off))
    own = table[(table["method"] == str(effect.on)) & (table["subset"] != cells.AVERAGE)]
    return own.assign(rule=effect.rule, on=str(effect.on), off=str(effect.off))


def markdown(square: Square, label: str) -> str:
    """Return scores and differences as Markdown tables, and the sentence that each pair of corners supports."""
    lines = [
        f"FullKV of {square.model} on code and few-shot tasks: chat template on all tasks or as LongBench does "
        "(official), generation settings of the checkpoint or none (bare).",
        "",
        f"| Task | n | {' | '.join(map(str, CORNERS))} | published Qwen |",
        f"| --- | ---: |{' ---: |' * len(CORNERS)} ---: |",
    ]
    scores = square.scores.set_index(["method", "subset"])
    for task in square.tasks:
        found = [scores.loc[(str(corner), task)] for corner in CORNERS]
        published = paper.score("qwen", "full", None, task)
        cells_ = [f"{one.score:.2f} ±{one.standard_error:.2f}" for one in found]
        said = "--" if published is None else f"{published:.2f}"
        lines.append(f"| {task} | {found[0].n} | {' | '.join(cells_)} | {said} |")
    lines += [
        "",
        "| Difference | Task | pairs | points | 95% interval | p, Holm |",
        "| --- | --- | ---: | ---: | ---: | ---: |",
    ]
    for row in square.differences.itertuples():
        lines.append(
            f"| ({row.on}) - ({row.off}) | {row.subset} | {row.pairs} | {row.paired_difference:+.2f} "
            f"| {row.paired_low:+.2f} to {row.paired_high:+.2f} | {row.p_holm:.4f} |"
        )
    lines += ["", *(f"{note}\n" for note in square.notes), *(f"- {sentence(square, effect)}" for effect in EFFECTS)]
    whose = "" if label == "qwen" else f"\n\nThis is {square.model}, not Qwen: for Table 4 it is an analogy."
    return "\n".join(lines) + whose + "\n"


def sentence(square: Square, effect: Effect) -> str:
    """Say what the code tasks' differences support about the low scores of Table 4."""
    rows = square.differences
    code = rows[(rows["on"] == str(effect.on)) & (rows["off"] == str(effect.off)) & rows["subset"].isin(CODE)]
    what = f"{effect.held[0].upper()}{effect.held[1:]}, the {effect.rule}"
    if code.empty:
        return f"{what}: no code task was run, so nothing is said about the scores of Table 4 on code."
    said = " and ".join(f"{row.paired_difference:+.2f} on {row.subset} (n={row.pairs})" for row in code.itertuples())
    return f"{what}: {said}; this {_verdict(square, effect, code)}."


def _verdict(square: Square, effect: Effect, code: pd.DataFrame) -> str:
    reading = f"the reading that the low FullKV scores on code come from {effect.cause}"
    if _same(square.answers[effect.on], square.answers[effect.off]):
        return f"speaks against {reading}: not one answer on code changes"
    sure, change = code["p_holm"] < ALPHA, code["paired_difference"]
    if (sure & (change < 0)).all():
        return f"supports {reading}"
    if (sure & (change > 0)).any():
        return f"speaks against {reading}"
    return f"does not decide whether the low FullKV scores on code come from {effect.cause}"


def _same(one: pd.DataFrame, other: pd.DataFrame) -> bool:
    """Whether the two answered every record of the code tasks alike."""
    pairs = one.merge(other, on=["subset", "_id"])
    pairs = pairs[pairs["subset"].isin(CODE)]
    return bool((pairs["pred_x"] == pairs["pred_y"]).all())


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status, 1 with one line on stderr for wrong input."""
    parser = Parser(prog=called("anomaly"), description="FullKV by chat and generation rule.")
    options(parser, against=False)
    return command(parser, arguments, _write)


def _write(chosen: argparse.Namespace) -> None:
    square = compare(chosen)
    text = markdown(square, chosen.model or "qwen")
    csv = pd.concat([square.scores, square.differences]).to_csv(index=False)
    write_files(chosen.results / "tables", "anomaly", {"md": text, "csv": csv})
    print(text)


if __name__ == "__main__":
    sys.exit(main())
