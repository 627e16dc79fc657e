"""Is it the chat template? FullKV with every task in it against LongBench's rule: `python -m eval.anomaly`.

Table 4 prints FullKV scores of 6.62 on lcc and 9.79 on repobench-p for Qwen (section 5.2). LongBench keeps code and
few-shot tasks out of the chat template; this compares answers of `preset.chat=all` with those of `official`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

import pandas as pd

from eval.console.errors import Parser, UserError, command
from eval.inputs import subsets
from eval.tables import cells, collect, paper
from eval.tables.build import model_name, write_files
from eval.tables.options import options, setting
from eval.tables.presets import edit_of

RULES = ("all", "official")
CODE = ("lcc", "repobench-p")


def compare(chosen: argparse.Namespace) -> tuple[pd.DataFrame, str]:
    """Return FullKV's cells under both chat rules, `all` compared with `official`, and the model's name.

    Raises:
        UserError: answers of a rule are missing, and as `eval.tables.collect`.
    """
    where = {"method.name": "full"} | dict(map(setting, chosen.where))
    runs = collect.find(chosen.results, chosen.data, chosen.model or "qwen", where)
    names = list(subsets.expand(chosen.subset)) if chosen.subset else None
    parts = []
    for rule in RULES:
        own = [run for run in runs if run.identity["protocol"]["chat"] == rule]
        if not own:
            raise UserError(f"{runs[0].folder.parent} has no FullKV answers with preset.chat={rule}; run make anomaly")
        answers = collect.answers(own, chosen.preset, names)
        scored = cells.scored(answers.frame, chosen.edit or edit_of(answers.preset), chosen.results / "scores")
        parts.append(scored.assign(method=rule))
    both = set(parts[0]["subset"]) & set(parts[1]["subset"])
    if not both:
        raise UserError("the two chat rules were run on different tasks; run make anomaly")
    frame = pd.concat(parts)
    tasks = [name for name in subsets.ENGLISH if name in both] or sorted(both)
    return cells.cells(frame, tasks, "official"), model_name(runs[0])


def markdown(table: pd.DataFrame, model: str, label: str) -> str:
    """Return the comparison as a Markdown table, and the sentence that it supports."""
    lines = [
        f"FullKV of {model} on code and few-shot tasks, in the chat template (all) and as LongBench does (official).",
        "",
        "| Task | n | all | official | all - official | 95% interval | p, Holm | published Qwen |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    official = table[table["method"] == "official"].set_index("subset")
    rows = table[(table["method"] == "all") & (table["subset"] != cells.AVERAGE)]
    for row in rows.itertuples():
        published = paper.score("qwen", "full", None, row.subset)
        other = official.loc[row.subset]
        fields = [
            row.subset, str(row.pairs), _score(row), _score(other), f"{row.paired_difference:+.2f}",
            f"{row.paired_low:+.2f} to {row.paired_high:+.2f}", f"{row.p_holm:.4f}",
            "--" if published is None else f"{published:.2f}",
        ]  # fmt: skip
        lines.append(f"| {' | '.join(fields)} |")
    return "\n".join([*lines, "", sentence(rows, model, label)]) + "\n"


def sentence(rows: pd.DataFrame, model: str, label: str) -> str:
    """Say what the code tasks' differences support about the low scores of Table 4.

    rows: the cells of chat rule `all`, compared with `official`.
    """
    code = rows[rows["subset"].isin(CODE)]
    if code.empty:
        return "No code task was run, so nothing is said about the scores of Table 4 on code."
    said = " and ".join(f"{row.paired_difference:+.2f} on {row.subset} (n={row.pairs})" for row in code.itertuples())
    sure = code["p_holm"] < 0.05
    if (sure & (code["paired_difference"] < 0)).all():
        verdict = "supports the reading that the low FullKV scores on code come from the template"
    elif (sure & (code["paired_difference"] > 0)).any():
        verdict = "speaks against the reading that the low FullKV scores on code come from the template"
    else:
        verdict = "does not decide whether the low FullKV scores on code come from the template"
    whose = "" if label == "qwen" else f" It is {model}'s, not Qwen's: for Table 4 it is an analogy."
    return f"The chat template changes FullKV by {said}; this {verdict}.{whose}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status, 1 with one line on stderr for wrong input."""
    parser = Parser(prog="python -m eval.anomaly", description="FullKV by chat rule.")
    options(parser, against=False)
    return command(parser, arguments, _write)


def _write(chosen: argparse.Namespace) -> None:
    table, model = compare(chosen)
    text = markdown(table, model, chosen.model or "qwen")
    write_files(chosen.results / "tables", "anomaly", {"md": text, "csv": table.to_csv(index=False)})
    print(text)


def _score(row: pd.Series) -> str:
    return f"{row.score:.2f} ±{row.standard_error:.2f}"


if __name__ == "__main__":
    sys.exit(main())
