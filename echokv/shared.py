"""What several policies at work on one prefill have in common."""

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import torch

from echokv.devices import now

Made = TypeVar("Made")


class Shared:
    """Results by what they depend on beside the prefill, kept while any policy is at work. They are only read.

    Who asks for a result that is there already is spared the seconds that it took: `bill` tells them.
    """

    def __init__(self) -> None:
        self._open = 0
        self._bill: dict[Hashable, float] = {}
        self._made: dict[Hashable, tuple[object, float]] = {}

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keep results until this, and whatever else holds them, is over."""
        self._open += 1
        try:
            yield
        finally:
            self._open -= 1
            if not self._open:
                self._made.clear()
                self._bill.clear()

    def get(self, key: Hashable, make: Callable[[], Made], device: torch.device) -> Made:
        """The result under this key, made if there is none; while nobody holds, it is made for each who asks.

        device: the one whose clock says how long it took.
        """
        if not self._open:
            return make()
        if key not in self._made:
            begun = now(device)
            self._made[key] = make(), now(device) - begun
            self._bill[key] = 0.0
        found, seconds = self._made[key]
        self._bill.setdefault(key, seconds)
        return found  # type: ignore[return-value]

    def bill(self) -> dict[Hashable, float]:
        """By key, what was asked for since this was last called, and the seconds that were spared: 0 if it was made."""
        bill, self._bill = self._bill, {}
        return bill
