"""FullKV: nothing is evicted."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from echokv.prefill import Prefill
from echokv.press import Press
from echokv.selection import Selection


@dataclass(frozen=True, kw_only=True)
class FullKV(Press):
    """The reference row: the whole prompt stays. It takes no budget."""

    takes_budget: ClassVar[bool] = False

    def select_all(self, prefill: Prefill, budgets: Sequence[int | None]) -> Iterator[Selection]:
        for _ in budgets:
            yield Selection.everything(prefill.layers, prefill.groups, prefill.length)
