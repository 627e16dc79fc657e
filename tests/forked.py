"""Runs that meet accidents, forked from one warm process so that no import is paid for twice.

python -m tests.forked FOLDER MODEL_FOLDER: leaves results in FOLDER/NAME, prints what happened as JSON.
"""

import json
import os
import random
import resource
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest import mock

import torch

from eval.answering import provenance
from eval.answering.runner import run
from eval.console import signals
from eval.console.errors import UserError
from eval.keeping.store import Store
from eval.merge import merge
from tests.test_configs import composed

GRID = ["method=[full,snapkv,echokv]", "budget=[64,96]"]
CELLS = 5
EXAMPLES = 3  # of each of the two subsets
SEEDS = 11
KILLS = 3  # per seed


def records(folder: Path) -> Path:
    """Write short records of two subsets, with text of all kinds."""
    folder.mkdir()
    for name in ("hotpotqa", "2wikimqa"):
        lines = []
        for number in range(EXAMPLES):
            filling = "some words to fill it up " * (4 + number)
            context = f"{name} {number}: naïve \u2028 “quotes” \\ 東京 \r\n{filling}"
            record = {"_id": f"{name}-{number}", "input": "Which?", "context": context, "answers": ["words"]}
            lines.append(record | {"length": 50, "dataset": name, "language": "en", "all_classes": None})
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


class Accidents:
    """Forks runs into folders below one folder."""

    def __init__(self, folder: Path, model: Path) -> None:
        self.folder = folder
        self.data = records(folder / "records")
        self.model = model

    def start(self, name: str, *more: str, before: Callable[[], Any] = lambda: None) -> int:
        """Begin a run in a process of its own: its exit status is run.py's."""
        config = composed(
            f"model.name={self.model}",
            "model.label=tiny",
            "data=jsonl",
            f"data.path={self.data}",
            f"results={self.folder / name}",
            *GRID,
            *more,
        )
        sys.stdout.flush()
        if child := os.fork():
            return child
        try:
            os.dup2(os.open(self.folder / f"{name}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND), 1)
            before()
            with signals.caught():
                run(config)
            os._exit(0)
        except signals.Interrupted as error:
            os._exit(error.status)
        except UserError:
            os._exit(1)
        except BaseException:
            traceback.print_exc()
            os._exit(99)

    def whole(self, name: str, *more: str, before: Callable[[], Any] = lambda: None) -> int:
        return ended(self.start(name, *more, before=before))


def ended(child: int) -> int:
    """The exit status of a child, negative for a signal."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def lines(results: Path) -> int:
    return sum(path.read_bytes().count(b"\n") for path in results.rglob("*.jsonl"))


def met(results: Path) -> bool:
    """Whether two processes answered the same example."""
    found = [line for path in results.rglob("full-*/*.jsonl") for line in path.read_bytes().split(b"\n")[:-1]]
    names = [json.loads(line)["_id"] for line in found]
    return len(set(names)) < len(names)


def full(limit: int) -> Callable[[], Any]:
    """No file of answers may grow beyond `limit` bytes: the kernel cuts short the write that meets it, as on a full
    disk."""
    create = Store._create

    def limited(store: Store, subset: str, made_by: dict[str, Any]) -> Path:
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        path = create(store, subset, made_by)
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
        return path

    return mock.patch.object(Store, "_create", limited).start


def jumping(seed: int) -> Callable[[], None]:
    """A wall clock that jumps by up to ten years at every look."""
    draw = random.Random(seed)
    clock = mock.Mock(wraps=datetime)
    clock.now = lambda zone: datetime.fromtimestamp(draw.uniform(0, 2e9), UTC)

    def begin() -> None:
        mock.patch.object(time, "time", side_effect=lambda: draw.uniform(0, 2e9)).start()
        mock.patch.object(provenance, "datetime", clock).start()

    return begin


def main(folder: Path, model: Path) -> dict[str, Any]:
    torch.set_num_threads(1)
    accidents = Accidents(folder, model)
    happened: dict[str, Any] = {"kills": 0, "statuses": [], "full": 0, "interrupted": [], "seconds": 0.0}
    began = time.monotonic()
    happened["statuses"].append(accidents.whole("unbroken"))
    length = time.monotonic() - began
    for seed in range(SEEDS):
        draw, kills = random.Random(seed), 0
        while kills < KILLS:
            child = accidents.start(f"killed-{seed}")
            time.sleep(draw.uniform(0, length) / 2)
            os.kill(child, signal.SIGKILL)
            if (status := ended(child)) == 0:  # the run was faster than the first one: begin anew
                shutil.rmtree(folder / f"killed-{seed}")
                length *= 0.8
            kills += status != 0
            happened["statuses"].append(status)
        happened["kills"] += kills
        happened["statuses"].append(accidents.whole(f"killed-{seed}"))
    for seed in range(3):
        pair = [accidents.start(f"pair-{seed}") for _ in range(2)]
        patience = time.monotonic() + 30
        while not met(folder / f"pair-{seed}") and time.monotonic() < patience:
            time.sleep(0.005)
        time.sleep(random.Random(seed).uniform(0, length / 4))
        os.kill(pair[seed % 2], signal.SIGKILL)
        happened["statuses"] += map(ended, pair)
        happened["statuses"].append(accidents.whole(f"pair-{seed}"))
    for name, arguments in (("one", ["shard=0/2"]), ("two", ["shard=1/2"]), ("two", ["limit=2"])):
        happened["statuses"].append(accidents.whole(name, *arguments))
    for name in ("one", "two", "one"):
        merge(folder / name, folder / "merged")
        shutil.copytree(folder / name, folder / "copied", dirs_exist_ok=True)
    happened["statuses"].append(accidents.whole("clock", "shard=0/2", before=jumping(1)))
    happened["statuses"].append(accidents.whole("clock", before=jumping(2)))
    for seed in range(3):
        draw = random.Random(seed)
        status = accidents.whole("full", before=full(draw.randint(100, 1600)))
        happened["full"] += status == 1
        happened["statuses"].append(status)
    happened["statuses"].append(accidents.whole("full"))
    for number in (signal.SIGINT, signal.SIGTERM):
        stored = lines(folder / "interrupted")
        child = accidents.start("interrupted")
        while lines(folder / "interrupted") <= stored:
            time.sleep(0.01)
        sent = time.monotonic()
        os.kill(child, number)
        happened["interrupted"].append(ended(child))
        happened["seconds"] = max(happened["seconds"], time.monotonic() - sent)
    happened["statuses"].append(accidents.whole("interrupted"))
    return happened


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]), Path(sys.argv[2]))))
