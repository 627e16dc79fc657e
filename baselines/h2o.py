"""H2O: heavy hitters and recent tokens."""

from dataclasses import dataclass
from typing import Literal

from jaxtyping import Float
from torch import Tensor

from echokv.prefilling import Needs, Prefill
from echokv.press import Press
from echokv.scores import protect


@dataclass(frozen=True, kw_only=True)
class H2O(Press):
    """Keep the tokens that received most attention, and the last `window` (Zhang et al., NeurIPS 2023, section 4).

    queries: "all" sums the attention of every prompt query, each seeing the keys up to its own position;
        "window" only that of the last `window` queries, which is what long-context comparisons have run under
        this name. The choice is made once, after the prefill. Sums over "all" are never rounded: `precision` is
        for "window".
    """

    queries: Literal["all", "window"] = "all"
    window: int = 32

    def __post_init__(self) -> None:
        super().__post_init__()
        self.at_least("window", 1)

    @property
    def needs(self) -> Needs:
        return Needs(column_sums=True) if self.queries == "all" else Needs(window=self.window)

    @property
    def least_budget(self) -> int:
        return self.window + 1

    def score(self, prefill: Prefill, budget: int | None = None) -> list[Float[Tensor, "heads L"]]:
        if self.queries == "window":
            return self.window_score(prefill, self.window, kernel=1, pooling="none")
        before = prefill.length - self.window
        return [protect(self.by_head(mass[:, :before], prefill), self.window) for mass in prefill.column_sums()]
