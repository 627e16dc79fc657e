"""How far stored runs are: what is answered, what each set out to answer, what runs, and how long it will take."""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import fmean

from eval.inputs import subsets
from eval.inputs.examples import Shard
from eval.keeping import reading

FRESH = 600.0  # seconds since its last answer in which a process counts as running

Counted = tuple[int, float | None, float | None]  # answers, their mean seconds of prefill, and of what comes after it


@dataclass(frozen=True)
class Plan:
    """What one process set out to answer: examples by subset, all shards together, and which shard is its own.

    process: what it noted of itself, alike in the folders of all methods and budgets that it answers for.
    """

    sizes: dict[str, int]
    shard: str | None
    process: str

    def share(self, subset: str) -> int:
        """How many examples of the subset are its own."""
        shard = Shard.of(self.shard)
        return len(range(self.sizes.get(subset, 0))[shard.part :: shard.parts])


@dataclass(frozen=True)
class Progress:
    """One method and budget on one subset.

    table: the title of what stands together. at_work: processes that stored an answer lately and now do this subset.
    prefill, own: mean seconds of an example's prefill, which all methods share, and of this method's selection and
    decoding; None without any answer.
    """

    table: str
    cell: str
    subset: str
    done: int
    expected: int
    at_work: frozenset[str]
    prefill: float | None
    own: float | None

    @property
    def running(self) -> int:
        return len(self.at_work)

    @property
    def missing(self) -> int:
        return max(0, self.expected - self.done)


def progress(tables: Mapping[str, Mapping[Path, str]], wanted: Sequence[str] = ()) -> list[Progress]:
    """Return what is done of every method and budget on every subset, those in `wanted` included.

    tables: by the title of each the folders that stand in it, and what a reader calls them.

    Raises UserError if a folder of the store is damaged.
    """
    return [line for title, rows in tables.items() for line in _of_table(title, rows, wanted)]


def has_answers(results: Path) -> bool:
    """Whether any run has stored an answer there."""
    return any(results.glob("*/*/*/manifest.json"))


def seconds_left(lines: Sequence[Progress]) -> float | None:
    """Estimate the seconds that one process needs for what these lines of one table lack; None if nothing is known.

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


def _of_table(title: str, rows: Mapping[Path, str], wanted: Sequence[str]) -> Iterator[Progress]:
    plans = {folder: _plans(folder) for folder in rows}
    found = {folder: _found(folder) for folder in rows}
    done = {folder: {name: counted[0] for name, counted in found[folder].items()} for folder in rows}
    own = {folder: _largest([done[folder], *(plan.sizes for plan in plans[folder].values())]) for folder in rows}
    asked = _asked(wanted, _largest(own.values()))
    for folder, cell in rows.items():
        at_work = _at_work(folder, plans[folder])
        for name in {**asked, **own[folder]}:
            size = max(asked.get(name, 0), own[folder].get(name, 0))
            number, prefill, seconds = found[folder].get(name, (0, None, None))
            running = frozenset(at_work.get(name, ())) if number < size else frozenset()
            yield Progress(title, cell, name, number, size, running, prefill, seconds)


def _plans(folder: Path) -> dict[str, Plan]:
    """What the processes of a folder set out to do, by the random names that they drew."""
    plans: dict[str, Plan] = {}
    for path in folder.glob("runs/*.json"):
        try:
            text = path.read_text(encoding="utf-8")
            made_by = json.loads(text)
            sizes = {subsets.load(name).name: int(size) for name, size in made_by["examples"].items()}
            shard = made_by.get("config", {}).get("shard")
            plans[path.stem] = Plan(sizes, None if shard is None else str(shard), text)
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            continue  # only the plan is lost, not an answer
    return plans


def _found(folder: Path) -> dict[str, Counted]:
    """What is stored of each subset in a folder."""
    files = {name: reading.parts(folder, name) for name in reading.stored_subsets(folder)}
    return {name: _counted(folder, name, tuple(path.stat().st_size for path in own)) for name, own in files.items()}


def _asked(wanted: Sequence[str], known: Mapping[str, int]) -> dict[str, int]:
    """How many examples the subsets named by hand have: the official number, or what a run of the table set out for.

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
    answers = reading.stored(folder, subset).values()
    prefills = [answer["prefill_seconds"] for answer in answers if "prefill_seconds" in answer]
    owns = [answer["selection_seconds"] + answer["decode_seconds"] for answer in answers if "decode_seconds" in answer]
    return len(answers), fmean(prefills) if prefills else None, fmean(owns) if owns else None


def _at_work(folder: Path, plans: Mapping[str, Plan]) -> dict[str, set[str]]:
    """By subset, the processes that answered lately and now do it: the first of their plan that lacks answers.

    So between two subsets, while the next one's first answer takes its time, a process is at work on the next.
    """
    files: dict[str, list[tuple[str, Path]]] = defaultdict(list)
    answered: dict[tuple[str | None, str], set[str]] = defaultdict(
        set
    )  # by shard: an earlier process may have begun it
    for subset in reading.stored_subsets(folder):
        for path in reading.parts(folder, subset):
            run = path.name.split(".")[1]
            files[run].append((subset, path))
            if run in plans:
                answered[plans[run].shard, subset] |= _ids(path, path.stat().st_size)
    found: dict[str, set[str]] = defaultdict(set)
    for run, own in files.items():
        age, latest = min((time.time() - path.stat().st_mtime, subset) for subset, path in own)
        if age >= FRESH:
            continue
        plan = plans.get(run)
        if plan is None:
            found[latest].add(run)
        elif lacking := [name for name in plan.sizes if len(answered[plan.shard, name]) < plan.share(name)]:
            found[lacking[0]].add(plan.process)
    return found


@cache
def _ids(path: Path, size: int) -> set[str]:
    """The examples that a file answers; its `size` tells whether anything was added."""
    return reading.ids(path)
