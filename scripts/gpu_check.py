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
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from baselines.full import FullKV  # noqa: E402
from baselines.h2o import H2O  # noqa: E402
from baselines.laq import LAQ  # noqa: E402
from baselines.pyramidkv import PyramidKV  # noqa: E402
from baselines.snapkv import SnapKV  # noqa: E402
from baselines.streaming_llm import StreamingLLM  # noqa: E402
from echokv import EchoKV, Needs, Prefill, Press, Selection, Session, Stretch, advance, decode_rows, prefill  # noqa: E402
from echokv.causal import causal_attention, kernel  # noqa: E402
from echokv.graphs import cuda_graph  # noqa: E402
from echokv.rows import Rows  # noqa: E402
from echokv.scores import column_sums, products  # noqa: E402

LIMIT = 540.0  # seconds after which no further part is begun
# What Table 3 is made of: 3,750 examples of 10,600 tokens on average, and the steps of all until the last of an
# example's 19 rows ends, at the lengths of published answers.
EXAMPLES, MEAN, STEPS = 3_750, 10_600, 380_000
SHAPE = {
    "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32,
    "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 32000,
}  # fmt: skip
TINY = {
    "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3, "num_attention_heads": 8,
    "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 64,
}  # fmt: skip


@dataclass(frozen=True)
class Figure:
    """One line of the page. ok: None where nothing is asked of it."""

    said: str
    value: float | str
    bar: str = ""
    ok: bool | None = None


def at_most(said: str, value: float, bar: float) -> Figure:
    return Figure(said, value, f"at most {bar:g}", value <= bar)


def at_least(said: str, value: float, bar: float) -> Figure:
    return Figure(said, value, f"at least {bar:g}", value >= bar)


class Bench:
    """The machine, the model and its prompts; `dry` on a CPU."""

    def __init__(self, dry: bool) -> None:
        self.dry = dry
        self.device = torch.device("cpu") if dry else torch.device("cuda", 0)
        self.dtype = torch.float32 if dry else torch.float16
        self.lengths = (300, 500) if dry else (8_192, 31_500)
        self.budgets = (48, 64, 100) if dry else (128, 256, 512)
        self.seconds: dict[str, float] = {}  # what the projection is made of

    @cached_property
    def model(self) -> Any:
        return random_model(TINY if self.dry else SHAPE, self.device, self.dtype)

    @cached_property
    def presses(self) -> dict[str, Press]:
        return presses(160 if self.dry else 1024)

    def prefill(self, length: int, needs: Needs | None = None) -> Prefill:
        ids = torch.randint(1, 64, (length,), generator=torch.Generator().manual_seed(length))
        return prefill(self.model, ids, needs or Needs(window=32))

    def chosen(self, filled: Prefill) -> list[Selection]:
        some = [one for press in self.presses.values() for one in press.select_all(filled, self.budgets)]
        return [FullKV().select(filled), *some]

    def now(self) -> float:
        if not self.dry:
            torch.cuda.synchronize()
        return time.perf_counter()

    def took(self, work: Callable[[], object], times: int = 3) -> float:
        """Seconds of the quickest, after one that does not count."""
        work()
        found = []
        for _ in range(times):
            begun = self.now()
            work()
            found.append(self.now() - begun)
        return min(found)

    def cost(self, said: str, value: float, bar: float) -> Figure:
        """Time or memory that has a bar, which a dry run cannot be held to."""
        return Figure(said, value, f"at most {bar:g}", None if self.dry else value <= bar)

    def peak(self) -> float:
        return 0.0 if self.dry else torch.cuda.max_memory_allocated() / 1e9


def random_model(shape: dict[str, int], device: torch.device, dtype: torch.dtype) -> Any:
    """Mistral with random weights, queries and keys large enough that attention is far from uniform."""
    from transformers import MistralConfig, MistralForCausalLM

    torch.manual_seed(0)
    config = MistralConfig(**shape, sliding_window=None, max_position_embeddings=32_768, attn_implementation="sdpa")
    with torch.device(device):
        model = MistralForCausalLM._from_config(config, dtype=dtype).eval().requires_grad_(False)
    for layer in model.model.layers:
        layer.self_attn.q_proj.weight.mul_(4)
        layer.self_attn.k_proj.weight.mul_(4)
    return model


def presses(workspace: int) -> dict[str, Press]:
    """Table 3's policies as the preset `paper` has them."""
    query: dict[str, Any] = {"granularity": "query_head", "precision": "legacy"}
    return {
        "StreamingLLM": StreamingLLM(granularity="query_head"),
        "H2O": H2O(queries="window", **query),
        "SnapKV": SnapKV(**query),
        "PyramidKV": PyramidKV(**query),
        "LAQ": LAQ(workspace=workspace, mask="official", **query),
        "EchoKV": EchoKV(workspace=workspace, precision="legacy"),
    }


def error(found: Tensor, exact: Tensor) -> float:
    """Of the norm, against float64."""
    return float((found.double() - exact).norm() / exact.norm())


def kernels(bench: Bench) -> Iterator[Figure]:
    """Everything that runs another way on a GPU, against float64."""
    length = 300 if bench.dry else 2_048
    for dtype in (torch.float32,) if bench.dry else (torch.float16, torch.bfloat16, torch.float32):
        query, key, value = (
            torch.randn(1, heads, length, 128, generator=torch.Generator().manual_seed(heads), dtype=torch.float64)
            .to(dtype).to(bench.device)
            for heads in (8, 2, 3)
        )  # fmt: skip
        value = value[:, :2]
        name, bar = str(dtype).removeprefix("torch."), 1e-5 if dtype == torch.float32 else 1e-2
        wide = [part.double() for part in (query, key, value)]
        exact = causal_attention(*wide, 128**-0.5)
        yield at_most(
            f"prefill attention, {name}: error", error(causal_attention(query, key, value, 128**-0.5), exact), bar
        )
        sums = column_sums(wide[0][0], wide[1][0], 128**-0.5)
        yield at_most(f"column sums, {name}: error", error(column_sums(query[0], key[0], 128**-0.5), sums), 1e-4)
        found = products(query[0, :2, :4], key[0], 128**-0.5, torch.float32)
        yield at_most(f"products, {name}: error", error(found, wide[0][0, :2, :4] @ wide[1][0].mT * 128**-0.5), 1e-5)


def kept(bench: Bench) -> Iterator[Figure]:
    """A tiny model in float32 keeps the same tokens here as on a CPU, and answers with the same."""
    ids = torch.randint(1, 64, (400,), generator=torch.Generator().manual_seed(0))
    sets: list[dict[str, Selection]] = []
    answers = []
    for device in (torch.device("cpu"), bench.device):
        filled = prefill(random_model(TINY, torch.device("cpu"), torch.float32).to(device), ids, Needs(window=32))
        sets.append({name: press.select(filled, 64) for name, press in presses(160).items()})
        some = [FullKV().select(filled), *sets[-1].values()]
        answers.append(decode_rows([Session(filled, one) for one in some], 40))
    same = sum(one == other for one, other in zip(*answers, strict=True)) / len(answers[0])
    yield at_least("share of rows, all forms in one batch, that a CPU answers alike", same, 0.85)
    for name, here in sets[0].items():
        there = sets[1][name]
        pairs = [(here.held(layer), there.held(layer).cpu()) for layer in range(len(here.indices))]
        same = sum(int((one & other).sum()) for one, other in pairs) / sum(int(one.sum()) for one, _ in pairs)
        yield at_least(f"{name}: share of kept tokens that a CPU keeps too", same, 0.99)


def prefills(bench: Bench) -> Iterator[Figure]:
    yield Figure("kernel of the prefill's attention", kernel(bench.model))
    for length in bench.lengths:
        if not bench.dry:
            torch.cuda.reset_peak_memory_stats()
        taken = bench.seconds[f"prefill {length}"] = bench.took(lambda n=length: bench.prefill(n), 2)  # type: ignore[misc]
        yield Figure(f"prefill of {length} tokens, s", taken)
        yield bench.cost(f"its peak memory, GB ({length} tokens)", bench.peak(), 24.0)
        sums = bench.took(lambda n=length: bench.prefill(n, Needs(column_sums=True)), 1) - taken  # type: ignore[misc]
        yield bench.cost(f"column sums / prefill ({length} tokens)", sums / taken, 0.45)
    known, fresh = bench.lengths[0], []
    for length in range(known + 1, known + 5):
        begun = bench.now()
        bench.prefill(length)
        fresh.append(bench.now() - begun)
    yield bench.cost(
        "a prompt length not seen before / a known one", min(fresh) / bench.seconds[f"prefill {known}"], 1.05
    )


def rows(bench: Bench) -> Iterator[Figure]:
    """19 rows together and alone, and FullKV against one forward pass."""
    filled = bench.prefill(bench.lengths[0])
    session = Session(filled, FullKV().select(filled))
    advance(Stretch(session, 12, stop=False))
    whole = torch.cat([filled.ids, filled.ids.new_tensor(session.fed[:-1])])
    again = prefill(bench.model, whole)
    yield Figure("FullKV's token is one forward pass's", *_yes(int(again.logits.argmax()) == session.fed[-1]))
    some = bench.chosen(filled)
    together = decode_rows([Session(filled, one) for one in some], 24)
    single = [decode_rows([Session(filled, one)], 24)[0] for one in some]
    same = sum(one == other for one, other in zip(together, single, strict=True))
    yield at_least(f"rows of {len(some)} with the tokens they get alone", same, len(some) if bench.dry else 15)
    if not bench.dry:
        record = partial(cuda_graph, device=bench.device)
        plain = decode_rows([Session(filled, one) for one in some], 40)  # past the buffers' first size
        replayed = decode_rows([Session(filled, one) for one in some], 40, record)
        yield Figure("recorded steps give the same tokens", *_yes(plain == replayed))


def _yes(true: bool) -> tuple[str, str, bool]:
    return ("yes" if true else "no"), "yes", true


def steps(bench: Bench) -> Iterator[Figure]:
    for length in bench.lengths:
        filled = bench.prefill(length)
        taken = bench.took(partial(bench.chosen, filled), 1)
        bench.seconds[f"selection {length}"] = taken
        yield Figure(f"selection of 18 cells, one method after the other, s ({length} tokens)", taken)
        some = bench.chosen(filled)
        for said, own in (("FullKV", some[:1]), ("19 rows", some)):
            opened = Rows([Session(filled, one) for one in own], 64)
            taken = bench.took(partial(_step, opened, opened.step), 8)
            bench.seconds[f"{said} {length}"] = taken
            yield Figure(f"a step of {said}, ms ({length} tokens)", 1e3 * taken)
            if bench.dry:
                continue
            begun = bench.now()
            replay = cuda_graph(opened.step, bench.device)
            yield Figure(f"recording it, s ({said}, {length} tokens)", bench.now() - begun)
            again = bench.took(partial(_step, opened, replay), 20)
            bench.seconds[f"{said} {length}"] = min(taken, again)
            yield Figure(f"a recorded step of {said}, ms ({length} tokens)", 1e3 * again)
        yield bench.cost(f"peak memory so far, GB ({length} tokens)", bench.peak(), 28.0)


def _step(opened: Rows, work: Callable[[], object]) -> None:
    work()
    opened.column.fill_(0)  # for ever the first token after the prompt


def projected(bench: Bench) -> Iterator[Figure]:
    """Hours of Table 3 from what was measured, between the two lengths in proportion; nobody ran it."""
    short, long = bench.lengths
    share = 0.1 if bench.dry else (MEAN - short) / (long - short)

    def mean(name: str) -> float:
        return (1 - share) * bench.seconds[f"{name} {short}"] + share * bench.seconds[f"{name} {long}"]

    seconds = EXAMPLES * (mean("prefill") + mean("selection")) + STEPS * mean("19 rows")
    said = f"Table 3, hours, PROJECTED: {EXAMPLES} examples of {MEAN} tokens, {STEPS} steps of 19 rows"
    yield bench.cost(said, seconds / 3600, 1.2)


PARTS = (kernels, kept, prefills, rows, steps, projected)


def page(found: Sequence[tuple[str, Figure]], head: str) -> str:
    """The figures as text, one a line."""
    lines = [head, ""]
    for part, one in found:
        value = one.value if isinstance(one.value, str) else f"{one.value:.4g}"
        mark = {None: "", True: "pass", False: "FAIL"}[one.ok]
        lines.append(f"{part:10} {one.said:96} {value:>10}  {one.bar:16} {mark}".rstrip())
    return "\n".join(lines)


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
