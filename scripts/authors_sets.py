"""Kept sets held against the authors' own classes, on a CPU: `python scripts/authors_sets.py --cake DIR`.

Each DIR is your own clone; a policy without one is skipped. Read are, and no other file:

    --adakv   https://github.com/FFY0/AdaKV       adaptive_snapkv/monkeypatch/snapkv_utils.py
    --headkv  https://github.com/FYYFU/HeadKV     headkv/snapkv_utils.py
    --cake    https://github.com/antgroup/cakekv  cake/utils.py, cake/cake_cache.py, cake/model/modify_llama.py

Counts in docs/methods.md are of FFY0/AdaKV 1baceda, FYYFU/HeadKV 3ec9653, and CAKE as in the fork qtris123/cakekv
e6adc5e. The files are executed with stand-ins for what they import and do not use here, such as flash_attn, on the
queries and keys of our own prefill in float32. Printed is, per policy, in how many (layer, head) pairs the same tokens
are kept, in how many a score that is equal to rounding was decided the other way, and how many differ for no such
reason. The exit status is 1 if any do.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from baselines.ada import AdaSnapKV  # noqa: E402
from baselines.cake import CAKE  # noqa: E402
from baselines.headkv import HeadKV  # noqa: E402
from echokv import Needs, Prefill, Press, embedded, load_model, prefill  # noqa: E402
from eval.console.errors import Parser, UserError, command  # noqa: E402
from scripts.authors_code import Kept, adakv, cake, headkv, lay_scores  # noqa: E402
from scripts.kept_sets import cases, judge  # noqa: E402

AUTHORS = ("adakv", "headkv", "cake")


@dataclass(frozen=True)
class Pair:
    """One of our presses and the authors' code of the same meaning."""

    ours: Press
    theirs: Callable[[Prefill, int], Kept]


def pairs(folders: dict[str, Path | None], scratch: Path, layers: int, heads: int) -> Iterator[tuple[str, Pair]]:
    """By name, what can be compared with the folders given. layers, heads: the model's, for HeadKV's importances."""
    if folder := folders["adakv"]:
        for name, press in {
            "ada_snapkv": AdaSnapKV(),
            "ada_snapkv, query heads": AdaSnapKV(granularity="query_head"),
            "ada_snapkv, pooled by average": AdaSnapKV(kernel=5, pooling="avg"),
        }.items():
            yield name, Pair(press, partial(adakv, folder, press))
    if folder := folders["headkv"]:
        file = str(lay_scores(scratch, layers, heads))
        for name, beta in {"headkv": 1.2, "headkv, beta 1.005": 1.005}.items():
            own = HeadKV(importance=file, beta=beta, granularity="query_head")
            yield name, Pair(own, partial(headkv, folder, own))
    if folder := folders["cake"]:
        for name, mine in {
            "cake": CAKE(),
            "cake, tau 1.6 and 0.6": CAKE(tau1=1.6, tau2=0.6),
            "cake, tau 1.6 and 0.6, cascading": CAKE(tau1=1.6, tau2=0.6, total="cascading"),
        }.items():
            yield name, Pair(mine, partial(cake, folder, mine))


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare, print a Markdown table, and return the exit status."""
    parser = Parser(description="Kept sets of our policies held against the authors' own classes.")
    for name in AUTHORS:
        parser.add_argument(f"--{name}", type=Path, metavar="DIR", help="a clone of the authors' repository")
    parser.add_argument("--lengths", nargs="+", type=int, default=[1024, 2048], help="prompt tokens, about")
    parser.add_argument("--budgets", nargs="+", type=int, default=[128, 512])
    return command(parser, arguments, report)


def report(options: argparse.Namespace) -> None:
    """Print the table. Raises UserError without a folder, and if any kept sets differ."""
    folders = {name: getattr(options, name) for name in AUTHORS}
    if not any(folders.values()):
        raise UserError("no clone given: --adakv, --headkv and --cake each take a folder")
    for name in (name for name, folder in folders.items() if not folder):
        print(f"{name} is skipped: no --{name}")
    model, tokenizer = load_model(embedded.NAME, dtype="float32", device="cpu")
    prompts = [torch.tensor(ids) for ids in cases(tokenizer, options.lengths)]
    counts = compared(folders, model, prompts, options.budgets)
    print("| policy | compared | equal | ties | different |\n|---|---:|---:|---:|---:|")
    for policy, found in counts.items():
        print(f"| {policy} | {found.total()} | {found['equal']} | {found['ties']} | {found['different']} |")
    if different := sum(found["different"] for found in counts.values()):
        raise UserError(f"{different} kept sets differ by more than rounding")


def compared(
    folders: dict[str, Path | None], model: Any, prompts: Sequence[torch.Tensor], budgets: Sequence[int]
) -> dict[str, Counter[str]]:
    """Per policy, how many (layer, head) pairs are judged how."""
    counts: dict[str, Counter[str]] = {}
    with tempfile.TemporaryDirectory() as scratch:
        config = model.config
        made = dict(pairs(folders, Path(scratch), config.num_hidden_layers, config.num_attention_heads))
        needs = Needs()
        for pair in made.values():
            needs |= pair.ours.needs
        for ids in prompts:
            filled = prefill(model, ids, needs)
            for name, pair in made.items():
                for budget in budgets:
                    counts.setdefault(name, Counter()).update(judged(pair, filled, budget))
    return counts


def judged(pair: Pair, filled: Prefill, budget: int) -> Iterator[str]:
    """Judge every layer and head of one choice. Raises UserError if the authors' code ends with an error."""
    try:
        theirs = pair.theirs(filled, budget)
    except (AttributeError, NameError, TypeError) as error:
        raise UserError(f"the authors' code is of another version than this script knows: {error}") from error
    ours = [[head.tolist() for head in layer] for layer in pair.ours.select(filled, budget).positions()]
    for own, other, scores in zip(ours, theirs, pair.ours.scores(filled, budget), strict=True):
        for head in range(len(own)):  # alone: where heads share a budget, the scores at which they are cut still differ
            yield from judge([own[head]], [other[head]], scores[head : head + 1])


if __name__ == "__main__":
    sys.exit(main())
