"""One of several processes that work at the same time: for each line on standard input, rows from one prefill.

Arguments: the options of a Bench as JSON, and `give way` or `spin`. Answers with seconds, one line each; the first is
that of a short answer before all, which does not count. For neighbours.py beside it.
"""

from __future__ import annotations

import json
import sys
from contextlib import nullcontext
from types import SimpleNamespace

from transformers.utils.logging import disable_progress_bar

from eval.answering.neighbours import giving_way

from .bench import Bench
from .grid import COMPARED
from .measured import shortest


def main() -> None:
    """Answer until standard input ends."""
    disable_progress_bar()
    with giving_way() if sys.argv[2] == "give way" else nullcontext():
        bench = Bench.of(SimpleNamespace(**json.loads(sys.argv[1])))
        print(shortest(lambda: answer(bench, 2)), flush=True)
        for _ in sys.stdin:
            print(shortest(lambda: answer(bench, bench.options.tokens)), flush=True)


def answer(bench: Bench, tokens: int) -> None:
    """Prefill, select by methods that decode nothing ahead, and decode them as one batch."""
    filled = bench.fill(bench.length)
    sizes = [budget + more for more in (0, 1) for budget in bench.budgets]  # rows that are alike would be one
    bench.decode(filled, [bench.presses[name].select(filled, size) for name in COMPARED for size in sizes], tokens)


if __name__ == "__main__":
    main()
