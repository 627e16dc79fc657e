"""Are the results right there? Against float64, against a CPU, and rows together against rows alone."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import torch
from torch import Tensor

from baselines.full import FullKV
from echokv import Needs, Selection, Session, Stretch, advance, decode_rows, prefill
from echokv.causal import causal_attention, normalized_attention
from echokv.columns import column_sums
from echokv.graphs import cuda_graph
from echokv.scores import products

from .bench import TINY, Bench, presses, random_model
from .figures import Figure, at_least, at_most, yes


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
            f"prefill attention, {name}: error", _error(causal_attention(query, key, value, 128**-0.5), exact), bar
        )
        sums = column_sums(wide[0][0], wide[1][0], 128**-0.5)
        yield at_most(f"column sums, {name}: error", _error(column_sums(query[0], key[0], 128**-0.5), sums), 1e-4)
        out, normalizers = normalized_attention(query, key, value, 128**-0.5)
        yield at_most(f"prefill attention with its log-sum-exp, {name}: error", _error(out, exact), bar)
        found = column_sums(query[0], key[0], 128**-0.5, normalizers=normalizers)
        yield at_most(f"column sums of the prefill's log-sum-exp, {name}: error", _error(found, sums), 1e-4)
        found = products(query[0, :2, :4], key[0], 128**-0.5, torch.float32)
        yield at_most(f"products, {name}: error", _error(found, wide[0][0, :2, :4] @ wide[1][0].mT * 128**-0.5), 1e-5)


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


def rows(bench: Bench) -> Iterator[Figure]:
    """19 rows together and alone, and FullKV against one forward pass."""
    filled = bench.prefill(bench.lengths[0])
    session = Session(filled, FullKV().select(filled))
    advance(Stretch(session, 12, stop=False))
    whole = torch.cat([filled.ids, filled.ids.new_tensor(session.fed[:-1])])
    again = prefill(bench.model, whole)
    yield Figure("FullKV's token is one forward pass's", *yes(int(again.logits.argmax()) == session.fed[-1]))
    some = bench.chosen(filled)
    together = decode_rows([Session(filled, one) for one in some], 24)
    single = [decode_rows([Session(filled, one)], 24)[0] for one in some]
    same = sum(one == other for one, other in zip(together, single, strict=True))
    yield at_least(f"rows of {len(some)} with the tokens they get alone", same, len(some) if bench.dry else 15)
    if not bench.dry:
        record = partial(cuda_graph, device=bench.device)
        plain = decode_rows([Session(filled, one) for one in some], 40)  # past the buffers' first size
        replayed = decode_rows([Session(filled, one) for one in some], 40, record)
        yield Figure("recorded steps give the same tokens", *yes(plain == replayed))


def _error(found: Tensor, exact: Tensor) -> float:
    """Of the norm, against float64."""
    return float((found.double() - exact).norm() / exact.norm())
