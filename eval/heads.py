"""python -m eval.heads MODEL: measure which heads matter and write a file of scores for method=headkv.

MODEL is one of conf/model; settings may follow as for run.py: python -m eval.heads mistral data.records=50
"""

from __future__ import annotations

import sys

from eval.analysis.__main__ import of_model
from eval.console.mistakes import command


def begin() -> None:
    """Raises UserError if the first word names no model."""
    of_model("heads")


def main() -> int:
    """Run the command line; returns the exit status."""
    return command(begin)


if __name__ == "__main__":
    sys.exit(main())
