"""StreamingLLM: attention sinks and the most recent tokens."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from echokv.prefilling import Prefill
from echokv.press import Press


@dataclass(frozen=True, kw_only=True)
class StreamingLLM(Press):
    """Keep the first `n_sink` tokens and the last budget - n_sink (Xiao et al., ICLR 2024, section 3.2).

    The choice is made once, after the prefill, and kept keys stay at their own positions.
    """

    n_sink: int = 4

    def __post_init__(self) -> None:
        super().__post_init__()
        self.at_least("n_sink", 0)

    @property
    def least_budget(self) -> int:
        return self.n_sink + 1

    def score(self, prefill: Prefill, budget: int | None = None) -> list[Float[Tensor, "heads L"]]:
        heads = prefill.groups if self.granularity == "kv_head" else prefill.heads
        scores = torch.arange(prefill.length, dtype=torch.float64)
        scores[: self.n_sink] = torch.inf
        return [scores.expand(heads, prefill.length).to(keys.device) for keys in prefill.keys]
