"""CriticalKV over SnapKV: what a value would add to the output counts beside the attention it gets."""

from dataclasses import dataclass
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor

from baselines.snapkv import SnapKV
from echokv.prefilling import Prefill
from echokv.scores import accumulator, protect


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
        free, rows = budget - self.window, self.window
        if self.granularity == "kv_head":
            rows *= prefill.heads // prefill.groups
        sure = int(self.first * free) if self.counts == "free" else max(0, int(self.first * budget) - self.window)
        scores = []
        for layer, sums in enumerate(super().score(prefill)):
            mean = sums[:, : prefill.length - self.window] / rows
            both = (mean + self.epsilon) * self.output_norms(prefill, layer)[:, : mean.shape[1]]
            best = mean.sort(descending=True, stable=True).indices[:, :sure]
            scores.append(protect(both.scatter(1, best, torch.inf), self.window))
        return scores

    def output_norms(self, prefill: Prefill, layer: int) -> Float[Tensor, "heads L"]:
        """L1 norm of each value behind its head's part of the output projection."""
        project: Any = prefill.model.model.layers[layer].self_attn.o_proj.weight
        values = prefill.values[layer]
        values = values.to(accumulator(values.dtype))
        by_head = project.to(values.dtype).view(project.shape[0], prefill.heads, -1)
        shared = prefill.heads // prefill.groups
        # One head after the other: all at once would be as large as the layer's whole output for every head.
        norms = [(values[h // shared] @ by_head[:, h].T).abs().sum(dim=-1) for h in range(prefill.heads)]
        found = self.by_head(torch.stack(norms), prefill)
        return found / shared if self.granularity == "kv_head" else found
