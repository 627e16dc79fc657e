"""Subsets and prompt templates: official texts by digest, real records rendered, wrong input told."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eval.console import conf
from eval.console.errors import UserError
from eval.inputs import prompts, subsets
from eval.inputs.data import read_jsonl
from eval.scoring import metrics

ALL = subsets.expand(["all"])


def test_the_subsets_are_longbench(shared: Path) -> None:
    reference = json.loads((shared / "reference" / "longbench_prompts.sha256.json").read_text())["subsets"]
    assert set(ALL) == set(reference)
    for name in ALL:
        subset = subsets.load(name)
        assert subset.max_new_tokens == reference[name]["max_new_tokens"]
        assert sha256(prompts.template(name).encode()).hexdigest() == reference[name]["sha256"]
        assert subset.metric in metrics.METRICS
    assert sum(subsets.load(name).records or 0 for name in subsets.ENGLISH) == 3750


def test_official_rules() -> None:
    rows = {name: subsets.load(name) for name in ALL}
    no_chat = {"trec", "triviaqa", "samsum", "lsht", "lcc", "repobench-p"}
    assert {name for name in ALL if not rows[name].chat} == no_chat
    assert [name for name in ALL if rows[name].newline_stop] == ["samsum"]


def test_longbench_e_is_the_same_task_with_its_own_count() -> None:
    extended = subsets.groups()["longbench_e"]
    assert len(extended) == 13
    assert not {"narrativeqa_e", "musique_e", "qmsum_e"} & set(extended)
    assert subsets.load("qasper_e").records == 224
    assert subsets.load("qasper_e").metric == subsets.load("qasper").metric
    assert prompts.template("qasper_e") == prompts.template("qasper")


def test_groups_and_names() -> None:
    assert subsets.expand(["lcc", "english"])[0] == "lcc"
    assert len(subsets.expand(["lcc", "english"])) == 16
    assert len(subsets.expand(["all"])) == 21
    assert subsets.names()[:16] == subsets.ENGLISH
    for name in subsets.names():
        assert subsets.load(name).name == name


@pytest.mark.parametrize("name", ["hotpot", "hotpotqa_f", "musique_e", "", "../subset/lcc", "conf"])
def test_an_unknown_subset_is_refused(name: str) -> None:
    with pytest.raises(UserError, match=r"unknown subset .*(did you mean|conf/subsets/NAME.yaml)"):
        subsets.load(name)
    with pytest.raises(UserError, match="unknown subset"):
        prompts.template(name)


def test_every_real_record_renders(shared: Path) -> None:
    for path in sorted((shared / "longbench").glob("*.jsonl")):
        template = prompts.template(path.stem)
        before, after = template.split("{context}")
        for record in read_jsonl(path):
            prompt = prompts.render(template, record)
            start = prompts.context_start(template, record)
            assert prompt[: start + len(record["context"])] == before + record["context"]
            assert prompt.endswith(after.replace("{input}", record["input"]))


@given(st.text(alphabet="{}contexinpu "), st.text(alphabet="{}contexinpu "))
def test_braces_in_a_record_stay(context: str, question: str) -> None:
    found = prompts.render("<{context}|{input}>{other}", {"context": context, "input": question})
    assert found == "<" + context + "|" + question + ">{other}"
    assert prompts.render("{input} {context}", {"context": "{input}", "input": "{context}"}) == "{context} {input}"


def test_own_templates(tmp_path: Path) -> None:
    file = tmp_path / "own.json"
    file.write_text(json.dumps({"lcc": "Go on:\n{context}", "qasper": 3, "trec": "{input}"}))
    assert prompts.template("lcc", file) == prompts.template("lcc_e", file) == "Go on:\n{context}"
    for name, complaint in (
        ("qasper", "text with"),
        ("trec", "text with"),
        ("samsum", "no template for samsum"),
    ):
        with pytest.raises(UserError, match=complaint):
            prompts.template(name, file)
    file.write_bytes(b"\xff{")
    with pytest.raises(UserError, match="not a UTF-8 JSON"):
        prompts.template("lcc", file)
    file.write_text("[]")
    with pytest.raises(UserError, match="JSON object"):
        prompts.template("lcc", file)
    with pytest.raises(UserError, match="No such file"):
        prompts.template("lcc", tmp_path / "none.json")


def test_another_editions_text_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    prompts._official.cache_clear()
    try:
        task = tmp_path / "lcc.yaml"
        task.write_text('doc_to_text: "Complete. {{context}}"\nprocess_results: !function metrics.x\n')
        with monkeypatch.context() as patch:
            patch.setattr(prompts, "_task_file", lambda _subset: task)
            with pytest.raises(UserError, match=r"SHA-256 differs.*lm-eval"):
                prompts.template("lcc")
            task.write_text("task: lcc\n")
            with pytest.raises(UserError, match="no doc_to_text"):
                prompts.template("lcc")
        monkeypatch.setattr(prompts, "find_spec", lambda _name: None)
        with pytest.raises(UserError, match=r"not installed.*pip install --no-deps lm-eval"):
            prompts.template("lcc")
    finally:
        prompts._official.cache_clear()


def test_a_damaged_subset_file_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "subsets").mkdir()
    (tmp_path / "longbench_e.yaml").write_text("lcc: 3\n")
    original = (conf.CONF / "subsets" / "lcc.yaml").read_text()
    monkeypatch.setattr(conf, "CONF", tmp_path)
    subsets._read.cache_clear()
    subsets._extended.cache_clear()
    try:
        for text, complaint in (
            (original.replace("metric:", "metrik:"), "missing or unknown keys: metric, metrik"),
            (original.replace("name: lcc", "name: lc"), "name and file must agree"),
            (original.replace("max_new_tokens: 64", "max_new_tokens: many"), "max_new_tokens must be a whole number"),
            (original.replace("chat: false", "chat: 0"), "chat must be true or false, found 0"),
            (original.replace("records: 500", "records: 0"), "records must be a whole number of at least 1, or null"),
            (original.replace("template: null", "template: Say it."), "template must be a text with {context}"),
            ("- a\n", "expected a mapping"),
            ("a: [", "not a YAML file"),
        ):
            (tmp_path / "subsets" / "lcc.yaml").write_text(text)
            with pytest.raises(UserError, match=complaint) as caught:
                subsets.load("lcc")
            assert "\n" not in str(caught.value)
    finally:
        subsets._read.cache_clear()
        subsets._extended.cache_clear()
