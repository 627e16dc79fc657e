"""Sweeps over Slurm: what the launching process needs besides Hydra's launcher."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

from hydra.experimental.callback import Callback
from omegaconf import DictConfig

STAND_IN = Path(__file__).resolve().parents[2] / "scripts" / "slurm" / "bin"


class Accounting(Callback):  # type: ignore[misc]
    """Lets the launcher ask a stand-in for the state of its tasks where Slurm keeps no accounts.

    It asks `sacct`. Without an answer it would wait for ever for a task that was killed.
    """

    def on_multirun_start(self, config: DictConfig, **_: Any) -> None:
        if not answers():
            os.environ["PATH"] = f"{STAND_IN}{os.pathsep}{os.environ['PATH']}"


def answers() -> bool:
    """Whether Slurm's `sacct` works here."""
    try:
        asked = subprocess.run(["sacct", "--noheader", "--jobs=1"], capture_output=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return asked.returncode == 0
