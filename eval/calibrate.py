"""python -m eval.calibrate MODEL: measure ranges and points of a model's keys and values for cache=kvquant_c.

MODEL is one of conf/model; which text it reads may follow, as for run.py:
python -m eval.calibrate mistral data=jsonl data.path=my_records/
"""

from __future__ import annotations

import sys

from eval.analysis.__main__ import of_model
from eval.console.mistakes import command


def begin() -> None:
    """Raises UserError if the first word names no model."""
    of_model("calibrate")


def main() -> int:
    """Run the command line; returns the exit status."""
    return command(begin)


if __name__ == "__main__":
    sys.exit(main())
