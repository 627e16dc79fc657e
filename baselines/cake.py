"""CAKE: layers whose attention is spread and restless get more of the budget."""

from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from echokv.masses import spans, window_attention
from echokv.prefilling import Needs, Prefill
from echokv.press import Press
from echokv.scores import pool, protect


class Watched(NamedTuple):
    """The attention of layers' last queries: mean and variance over them, its entropy, and the variance's sum."""

    mean: Float[Tensor, "layers H n"]
    variance: Float[Tensor, "layers H n"]
    entropy: Float[Tensor, " layers"]
    restlessness: Float[Tensor, " layers"]


@dataclass(frozen=True, kw_only=True)
class CAKE(Press):
    """Layer budgets and scores of the last `window` queries' attention (Qin et al., ICLR 2025, sections 3 and 4).

    A layer's preference is the entropy of that attention to the power 1 / tau1, times its variance over the queries
    to the power 1 / tau2, each summed over heads and prompt; layers share the budget in proportion. A token's score
    is the mean plus `gamma` times the variance over the queries of what it receives, average-pooled over `kernel`
    neighbours, averaged over the query heads of a KV head. Published taus differ by model and budget.

    total: "official" spreads what a layer cannot use once over the others, as the public code does, and loses what
        they cannot use either; "cascading" is that code with its option of this name, which evicts after each layer
        from all so far, so that a layer keeps the least that it was ever allotted; "exact" spreads until the layers'
        sum is layers * budget.
    """

    window: int = 32
    kernel: int = 5
    gamma: float = 200.0
    tau1: float = 1.0
    tau2: float = 1.0
    total: Literal["official", "cascading", "exact"] = "official"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.at_least("window", 2)
        self.odd("kernel")

    @property
    def needs(self) -> Needs:
        return Needs(window=self.window)

    @property
    def least_budget(self) -> int:
        return self.window + 1

    def watched(self, prefill: Prefill) -> list[Watched]:
        """What scores and preferences are made of; each is of some neighbouring layers."""
        return prefill.share(
            (CAKE, self.window), lambda: [self._watch(prefill, some) for some in spans(prefill, self.window)]
        )

    def _watch(self, prefill: Prefill, some: range) -> Watched:
        paid = window_attention(prefill, some, self.window)
        mean = paid.mean(dim=2)
        # torch's own variance takes thirty times as long on a CPU.
        variance = (paid - mean[:, :, None]).square_().sum(dim=2) / (self.window - 1)
        entropy = -(paid + 1e-10).log_().mul_(paid).sum(dim=(1, 2, 3))
        return Watched(mean, variance, entropy, variance.sum(dim=(1, 2)))

    def score(self, prefill: Prefill, budget: int | None = None) -> list[Float[Tensor, "heads L"]]:
        raw = ((some.mean + self.gamma * some.variance).flatten(0, 1) for some in self.watched(prefill))
        by_head = (self.by_head(pool(part, self.kernel, "avg"), prefill) for part in raw)
        return self.by_layer((protect(part, self.window) for part in by_head), prefill)

    def layer_budgets(self, budget: int, prefill: Prefill) -> list[int]:
        device = prefill.logits.device
        shares = torch.cat([self._preference(some).to(device) for some in self.watched(prefill)]).cpu()
        total, most, layers = (budget - self.window) * prefill.layers, prefill.length - self.window, prefill.layers
        first = 1 if self.total == "cascading" else layers
        sharing = [shares[:n] for n in range(first, layers + 1)]  # the layers so far
        sizes = [allot((some / some.sum() * total).tolist(), total, most, self.total == "exact") for some in sharing]
        return [self.window + min(stage[layer] for stage in sizes if layer < len(stage)) for layer in range(layers)]

    def _preference(self, some: Watched) -> Float[Tensor, " layers"]:
        return some.entropy ** (1 / self.tau1) * some.restlessness ** (1 / self.tau2)


def allot(shares: list[float], total: int, most: int, exact: bool) -> list[int]:
    """Whole numbers near `shares`, none above `most`, whose sum is `total` where that is possible.

    What layers cannot use is spread over those that are not full, and then what rounding down has left; what comes to
    more than `most` in this is lost. exact: both are spread together, until nothing is left over.
    """
    rounded = sum(map(int, shares))
    sizes = [min(int(share), most) for share in shares]
    if not exact:
        sizes = _spread(_spread(sizes, rounded - sum(sizes), most), total - rounded, most)
        return [min(size, most) for size in sizes]
    while (left := total - sum(sizes)) > 0 and min(sizes) < most:
        sizes = [min(size, most) for size in _spread(sizes, left, most)]
    return sizes


def _spread(sizes: list[int], left: int, most: int) -> list[int]:
    """Add `left` evenly to those that are not full; what no even share is left of goes to the first of these."""
    free = [i for i, size in enumerate(sizes) if size < most]
    each, more = divmod(max(left, 0), len(free) or 1)
    gained = {i: each + (place < more) for place, i in enumerate(free)}
    return [size + gained.get(i, 0) for i, size in enumerate(sizes)]
