"""PyramidKV: SnapKV's scores, with more of the budget for lower layers."""

from dataclasses import dataclass
from typing import Literal

from echokv.prefilling import Prefill

from .snapkv import SnapKV


@dataclass(frozen=True, kw_only=True)
class PyramidKV(SnapKV):
    """Layer budgets fall in equal steps from the first layer to the last (Cai et al., arXiv 2406.02069, section 3).

    With C = budget - window tokens to choose per layer, the last layer gets C // beta and the first 2C - C // beta.
    total: "floor" rounds the step down as the public code does, which stores more than `budget` on average;
        "exact" rounds the straight line so that the layers' sum is layers * budget.
    """

    window: int = 8
    beta: int = 20
    total: Literal["floor", "exact"] = "floor"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.at_least("beta", 1)

    def layer_budgets(self, budget: int, prefill: Prefill) -> list[int]:
        """Tokens per layer, windows included; uniform while the prompt is shorter than 2C."""
        layers, own = prefill.layers, budget - self.window
        if prefill.length < 2 * own or layers == 1:
            return [budget] * layers
        lowest = own // self.beta
        highest = 2 * own - lowest
        if highest >= prefill.length - self.window:
            highest = prefill.length - self.window
            lowest = 2 * own - highest
        if self.total == "floor":
            step = (highest - lowest) // (layers - 1)
            return [highest - layer * step + self.window for layer in range(layers)]
        return [size + self.window for size in _line(highest, lowest, layers)]


def _line(first: int, last: int, n: int) -> list[int]:
    """n whole numbers on the line from first to last whose sum is n * (first + last) / 2 rounded down.

    Each point is rounded down; what is missing goes to the largest remainders, lower layers first.
    """
    scaled = [first * (n - 1) - layer * (first - last) for layer in range(n)]
    sizes = [value // (n - 1) for value in scaled]
    short = n * (first + last) // 2 - sum(sizes)
    by_remainder = sorted(range(n), key=lambda layer: (-(scaled[layer] % (n - 1)), layer))
    for layer in by_remainder[:short]:
        sizes[layer] += 1
    return sizes
