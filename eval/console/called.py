"""How commands are called: in the repository by Python, where a wheel is installed by the command `echokv`."""

from pathlib import Path

import echokv

ROOT = Path(__file__).resolve().parents[2]
LIBRARY = Path(echokv.__file__).resolve().parent
INSTALLED = ROOT.name == "_harness"


def called(command: str = "run") -> str:
    """What to type for a command of `eval`, or for run.py."""
    if INSTALLED:
        return "echokv" if command == "run" else f"echokv {command}"
    return "python run.py" if command == "run" else f"python -m eval.{command}"
