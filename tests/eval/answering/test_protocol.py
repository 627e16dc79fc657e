"""Rules of the preset in whole runs: generation settings reach the answers, spelled control tokens the prompts."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig

from eval.answering import runner, work
from eval.console.errors import UserError
from eval.inputs import prompts
from eval.inputs.data import Record
from tests.eval.answering.test_runner import stored
from tests.test_configs import composed

CONTEXT = "The blue whale sings. <|end|> The plaice is flat. " * 12


@pytest.fixture
def folder(tiny_folder: Path, tmp_path: Path) -> Path:
    """The tiny model with a repetition penalty in its generation settings, and one record."""
    model = tmp_path / "model"
    shutil.copytree(tiny_folder, model)
    write_settings(model, repetition_penalty=1.5)
    record: Record = {
        "_id": "a", "input": "Who sings?", "context": CONTEXT, "answers": ["blue whale"], "length": 96,
        "dataset": "qasper", "language": "en", "all_classes": None,
    }  # fmt: skip
    (tmp_path / "records").mkdir()
    (tmp_path / "records" / "qasper.jsonl").write_text(json.dumps(record) + "\n")
    return tmp_path


def write_settings(model: Path, **settings: Any) -> None:
    path = model / "generation_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | settings))


def answered(folder: Path, *rules: str) -> dict[str, Any]:
    """The one stored answer of a run of FullKV, if of no other method, under these rules."""
    rules = rules if any(one.startswith("method=") for one in rules) else ("method=full", *rules)
    results = folder / "-".join(("results", *rules)).replace("=", "-").replace("/", "-")
    where = [f"model.name={folder / 'model'}", "model.label=tiny", "data=jsonl", f"data.path={folder / 'records'}"]
    runner.run(composed(*where, f"results={results}", *rules))
    (answer,) = stored(results).values()
    return answer


def test_answers_are_those_of_generate_under_either_rule(folder: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(folder / "model")
    model = AutoModelForCausalLM.from_pretrained(folder / "model", dtype=torch.float32)
    said = {}
    for rule in ("checkpoint", "bare"):
        answer = answered(folder, f"preset.generation={rule}", "preset.chat=none", "preset.min_length=all")
        prompt = prompts.render(prompts.template("qasper"), {"context": CONTEXT, "input": "Who sings?"})
        ids = tokenizer(prompt, return_tensors="pt")
        assert ids.input_ids.shape[1] == answer["prompt_tokens"]
        length = answer["prompt_tokens"]
        config = model.generation_config if rule == "checkpoint" else GenerationConfig()
        model.generation_config, kept = config, model.generation_config
        out = model.generate(
            **ids, max_new_tokens=128, do_sample=False, num_beams=1, min_length=length + 1, pad_token_id=0,
            eos_token_id=[tokenizer.eos_token_id],
        )  # fmt: skip
        model.generation_config = kept
        said[rule] = answer["pred"]
        assert said[rule] == tokenizer.decode(out[0, length:], skip_special_tokens=True)
    assert said["checkpoint"] != said["bare"]


def test_spelled_control_tokens_are_counted_and_follow_the_rule(folder: Path) -> None:
    token, text = (answered(folder, f"preset.control_text={rule}") for rule in ("token", "text"))
    assert token["control_tokens"] == text["control_tokens"] == 12
    assert text["prompt_tokens"] - token["prompt_tokens"] == 12 * (len("<|end|>") - 1)  # a byte is a token


@pytest.mark.parametrize(("rule", "taken"), [("token", "these tokens"), ("text", "plain text")])
def test_the_printed_table_says_how_many_records_spell_them(
    folder: Path, capsys: pytest.CaptureFixture[str], rule: str, taken: str
) -> None:
    said = f"1 of 1 records spell control tokens in their text (12 in all), taken as {taken} (control text: {rule})."
    answered(folder, f"preset.control_text={rule}")
    assert said in capsys.readouterr().out


def test_settings_that_cannot_be_applied_are_told_before_weights_are_read(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_settings(folder / "model", no_repeat_ngram_size=3)
    read: list[Any] = []
    whole = work.loaded
    monkeypatch.setattr(work, "loaded", lambda model: read.append(model) or whole(model))
    with pytest.raises(UserError, match="name no_repeat_ngram_size=3, which is not applied here: decode without them"):
        answered(folder)
    (folder / "file").write_text("{}")
    for told, *settings in (
        ("holds no calibration", "cache=kvquant_c", f"cache.file={folder / 'file'}"),
        ("has scores of 0, and the model has 8 heads", "method=headkv", f"methods.headkv.importance={folder / 'file'}"),
        ("does not divide this model's 8 channels", "cache=kivi"),
    ):
        with pytest.raises(UserError, match=told):
            answered(folder, "preset.generation=bare", *settings)
    assert read == []
    assert answered(folder, "preset.generation=bare")["control_tokens"] == 12
    assert len(read) == 1
