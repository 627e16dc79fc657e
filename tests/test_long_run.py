"""A long run needs no more memory and no more open files at its end than at its beginning."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.tiny import write

ROOT = Path(__file__).parent.parent
EXAMPLES = 2000
WARM = 500  # examples after which allocators and caches have what they need
GROWTH = 1.05

WATCHED = """
import json, os, sys
import torch
from eval.console import progress
from eval.answering import runner
from tests.test_configs import composed

torch.set_num_threads(1)
seen = []
advance = progress.Reporter.advance

def watched(self, name):
    advance(self, name)
    pages = int(open("/proc/self/statm").read().split()[1])
    seen.append((pages, len(os.listdir("/proc/self/fd"))))

progress.Reporter.advance = watched
runner.run(composed(*sys.argv[1:]))
print(json.dumps(seen))
"""


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> list[list[int]]:
    """Resident pages and open files after each example."""
    if not Path("/proc/self/statm").exists():
        pytest.skip("needs Linux's /proc")
    folder = tmp_path_factory.mktemp("long")
    model = write(folder / "model")
    settings: dict[str, Any] = json.loads((model / "generation_config.json").read_text())
    settings["eos_token_id"] = list(range(259))  # every answer ends with its first token
    (model / "generation_config.json").write_text(json.dumps(settings))
    for part, subset in enumerate(("hotpotqa", "musique", "qasper", "samsum")):
        with (folder / f"{subset}.jsonl").open("w") as records:
            for number in range(EXAMPLES // 4):
                context = f"record {number} " + "word " * (5 + number % 7)
                record = {"_id": f"{part}-{number}", "input": "?", "context": context, "answers": ["word"]}
                record |= {"length": 9, "dataset": subset, "language": "en", "all_classes": None}
                records.write(json.dumps(record) + "\n")
    command = [sys.executable, "-c", WATCHED, f"model.name={model}", "model.label=tiny", "preset.min_length=none"]
    command += ["data=jsonl", f"data.path={folder}", "method=[full,streamingllm]", "budget=64"]
    done = subprocess.run(
        [*command, f"results={folder / 'results'}"],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    seen: list[list[int]] = json.loads(done.stdout.splitlines()[-1])
    assert len(seen) == EXAMPLES
    return seen


def test_memory_stays_flat(watched: list[list[int]]) -> None:
    pages = [resident for resident, _ in watched]
    assert max(pages[-200:]) < GROWTH * max(pages[WARM - 200 : WARM])


def test_open_files_stay_constant(watched: list[list[int]]) -> None:
    assert len({files for _, files in watched}) == 1
