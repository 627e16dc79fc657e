"""Where the harness lies, how its commands are called, and whether what it needs is installed."""

import re
import sys
from importlib import metadata
from pathlib import Path

from echokv.errors import UsageError

LIBRARY = Path(__file__).resolve().parent
INSTALLED = (LIBRARY / "_harness").is_dir()
ROOT = LIBRARY / "_harness" if INSTALLED else LIBRARY.parent  # of a wheel, of the repository
TOP = ("eval", "baselines")  # the names of its packages


def called(command: str = "run") -> str:
    """What to type for a command of `eval`, or for run.py: the repository's are Python's, a wheel has `echokv`."""
    if INSTALLED:
        return "echokv" if command == "run" else f"echokv {command}"
    return "python run.py" if command == "run" else f"python -m eval.{command}"


def reach(extra: str) -> None:
    """Let Python find the harness's modules, in front of others of their names.

    extra: the one of this package that brings what the caller needs.

    Raises UsageError where packages of it are missing, or another module of such a name has been imported.
    """
    if lacking := missing({"harness", extra}):
        raise UsageError(f"{', '.join(lacking)} not installed, which this needs: pip install 'echokv[{extra}]'")
    for name in TOP:
        file = getattr(sys.modules.get(name), "__file__", None)
        if file and not Path(file).resolve().is_relative_to(ROOT):
            raise UsageError(f"{file} has been imported as '{name}', a name that the harness needs: give it another")
    sys.path.insert(0, str(ROOT))


def missing(extras: set[str]) -> list[str]:
    """Packages that extras of this one ask for and that are not installed."""
    of_extra = re.compile(r"([\w.-]+).*;.*\bextra\s*==\s*['\"]([\w-]+)['\"]")
    lines = metadata.requires("echokv") if _installed("echokv") else None  # a checkout may be run without
    asked = [found.groups() for line in lines or () if (found := of_extra.match(line))]
    return sorted(name for name, extra in asked if extra in extras and not _installed(name))


def _installed(name: str) -> bool:
    try:
        metadata.distribution(name)
    except metadata.PackageNotFoundError:
        return False
    return True
