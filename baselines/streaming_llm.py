"""StreamingLLM: attention sinks and the most recent tokens."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from echokv.prefilling import Prefill
from echokv.press import Press
from echokv.selection import Selection


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

    def choose(self, prefill: Prefill, budgets: Sequence[int]) -> list[Selection]:
        heads = prefill.groups if self.granularity == "kv_head" else prefill.heads
        tokens = torch.arange(prefill.length, device=prefill.logits.device)
        ends = [torch.cat([tokens[: self.n_sink], tokens[self.n_sink - budget :]]) for budget in budgets]
        return [Selection.of([kept.expand(heads, -1)] * prefill.layers, prefill.length) for kept in ends]
