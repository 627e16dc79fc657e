"""The inputs of a run: records of the chosen data, each with its prompt and everything that fixes its answer."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from eval.inputs import prompts as templates
from eval.inputs import subsets
from eval.inputs.sources import Source
from eval.inputs.subsets import Subset
from eval.keeping.manifests import digest


@dataclass(frozen=True)
class Shard:
    """Every so many-th example, beginning with number `part` (from 0) of each subset."""

    part: int
    parts: int

    @classmethod
    def of(cls, text: str | None) -> Shard:
        """The shard "i/n", all of None. Raises ValueError for anything else."""
        if text is None:
            return WHOLE
        found = re.fullmatch(r"(\d+)/(\d+)", str(text))
        if not found or int(found[1]) >= int(found[2]):
            raise ValueError(f"{text!r} is no i/n with 0 <= i < n")
        return cls(int(found[1]), int(found[2]))

    def __str__(self) -> str:
        return f"{self.part}/{self.parts}"


WHOLE = Shard(0, 1)


@dataclass(frozen=True)
class Example:
    """One record of a subset and the template its prompt is made from."""

    subset: Subset
    record: dict[str, Any]
    template: str

    @property
    def id(self) -> str:
        return str(self.record["_id"])

    @property
    def prompt(self) -> str:
        return templates.render(self.template, self.record)

    @property
    def fingerprint(self) -> str:
        """Changes when the prompt's text or the subset's settings do: a stored answer is for this very input."""
        settings = {name: value for name, value in asdict(self.subset).items() if name not in ("column", "group")}
        return digest([settings, self.template, self.record["input"], self.record["context"]])

    @property
    def stored(self) -> dict[str, Any]:
        """What of the example goes into each of its answers: LongBench's own keys, then ours."""
        official = {key: self.record[key] for key in ("_id", "answers", "all_classes", "length")}
        return {**official, "dataset": self.subset.name, "fingerprint": self.fingerprint}


@dataclass(frozen=True)
class Data:
    """The examples of a run, what to say about them, and what of their source the answers depend on.

    sources, origins, sizes: per subset, the SHA-256 of what was read, where that lies, and how many examples all
        shards together have.
    """

    name: str
    examples: tuple[Example, ...]
    warnings: tuple[str, ...]
    identity: dict[str, Any]
    sources: dict[str, str]
    origins: dict[str, str]
    sizes: dict[str, int]


def load(
    source: Source, wanted: Sequence[str], limit: int | None, shard: Shard = WHOLE, prompts: Path | None = None
) -> Data:
    """Read the examples of a source.

    wanted: subsets and groups of them. limit: only the first examples of each subset. shard: of these the part
    of one process. prompts: a JSON file of templates in place of the official ones.

    Raises UserError for unknown subsets and missing or malformed data.
    """
    examples: list[Example] = []
    warnings: list[str] = []
    hashes: dict[str, str] = {}
    origins: dict[str, str] = {}
    sizes: dict[str, int] = {}
    for name in subsets.expand(wanted):
        loaded = source.read(name)
        own = subsets.load(name)
        template = templates.template(name, prompts)
        chosen = loaded.records[:limit]
        examples += [Example(own, record, template) for record in chosen[shard.part :: shard.parts]]
        hashes[name], origins[name] = loaded.sha256, loaded.source
        sizes[name] = len(chosen)
        if loaded.warning:
            warnings.append(loaded.warning)
    return Data(source.name, tuple(examples), tuple(warnings), source.identity, hashes, origins, sizes)


def by_subset(examples: Iterable[Example]) -> dict[str, list[Example]]:
    """Examples grouped by subset, in order."""
    groups: dict[str, list[Example]] = {}
    for example in examples:
        groups.setdefault(example.subset.name, []).append(example)
    return groups
