"""LongBench from the hub."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from pydantic import Field

from eval.console.errors import UserError
from eval.console.fields import Section
from eval.inputs import data, hub
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
        return of_archive(self._archive, subset, self.repository)

    @cached_property
    def _archive(self) -> Path:
        return archive(self.repository, self.revision)


def of_archive(path: Path, subset: str, repository: str) -> Loaded:
    """Read a subset from the hub's archive; its `source` names the commit."""
    commit = path.parent.name  # .../snapshots/COMMIT/data.zip
    return data.load_zip(path, subset, f"{repository}@{commit}")


def archive(repository: str, revision: str, cache: str | Path | None = None, endpoint: str | None = None) -> Path:
    """The hub's `data.zip`, downloaded once into the hub's cache.

    Args:
        revision: branch, tag or commit.
        cache: folder of the hub's cache, None for the usual one.
        endpoint: address of the hub, None for the usual one or the environment's HF_ENDPOINT.

    Raises:
        UserError: the hub cannot be reached or lacks the revision and the cache has no copy.
    """
    try:
        return hub.file(
            repository, "data.zip", endpoint=endpoint, repo_type="dataset", revision=revision, cache_dir=cache
        )
    except Exception as error:  # the hub's own errors, or those of a transport that differs by its edition
        reason = str(error).split("\n")[0].split(". ")[0]
        raise UserError(
            f"cannot get data.zip of {repository} at {revision} ({type(error).__name__}: {reason}); "
            "check network, revision and HF_ENDPOINT, or use a local copy: data=jsonl data.path=FOLDER_OR_ZIP"
        ) from error
