"""FullKV: nothing is evicted."""

from dataclasses import dataclass

from torch import Tensor

from echokv.prefill import Prefill
from echokv.press import Press
from echokv.selection import Selection


@dataclass(frozen=True, kw_only=True)
class FullKV(Press):
    """The reference row: the whole prompt stays. It takes no budget."""

    def select(self, prefill: Prefill, budget: int | None = None) -> Selection:
        return Selection.everything(prefill.layers, prefill.groups, prefill.length)
