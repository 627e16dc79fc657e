"""Kept sets held against NVIDIA's kvpress: `python scripts/kept_sets.py`, with a network the first time.

The same model and token ids on both sides, in float32; kvpress runs in an environment of its own. Printed is, per
policy, in how many (layer, head) pairs the same tokens are kept, in how many a score that is equal to rounding was
decided the other way, and how many differ for no such reason. The exit status is 1 if any do. The model is laid before
kvpress without its chat template, which would stand in KVzip's instructions: its prompts here have none.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from baselines.ada import AdaSnapKV  # noqa: E402
from baselines.chunkkv import ChunkKV  # noqa: E402
from baselines.critical_ada_snapkv import CriticalAdaSnapKV  # noqa: E402
from baselines.critical_snapkv import CriticalSnapKV  # noqa: E402
from baselines.expected_attention import ExpectedAttention  # noqa: E402
from baselines.keydiff import KeyDiff  # noqa: E402
from baselines.knorm import Knorm  # noqa: E402
from baselines.kvzip import KVzip  # noqa: E402
from baselines.lagkv import LagKV  # noqa: E402
from baselines.snapkv import SnapKV  # noqa: E402
from baselines.tova import TOVA  # noqa: E402
from echokv import Needs, Prefill, Press, embedded, load_model, prefill  # noqa: E402
from eval import synthetic  # noqa: E402
from scripts.benchmarks.against_kvpress import environment, worker  # noqa: E402
from scripts.benchmarks.measured import Unavailable  # noqa: E402

NEAR = 1e-5  # of the largest score: what float32 may decide either way
TASKS = ("syn_facts", "syn_code", "syn_trec")


@dataclass(frozen=True)
class Pair:
    """One of our presses and kvpress's of the same meaning.

    chunk: prompts and budgets are cut to multiples of it, for kvpress keeps whole chunks.
    together: heads, layer after layer, of which kvpress drops the tokens of the lowest scores together.
    """

    ours: Press
    press: str
    settings: dict[str, Any]
    inner: str | None = None
    chunk: int = 1
    together: int = 1

    def request(self, budget: int, ids: Sequence[int]) -> dict[str, Any]:
        """kvpress takes the share to remove, and rounds down what a head keeps, or what heads together drop."""
        half = 0.5 if self.together == 1 else -0.5 / self.together
        ratio = {"compression_ratio": 1 - (budget + half) / len(ids)}
        settings = (
            {**self.settings, "press": {**self.settings["press"], **ratio}} if self.inner else self.settings | ratio
        )
        return {"press": self.press, "settings": settings, "ids": list(ids), "inner": self.inner}


PAIRS = {
    "snapkv": Pair(SnapKV(window=32, kernel=5, pooling="avg"), "SnapKVPress", {"window_size": 32, "kernel_size": 5}),
    "tova": Pair(TOVA(protect_last=True), "TOVAPress", {}),
    "keydiff": Pair(KeyDiff(), "KeyDiffPress", {}),
    "knorm": Pair(Knorm(), "KnormPress", {}),
    "lagkv": Pair(LagKV(lag=32), "LagKVPress", {"n_sink": 4, "lag_size": 32}),
    "critical_snapkv": Pair(
        CriticalSnapKV(window=32, kernel=5, pooling="avg", counts="budget"),
        "CriticalKVPress",
        {"press": {"window_size": 32, "kernel_size": 5}},
        inner="SnapKVPress",
    ),
    "ada_snapkv": Pair(
        AdaSnapKV(window=32, kernel=5, pooling="avg", rule="safeguard", alpha=0.5),
        "AdaKVPress",
        {"alpha_safeguard": 0.5, "press": {"window_size": 32, "kernel_size": 5}},
        inner="SnapKVPress",
    ),
    "critical_ada_snapkv": Pair(
        CriticalAdaSnapKV(window=32, kernel=5, pooling="avg", rule="safeguard", alpha=0.5, counts="budget"),
        "CriticalAdaKVPress",
        {"alpha_safeguard": 0.5, "press": {"window_size": 32, "kernel_size": 5}},
        inner="SnapKVPress",
    ),
    "expected_attention": Pair(ExpectedAttention(), "ExpectedAttentionPress", {}),
    "chunkkv": Pair(
        ChunkKV(window=40, chunk=20),
        "ChunkKVPress",
        {"chunk_length": 20, "press": {"window_size": 40, "kernel_size": 1}},
        inner="SnapKVPress",
        chunk=20,
    ),
    "kvzip": Pair(KVzip(chunk=512), "KVzipPress", {"chunk_size": 512}, together=90),  # SmolLM2's 30 layers of 3 heads
    "kvzip_layer": Pair(
        KVzip(chunk=512, across="layer"), "KVzipPress", {"chunk_size": 512, "layerwise": True}, together=3
    ),
}


def main() -> int:
    """Compare, print a Markdown table, and return the exit status."""
    parser = argparse.ArgumentParser(description="Kept sets of our policies held against kvpress's.")
    parser.add_argument("--policies", nargs="+", choices=list(PAIRS), default=list(PAIRS))
    parser.add_argument("--lengths", nargs="+", type=int, default=[1024, 2048], help="prompt tokens, about")
    parser.add_argument("--budgets", nargs="+", type=int, default=[128, 512])
    parser.add_argument("--kvpress", type=Path, help="folder of its environment (default: beside the embedded model)")
    options = parser.parse_args()
    try:
        counts = compared(options)
    except Unavailable as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print("| policy | compared | equal | ties | different |\n|---|---:|---:|---:|---:|")
    for policy, found in counts.items():
        print(f"| {policy} | {found.total()} | {found['equal']} | {found['ties']} | {found['different']} |")
    return int(any(found["different"] for found in counts.values()))


def compared(options: argparse.Namespace) -> dict[str, Counter[str]]:
    """Per policy, how many (layer, head) pairs are judged how. Raises Unavailable without kvpress."""
    model, tokenizer = load_model(embedded.NAME, dtype="float32", device="cpu")
    folder = embedded.folder()
    counts: dict[str, Counter[str]] = {policy: Counter() for policy in options.policies}
    python = environment(options.kvpress or folder.parent / "kvpress")
    with tempfile.TemporaryDirectory() as plain, worker(python, folder.parent / "kvpress.log") as ask:
        for file in folder.iterdir():
            if file.name != "chat_template.jinja":
                (Path(plain) / file.name).symlink_to(file)
        threads = torch.get_num_threads()
        made = ask(model=plain, dtype="float32", device="cpu", attention="sdpa", threads=threads)
        print(f"SmolLM2-135M-Instruct, float32, beside {', '.join(' '.join(pair) for pair in made.items())}\n")
        for ids in cases(tokenizer, options.lengths):
            needs = Needs()
            for policy in options.policies:
                needs |= PAIRS[policy].ours.needs
            for policy, counted in counts.items():
                pair = PAIRS[policy]
                own = ids[: len(ids) // pair.chunk * pair.chunk]
                filled = prefill(model, torch.tensor(own), needs, tokenizer=tokenizer)
                for budget in options.budgets:
                    whole = budget // pair.chunk * pair.chunk
                    theirs = ask(**pair.request(whole, own))["kept"]
                    counted.update(judged(pair, filled, whole, theirs))
    return counts


def judged(pair: Pair, filled: Prefill, budget: int, theirs: list[list[list[int]]]) -> Iterator[str]:
    """Judge every layer and head of one choice."""
    ours = [head.tolist() for layer in pair.ours.select(filled, budget).positions() for head in layer]
    scores = torch.cat(pair.ours.scores(filled, budget))
    other = [head for layer in theirs for head in layer]
    for at in range(0, len(ours), pair.together):
        some = slice(at, at + pair.together)
        yield from judge(ours[some], other[some], scores[some])


def cases(tokenizer: Any, lengths: Sequence[int]) -> Iterator[list[int]]:
    """Token ids of one prompt of every task and length."""
    for length in lengths:
        for task in TASKS:
            yield tokenizer.encode(synthetic.make(task, 0, length=length)["context"])


def judge(ours: list[list[int]], theirs: list[list[int]], scores: torch.Tensor) -> Iterator[str]:
    """Say of heads that share a budget whether what each keeps is equal, apart by rounding, or different.

    scores: [heads, L]. Heads are apart by rounding if together they keep as many tokens on both sides, and no score
    that decided between those of one side and those of the other is larger by more than rounding.
    """
    mine, other = torch.zeros_like(scores, dtype=torch.bool), torch.zeros_like(scores, dtype=torch.bool)
    for head, (own, their) in enumerate(zip(ours, theirs, strict=True)):
        mine[head, own], other[head, their] = True, True
    apart = "different"
    if mine.sum() == other.sum() and not (mine == other).all():
        near = NEAR * float(scores[scores.isfinite()].abs().max())
        if float(scores[mine & ~other].max() - scores[other & ~mine].min()) <= near:
            apart = "ties"
    for same in (mine == other).all(dim=1).tolist():
        yield "equal" if same else apart


if __name__ == "__main__":
    sys.exit(main())
