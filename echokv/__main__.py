"""The command `echokv`: the harness where its folder is not the current one. The library itself does not know it.

`echokv model=smollm2 budget=128` is `python run.py model=smollm2 budget=128` of the repository, and
`echokv tables table3` is `python -m eval.tables table3`.
"""

import os
import sys
from difflib import get_close_matches
from importlib import import_module

from echokv.errors import UsageError
from echokv.installed import ROOT, reach

DRAWING = {"figures", "analysis", "calibrate", "heads", "report"}  # commands that draw
USAGE = """usage: echokv NAME=VALUE ...      answer, store and print a table; its settings: echokv run --help
       echokv COMMAND ...         COMMAND --help says what it takes

commands: run {commands}"""


def commands() -> dict[str, str]:
    """The commands beside run, and their modules."""
    single = {path.stem: f"eval.{path.stem}" for path in (ROOT / "eval").glob("[!_]*.py")}
    return single | {path.parent.name: f"eval.{path.parent.name}.__main__" for path in ROOT.glob("eval/*/__main__.py")}


def _fail(message: str) -> int:
    print(f"error: {message}", file=sys.stderr)
    return 1


def main() -> int:
    """Run the command line; returns the exit status, 1 with one line on stderr for wrong input."""
    known, words = commands(), sys.argv[1:]
    if words[:1] in (["--help"], ["-h"]):
        print(USAGE.format(commands=" ".join(sorted(known))))
        return 0
    named = bool(words) and words[0][:1].isalpha() and "=" not in words[0]
    command = words[0].replace("-", "_") if named else "run"
    if command not in {"run", *known}:
        close = get_close_matches(command, known)
        return _fail(
            f"unknown command '{words[0]}'; {'did you mean' if close else 'known: run,'} "
            f"{', '.join(close or sorted(known))}{'?' if close else '; settings are NAME=VALUE'}"
        )
    try:
        reach("report" if command in DRAWING else "harness")
    except UsageError as error:
        return _fail(str(error))
    # Processes that the harness starts, such as a sweep's tasks, find its modules as well.
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    sys.argv = [f"echokv {command}" if named else "echokv", *words[named:]]
    status: int = import_module(known.get(command, "run")).main()
    return status


if __name__ == "__main__":
    sys.exit(main())
