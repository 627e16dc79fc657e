"""The naive twins of the policies beside the paper's: slow and obvious, in float64, one position at a time.

As in twin.py each is a function of the prompt's `Trace`, the budget and the fields of the press.
"""

from collections.abc import Sequence
from math import exp, inf, log, sqrt
from statistics import fmean, stdev, variance

import torch
from torch import Tensor

from tests.twin import Result, Scores, everything, keep, pool, top, uniform, window_score
from tests.twin_model import Trace, forward, rotate


def for_heads(prompt: Trace, scores: Scores, granularity: str) -> Scores:
    """Scores of KV heads, repeated for their query heads if those select for themselves."""
    ratio = len(prompt.queries[0]) // len(prompt.keys[0])
    return [[row for row in layer for _ in range(ratio if granularity == "query_head" else 1)] for layer in scores]


def softmax(logits: list[float]) -> list[float]:
    largest = max(logits)
    weights = [exp(one - largest) for one in logits]
    return [weight / sum(weights) for weight in weights]


def paid(prompt: Trace, layer: int, head: int, position: int) -> list[float]:
    """What the query at a position pays to each key up to its own."""
    queries, keys = prompt.queries[layer], prompt.keys[layer]
    own = keys[head // (len(queries) // len(keys))]
    query = queries[head, position]
    return softmax([float(query @ own[i]) / sqrt(len(query)) for i in range(position + 1)])


def tova(prompt: Trace, budget: int, *, protect_last: bool = False, granularity: str = "kv_head") -> Result:
    if prompt.length <= budget:
        return Result(everything(prompt))
    scores = []
    for layer, keys in enumerate(prompt.keys):
        rows = [paid(prompt, layer, head, prompt.length - 1) for head in range(len(prompt.queries[layer]))]
        mean = [fmean(column) for column in zip(*rows, strict=True)]
        if protect_last:
            mean[-1] = inf
        scores.append([mean for _ in keys])
    return uniform(for_heads(prompt, scores, granularity), budget)


def keydiff(prompt: Trace, budget: int, *, granularity: str = "kv_head") -> Result:
    if prompt.length <= budget:
        return Result(everything(prompt))
    scores = [[keydiff_head(keys.tolist()) for keys in layer] for layer in prompt.keys]
    return uniform(for_heads(prompt, scores, granularity), budget)


def keydiff_head(keys: list[list[float]]) -> list[float]:
    def length(vector: list[float]) -> float:
        return sqrt(sum(one * one for one in vector))

    units = [[one / length(key) for one in key] for key in keys]
    anchor = [fmean(column) for column in zip(*units, strict=True)]
    return [-sum(a * b for a, b in zip(unit, anchor, strict=True)) / length(anchor) for unit in units]


def knorm(prompt: Trace, budget: int, *, granularity: str = "kv_head") -> Result:
    if prompt.length <= budget:
        return Result(everything(prompt))
    scores = [[[-sqrt(sum(one * one for one in key)) for key in keys.tolist()] for keys in la] for la in prompt.keys]
    return uniform(for_heads(prompt, scores, granularity), budget)


def chunkkv(
    prompt: Trace, budget: int, *, window: int = 32, chunk: int = 10, granularity: str = "kv_head"
) -> Result:  # fmt: skip
    if prompt.length <= budget:
        return Result(everything(prompt))
    free = prompt.length - window
    kept = []
    for layer, keys in enumerate(prompt.keys):
        sums = [0.0] * free
        for head in range(len(prompt.queries[layer])):
            for position in range(free, prompt.length):
                row = paid(prompt, layer, head, position)
                sums = [total + row[i] for i, total in enumerate(sums)]
        own = [*chunk_choice(sums, chunk, budget - window), *range(free, prompt.length)]
        kept.append([own for _ in (prompt.queries[layer] if granularity == "query_head" else keys)])
    return Result(kept)


def chunk_choice(sums: list[float], chunk: int, count: int) -> list[int]:
    """The best chunks, the last of them cut to its first tokens."""
    chunks = [list(range(first, min(first + chunk, len(sums)))) for first in range(0, len(sums), chunk)]
    ranked = sorted(chunks, key=lambda some: -fmean(sums[i] for i in some))
    return sorted([i for some in ranked for i in some][:count])


def lagkv(
    prompt: Trace, budget: int, *, n_sink: int = 4, lag: int = 128, granularity: str = "kv_head"
) -> Result:  # fmt: skip
    if prompt.length <= budget:
        return Result(everything(prompt))
    scores = [
        [lagkv_head(k.tolist(), v.tolist(), n_sink, lag) for k, v in zip(keys, values, strict=True)]
        for keys, values in zip(prompt.keys, prompt.values, strict=True)
    ]
    return uniform(for_heads(prompt, scores, granularity), budget)


def lagkv_head(keys: list[list[float]], values: list[list[float]], n_sink: int, lag: int) -> list[float]:
    length, stretches = len(keys), (len(keys) - n_sink) // lag
    scores = [inf] * length
    for stretch in range(stretches - 1):
        first = n_sink + stretch * lag
        both = [
            a + b
            for a, b in zip(surprise(keys, first, lag), surprise(values, first, lag), strict=True)
        ]  # fmt: skip
        for rank, place in enumerate(sorted(range(lag), key=lambda place: (both[place], place))):
            scores[first + place] = float(rank)
    return scores


def surprise(part: list[list[float]], first: int, lag: int) -> list[float]:
    """Of each token of a stretch: how its channels spread when scaled by the range of the next stretch."""
    own, following = part[first : first + lag], part[first + lag : first + 2 * lag]
    low, high = ([bound(column) for column in zip(*following, strict=True)] for bound in (min, max))
    scaled = [[0.0 if a == b else (x - a) / (b - a) for x, a, b in zip(token, low, high, strict=True)] for token in own]
    return softmax([stdev(token) for token in scaled])


def cake(
    prompt: Trace, budget: int, *, window: int = 32, kernel: int = 5, gamma: float = 200.0, tau1: float = 1.0,
    tau2: float = 1.0, granularity: str = "kv_head",
) -> Result:  # fmt: skip
    if prompt.length <= budget:
        return Result(everything(prompt))
    free = prompt.length - window
    scores, preferences = [], []
    for layer, keys in enumerate(prompt.keys):
        heads, entropy, restless = [], 0.0, 0.0
        for head in range(len(prompt.queries[layer])):
            rows = [paid(prompt, layer, head, position)[:free] for position in range(free, prompt.length)]
            columns = list(zip(*rows, strict=True))
            entropy -= sum(one * log(one + 1e-10) for row in rows for one in row)
            restless += sum(variance(column) for column in columns)
            heads.append(pool([fmean(column) + gamma * variance(column) for column in columns], "avg", kernel))
        preferences.append(entropy ** (1 / tau1) * restless ** (1 / tau2))
        ratio = len(heads) // len(keys)
        if granularity == "kv_head":
            groups = [heads[group * ratio : (group + 1) * ratio] for group in range(len(keys))]
            heads = [[sum(column) for column in zip(*group, strict=True)] for group in groups]
        scores.append([head + [inf] * window for head in heads])
    total = (budget - window) * len(scores)
    shares = [one / sum(preferences) * total for one in preferences]
    return Result(keep(scores, [size + window for size in shared_out(shares, total, free)]), scores)


def shared_out(shares: list[float], total: int, most: int) -> list[int]:
    """The published adjustment: clip, spread what was clipped over the layers that are not full, then what rounding
    has left over those that still are not, clip again."""
    whole = [int(share) for share in shares]
    sizes = [min(size, most) for size in whole]
    for surplus in (sum(whole) - sum(sizes), total - sum(whole)):
        free = [i for i, size in enumerate(sizes) if size < most]
        for place, i in enumerate(free):
            sizes[i] += surplus // len(free) + (1 if place < surplus % len(free) else 0)
    return [min(size, most) for size in sizes]


def oracle(prompt: Trace, queries: list[Tensor], budget: int) -> list[list[list[int]]]:
    """What the given true queries, per layer [H, n, D], attend to most, per KV head."""
    kept = []
    for keys, own in zip(prompt.keys, queries, strict=True):
        ratio = len(own) // len(keys)
        rows = []
        for group, head_keys in enumerate(keys):
            mass = sum(
                (own[head] @ head_keys.T / sqrt(head_keys.shape[1])).softmax(-1).sum(0)
                for head in range(group * ratio, (group + 1) * ratio)
            )
            rows.append(top(mass.tolist(), budget))  # type: ignore[union-attr]
        kept.append(rows)
    return kept


def expected_attention(
    prompt: Trace, budget: int, *, n_sink: int = 4, future: int = 512, epsilon: float = 0.0,
    granularity: str = "kv_head",
) -> Result:  # fmt: skip
    """By explicit rotations: every content vector turned to every future position, means of all of these."""
    if prompt.length <= budget:
        return Result(everything(prompt))
    length, scores = prompt.length, []
    for raw, keys, values in zip(prompt.raw, prompt.keys, prompt.values, strict=True):
        dim, heads = raw.shape[-1], []
        basis = torch.eye(dim, dtype=raw.dtype)[None]
        turns = [rotate(prompt.model, basis, [position] * dim)[0].T for position in range(length, length + future)]
        mean_turn = sum(turns) / future
        for head, content in enumerate(raw[:, n_sink:]):
            mean = content.mean(0)
            covariance = sum(torch.outer(one - mean, one - mean) for one in content) / len(content)
            mean, covariance = mean_turn @ mean, mean_turn @ covariance @ mean_turn.T
            own = keys[head // (len(raw) // len(keys)), n_sink:]
            heads.append(softmax([float(mean @ k / sqrt(dim) + k @ covariance @ k / (2 * dim)) for k in own]))
        ratio = len(heads) // len(keys)
        norms = [[float(value.norm()) for value in head] for head in values[:, n_sink:]]
        if granularity == "kv_head":
            groups = [heads[group * ratio : (group + 1) * ratio] for group in range(len(keys))]
            heads = [[fmean(column) for column in zip(*group, strict=True)] for group in groups]
        else:
            norms = [norms[head // ratio] for head in range(len(heads))]
        scores.append(
            [
                [inf] * n_sink + [(share + epsilon) * norm for share, norm in zip(head, own, strict=True)]
                for head, own in zip(heads, norms, strict=True)
            ]
        )
    return uniform(scores, budget)


def dapq(
    prompt: Trace, budget: int, ids: Sequence[int], *, denominator: str = "visible", weights: str = "sum",
    pooling: str = "none", kernel: int = 7, window: int = 0, granularity: str = "kv_head",
) -> Result:  # fmt: skip
    """ids: the probe's. Each of its tokens sees the prompt, the probe before it and itself."""
    if prompt.length <= budget:
        return Result(everything(prompt))
    length, after, scores = prompt.length, forward(prompt.model, ids, prompt), []
    for queries, keys, prompt_keys in zip(after.queries, after.keys, prompt.keys, strict=True):
        heads = []
        for head, own in enumerate(queries):
            k = keys[head // (len(queries) // len(keys))]
            total = [0.0] * length
            for place in range(len(ids)) if weights == "sum" else [len(ids) - 1]:
                end = length + place + 1 if denominator == "visible" else length
                row = softmax([float(own[place] @ k[i]) / sqrt(k.shape[1]) for i in range(end)])
                total = [a + b for a, b in zip(total, row[:length], strict=True)]
            heads.append(total)
        ratio = len(heads) // len(prompt_keys)
        if granularity == "kv_head":
            groups = [heads[group * ratio : (group + 1) * ratio] for group in range(len(prompt_keys))]
            heads = [[sum(column) for column in zip(*group, strict=True)] for group in groups]
        free = length - window
        scores.append([pool(head[:free], pooling, kernel) + [inf] * window for head in heads])
    return uniform(scores, budget)


def critical_snapkv(
    prompt: Trace, budget: int, *, window: int = 32, kernel: int = 7, pooling: str = "max", first: float = 0.5,
    epsilon: float = 1e-4, counts: str = "free", granularity: str = "kv_head",
) -> Result:  # fmt: skip
    if prompt.length <= budget:
        return Result(everything(prompt))
    free, scores = prompt.length - window, []
    sure = int(first * (budget - window)) if counts == "free" else max(0, int(first * budget) - window)
    sums = window_score(prompt, window, granularity, pooling, kernel)
    for layer, (heads, values) in enumerate(zip(sums, prompt.values, strict=True)):
        weight = prompt.model.model.layers[layer].self_attn.o_proj.weight
        dim, count = values.shape[-1], len(prompt.queries[layer])
        ratio = count // len(values)
        parts = [weight[:, head * dim : (head + 1) * dim] for head in range(count)]
        norms = [[float((part @ value).abs().sum()) for value in values[h // ratio]] for h, part in enumerate(parts)]
        if granularity == "kv_head":
            norms = [
                [fmean(c) for c in zip(*norms[g * ratio : (g + 1) * ratio], strict=True)] for g in range(len(values))
            ]
        rows = []
        for sums_of_head, norm in zip(heads, norms, strict=True):
            rows.append(
                critical(sums_of_head[:free], norm, window * count // len(heads), sure, epsilon) + [inf] * window
            )
        scores.append(rows)
    return uniform(scores, budget)


def critical(sums: list[float], norms: list[float], rows: int, sure: int, epsilon: float) -> list[float]:
    """The scores of both stages: infinite for those that the first keeps."""
    kept = top(sums, sure)
    return [inf if i in kept else (one / rows + epsilon) * norms[i] for i, one in enumerate(sums)]
