"""SnapKV: the prompt's last queries vote, and neighbours of the elected stay too."""

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from echokv.prefilling import Needs, Prefill
from echokv.press import Press
from echokv.scores import Pooling


@dataclass(frozen=True, kw_only=True)
class SnapKV(Press):
    """Keep the last `window` tokens and those their queries attend to most (Li et al., NeurIPS 2024, section 4).

    Scores are pooled over `kernel` neighbours; the window counts within the budget.
    """

    window: int = 32
    kernel: int = 7
    pooling: Pooling = "max"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.at_least("window", 1)
        self.odd("kernel")

    @property
    def needs(self) -> Needs:
        return Needs(window=self.window)

    @property
    def least_budget(self) -> int:
        return self.window + 1

    def score(self, prefill: Prefill, budget: int | None = None) -> list[Float[Tensor, "heads L"]]:
        return self.window_score(prefill, self.window, self.kernel, self.pooling)
