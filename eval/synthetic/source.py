"""Synthetic records as a source of a run: data=synthetic."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, overload

from pydantic import Field

from eval import synthetic
from eval.console.errors import UserError
from eval.console.fields import Section
from eval.inputs.data import Loaded, Record
from eval.keeping.manifests import digest


@dataclass(frozen=True)
class _Made(Sequence[Record]):
    """Records by their numbers, each made when it is asked for: a limit or a shard takes no time for the others."""

    make: Callable[[int], Record]
    numbers: range

    def __len__(self) -> int:
        return len(self.numbers)

    @overload
    def __getitem__(self, place: int) -> Record: ...

    @overload
    def __getitem__(self, place: slice) -> Sequence[Record]: ...

    def __getitem__(self, place: int | slice) -> Record | Sequence[Record]:
        chosen = self.numbers[place]
        return _Made(self.make, chosen) if isinstance(chosen, range) else self.make(chosen)


class Synthetic(Section):
    """Records made from these values alone, as `eval.synthetic.make` says."""

    records: int = Field(20, ge=1, description="a whole number of records per task, at least 1")
    seed: int = Field(0, ge=0, description="a whole number, at least 0")
    length: int = Field(
        1024,
        ge=synthetic.LENGTHS[0],
        le=synthetic.LENGTHS[1],
        description=f"a whole number of prompt tokens from {synthetic.LENGTHS[0]} to {synthetic.LENGTHS[1]}",
    )
    dispersion: float = Field(1.0, ge=0, le=1, description="a number from 0 (together) to 1 (spread out)")
    facts: int = Field(
        4,
        ge=synthetic.FACTS[0],
        le=synthetic.FACTS[1],
        description=f"a whole number of pieces of evidence from {synthetic.FACTS[0]} to {synthetic.FACTS[1]}",
    )

    @property
    def name(self) -> str:
        return "synthetic"

    @property
    def identity(self) -> dict[str, Any]:
        return {"source": self.name, **self._values}

    def subsets(self) -> Sequence[str]:
        return ("synthetic",)

    def read(self, subset: str) -> Loaded:
        if subset not in synthetic.TASKS:
            raise UserError(f"subset '{subset}' is not synthetic: add data=longbench, or data=jsonl data.path=FOLDER")
        made = _Made(partial(synthetic.make, subset, **self._values), range(self.records))
        return Loaded(made, self.name, digest(self._values), None)

    @property
    def _values(self) -> dict[str, Any]:
        return {"seed": self.seed, "length": self.length, "facts": self.facts, "dispersion": float(self.dispersion)}
