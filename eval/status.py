"""How far the runs in a results folder are: `python -m eval.status [RESULTS] [--subsets english] [--watch]`.

All is read from the store: what is answered, what each run set out to answer, and what answers have cost. A method at
a budget is to have what its own runs set out to answer, and the subsets named with --subsets.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import fmean

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from eval.console.errors import Parser, UserError, command
from eval.inputs import subsets
from eval.inputs.examples import Shard
from eval.keeping import store

FRESH = 600.0  # seconds since its last answer in which a process counts as running

Counted = tuple[int, float | None, float | None]  # answers, their mean seconds of prefill, and of what comes after it


@dataclass(frozen=True)
class Plan:
    """What one process set out to answer: examples by subset, all shards together, and which shard is its own."""

    sizes: dict[str, int]
    shard: str | None

    def share(self, subset: str) -> int:
        """How many examples of the subset are its own."""
        shard = Shard.of(self.shard)
        return len(range(self.sizes.get(subset, 0))[shard.part :: shard.parts])


@dataclass(frozen=True)
class Progress:
    """One method and budget on one subset.

    running: processes that stored an answer here lately and have more to do. prefill, own: mean seconds of an example's
    prefill, which all methods share, and of this method's selection and decoding; None without any answer.
    """

    model: str  # DATA/MODEL, as in the store
    cell: str
    subset: str
    done: int
    expected: int
    running: int
    prefill: float | None
    own: float | None

    @property
    def missing(self) -> int:
        return max(0, self.expected - self.done)


def progress(results: Path, wanted: Sequence[str] = ()) -> list[Progress]:
    """Return what is done of every method and budget on every subset, those in `wanted` included.

    Raises UserError if there are no answers, or a folder of the store is damaged.
    """
    models: dict[Path, list[Path]] = defaultdict(list)
    for manifest in sorted(results.glob("*/*/*/manifest.json")):
        store.stored_identity(manifest.parent)  # refuses a foreign folder
        models[manifest.parent.parent].append(manifest.parent)
    if not models:
        raise UserError(f"{results} holds no stored answers; name the folder that runs were given by results=")
    return [line for model, folders in models.items() for line in _of_model(model, folders, wanted)]


def seconds_left(lines: Sequence[Progress]) -> float | None:
    """Estimate the seconds that one process needs for what these lines of one model lack; None if nothing is known.

    A subset's examples cost what its stored ones cost on average, or those of all subsets if it has none.
    """
    prefills = [line.prefill for line in lines if line.prefill is not None]
    owns = [line.own for line in lines if line.own is not None]
    if not prefills or not owns:
        return None
    total = 0.0
    for name in {line.subset for line in lines}:
        group = [line for line in lines if line.subset == name]
        known = [line.prefill for line in group if line.prefill is not None]
        total += max(line.missing for line in group) * fmean(known or prefills)
        total += sum(line.missing * (fmean(owns) if line.own is None else line.own) for line in group)
    return total


def render(lines: Sequence[Progress]) -> Group:
    """Tables for a terminal, one a model, methods and budgets that stand alike in one row."""
    return Group(*(part for name in dict.fromkeys(line.model for line in lines) for part in _table(name, lines)))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status, 1 with one line on stderr for wrong input."""
    parser = Parser(prog="python -m eval.status", description="How far the stored runs are.")
    parser.add_argument("results", nargs="?", type=Path, default=Path("results"), help="folder of the stored answers")
    parser.add_argument("--subsets", default="", metavar="NAME,...", help="subsets or groups that are to be answered")
    parser.add_argument(
        "--watch", nargs="?", type=float, const=5.0, metavar="SECONDS", help="go on until nothing is missing"
    )
    try:
        return command(parser, arguments, _print)
    except KeyboardInterrupt:
        return 130


def _print(options: argparse.Namespace) -> None:
    wanted = subsets.expand(options.subsets.split(",")) if options.subsets else ()
    if options.watch is None:
        Console().print(render(progress(options.results, wanted)))
    else:
        _watch(options.results, wanted, options.watch)


def _watch(results: Path, wanted: Sequence[str], seconds: float) -> None:
    if not seconds > 0:
        raise UserError(f"--watch {seconds:g}: give the seconds between two looks, more than 0")
    with Live(auto_refresh=False) as live:
        while True:
            lines = progress(results, wanted)
            live.update(render(lines), refresh=True)
            if not any(line.missing for line in lines):
                return
            time.sleep(seconds)


def _of_model(model: Path, folders: Sequence[Path], wanted: Sequence[str]) -> Iterator[Progress]:
    plans = {folder: _plans(folder) for folder in folders}
    found = {folder: _found(folder) for folder in folders}
    done = {folder: {name: counted[0] for name, counted in found[folder].items()} for folder in folders}
    own = {folder: _largest([done[folder], *(plan.sizes for plan in plans[folder].values())]) for folder in folders}
    asked = _asked(wanted, _largest(own.values()))
    labels = [folder.name.rpartition("-")[0] for folder in folders]
    for folder, label in zip(folders, labels, strict=True):
        cell = label if labels.count(label) == 1 else folder.name
        for name in {**asked, **own[folder]}:
            size = max(asked.get(name, 0), own[folder].get(name, 0))
            number, prefill, seconds = found[folder].get(name, (0, None, None))
            running = _running(folder, name, plans[folder]) if number < size else 0
            about = f"{model.parent.name}/{model.name}", cell.replace("-", " "), name
            yield Progress(*about, number, size, running, prefill, seconds)


def _plans(folder: Path) -> dict[str, Plan]:
    """What the processes of a folder set out to do, by the random names that they drew."""
    plans: dict[str, Plan] = {}
    for path in folder.glob("runs/*.json"):
        try:
            made_by = json.loads(path.read_text(encoding="utf-8"))
            sizes = {subsets.load(name).name: int(size) for name, size in made_by["examples"].items()}
            shard = made_by.get("config", {}).get("shard")
            plans[path.stem] = Plan(sizes, None if shard is None else str(shard))
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            continue  # only the plan is lost, not an answer
    return plans


def _found(folder: Path) -> dict[str, Counted]:
    """What is stored of each subset in a folder."""
    files = {name: store.parts(folder, name) for name in store.stored_subsets(folder)}
    return {name: _counted(folder, name, tuple(path.stat().st_size for path in own)) for name, own in files.items()}


def _asked(wanted: Sequence[str], known: Mapping[str, int]) -> dict[str, int]:
    """How many examples the subsets named by hand have: the official number, or what a run of the model set out for.

    A synthetic task that no run has begun is taken to have as many as the largest subset known.
    """
    usual = max(known.values(), default=0)
    return {name: max(subsets.load(name).records or 0, known.get(name, 0)) or usual for name in wanted}


def _largest(several: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """The largest of several numbers by name."""
    most: dict[str, int] = {}
    for numbers in several:
        for name, number in numbers.items():
            most[name] = max(number, most.get(name, 0))
    return most


@cache
def _counted(folder: Path, subset: str, sizes: tuple[int, ...]) -> Counted:
    """Count the answers and average their costs; `sizes` of the files tell whether anything was added."""
    answers = store.stored(folder, subset).values()
    prefills = [answer["prefill_seconds"] for answer in answers if "prefill_seconds" in answer]
    owns = [answer["selection_seconds"] + answer["decode_seconds"] for answer in answers if "decode_seconds" in answer]
    return len(answers), fmean(prefills) if prefills else None, fmean(owns) if owns else None


def _running(folder: Path, subset: str, plans: Mapping[str, Plan]) -> int:
    """Count the processes that answered lately and whose shard lacks answers yet."""
    files = [(path, plans.get(path.name.split(".")[1])) for path in store.parts(folder, subset)]
    stored: dict[str | None, set[str]] = defaultdict(set)  # by shard: an earlier process may have begun it
    for path, plan in files:
        if plan:
            stored[plan.shard] |= _ids(path, path.stat().st_size)
    return sum(
        time.time() - path.stat().st_mtime < FRESH and (plan is None or len(stored[plan.shard]) < plan.share(subset))
        for path, plan in files
    )


@cache
def _ids(path: Path, size: int) -> set[str]:
    """The examples that a file answers; its `size` tells whether anything was added."""
    return store.ids(path)


def _table(name: str, lines: Sequence[Progress]) -> Iterator[Table | Text]:
    lines = [line for line in lines if line.model == name]
    cells = list(dict.fromkeys(line.cell for line in lines))
    table = Table("subset", "methods and budgets", title=Text(name), title_justify="left")
    for title in ("done", "running", "missing"):
        table.add_column(title, justify="right")
    alike: dict[tuple[str, int, int, int], list[str]] = defaultdict(list)
    for line in lines:
        alike[line.subset, line.done, line.running, line.missing].append(line.cell)
    order = list(dict.fromkeys(line.subset for line in lines))
    for (subset, *numbers), group in sorted(alike.items(), key=lambda row: order.index(row[0][0])):
        who = f"all {len(cells)}" if len(group) == len(cells) > 1 else ", ".join(group)
        table.add_row(Text(subset), Text(who), *map(str, numbers))
    yield table
    yield Text(_total(lines))


def _total(lines: Sequence[Progress]) -> str:
    done, missing = sum(line.done for line in lines), sum(line.missing for line in lines)
    if not missing:
        return f"all {done} answers are stored\n"
    by_subset: dict[str, int] = defaultdict(int)
    for line in lines:
        by_subset[line.subset] = max(by_subset[line.subset], line.running)
    running, left = sum(by_subset.values()), seconds_left(lines)
    at_work = (
        f"{running} process{'es' if running > 1 else ''} answered in the last {FRESH / 60:.0f} minutes"
        if running
        else "none is running"
    )
    time_left = "" if left is None else f", about {_duration(left / max(1, running))} left"
    each = " for each" if running > 1 and left is not None else ""
    return f"{done} of {done + missing} answers are stored; {at_work}{time_left}{each}\n"


def _duration(seconds: float) -> str:
    hours, rest = divmod(round(seconds), 3600)
    return f"{hours} h {rest // 60} min" if hours else f"{rest // 60} min {rest % 60} s"


if __name__ == "__main__":
    sys.exit(main())
