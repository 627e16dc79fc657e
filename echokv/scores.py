"""Scores of prompt tokens: the attention that a set of queries pays to them.

Everything is exact under any chunking: a softmax is taken over complete rows of logits only.
"""

from types import ModuleType
from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

Pooling = Literal["max", "avg", "none"]
Precision = Literal["float32", "legacy"]

LOGITS = 1 << 23  # logits held at a time: 32 MiB in float32, about what a CPU's cache holds
GPU_LOGITS = 1 << 26  # 256 MiB: few launches, and little beside the weights


def room(like: Tensor) -> int:
    """Logits held at a time where this tensor lies."""
    return GPU_LOGITS if like.is_cuda else LOGITS


def accumulator(dtype: torch.dtype) -> torch.dtype:
    """Scores are float32, or float64 where the model is."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def products(
    queries: Float[Tensor, "batch n D"], keys: Float[Tensor, "batch L D"], scaling: float | None, dtype: torch.dtype
) -> Float[Tensor, "batch n L"]:
    """Products of queries and keys in `dtype`, to which nothing is rounded before, scaled unless that is None.

    A GPU multiplies halves exactly and adds up in float32, so that it reads each key once, as it is stored.
    """
    if keys.is_cuda and keys.element_size() == 2 and dtype == torch.float32:
        found = torch.bmm(queries, keys.mT, out_dtype=dtype)
        return found if scaling is None else found.mul_(scaling)
    exact = queries.to(dtype)
    return torch.bmm(exact if scaling is None else exact * scaling, keys.to(dtype).mT)


def attention_mass(
    queries: Float[Tensor, "H n D"],
    keys: Float[Tensor, "G L D"],
    scaling: float,
    visible: Int[Tensor, " n"] | None = None,
    precision: Precision = "float32",
) -> Float[Tensor, "H L"]:
    """Sum over the n queries of the attention probability each pays to each key (EchoKV, section 4.1, Eq. 3).

    Query head h reads KV head h // (H // G). The softmax runs over the L keys given.

    visible: how many of the keys, counted from the first, each query sees: at least one, and all but the last n. None
        is all.
    precision: "legacy" rounds logits, probabilities and their sum to the model's dtype, as the public
        implementations of SnapKV and its descendants do; "float32" rounds nothing (float64 for a float64 model).
    """
    groups, length, dim = keys.shape
    heads, n, _ = queries.shape
    per_group = heads // groups
    dtype = queries.dtype if precision == "legacy" else accumulator(queries.dtype)
    grouped = queries.reshape(groups, per_group * n, dim)
    mass = torch.empty(heads, length, dtype=dtype, device=keys.device)
    at_once = max(1, room(keys) // (per_group * n * length))
    for first in range(0, groups, at_once):
        some = slice(first, min(first + at_once, groups))
        if precision == "legacy":
            logits = torch.bmm(grouped[some], keys[some].mT) * scaling
        else:
            logits = products(grouped[some], keys[some], scaling, dtype)
        logits = logits.view(-1, n, length)
        if visible is not None:
            hide(logits, visible.to(logits.device), n)
        weights = torch.softmax(logits, dim=-1, dtype=accumulator(dtype)).to(dtype)
        mass[some.start * per_group : some.stop * per_group] = weights.sum(dim=1)
    return mass.to(accumulator(dtype))


def hide(logits: Float[Tensor, "... heads n L"], visible: Int[Tensor, "... n"], last: int) -> None:
    """Give -inf, in place, to the keys that a query does not see; they are among the last ones, so many."""
    length = logits.shape[-1]
    first = max(0, length - last)
    columns = torch.arange(first, length, device=logits.device)
    logits[..., first:].masked_fill_(columns >= visible[..., None], -torch.inf)


def ranks(scores: Float[Tensor, "heads n"]) -> Int[Tensor, "heads n"]:
    """Each token's place among its head's, 0 for the highest score; of equal ones the lower index comes first."""
    return scores.sort(descending=True, stable=True).indices.sort().indices


def triton_kernels() -> ModuleType | None:
    """`echokv.kernels`, imported when a GPU first wants it; None where Triton is not installed."""
    try:
        from echokv import kernels
    except ImportError:
        return None
    return kernels


def sum_groups(mass: Float[Tensor, "H L"], groups: int) -> Float[Tensor, "G L"]:
    """Add up the scores of the query heads that share a KV head."""
    return mass.view(groups, -1, mass.shape[-1]).sum(dim=1)


def pool(scores: Float[Tensor, "heads n"], kernel: int, pooling: Pooling) -> Float[Tensor, "heads n"]:
    """Smooth scores along the sequence with stride 1 and kernel // 2 of padding (SnapKV, section 4.2).

    Max-pooling pads with -inf; average-pooling pads with zeros that count, so that edges score lower.
    """
    if pooling == "none":
        return scores
    smooth = F.max_pool1d if pooling == "max" else F.avg_pool1d
    return smooth(scores[:, None], kernel, stride=1, padding=kernel // 2)[:, 0]


def protect(scores: Float[Tensor, "heads n"], last: int) -> Float[Tensor, "heads n+last"]:
    """Append `last` tokens that are always kept: their score is +inf."""
    return F.pad(scores, (0, last), value=torch.inf)
