"""DefensiveKV's naive twin: slow and obvious, in float64, one query and one token at a time."""

from math import inf
from statistics import fmean

from tests.twin import Result, Scores, everything, pool
from tests.twin_model import Trace
from tests.twin_rivals import paid


def output_norms(prompt: Trace, layer: int, count: int) -> list[list[float]]:
    """Per query head, the L1 norm of what each of the first values adds to the layer's output."""
    weight = prompt.model.model.layers[layer].self_attn.o_proj.weight
    values, heads = prompt.values[layer], len(prompt.queries[layer])
    dim, ratio = values.shape[-1], heads // len(values)
    return [
        [float((weight[:, h * dim : (h + 1) * dim] @ value).abs().sum()) for value in values[h // ratio][:count]]
        for h in range(heads)
    ]


def sure(mean: list[float], covered: float, most: int) -> list[int]:
    """The tokens of most attention, short of the one at which they hold the share `covered` of all of it."""
    order = sorted(range(len(mean)), key=lambda i: -mean[i])
    found: list[int] = []
    held = 0.0
    for i in order:
        held += mean[i] / sum(mean)
        if held >= covered or len(found) == most:
            break
        found.append(i)
    return found


def worst(rows: list[list[float]], kernel: int) -> list[float]:
    pooled = [pool(row, "avg", kernel) for row in rows]
    scaled = [[one * sum(row) / sum(own) for one in own] for row, own in zip(rows, pooled, strict=True)]
    most = [max(column) for column in zip(*scaled, strict=True)]
    return [max(one, fmean(most)) for one in most]


def scores_of(
    prompt: Trace, layer: int, budget: int, window: int, kernel: int, covered: float, share: str, granularity: str
) -> list[list[float]]:
    free, heads = prompt.length - window, len(prompt.queries[layer])
    whole = [[paid(prompt, layer, h, position) for position in range(free, prompt.length)] for h in range(heads)]
    on_window = fmean(sum(row[free:]) for head in whole for row in head)
    before_it = fmean(sum(row[free - window : free]) for head in whole for row in head)
    rows, norms = [[row[:free] for row in head] for head in whole], output_norms(prompt, layer, free)
    if granularity == "kv_head":
        ratio = heads // len(prompt.keys[layer])
        groups = [range(first, first + ratio) for first in range(0, heads, ratio)]
        rows = [[row for h in group for row in rows[h]] for group in groups]
        norms = [[fmean(column) for column in zip(*(norms[h] for h in group), strict=True)] for group in groups]
    all_norms = [sum(column) for column in zip(*norms, strict=True)]
    result = []
    for own, norm in zip(rows, norms, strict=True):
        mean = [fmean(column) for column in zip(*own, strict=True)]
        first = sure(mean, covered - (on_window if share == "window" else before_it), budget - window)
        second = [one * n / total for one, n, total in zip(worst(own, kernel), norm, all_norms, strict=True)]
        result.append([inf if i in first else one for i, one in enumerate(second)] + [inf] * window)
    return result


def best(scores: list[list[float]], count: int) -> list[list[int]]:
    """The best tokens of several heads together; of equal ones the lower head's, then the lower index."""
    triples = [(-score, head, i) for head, row in enumerate(scores) for i, score in enumerate(row)]
    kept = sorted(triples)[:count]
    return [sorted(i for _, h, i in kept if h == head) for head in range(len(scores))]


def defensivekv(
    prompt: Trace, budget: int, *, window: int = 32, kernel: int = 5, covered: float = 0.9,
    window_share: str = "official", across: str = "layer", granularity: str = "kv_head",
) -> Result:  # fmt: skip
    if prompt.length <= budget:
        return Result(everything(prompt))
    scores: Scores = [
        scores_of(prompt, layer, budget, window, kernel, covered, window_share, granularity)
        for layer in range(len(prompt.keys))
    ]
    heads = len(scores[0])
    if across == "layer":
        return Result([best(layer, budget * heads) for layer in scores], scores)
    rows = best([row for layer in scores for row in layer], budget * heads * len(scores))
    return Result([rows[first : first + heads] for first in range(0, len(rows), heads)], scores)
