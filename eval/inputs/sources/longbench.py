"""LongBench from the hub."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from pydantic import Field

from eval.console.fields import Section
from eval.inputs import data
from eval.inputs.data import Loaded


class LongBench(Section):
    """The archive `data.zip` of a hub repository. Its content, not its address, tells one edition from another."""

    repository: str = Field(data.REPOSITORY, min_length=1, description="a hub repository, such as zai-org/LongBench")
    revision: str = Field("main", min_length=1, description="a branch, tag or commit")

    @property
    def name(self) -> str:
        return "longbench"

    @property
    def identity(self) -> dict[str, Any]:
        return {"source": self.name, "sha256": [data.digest_of(self._archive)]}

    def subsets(self) -> Sequence[str]:
        return ("english",)

    def read(self, subset: str) -> Loaded:
        """Raises UserError where the hub cannot be reached and its cache has no copy, and for bad content."""
        return data.from_archive(self._archive, subset, self.repository)

    @cached_property
    def _archive(self) -> Path:
        return data.archive(self.repository, self.revision)
