"""Ada-KV: heads of a layer share its budget by their scores."""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

import torch
from jaxtyping import Bool
from torch import Tensor

from echokv import EchoKV
from echokv.errors import UsageError
from echokv.prefilling import Prefill
from echokv.press import Press, Scores
from echokv.selection import Keep, cut, stacks

from .pyramidkv import PyramidKV
from .snapkv import SnapKV


@dataclass(frozen=True, kw_only=True)
class Ada(Press):
    """Head budgets by another method's scores (Feng et al., arXiv 2407.11550): `class AdaSnapKV(Ada, SnapKV)`.

    Of a layer's budget the tokens that the other method protects stay in every head. For the rest, C a head, the
    layer's best tokens of all heads are taken; a head that holds n of them gets n (1 - alpha) + C alpha.

    alpha: the share that every head is sure of: 1 is the other method, 0 leaves all to the scores. None takes 0.2
        for KV heads and 0.5 for query heads, as the published tables.
    rule: "interpolate" rounds a head's two terms as the public code does, C alpha down and then the sum to the nearest
        even number, so that a layer may store a little more or less than its budget; "exact" rounds down and gives
        what is missing to the largest remainders, lower heads first. "safeguard" is that of NVIDIA's kvpress: the
        best int(budget alpha) tokens of each head stay, what is protected counted among them, and the best of all
        heads' other tokens fill the layer's budget.
    """

    alpha: float | None = None
    rule: Literal["interpolate", "exact", "safeguard"] = "interpolate"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.part <= 1:
            raise UsageError(f"{type(self).__name__}.alpha is {self.alpha}; it must be from 0 to 1")

    @property
    def part(self) -> float:
        """alpha, chosen."""
        return self.alpha if self.alpha is not None else 0.2 if self.granularity == "kv_head" else 0.5

    def head_budgets(self, scores: Scores, budget: int, prefill: Prefill) -> Keep:
        budgets = self.layer_budgets(budget, prefill)
        kept = [layer for part in stacks(scores) for layer in part.isposinf()]
        sure = _counts(kept, len(scores[0]))
        if self.rule == "safeguard":
            least = [max(1, int(size * self.part)) if self.part else 0 for size in budgets]
            sure = [[max(n, safe) for n in layer] for safe, layer in zip(least, sure, strict=True)]
            kept = cut(scores, [sure])[0].every_held()
        own = [[size - n for n in layer] for size, layer in zip(budgets, sure, strict=True)]
        pairs = zip(stacks(scores), stacks(kept), strict=True)
        won = _won([layer for part, mask in pairs for layer in part.masked_fill(mask, -torch.inf)], own)
        if self.rule != "safeguard":
            exact = self.rule == "exact"
            won = [share(gained, sizes, self.part, exact) for gained, sizes in zip(won, own, strict=True)]
        return [[n + size for n, size in zip(*pair, strict=True)] for pair in zip(sure, won, strict=True)]


def _won(scores: Scores, own: list[list[int]]) -> list[list[int]]:
    """How many of its tokens each head has among the best of its layer, which are as many as `own` adds up to."""
    # All heads of a layer as one row: of equal scores the lower head's stays, then the lower index.
    best = cut([layer.reshape(1, -1) for layer in scores], [[[sum(sizes)] for sizes in own]])[0]
    return _counts(best.every_held(), len(own[0]))


def _counts(masks: Sequence[Bool[Tensor, "..."]], heads: int) -> list[list[int]]:
    """How many tokens of each head of each layer are marked; the heads of a layer may be one row."""
    counts = [part.view(len(part), heads, -1).sum(dim=-1) for part in stacks(masks)]
    found: list[list[int]] = torch.cat([part.to(counts[0].device) for part in counts]).tolist()
    return found


def share(won: list[int], own: list[int], alpha: float, exact: bool) -> list[int]:
    """Tokens of each head of a layer, between what it won among all heads' best and its even share."""
    if not exact:
        return [round(n * (1 - alpha) + int(size * alpha)) for n, size in zip(won, own, strict=True)]
    part = Fraction(str(alpha))
    return whole([n * (1 - part) + size * part for n, size in zip(won, own, strict=True)], sum(own))


def whole(targets: Sequence[Fraction | float], total: int) -> list[int]:
    """Targets rounded down; what is missing from the total goes to the largest remainders, lower heads first."""
    sizes = [int(target) for target in targets]
    by_remainder = sorted(range(len(sizes)), key=lambda head: (sizes[head] - targets[head], head))
    for head in by_remainder[: total - sum(sizes)]:
        sizes[head] += 1
    return sizes


@dataclass(frozen=True, kw_only=True)
class AdaSnapKV(Ada, SnapKV):
    """Ada-KV on SnapKV's scores."""


@dataclass(frozen=True, kw_only=True)
class AdaPyramidKV(Ada, PyramidKV):
    """Ada-KV on SnapKV's scores, within PyramidKV's layer budgets."""


@dataclass(frozen=True, kw_only=True)
class AdaEchoKV(Ada, EchoKV):
    """Ada-KV on EchoKV's scores."""
