"""Wrong commands, files and environments, each with the one line it is answered by."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.test_faults import KEY, answer
from tests.tiny import write

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


def rows(*content: object) -> Callable[[Path, Path], None]:
    return a_file("rows.jsonl", "".join(json.dumps(one) + "\n" for one in content).encode())


def stores(*texts: str) -> Callable[[Path, Path], None]:
    """Two stores, one and two, each with one answer of the text named."""

    def prepare(here: Path, model: Path) -> None:
        from eval.store import Store

        for name, text in zip(("one", "two"), texts, strict=True):
            Store(here / name, KEY).append("qasper", answer("a", text), {})
        first, second = sorted(here.rglob("qasper.*.jsonl"))
        second.rename(second.with_name(first.name))

    return prepare


MISTRAL = {"model_type": "mistral", "architectures": ["MistralForCausalLM"]}
ROW = {"pred": "Ann", "answers": ["Ann"], "all_classes": None, "length": 3, "_id": "a", "dataset": "qasper"}

NAMES = [
    run("unknown model 'mistrall'; did you mean mistral?", "model=mistrall"),
    run("unknown method 'ecokv'; did you mean echokv?", "method=ecokv"),
    run("unknown method 'lak'; did you mean laq?", "method=[snapkv,lak]"),
    run("unknown preset 'papers'; did you mean paper?", "preset=papers"),
    run("unknown experiment 'demmo'; did you mean demo?", "experiment=demmo"),
    run("unknown data 'jsn'; did you mean jsonl?", "data=jsn"),
    run("unknown setting 'bugdet'; did you mean budget", "bugdet=128"),
    run("unknown setting 'methods.echokv.step'", "methods.echokv.step=3"),
    run("unknown setting 'methods.snapkv.window': the method is not chosen", "methods.snapkv.window=3"),
    run("unknown setting 'model.dtyp'", "model.dtyp=float32"),
    run("cannot read 'method=[a'", "method=[a"),
    run("unknown subset 'hotpot'; did you mean hotpotqa", "subset=hotpot"),
    run("unknown hydra/launcher 'slrm'; did you mean slurm?", "hydra/launcher=slrm"),
    run("unknown setting 'hydra.launcher.partitoin'", "hydra/launcher=slurm hydra.launcher.partitoin=gpu"),
    run("'../up' cannot name a folder of answers", "model.label=../up"),
]
VALUES = [
    run("budget is 0; give a whole number of tokens per head, at least 1", "budget=0"),
    run("budget is -5", "budget=-5"),
    run("budget is 'lots'", "budget=lots"),
    run("budget is 12.5", "budget=12.5"),
    run("budget is an empty list", "budget=[]"),
    run("budget 32 is too small for SnapKV: it needs at least 33", "method=snapkv budget=32"),
    run("budget 4 is too small for StreamingLLM: it needs at least 5", "method=streamingllm budget=4"),
    run("budget 16 is too small for H2O: it needs at least 33", "method=[full,h2o] budget=[128,16]"),
    run("budget 8 is too small for PyramidKV: it needs at least 9", "method=pyramidkv budget=8"),
    run("budget 32 is too small for LAQ", "method=laq methods.laq.workspace=null budget=32"),
    run("EchoKV.steps is 1; it must be at least 2", "methods.echokv.steps=1"),
    run("EchoKV.workspace is 0; it must be at least 1", "methods.echokv.workspace=0"),
    run("EchoKV.eos is 'maybe'; it must be stop or continue", "methods.echokv.eos=maybe"),
    run("SnapKV.kernel is 4; it must be odd and positive", "method=snapkv methods.snapkv.kernel=4"),
    run("method echokv: ", "+methods.echokv.speed=9"),
    run("limit is 0; give a whole number", "limit=0"),
    run("shard is '4/4'; give i/n", "shard=4/4"),
    run("shard is 'half'", "shard=half"),
    run("decode_rows is 0", "decode_rows=0"),
    run("decode_graph is 'often'; give true or false", "decode_graph=often"),
    run("length", "data.length=100"),
    run("data.records is 0", "data.records=0"),
    run("preset.chat is 'sometimes'", "preset.chat=sometimes"),
    run("inspect is 0; give a whole number of examples, at least 1", "inspect=0"),
]
MODELS = [
    run("device 'gpu' is unknown; use auto, cpu, cuda or cuda:N", f"{SHORT} model.device=gpu"),
    run("device 'cuda' asked for, but torch sees no CUDA GPU: use model.device=cpu", f"{SHORT} model.device=cuda"),
    run(
        "decode_graph=true records graphs of one CUDA device; this model is on cpu",
        f"{SHORT} model.device=cpu decode_graph=true",
    ),
    run("flash-attn is not installed", f"{SHORT} model.attention=flash_attention_2"),
    run("attention 'eagre' is unknown; use sdpa or flash_attention_2", f"{SHORT} model.attention=eagre"),
    run("dtype 'float8' is unknown", f"{SHORT} model.dtype=float8"),
    run("a prompt limit of 1 tokens", f"{SHORT} model.prompt_limit=1"),
    run(
        "model folder /models/none does not exist: give an existing folder or a hub name",
        "model.name=/models/none limit=1 data.length=512",
    ),
    model("weights as a pickle only", "safetensors", only_a_pickle),
    model("weights cut short", "cannot load a model from", damaged),
    model("an architecture of no name", "cannot load a model from", copied({"model_type": "marvel"})),
    model("a sliding window", "sliding_attention", copied({**MISTRAL, "sliding_window": 64})),
    model(
        "a model of 600 positions",
        "exceeds the model's 600 positions: lower model.prompt_limit",
        lambda here, model: (write(here / "other", positions=600), None)[1],
    ),
]
DATA = [
    run("data=jsonl needs data.path=FOLDER", "data=jsonl"),
    run("/nowhere", "data=jsonl data.path=/nowhere subset=hotpotqa"),
    record("a line that is no JSON", "line 1: not JSON", "nothing"),
    record("an empty context", "context", {**RECORD, "context": ""}),
    record("no answers field", "answers", {key: RECORD[key] for key in RECORD if key != "answers"}),
    record("answers is a string", "answers", {**RECORD, "answers": "word"}),
    record("no answer", "answers", {**RECORD, "answers": []}),
    record("the same _id twice", "_id", RECORD, RECORD),
    record("an empty file", "the file is empty"),
    record("a list for a record", "expected a JSON object, found list", "[]"),
    record("NaN", "NaN is no JSON number", json.dumps(RECORD)[:-1] + ', "score": NaN}'),
    record("evidence backwards", "evidence must be [start, end) within the context", {**RECORD, "evidence": [[5, 2]]}),
    Mistake(f"{GIVEN} subset=qasper", "no qasper.jsonl", "only hotpotqa.jsonl there", lines(RECORD)),
    Mistake(
        "data=jsonl data.path={here}/data.zip subset=hotpotqa",
        "not a readable zip",
        "no zip inside",
        a_file("data.zip", b"PK\3\4 no"),
    ),
    Mistake(
        "data=jsonl data.path={here}/hotpotqa.jsonl",
        "line 1: not UTF-8",
        "a byte that is not UTF-8",
        a_file("hotpotqa.jsonl", b'{"_id": "\xff"}'),
    ),
]
RESULTS = [
    Mistake(f"{SHORT} results={{here}}/file/below", "choose a writable folder", "a file in the way", a_file("file")),
    run("choose a writable folder", f"{SHORT} results=/dev/null/below"),
    again(
        "results of another version",
        "was written in format 0",
        edited("manifest.json", '"format": 1', '"format": 0'),
    ),
    again(
        "a manifest that was edited",
        "names other settings than its folder's hash",
        edited("manifest.json", '"official"', '"none"'),
    ),
    again("half a manifest", "is unreadable", edited("manifest.json", "}", "")),
    again("a line that was edited", "line 1: not a stored answer", edited("*.jsonl", '{"_id"', '"_id"')),
    Mistake(
        GIVEN,
        "for another text or other subset settings: use another results= folder",
        "answers to an earlier text of the same _id",
        lines({**RECORD, "context": "other " * 200}),
        first="data=jsonl model.name={model} data.path={here}/hotpotqa.jsonl",
    ),
]
ANALYSES = [
    Mistake("", "name an analysis first: ablation_anchors", program="eval.analysis"),
    Mistake("tabel1", "unknown analysis 'tabel1'; did you mean table1", program="eval.analysis"),
    Mistake("experiment=demo", "this experiment is no analysis", program="eval.analysis"),
    Mistake("table1 analysis.shwon=[1]", "no such field in the chosen conf/experiment/*.yaml", program="eval.analysis"),
    Mistake("table1 modle=smollm2", "unknown setting 'modle'; did you mean model", program="eval.analysis"),
]
OTHERS = [
    Mistake("{here}/none", "no such file or folder", program="eval.score"),
    Mistake("{here}", "no .jsonl files", program="eval.score"),
    score("the same _id twice", "_id 'a' stands in 2 rows", ROW, ROW),
    score("an unknown subset", "unknown subset 'qaspr'", {**ROW, "dataset": "qaspr"}),
    score("no prediction", "pred must be a string", {**ROW, "pred": None}),
    score("two models", "several values of model", {**ROW, "model": "m"}, {**ROW, "_id": "b", "model": "n"}),
    Mistake("table3 --results {here} --model smollm2", "no answers of smollm2", program="eval.tables"),
    Mistake("{here}", "holds no stored answers", program="eval.status"),
    Mistake("{here} --subsets hotpot", "unknown subset 'hotpot'", program="eval.status"),
    Mistake("{here}/one --watch 0", "give the seconds between two looks", program="eval.status"),
    Mistake("{here}/none {here}/one", "holds no stored answers", program="eval.merge"),
    Mistake(
        "{here}/one {here}/two", "differ, so one was edited", "one file edited", stores("x", "y"), program="eval.merge"
    ),
]
GROUPS = {
    "Names": NAMES,
    "Values": VALUES,
    "Models and what the machine has": MODELS,
    "Data": DATA,
    "Results folders": RESULTS,
    "Analyses": ANALYSES,
    "The other commands": OTHERS,
}
