"""CriticalKV over Ada-KV over SnapKV: heads share by attention, and fill their shares in two stages."""

from dataclasses import dataclass

from echokv.prefilling import Prefill
from echokv.press import Scores
from echokv.selection import Keep

from .ada import Ada
from .critical_snapkv import CriticalSnapKV
from .snapkv import SnapKV


@dataclass(frozen=True, kw_only=True)
class CriticalAdaSnapKV(Ada, CriticalSnapKV):
    """Head budgets by SnapKV's scores, then CriticalKV's two stages in each head (Feng et al., arXiv 2502.03805)."""

    def head_budgets(self, scores: Scores, budget: int, prefill: Prefill) -> Keep:
        # By attention alone: `scores` may hold the norms of the second stage already.
        base = super().head_budgets
        return prefill.share((self, budget), lambda: base(SnapKV.score(self, prefill), budget, prefill))

    def sure(self, size: int, budget: int) -> int:
        """Of a head; what the safeguard holds is in the first stage too."""
        safe = int(budget * self.part) - self.window if self.rule == "safeguard" else 0
        return max(safe, super().sure(size, budget))
