"""python -m eval.heads MODEL: measure which heads matter and write a file of scores for method=headkv.

MODEL is one of conf/model; settings may follow as for run.py: python -m eval.heads mistral data.records=50
"""

from __future__ import annotations

import sys

from eval.analysis.__main__ import start
from eval.console.called import called
from eval.console.errors import UserError
from eval.console.mistakes import command


def begin() -> None:
    """Put the words into the analysis's form. Raises UserError if the first names no model."""
    words = sys.argv[1:]
    if not words or "=" in words[0].removeprefix("model=") or words[0].startswith("-"):
        raise UserError(f"name a model first: {called('heads')} smollm2")
    sys.argv[1:] = ["heads", f"model={words[0].removeprefix('model=')}", *words[1:]]
    start()


def main() -> int:
    """Run the command line; returns the exit status."""
    return command(begin)


if __name__ == "__main__":
    sys.exit(main())
