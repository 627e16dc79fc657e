"""Heads that share a budget by their scores, of a layer or of the whole model."""

from dataclasses import dataclass
from typing import Literal

import torch

from echokv.errors import UsageError
from echokv.prefilling import Prefill
from echokv.press import Scores
from echokv.selection import Keep, cut

from .ada import Ada


@dataclass(frozen=True, kw_only=True)
class Across(Ada):
    """The tokens of the best scores stay, whichever head they are of.

    across: heads share the budget of their layer, as in Ada-KV without its safeguard, or that of the model.
    """

    across: Literal["layer", "model"] = "layer"
    alpha: float | None = 0.0
    rule: Literal["interpolate", "exact", "safeguard"] = "exact"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.across == "model" and self.part:
            raise UsageError(f"{type(self).__name__}.alpha is {self.alpha}; across=model has no safeguard: set it to 0")

    def head_budgets(self, scores: Scores, budget: int, prefill: Prefill) -> Keep:
        if self.across == "layer":
            return super().head_budgets(scores, budget, prefill)
        # All heads of the model as one row, so that of equal scores the lower layer's stays, then the lower head's.
        row = torch.cat([layer.reshape(1, -1).to(scores[0].device) for layer in scores], dim=1)
        heads = len(scores[0])
        best = cut([row], [[[budget * heads * prefill.layers]]])[0].held(0)
        kept: list[list[int]] = best.view(prefill.layers, heads, -1).sum(dim=-1).tolist()
        return kept
