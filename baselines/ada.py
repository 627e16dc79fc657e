"""Ada-KV: heads of a layer share its budget by their scores."""

from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

import torch

from baselines.pyramidkv import PyramidKV
from baselines.snapkv import SnapKV
from echokv.errors import UsageError
from echokv.prefilling import Prefill
from echokv.press import Press, Scores
from echokv.selection import Keep, cut


@dataclass(frozen=True, kw_only=True)
class Ada(Press):
    """Head budgets by another method's scores (Feng et al., arXiv 2407.11550): `class AdaSnapKV(Ada, SnapKV)`.

    Of a layer's budget the tokens that the other method protects stay in every head. For the rest, C a head, the
    layer's best tokens of all heads are taken; a head that holds n of them gets n (1 - alpha) + C alpha.

    alpha: the share that every head is sure of: 1 is the other method, 0 leaves all to the scores. None takes 0.2
        for KV heads and 0.5 for query heads, as the published tables.
    shares: "official" rounds a head's two terms as the public code does, C alpha down and then the sum to the nearest
        even number, so that a layer may store a little more or less than its budget; "exact" rounds down and gives
        what is missing to the largest remainders, lower heads first.
    """

    alpha: float | None = None
    shares: Literal["official", "exact"] = "official"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.safeguard <= 1:
            raise UsageError(f"{type(self).__name__}.alpha is {self.alpha}; it must be from 0 to 1")

    @property
    def safeguard(self) -> float:
        """alpha, chosen."""
        return self.alpha if self.alpha is not None else 0.2 if self.granularity == "kv_head" else 0.5

    def head_budgets(self, scores: Scores, budget: int, prefill: Prefill) -> Keep:
        device = scores[0].device
        protected = torch.stack([layer.isposinf().sum(dim=1).to(device) for layer in scores]).tolist()
        budgets = self.layer_budgets(budget, prefill)
        own = [[size - n for n in layer] for size, layer in zip(budgets, protected, strict=True)]
        # All heads of a layer as one row: of equal scores the lower head's stays, then the lower index.
        free = [layer.masked_fill(layer.isposinf(), -torch.inf).view(1, -1) for layer in scores]
        best = cut(free, [[[sum(sizes)] for sizes in own]])[0]
        held = [best.held(layer).view(len(sizes), -1).sum(dim=1).to(device) for layer, sizes in enumerate(own)]
        won = torch.stack(held).tolist()
        return [
            [
                n + size
                for n, size in zip(layer, share(gained, sizes, self.safeguard, self.shares == "exact"), strict=True)
            ]
            for layer, gained, sizes in zip(protected, won, own, strict=True)
        ]


def share(won: list[int], own: list[int], alpha: float, exact: bool) -> list[int]:
    """Tokens of each head of a layer, between what it won among all heads' best and its even share."""
    if not exact:
        return [round(n * (1 - alpha) + int(size * alpha)) for n, size in zip(won, own, strict=True)]
    part = Fraction(str(alpha))
    targets = [n * (1 - part) + size * part for n, size in zip(won, own, strict=True)]
    sizes = [int(target) for target in targets]
    by_remainder = sorted(range(len(sizes)), key=lambda head: (sizes[head] - targets[head], head))
    for head in by_remainder[: sum(own) - sum(sizes)]:
        sizes[head] += 1
    return sizes


@dataclass(frozen=True, kw_only=True)
class AdaSnapKV(Ada, SnapKV):
    """Ada-KV on SnapKV's scores."""


@dataclass(frozen=True, kw_only=True)
class AdaPyramidKV(Ada, PyramidKV):
    """Ada-KV on SnapKV's scores, within PyramidKV's layer budgets."""
