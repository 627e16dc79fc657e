"""CriticalKV over SnapKV: what a value would add to the output counts beside the attention it gets."""

from dataclasses import dataclass
from itertools import product
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor

from echokv.devices import sent
from echokv.prefilling import Prefill
from echokv.press import Press
from echokv.scores import accumulator, products, protect, ranks, room
from echokv.selection import stacks

from .snapkv import SnapKV


@dataclass(frozen=True, kw_only=True)
class CriticalSnapKV(SnapKV):
    """SnapKV's selection in two stages (Feng et al., arXiv 2502.03805, section 4 and Algorithm 1).

    The first stage keeps the share `first` of the budget by SnapKV's score, the mean attention of the window. The
    second fills it up by (score + epsilon) times the L1 norm of what the value adds to the layer's output, averaged
    over the query heads of a KV head.

    counts: what `first` is a share of: the budget without the window ("free"), or the whole budget, with the window
        as the first of those that the first stage keeps ("budget", as NVIDIA's kvpress has it).
    """

    first: float = 0.5
    epsilon: float = 1e-4
    counts: Literal["free", "budget"] = "free"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.at_least("first", 0.0)
        self.at_most("first", 1.0)

    def scope(self, budget: int) -> int:
        return budget

    def score(self, prefill: Prefill, budget: int | None = None) -> list[Float[Tensor, "heads L"]]:
        assert budget is not None  # `scope` asks for it
        rows = self.window * (prefill.heads // prefill.groups if self.granularity == "kv_head" else 1)
        sums = super().score(prefill)
        keep = self.head_budgets(sums, budget, prefill)
        scores: list[Float[Tensor, "heads L"]] = []
        for mass, norms in zip(stacks(sums), stacks(output_norms(self, prefill)), strict=True):
            mean = mass[..., : prefill.length - self.window] / rows
            both = (mean + self.epsilon) * norms[..., : mean.shape[-1]]
            some = keep[len(scores) : len(scores) + len(mass)]
            sure = sent([[self.sure(size, budget) for size in heads] for heads in some], mean.device)
            scores.extend(protect(both.masked_fill(ranks(mean) < sure[..., None], torch.inf), self.window))
        return scores

    def sure(self, size: int, budget: int) -> int:
        """How many of the tokens before the window the first stage keeps, of a head that keeps `size` in all."""
        if self.counts == "free":
            return int(self.first * (size - self.window))
        return max(0, int(self.first * size) - self.window)


def output_norms(press: Press, prefill: Prefill) -> list[Float[Tensor, "heads L"]]:
    """L1 norm of each value behind its head's part of the output projection, the mean of a KV head's query heads."""
    every = prefill.share(output_norms, lambda: [_output_norms(prefill, layer) for layer in range(prefill.layers)])
    rows = prefill.heads // prefill.groups if press.granularity == "kv_head" else 1
    return press.by_layer((press.by_head(part.flatten(0, 1), prefill) / rows for part in stacks(every)), prefill)


def _output_norms(prefill: Prefill, layer: int) -> Float[Tensor, "H L"]:
    """Of every query head."""
    block: Any = prefill.model.model.layers[prefill.places[layer]]
    values = prefill.values[layer]
    project = block.self_attn.o_proj.weight.detach().to(values.dtype)
    (width, _), (groups, length, dim) = project.shape, values.shape
    dtype, shared = accumulator(values.dtype), prefill.heads // groups
    by_head = project.view(width, groups, shared, dim).permute(1, 2, 0, 3)
    norms = values.new_empty(groups, shared, length, dtype=dtype)
    # As many heads at a time as there is room for, and maybe not all tokens: a token has an output of the layer's width
    # for each head. Elsewhere than on a GPU nothing is gained by several.
    together = max(1, room(values) // (length * width)) if values.is_cuda else 1
    step = max(1, room(values) // (together * width))
    for group, one, first in product(range(0, groups, together), range(shared), range(0, length, step)):
        some, tokens = slice(group, group + together), slice(first, first + step)
        added = products(values[some, tokens], by_head[some, one], None, dtype)
        found = norms[some, one, tokens]
        if added.is_cuda:  # one pass over what is large; on a CPU this norm takes half as long again
            torch.linalg.vector_norm(added, ord=1, dim=-1, out=found)
        else:
            torch.sum(added.abs_(), dim=-1, out=found)
    return norms.flatten(0, 1)
