"""Records of one's own, or a copy of LongBench: JSONL files in a folder or a zip, or a single one."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import Field

from eval.console.errors import UserError
from eval.console.fields import LocalPath, Section
from eval.inputs import data
from eval.inputs.data import Loaded
from eval.keeping.store import NAME

_PATH = "a folder of SUBSET.jsonl files, a zip or one file: data=jsonl needs data.path=FOLDER"


class Jsonl(Section):
    """A folder of SUBSET.jsonl files (also below `data/`), a zip of one, or one file.

    label: the name by which answers to these records are told from those to others, wherever they lie; by default
        the folder's or the zip's own, for a single file that of the folder it lies in.
    """

    path: LocalPath = Field(description=_PATH)
    label: str | None = Field(None, description="a name of letters, digits, '.', '+', '-' and '_'")

    @property
    def name(self) -> str:
        return "jsonl"

    @property
    def identity(self) -> dict[str, Any]:
        """Of the files no digest: they may grow, and what is answered stays.

        Raises UserError for a label that cannot name a folder.
        """
        path = Path(os.path.abspath(self.path))  # not resolved: a link's own name is the one that the user sees
        place = path.parent if path.is_file() and path.suffix != ".zip" else path
        label = place.name.removesuffix(".zip") if self.label is None else self.label
        if not NAME.fullmatch(label):
            raise UserError(
                f"{label!r} cannot name a data set; give data.label=NAME of letters, digits, '.', '+', '-' and '_'"
            )
        return {"source": self.name, "label": label}

    def subsets(self) -> Sequence[str]:
        """Subsets found in the folder or the zip, or the one that a single file is named after."""
        path = self.path
        if not path.exists():
            raise UserError(f"data.path={path}: there is no such folder or file")
        return data.present(path)

    def read(self, subset: str) -> Loaded:
        return data.load_folder(self.path, subset)
