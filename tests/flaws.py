"""How a wrong command is written down, and how its folder, files or results are made wrong."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.test_faults import KEY, answer

RECORD = {
    "_id": "1",
    "input": "Which word?",
    "context": "word " * 200,
    "answers": ["word"],
    "length": 200,
    "dataset": "hotpotqa",
    "language": "en",
    "all_classes": None,
}
SHORT = "model.name={model} data.length=512 limit=1 subset=syn_fact"  # a run of one example
GIVEN = "model.name={model} data=jsonl data.path={here}/records"


@dataclass(frozen=True)
class Mistake:
    """A command with {here}, an empty folder, and {model}, that of a working model, and what its line has in it.

    flaw, prepare: what is wrong in the folder, in words and in deeds. first: a run before it, which must work.
    """

    command: str
    says: str
    flaw: str = ""
    prepare: Callable[[Path, Path], None] = lambda here, model: None
    first: str | None = None
    program: str = "run.py"


def run(says: str, command: str) -> Mistake:
    return Mistake(command, says)


def lines(*content: object) -> Callable[[Path, Path], None]:
    """Write records/hotpotqa.jsonl: strings as they are, all else as JSON."""

    def prepare(here: Path, model: Path) -> None:
        (here / "records").mkdir()
        texts = [one if isinstance(one, str) else json.dumps(one) for one in content]
        (here / "records" / "hotpotqa.jsonl").write_text("".join(f"{text}\n" for text in texts))

    return prepare


def record(flaw: str, says: str, *content: object) -> Mistake:
    return Mistake(f"{GIVEN} subset=hotpotqa", says, flaw, lines(*content))


def copied(changes: dict[str, object], weights: bool = True) -> Callable[[Path, Path], None]:
    """Copy the model to {here}/other with changes in its configuration."""

    def prepare(here: Path, model: Path) -> None:
        (here / "other").mkdir()
        for path in model.iterdir():
            if weights or path.suffix != ".safetensors":
                (here / "other" / path.name).write_bytes(path.read_bytes())
        config = json.loads((here / "other" / "config.json").read_text()) | changes
        (here / "other" / "config.json").write_text(json.dumps(config))

    return prepare


def model(flaw: str, says: str, prepare: Callable[[Path, Path], None]) -> Mistake:
    return Mistake(SHORT.replace("{model}", "{here}/other"), says, flaw, prepare)


def only_a_pickle(here: Path, model: Path) -> None:
    copied({}, weights=False)(here, model)
    (here / "other" / "pytorch_model.bin").write_bytes(b"not read")


def damaged(here: Path, model: Path) -> None:
    copied({})(here, model)
    path = here / "other" / "model.safetensors"
    path.write_bytes(path.read_bytes()[:1000])


def results(change: Callable[[Path], None]) -> Callable[[Path, Path], None]:
    """Change the results of the first run; `change` gets the run's folder."""

    def prepare(here: Path, model: Path) -> None:
        change(next((here / "results").rglob("manifest.json")).parent)

    return prepare


def edited(pattern: str, old: str, new: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        for path in folder.glob(pattern):
            path.write_text(path.read_text().replace(old, new))

    return change


def again(flaw: str, says: str, change: Callable[[Path], None]) -> Mistake:
    return Mistake(SHORT, says, flaw, results(change), first=SHORT)


def score(flaw: str, says: str, *content: object) -> Mistake:
    return Mistake("{here}/rows.jsonl", says, flaw, rows(*content), program="eval.score")


def a_file(name: str, content: bytes = b"") -> Callable[[Path, Path], None]:
    def prepare(here: Path, model: Path) -> None:
        (here / name).write_bytes(content)

    return prepare


def a_calibration(name: str) -> Callable[[Path, Path], None]:
    """Write one of a model of 3 layers of 2 KV heads of 16 channels."""

    def prepare(here: Path, model: Path) -> None:
        import torch

        from echokv.calibrated import Calibration

        ranges, points = torch.ones(3, 2, 16), {4: torch.linspace(-1, 1, 16).expand(3, -1).contiguous()}
        Calibration(-ranges, ranges, points, points, 0.99).save(here / name)

    return prepare


def of_another(name: str) -> Callable[[Path, Path], None]:
    """Write a file and beside it the note that it was made for another model."""

    def prepare(here: Path, model: Path) -> None:
        (here / name).touch()
        about = {"model": {"name": "another"}, "title": "another"}
        (here / name).with_suffix(".about.json").write_text(json.dumps(about))

    return prepare


def needed(subset: str, flaw: str, says: str, **changes: object) -> Mistake:
    """A record that lacks what the subset's metric needs."""
    content = json.dumps({**RECORD, "dataset": subset, **changes}).encode()
    command = f"data=jsonl data.path={{here}}/{subset}.jsonl"
    return Mistake(command, says, flaw, a_file(f"{subset}.jsonl", content))


def rows(*content: object) -> Callable[[Path, Path], None]:
    return a_file("rows.jsonl", "".join(json.dumps(one) + "\n" for one in content).encode())


def stores(*texts: str) -> Callable[[Path, Path], None]:
    """Two stores, one and two, each with one answer of the text named."""

    def prepare(here: Path, model: Path) -> None:
        from eval.keeping.store import Store

        for name, text in zip(("one", "two"), texts, strict=True):
            Store(here / name, KEY).append("qasper", answer("a", text), {})
        first, second = sorted(here.rglob("qasper.*.jsonl"))
        second.rename(second.with_name(first.name))

    return prepare


def a_yaml(group: str, content: str, name: str = "mine") -> Callable[[Path, Path], None]:
    """Write a YAML of one's own, GROUP/NAME.yaml."""

    def prepare(here: Path, model: Path) -> None:
        (here / group).mkdir()
        (here / group / f"{name}.yaml").write_text(f"{content}\n")

    return prepare


MISTRAL = {"model_type": "mistral", "architectures": ["MistralForCausalLM"]}
ROW = {"pred": "Ann", "answers": ["Ann"], "all_classes": None, "length": 3, "_id": "a", "dataset": "qasper"}
