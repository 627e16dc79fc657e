"""The first day on a GPU: are the results right there, and what do they cost? `make gpu-check`, at most ten minutes.

Needs torch, transformers and jaxtyping, no weights and no network: the model has Mistral-7B's shape and random
weights, so times are those of the real one and answers mean nothing. `--dry` runs all of it on a CPU with a tiny
model, to test this script; its times mean nothing either.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "scripts")]  # where nothing is installed

from gpu_checks.bench import Bench  # noqa: E402
from gpu_checks.costs import machine, prefills, projected, steps  # noqa: E402
from gpu_checks.figures import Figure, page  # noqa: E402
from gpu_checks.right import attention, kept, kernels, rows  # noqa: E402

LIMIT = 540.0  # seconds after which no further part is begun
PARTS = (machine, kernels, attention, kept, prefills, rows, steps, projected)  # costs of one serve the next


def main(arguments: Sequence[str] | None = None) -> int:
    """Run every part and write the page; exit status 1 if something fails or there is no GPU."""
    parser = argparse.ArgumentParser(description="Check the GPU paths and measure them, in at most ten minutes.")
    parser.add_argument("--dry", action="store_true", help="all of it on a CPU with a tiny model: times mean nothing")
    parser.add_argument("--out", type=Path, default=ROOT / "results" / "gpu_check", help="folder of the page")
    options = parser.parse_args(arguments)
    if not options.dry and not torch.cuda.is_available():
        print("error: torch sees no CUDA GPU here: nothing is checked; --dry tries the script itself", file=sys.stderr)
        return 1
    import transformers

    begun, bench, found = time.perf_counter(), Bench(options.dry), []
    machine = "CPU, DRY RUN: times mean nothing" if options.dry else torch.cuda.get_device_name()
    head = f"{machine}; torch {torch.__version__}, transformers {transformers.__version__}; random weights"
    for part in PARTS:
        try:
            if time.perf_counter() - begun > LIMIT:
                raise TimeoutError(f"not begun: {LIMIT:.0f} s are over")
            for one in part(bench):
                found.append((part.__name__, one))
                print(page(found[-1:], "").strip(), flush=True)
        except Exception as failure:  # the other parts are worth having
            told = f"{type(failure).__name__}: {' '.join(str(failure).split())[:150]}"
            found.append((part.__name__, Figure(told, "-", "", False)))
            print(page(found[-1:], "").strip(), flush=True)
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "page.txt").write_text(page(found, head) + "\n", encoding="utf-8")
    content = {"machine": head, "figures": [{"part": part, **asdict(one)} for part, one in found]}
    (options.out / "page.json").write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    failed = [one.said for _, one in found if one.ok is False]
    print(f"{len(failed)} of {sum(one.ok is not None for _, one in found)} checks failed; {options.out / 'page.txt'}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
