"""FullKV: nothing is evicted."""

import sys
from dataclasses import dataclass
from typing import ClassVar

from echokv.press import Press


@dataclass(frozen=True, kw_only=True)
class FullKV(Press):
    """The reference row: the whole prompt stays. It takes no budget."""

    takes_budget: ClassVar[bool] = False

    def check(self, budget: int | None) -> int:
        return sys.maxsize  # no prompt is longer
