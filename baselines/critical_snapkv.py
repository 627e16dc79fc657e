"""CriticalKV over SnapKV: what a value would add to the output counts beside the attention it gets."""

from dataclasses import dataclass
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor

from echokv.prefilling import Prefill
from echokv.press import Press
from echokv.scores import accumulator, protect, ranks

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
        scores = []
        for layer, sizes in enumerate(self.head_budgets(sums, budget, prefill)):
            mean = sums[layer][:, : prefill.length - self.window] / rows
            both = (mean + self.epsilon) * output_norms(self, prefill, layer)[:, : mean.shape[1]]
            sure = torch.tensor([self.sure(size, budget) for size in sizes], device=mean.device)
            scores.append(protect(both.masked_fill(ranks(mean) < sure[:, None], torch.inf), self.window))
        return scores

    def sure(self, size: int, budget: int) -> int:
        """How many of the tokens before the window the first stage keeps, of a head that keeps `size` in all."""
        if self.counts == "free":
            return int(self.first * (size - self.window))
        return max(0, int(self.first * size) - self.window)


def output_norms(press: Press, prefill: Prefill, layer: int) -> Float[Tensor, "heads L"]:
    """L1 norm of each value behind its head's part of the output projection, the mean of a KV head's query heads."""
    found = press.by_head(prefill.share((output_norms, layer), lambda: _output_norms(prefill, layer)), prefill)
    return found / (prefill.heads // prefill.groups) if press.granularity == "kv_head" else found


def _output_norms(prefill: Prefill, layer: int) -> Float[Tensor, "H L"]:
    """Of every query head."""
    block: Any = prefill.model.model.layers[prefill.places[layer]]
    project = block.self_attn.o_proj.weight.detach()
    values = prefill.values[layer]
    values = values.to(accumulator(values.dtype))
    by_head = project.to(values.dtype).view(project.shape[0], prefill.heads, -1)
    shared = prefill.heads // prefill.groups
    # One head after the other: all at once would be as large as the layer's whole output for every head.
    return torch.stack([(values[h // shared] @ by_head[:, h].T).abs().sum(dim=-1) for h in range(prefill.heads)])
