"""Which differences are real: `python -m eval.compare --model smollm2 --data jsonl`.

Prints the paired difference of every method against another one (LAQ) on the same examples, and which of the
paper's gains of EchoKV over LAQ examples of such spread can show at all.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from echokv.installed import called
from eval.console.errors import Parser, UserError, command, nearest
from eval.inputs import subsets
from eval.report import groups
from eval.report.groups import Group
from eval.scoring import statistics
from eval.tables import cells, gates, paper
from eval.tables.build import describe, model_name
from eval.tables.naming import Name, title
from eval.tables.options import Selected, check_against, narrowed, options, select, setting, taken

POWER, ALPHA = 0.8, 0.05
OPTIONS = ("results", "model", "data", "preset", "subset", "where", "edit", "against")


@dataclass(frozen=True)
class Gain:
    """A gain of EchoKV over LAQ that the paper's text claims."""

    model: str
    budget: int
    subset: str
    points: float
    sections: tuple[str, ...]


def claimed_gains() -> list[Gain]:
    """Return the gains of EchoKV over LAQ in scores that the text claims and the tables show, largest first."""
    printed = paper.cells()
    sections: dict[tuple[str, int, str], list[str]] = {}
    for claim in paper.claims():
        table, row, column = claim.cell.split(":")
        other = claim.other.split(":")
        method, _, budget = row.partition("@")
        if table not in ("3", "4", "5") or method != "echokv" or not other[0] or not other[1].startswith("laq"):
            continue
        model = "qwen" if table == "4" else "mistral"
        found = sections.setdefault((model, int(budget or 128), column), [])
        found += [claim.section] if claim.section not in found else []
    gains = []
    for (model, size, subset), where in sections.items():
        address = f"{paper.TABLE_OF_MODEL[model]}:{{}}@{size}:{subset}"
        points = printed[address.format("echokv")] - printed[address.format("laq")]
        if points > 0:
            gains.append(Gain(model, size, subset, float(points), tuple(where)))
    return sorted(gains, key=lambda gain: -gain.points)


def power_table(gains: Sequence[Gain], pairs: pd.DataFrame) -> pd.DataFrame:
    """Say for each gain whether examples with the spread at hand can show it, and how many would be needed.

    pairs: cells of EchoKV against LAQ (`eval.tables.cells.cells`).
    """
    errors = {
        (row.budget, row.subset): (row.paired_error, row.pairs, row.tasks)
        for row in pairs[pairs["method"] == "echokv"].itertuples()
    }
    lines = []
    for gain in gains:
        error, n, tasks = errors.get((gain.budget, gain.subset), (math.nan, 0, 0))
        line = {
            "model": gain.model, "budget": gain.budget, "task": gain.subset, "claimed in": ", ".join(gain.sections),
            "gain": f"{gain.points:+.2f}", "n": n, "detectable": "--", "needed n": "--",
        }  # fmt: skip
        if gain.subset == cells.AVERAGE and tasks not in (0, len(subsets.ENGLISH)):
            line["verdict"] = f"not judged: {tasks} of {len(subsets.ENGLISH)} tasks at hand"
        elif math.isnan(error):
            line["verdict"] = "no pairs of EchoKV and LAQ at hand"
        elif error == 0:
            line["verdict"] = "not judged: no pair differs"
        else:
            least = statistics.detectable(error, POWER, ALPHA)
            needed = math.ceil(n * statistics.times_needed(gain.points, error, POWER, ALPHA))
            line |= {"detectable": f"{least:.2f}", "needed n": f"{needed:,}"}
            line["verdict"] = "can be detected" if gain.points >= least else "too small for the data at hand"
        lines.append(line)
    return pd.DataFrame(lines)


def difference_table(compared: pd.DataFrame) -> str:
    """Return the paired differences as text, averages first."""
    made = compared[compared["p"].notna()].assign(budget=compared["budget"].fillna(0))
    made["order"] = made["subset"] != cells.AVERAGE
    lines = [
        {
            "method": Name(row.method, row.variant).title,
            "budget": row.budget or "--",
            "task": row.subset if row.order else f"{row.subset} of {row.tasks}",
            "n": row.pairs,
            "difference": f"{row.paired_difference:+.2f}",
            "95% interval": _interval(row.paired_low, row.paired_high),
            "p": f"{row.p:.4f}",
            "p, Holm": f"{row.p_holm:.4f}",
        }
        for row in sorted(
            made.itertuples(), key=lambda row: (row.order, row.budget, Name(row.method, row.variant).order)
        )
    ]
    return pd.DataFrame(lines).to_string(index=False) if lines else "no pairs at hand"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status, 1 with one line on stderr for wrong input."""
    parser = Parser(prog=called("compare"), description="Paired differences of methods.")
    parser.add_argument("settings", nargs="*", metavar="NAME=VALUE", help="the options in another form")
    options(parser)
    return command(parser, arguments, _print)


def _print(chosen: argparse.Namespace) -> None:
    """Compare the methods of each table that the options name; what makes none is told in its place."""
    if left := taken(chosen, OPTIONS):
        raise UserError(f"{left[0].partition('=')[0]!r} is no setting of this command{nearest(left[0], OPTIONS)}")
    asked = {"data": chosen.data, "model": chosen.model, "preset": chosen.preset}
    some = narrowed(groups.find(chosen.results, where=dict(map(setting, chosen.where))), asked, chosen.results)
    for group in some:
        try:
            print(_report(argparse.Namespace(**{**vars(chosen), "preset": group.preset}), group))
        except UserError as error:
            if len(some) == 1:
                raise
            print(f"{' '.join([group.data, group.model, group.preset, *group.apart])}: {error}")
        print()


def _report(chosen: argparse.Namespace, group: Group) -> str:
    selected = select(chosen, group.runs)
    scored, tasks = selected.scored, selected.tasks
    rows = {str(run.name): run.name for run in selected.answers.runs}
    check_against(chosen.against, rows.values(), default=False)
    compared = cells.cells(scored, tasks, chosen.against, intervals=False)
    whose = model_name(selected.answers.runs[0])
    coded = any(name.stored for name in rows.values())
    lines = [
        f"Each method minus {rows[chosen.against].title} on the same examples. "
        f"{describe(compared, selected, group.apart)}.",
        *(["Budgets are tokens: where rows are stored in other ways, they take other bytes."] if coded else []),
        *gates.other_limit(compared, selected.answers.runs),
        *gates.control_text(selected.scored, selected.answers.runs),
        "Intervals by bootstrap, too narrow where n is below about 20. p: sign-flip test; Holm: corrected for all",
        "averages, or for all single tasks, of this list.",
        "",
        difference_table(compared),
        "",
        "Gains of EchoKV over LAQ that the paper claims, and the least that the pairs at hand detect with power",
        f"{POWER} at p < {ALPHA} (uncorrected). Their spread is that of {whose}: a guide only for another model.",
        "needed n is of the task, for the average of all 16 together.",
        "",
    ]
    return "\n".join([*lines, _power(selected)])


def _power(selected: Selected) -> str:
    """Hold the paper's gains of EchoKV over LAQ against the spread of the examples that both have."""
    names = {run.name for run in selected.answers.runs}
    for method in ("echokv", "laq"):
        if (
            len(several := [name.title for name in sorted(names, key=lambda name: name.order) if name.method == method])
            > 1
        ):
            return f"not judged: {title(method)} has several rows ({', '.join(several)}); choose one with --where"
    two = selected.scored[selected.scored["method"].isin(("echokv", "laq"))]
    if two["method"].nunique() < 2:
        return "not judged: EchoKV and LAQ were not both run"
    pairs = cells.cells(two.assign(variant=""), selected.tasks, "laq", intervals=False)
    table = power_table(claimed_gains(), pairs)
    shown = table[table["n"] > 0]
    left = len(table) - len(shown)
    lines = [shown.to_string(index=False)] if len(shown) else []
    return "\n".join(
        [*lines, *([f"{left} more are of tasks or budgets that EchoKV and LAQ lack here"] if left else [])]
    )


def _interval(low: float, high: float) -> str:
    return "--" if math.isnan(low) else f"{low:+.2f} to {high:+.2f}"


if __name__ == "__main__":
    sys.exit(main())
