"""Are the results right there? Against float64, against a CPU, and rows together against rows alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import torch
from torch import Tensor

from baselines.ada import AdaSnapKV
from baselines.full import FullKV
from baselines.snapkv import SnapKV
from echokv import Needs, Selection, Session, Stretch, advance, decode_rows, prefill
from echokv.blocks import Cache, caches
from echokv.causal import causal_attention, normalized_attention
from echokv.columns import column_sums
from echokv.graphs import cuda_graph
from echokv.scores import products

from .bench import NARROW, TINY, Bench, presses, random_model
from .figures import Figure, at_least, at_most, yes


def kernels(bench: Bench) -> Iterator[Figure]:
    """Everything that runs another way on a GPU, against float64."""
    length = bench.short
    for dtype in bench.dtypes:
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


def attention(bench: Bench) -> Iterator[Figure]:
    """A decode step's attention, of rows whose heads keep unequally many tokens, against float64."""
    for dtype in bench.dtypes:
        model = random_model(NARROW, bench.device, dtype)
        filled = prefill(model, torch.arange(bench.short) % 61 + 1, Needs(window=32))
        by_query = [press(granularity="query_head") for press in (SnapKV, AdaSnapKV)]
        some = [FullKV(), SnapKV(granularity="kv_head"), AdaSnapKV(granularity="kv_head", alpha=0.0), *by_query]
        sessions = [Session(filled, press.select(filled, 64 + row)) for row, press in enumerate(some)]
        sessions, made = caches(sessions, 4)
        names = "+".join(dict.fromkeys(type(cache).__name__ for cache in made))
        bar = 1e-5 if dtype == torch.float32 else 1e-2
        yield at_most(f"decode attention, {names}, {str(dtype)[6:]}: error", _decoded(bench, sessions, made), bar)


def _decoded(bench: Bench, sessions: Sequence[Session], made: Sequence[Cache]) -> float:
    """The largest error of three tokens' attention in each layer."""
    filled, draw = sessions[0].prefill, torch.Generator().manual_seed(0)
    rows, dim, worst = len(sessions), filled.keys[0].shape[-1], 0.0
    fed: list[list[Tensor]] = [[] for _ in range(2 * filled.layers)]  # keys of each layer, and values
    for column in range(3):
        at = torch.full((rows,), column, device=bench.device)
        for layer in range(filled.layers):
            query, key, value = (
                torch.randn(rows, heads, dim, generator=draw).to(bench.device, filled.keys[0].dtype)
                for heads in (filled.heads, filled.groups, filled.groups)
            )
            fed[2 * layer].append(key)
            fed[2 * layer + 1].append(value)
            first, found = 0, []
            for cache in made:
                own = slice(first, first + cache.count)
                first = own.stop
                found.append(cache.attend(layer, query[own], key[own], value[own], filled.scaling, at[own]))
            tails = torch.stack(fed[2 * layer], dim=2), torch.stack(fed[2 * layer + 1], dim=2)
            exact = [_exact(one, layer, query[row], *(part[row] for part in tails)) for row, one in enumerate(sessions)]
            worst = max(worst, _error(torch.cat(found), torch.stack(exact)))
    return worst


def _exact(session: Session, layer: int, query: Tensor, tail_keys: Tensor, tail_values: Tensor) -> Tensor:
    """Attention of one row's queries [H, D], head by head in float64."""
    filled, heads = session.prefill, session.selection.heads
    out, kept = [], session.selection.positions()[layer]
    for head, own in enumerate(query.double()):
        group = head * filled.groups // filled.heads
        places = kept[head * heads // filled.heads].to(query.device)
        keys = torch.cat([filled.keys[layer][group, places], tail_keys[group]]).double()
        values = torch.cat([filled.values[layer][group, places], tail_values[group]]).double()
        out.append(torch.softmax(keys @ own * filled.scaling, dim=0) @ values)
    return torch.stack(out)


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
