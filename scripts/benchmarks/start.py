"""How long commands take that read what is stored, over the imports they cannot do without."""

from __future__ import annotations

import subprocess
import sys
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from .bench import METHODS, Bench
from .measured import Measured, Row, Unavailable, shortest

ROOT = Path(__file__).resolve().parents[2]
HELP, STORED = 2.0, 1.5
LIMIT = 5.0  # seconds after which a command is not run again


def start(bench: Bench) -> Measured:
    """Seconds of `--help`; those of each command that needs no model over those of importing pandas and Hydra.

    The answers that they read are made here, by SmolLM2 and uncounted: two short examples of two tasks, so that a table
    has errors and differences, by every method.
    """
    with TemporaryDirectory() as folder:
        stored = [f"results={folder}", "model=smollm2", "data=synthetic", "subset=[syn_fact,syn_trec]", "limit=2"]
        stored += ["data.length=512", "preset=equal_bytes", f"method=[{','.join(METHODS)}]"]
        call("run.py", *stored, "budget=64")
        own = ("--results", folder, "--model", "smollm2", "--data", "synthetic")
        commands = {
            "python run.py, all stored": ("run.py", *stored, "budget=64"),
            "eval.tables": ("-m", "eval.tables", "table3", *own),
            "eval.compare": ("-m", "eval.compare", *own),
            "eval.show": ("-m", "eval.show", *own),
            "eval.status": ("-m", "eval.status", folder),
            "eval.figures, nothing drawn": ("-c", "import eval.figures"),
        }
        needed = quickest("-c", "import pandas, hydra")
        rows = [
            Row(f"{name} / import pandas, hydra", quickest(*command) / needed, STORED)
            for name, command in commands.items()
        ]
    library = quickest("-c", "import echokv") / quickest("-c", "import torch")
    help_shown = Row("python run.py --help, seconds", quickest("run.py", "--help"), HELP)
    return Measured(
        [help_shown, Row("import pandas, hydra: seconds", needed), *rows, Row("import echokv / torch", library)]
    )


def quickest(*arguments: str) -> float:
    """Seconds of a command, the shortest of three; the first, which reads files into memory, may count only if slow."""
    return shortest(partial(call, *arguments), 3, LIMIT)


def call(*arguments: str) -> None:
    """Run this Python in the repository's folder. Raises Unavailable with the command's last line if it fails."""
    done = subprocess.run([sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        said = done.stderr.strip().splitlines()[-1:] or [f"exit status {done.returncode}"]
        raise Unavailable(f"python {' '.join(arguments[:3])} failed ({said[0][:160]})")
