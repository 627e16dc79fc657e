"""The inputs of a run: records of the chosen data, each with its prompt and everything that fixes its answer."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from eval import synthetic
from eval.console.errors import UserError, nearest
from eval.inputs import prompts, subsets
from eval.inputs.data import Loaded, load_folder, longbench
from eval.inputs.subsets import Subset
from eval.keeping.store import NAME, digest
from eval.scoring.metrics import METRICS, check_record

Source = Callable[[str], Loaded]


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
        return prompts.render(self.template, self.record)

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

    sizes: per subset, how many examples all shards together have.
    """

    name: str
    examples: tuple[Example, ...]
    warnings: tuple[str, ...]
    identity: dict[str, Any]
    sources: dict[str, str]
    sizes: dict[str, int]


def load(settings: dict[str, Any], subset: Any, limit: int | None, shard: str | None) -> Data:
    """Read the examples that the settings of `data`, `subset`, `limit` and `shard` name.

    Raises UserError for unknown subsets or metrics, missing or malformed data, or a bad label, limit or shard.
    """
    source, found = _source(settings)
    wanted = subset if subset is not None else settings.get("subsets") or found
    names = subsets.expand([wanted] if isinstance(wanted, str) else wanted)
    if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit < 1):
        raise UserError(f"limit is {limit!r}; give a whole number of examples, at least 1")
    part, parts = parse_shard(shard)
    examples: list[Example] = []
    warnings: list[str] = []
    hashes: dict[str, str] = {}
    sizes: dict[str, int] = {}
    for name in names:
        loaded = source(name)
        own = subsets.load(name)
        if own.metric not in METRICS:  # better now than after the last answer
            raise UserError(f"conf/subsets: {name} has an unknown metric {own.metric!r}{nearest(own.metric, METRICS)}")
        template = prompts.template(name, settings.get("prompts"))
        chosen = loaded.records[:limit]
        for record in chosen:
            try:
                check_record(own, record["answers"], record["all_classes"])
            except UserError as error:
                raise UserError(f"{loaded.source}, _id {record['_id']!r}: {error}") from error
        examples += [Example(own, record, template) for record in chosen[part::parts]]
        hashes[name] = loaded.sha256
        sizes[name] = len(chosen)
        if loaded.warning:
            warnings.append(loaded.warning)
    return Data(str(settings["source"]), tuple(examples), tuple(warnings), _identity(settings, hashes), hashes, sizes)


def _source(settings: dict[str, Any]) -> tuple[Source, Sequence[str]]:
    """How to read one subset, and the subsets that a folder holds."""
    kind = settings["source"]
    if kind == "synthetic":
        return lambda name: _synthetic(name, settings), ()
    if kind == "longbench":
        where = {"revision": settings["revision"], "repository": settings["repository"]}
        return lambda name: longbench(name, **where), ()
    if kind == "jsonl":
        if not settings.get("path"):
            raise UserError("data=jsonl needs data.path=FOLDER, a folder of SUBSET.jsonl files, a zip or one file")
        path = _path(settings)
        return lambda name: load_folder(path, name), _present(path)
    raise UserError(f"data source {kind!r} is unknown; use synthetic, jsonl or longbench")


def _synthetic(name: str, settings: dict[str, Any]) -> Loaded:
    number = settings["records"]
    if isinstance(number, bool) or not isinstance(number, int) or number < 1:
        raise UserError(f"data.records is {number!r}; give a whole number, at least 1")
    if name not in synthetic.TASKS:
        raise UserError(f"subset '{name}' is not synthetic: add data=longbench, or data=jsonl data.path=FOLDER")
    values = {key: settings[key] for key in ("seed", "length", "dispersion", "facts")}
    records = tuple(synthetic.make(name, index, **values) for index in range(number))
    return Loaded(records, "synthetic", digest(values), None)


def _present(path: Path) -> Sequence[str]:
    """Subsets found in a folder, or the one a single file is named after."""
    if not path.exists():
        raise UserError(f"data.path={path}: there is no such folder or file")
    if path.is_file() and path.suffix != ".zip":
        return (path.stem,)
    if path.is_file():
        return subsets.groups()["english"]
    files = {file.stem for pattern in ("*.jsonl", "data/*.jsonl") for file in path.glob(pattern)}
    present = tuple(name for name in (*subsets.names(), *subsets.groups()["longbench_e"]) if name in files)
    if not present:
        others = f" (but {', '.join(f'{name}.jsonl' for name in sorted(files)[:3])})" if files else ""
        raise UserError(
            f"{path} holds no SUBSET.jsonl of a known subset{others}; name a folder, a zip or a file in data.path. "
            f"{subsets.OWN_TASK}"
        )
    return present


def _path(settings: dict[str, Any]) -> Path:
    return Path(str(settings["path"])).expanduser()


def _label(settings: dict[str, Any]) -> str:
    """The name by which answers to one folder of records are told from those to another, wherever it lies.

    It is data.label, else the name of the folder or the zip; for a single file that of the folder it lies in.
    """
    path = Path(os.path.abspath(_path(settings)))  # not resolve: a link's own name is the one that the user sees
    place = path.parent if path.is_file() and path.suffix != ".zip" else path
    given = settings.get("label")
    label = place.name.removesuffix(".zip") if given is None else str(given)
    if not NAME.fullmatch(label):
        raise UserError(
            f"{label!r} cannot name a data set; give data.label=NAME of letters, digits, '.', '+', '-' and '_'"
        )
    return label


def _identity(settings: dict[str, Any], hashes: dict[str, str]) -> dict[str, Any]:
    """What to hash of the source. Each answer also carries its example's own fingerprint.

    Of a JSONL file no digest: it may grow, and what is answered stays.
    """
    kind = settings["source"]
    if kind == "synthetic":
        numbers = {key: settings[key] for key in ("seed", "length", "facts")}
        return {"source": kind, **numbers, "dispersion": float(settings["dispersion"])}  # 0 is 0.0
    if kind == "longbench":
        return {"source": kind, "sha256": sorted(set(hashes.values()))}
    return {"source": kind, "label": _label(settings)}


def parse_shard(shard: str | None) -> tuple[int, int]:
    """Return i and n of "i/n", 0 and 1 of None. Raises UserError for anything else."""
    if shard is None:
        return 0, 1
    try:
        part, parts = (int(word) for word in str(shard).split("/"))
    except ValueError:
        part, parts = -1, 0
    if not 0 <= part < parts:
        raise UserError(f"shard is {shard!r}; give i/n with 0 <= i < n, such as 0/4")
    return part, parts


def by_subset(examples: Iterable[Example]) -> dict[str, list[Example]]:
    """Examples grouped by subset, in order."""
    groups: dict[str, list[Example]] = {}
    for example in examples:
        groups.setdefault(example.subset.name, []).append(example)
    return groups
