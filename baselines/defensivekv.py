"""DefensiveKV: a token counts by the most that any query paid it, for a mean hides what was needed once."""

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from echokv.masses import spans, window_attention
from echokv.prefilling import Needs, Prefill
from echokv.scores import pool, protect, ranks

from .across import Across
from .critical_snapkv import output_norms


@dataclass(frozen=True, kw_only=True)
class DefensiveKV(Across):
    """Worst-case scores in CriticalKV's two stages, heads sharing by them (Feng et al., arXiv 2510.13334).

    A token's score is the largest attention that a query of the last `window` pays to it, over the query heads of a KV
    head too, each query's pooled by the mean of `kernel` neighbours and scaled back to its sum; none lies below the
    head's mean of these. It is multiplied by the L1 norm of what the value adds to the output, as a share of all
    heads' norms there. Before that, by mean attention alone, each head is sure of its best tokens short of the one at
    which they hold the share `covered` of it. The best of all heads' other tokens fill the budget.

    window_share: the window holds a part of `covered` by itself: what its queries pay to the window's own tokens
        ("window"), or, as the public code computes it, to as many tokens before them ("official").
    """

    window: int = 32
    kernel: int = 5
    covered: float = 0.9
    window_share: Literal["official", "window"] = "official"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.at_least("window", 1)
        self.odd("kernel")
        self.at_least("covered", 0.0)
        self.at_most("covered", 1.0)

    @property
    def needs(self) -> Needs:
        return Needs(window=self.window)

    @property
    def least_budget(self) -> int:
        return self.window + 1

    def scope(self, budget: int) -> int:
        return budget

    def score(self, prefill: Prefill, budget: int | None = None) -> list[Float[Tensor, "heads L"]]:
        assert budget is not None  # `scope` asks for it
        scores: list[Float[Tensor, "heads L"]] = []
        for score, rank, reach in prefill.share(self, lambda: self._judged(prefill)):
            sure = rank < reach.clamp(max=budget - self.window)[..., None]
            scores.extend(protect(score.masked_fill(sure, torch.inf), self.window))
        return scores

    def _judged(self, prefill: Prefill) -> list[tuple[Tensor, Tensor, Tensor]]:
        """What no budget changes: each token's score, its rank by mean attention, and how many would be sure."""
        norms = output_norms(self, prefill)
        return [
            self._judge(window_attention(prefill, some, self.window), torch.stack([norms[layer] for layer in some]))
            for some in spans(prefill, self.window)
        ]

    def _judge(
        self, paid: Float[Tensor, "layers H window n"], norms: Float[Tensor, "layers heads L"]
    ) -> tuple[Tensor, Tensor, Tensor]:
        norms = norms[..., : paid.shape[-1]]
        by_head = paid.view(*norms.shape[:2], -1, paid.shape[-1])
        score = self.worst(by_head) * norms / norms.sum(dim=1, keepdim=True)
        mean = by_head.mean(dim=2)
        return score, ranks(mean), self.reach(mean, paid)

    def worst(self, paid: Float[Tensor, "layers heads rows n"]) -> Float[Tensor, "layers heads n"]:
        """The most that any row pays to each token, at least their mean."""
        pooled = pool(paid.flatten(0, 2), self.kernel, "avg").view_as(paid)
        pooled.mul_(paid.sum(dim=-1, keepdim=True) / pooled.sum(dim=-1, keepdim=True))
        most = pooled.amax(dim=2)
        return most.clamp(min=most.mean(dim=-1, keepdim=True))

    def reach(
        self, mean: Float[Tensor, "layers heads n"], paid: Float[Tensor, "layers H window n"]
    ) -> Int[Tensor, "layers heads"]:
        """How many of its best tokens by mean attention hold less than `covered` of each head's."""
        if self.window_share == "window":
            share = 1 - paid.sum(dim=-1).mean(dim=(1, 2))
        else:
            share = paid[..., -self.window :].sum(dim=-1).mean(dim=(1, 2))
        held = (mean / mean.sum(dim=-1, keepdim=True)).sort(descending=True).values.cumsum(dim=-1)
        return (held < (self.covered - share)[:, None, None]).sum(dim=-1)
