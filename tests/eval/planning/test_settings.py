"""From a command line to typed settings."""

from __future__ import annotations

from pathlib import Path

import pytest

from eval.console.errors import UserError
from eval.inputs.examples import Shard
from tests.test_configs import composed


def test_a_model_yaml_needs_a_name_alone(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "mine.yaml").write_text("# my own\nname: org/Mine-7B\n")
    model = composed(f"hydra.searchpath=[file://{tmp_path}]", "model=mine").model
    assert (model.name, model.label, model.revision) == ("org/Mine-7B", "mine", None)
    assert (model.dtype, model.device, model.attention, model.prompt_limit) == ("auto", "auto", "sdpa", None)
    changed = composed(f"hydra.searchpath=[file://{tmp_path}]", "model=mine", "model.dtype=float16", "model.label=7")
    assert (changed.model.dtype, changed.model.label) == ("float16", "7")


@pytest.mark.parametrize("revision", ["2e00731", "1e5", "0123456", "1_000", "12345678", "true"])
def test_a_revision_is_a_text(revision: str) -> None:
    assert composed("data=longbench", f"data.revision={revision}").data.own["revision"] == revision
    assert composed(f"model.revision={revision}").model.revision == revision


def test_home_is_expanded_in_every_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/ann")
    found = composed("results=~/out", "model.name=~/models/x", "data=jsonl", "data.path=~/r", "data.prompts=~/p.json")
    assert found.results == Path("/home/ann/out")
    assert found.model.name == "/home/ann/models/x"
    assert found.data.prompts == Path("/home/ann/p.json")


def test_one_or_several() -> None:
    found = composed("budget=[128,64,128]", "subset=syn_fact", "shard=1/4")
    assert (found.budget, found.subset, found.shard) == ((128, 64), ("syn_fact",), Shard(1, 4))
    assert composed().subset is None
    assert composed().shard == Shard(0, 1)


def test_what_an_experiment_sets_for_its_own_data_is_left_behind() -> None:
    found = composed("experiment=table6", "data=synthetic")
    assert "path" not in found.data.own
    found = composed("experiment=dispersion", "data=jsonl", "data.path=x")
    assert found.data.own == {"path": "x", "label": None}


def test_a_field_of_no_source_is_refused(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    yaml = "_target_: eval.synthetic.source.Synthetic\nlenght: 512\n"
    (tmp_path / "data" / "mine.yaml").write_text(yaml)
    from eval.planning.data import read

    with pytest.raises(UserError, match=r"unknown setting 'data\.lenght'; did you mean data\.length"):
        read(composed(f"hydra.searchpath=[file://{tmp_path}]", "data=mine"))


def test_settings_are_written_down_as_they_were_given() -> None:
    written = composed("shard=1/4", "budget=[64,128]").model_dump(mode="json", by_alias=True, exclude={"results"})
    assert (written["shard"], written["budget"], written["data"]["length"]) == ("1/4", [64, 128], 1024)
    assert written["data"]["_target_"] == "eval.synthetic.source.Synthetic"
    assert composed().model_dump(mode="json")["shard"] is None
