"""What a run is to answer, and which of its settings keep answers apart."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from eval import synthetic
from eval.console import conf
from eval.console.errors import UserError
from eval.console.fields import checked
from eval.inputs import examples, subsets
from eval.inputs.sources.jsonl import Jsonl
from eval.keeping import manifests
from eval.synthetic.source import Synthetic
from eval.tables import collect
from tests.eval.inputs.test_data import RECORD
from tests.eval.stores import write

TEMPLATE = "Read.\n\n{context}\n\nQuestion: {input}"


def records(folder: Path, *names: str, subset: str = "qasper") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps({**RECORD, "_id": name}) + "\n" for name in names or ("a",)]
    (folder / f"{subset}.jsonl").write_text("".join(lines))
    return folder


def load(path: Path | str, subset: str | None = None, **settings: Any) -> examples.Data:
    source = checked(Jsonl, {"path": str(path), **settings}, "data.")
    return examples.load(source, [subset] if subset else source.subsets(), None)


def label(path: Path | str, **settings: Any) -> Any:
    return load(path, "qasper", **settings).identity["label"]


def test_two_folders_of_records_are_two_data_sets(tmp_path: Path) -> None:
    one, two = (load(records(tmp_path / name)).identity for name in ("one", "two"))
    assert one != two
    assert manifests.digest(one) != manifests.digest(two)
    assert load(tmp_path / "one", label="two").identity == two


def test_a_folder_that_moved_or_grew_is_the_same_data_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = load(records(tmp_path / "here" / "mine"))
    grown = load(records(tmp_path / "mine", "a", "b"))
    assert grown.identity == first.identity == {"source": "jsonl", "label": "mine"}
    assert grown.examples[0].fingerprint == first.examples[0].fingerprint
    monkeypatch.chdir(tmp_path / "mine")
    packed = shutil.make_archive(str(tmp_path / "mine"), "zip", tmp_path / "mine")
    for path in (".", "../mine/", "qasper.jsonl", tmp_path / "mine" / "qasper.jsonl", packed):
        assert label(path) == "mine", path
    assert label(packed, label="2024") == "2024"


@pytest.mark.parametrize("given", ["", "a/b", "my records", "../x"])
def test_a_label_that_is_no_name_is_refused(tmp_path: Path, given: Any) -> None:
    with pytest.raises(UserError, match=r"cannot name a data set; give data\.label=NAME"):
        label(records(tmp_path / "mine"), label=given)


def test_a_folder_whose_name_is_no_label_needs_one(tmp_path: Path) -> None:
    folder = records(tmp_path / "my records")
    with pytest.raises(UserError, match=r"'my records' cannot name a data set; give data\.label=NAME"):
        label(folder)
    assert label(folder, label="mine") == "mine"


def test_tables_keep_two_data_sets_apart(tmp_path: Path) -> None:
    for name in ("one", "two"):
        write(tmp_path, "laq", 128, {"trec": [True]}, source="jsonl", data={"source": "jsonl", "label": name})
    with pytest.raises(UserError, match=r"data\.label: \w+, \w+.*--where"):
        collect.answers(collect.find(tmp_path, "jsonl", "smollm2"))
    (run,) = collect.find(tmp_path, "jsonl", "smollm2", {"data.label": "two"})
    assert run.identity["data"]["label"] == "two"


def test_one_number_in_two_spellings_is_one_setting() -> None:
    whole, broken = (
        examples.load(Synthetic(records=1, length=512, dispersion=value), ["syn_fact"], None).identity
        for value in (0, 0.0)
    )
    assert manifests.digest(whole) == manifests.digest(broken)


def test_records_beyond_the_limit_or_of_another_shard_are_not_made(monkeypatch: pytest.MonkeyPatch) -> None:
    every = [synthetic.make("syn_fact", index, length=512) for index in range(9)]
    made, make = [], synthetic.make
    monkeypatch.setattr(synthetic, "make", lambda task, index, **more: made.append(index) or make(task, index, **more))
    source = Synthetic(records=9, length=512)
    found = examples.load(source, ["syn_fact"], 7, examples.Shard(1, 3))
    assert ([example.record for example in found.examples], found.sizes) == (every[1:7:3], {"syn_fact": 7})
    assert made == [1, 4]
    assert list(source.read("syn_fact").records) == every


def test_a_folder_without_a_known_subset_is_told_what_to_do(tmp_path: Path) -> None:
    folder = records(tmp_path / "own", subset="letters")
    for path, subset in ((folder, None), (folder, "letters"), (folder / "letters.jsonl", None)):
        with pytest.raises(UserError, match=r"conf/subsets/NAME\.yaml: see docs/tables\.md") as caught:
            load(path, subset)
        assert "letters" in str(caught.value)
        assert len(str(caught.value)) < 350


def test_what_a_folder_holds_is_found(tmp_path: Path) -> None:
    folder = records(tmp_path / "own" / "data", subset="lcc").parent
    records(folder, subset="qasper_e")
    assert load(folder).sizes == {"lcc": 1, "qasper_e": 1}
    with pytest.raises(UserError, match=r"data\.path=.*nowhere: there is no such folder or file"):
        load(tmp_path / "nowhere")


@pytest.fixture
def own_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder conf with a task more, city, whose YAML is returned."""
    shutil.copytree(conf.CONF / "subsets", tmp_path / "conf" / "subsets")
    shutil.copy(conf.CONF / "longbench_e.yaml", tmp_path / "conf")
    settings = yaml.safe_load((conf.CONF / "subsets" / "qasper.yaml").read_text())
    path = tmp_path / "conf" / "subsets" / "city.yaml"
    path.write_text(json.dumps({**settings, "name": "city", "records": None, "template": TEMPLATE}))
    monkeypatch.setattr(conf, "CONF", tmp_path / "conf")
    return path


def test_a_task_of_ones_own(tmp_path: Path, own_task: Path) -> None:
    found = load(records(tmp_path / "own", subset="city"))
    assert [example.prompt for example in found.examples] == ["Read.\n\nAnn did.\n\nQuestion: Who?"]
    assert found.warnings == ()
    assert "city" not in subsets.groups()["synthetic"], "data=synthetic goes on"
