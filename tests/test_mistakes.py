"""Wrong commands: one clear line, exit status 1, no traceback, nothing lost."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import run as program

ROOT = Path(__file__).parent.parent
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


@pytest.fixture
def fail(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Any:
    """Run the program in this process and return its one line of error."""

    def call(*arguments: str) -> str:
        monkeypatch.setattr(sys, "argv", ["run.py", f"results={tmp_path / 'results'}", *arguments])
        assert program.main() == 1
        lines = capsys.readouterr().err.strip().splitlines()
        assert lines[-1].startswith("error: ")
        assert not any("Traceback" in line for line in lines)
        return lines[-1].removeprefix("error: ")

    return call


@pytest.fixture
def tiny(tiny_folder: Path) -> list[str]:
    return [f"model.name={tiny_folder}", "data.length=512", "limit=1", "subset=syn_fact"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["model=mistrall"], "unknown model 'mistrall'; did you mean mistral?"),
        (["method=ecokv"], "unknown method 'ecokv'; did you mean echokv?"),
        (["method=[snapkv,lak]"], "unknown method 'lak'; did you mean laq?"),
        (["preset=papers"], "unknown preset 'papers'; did you mean paper?"),
        (["experiment=demmo"], "unknown experiment 'demmo'; did you mean demo?"),
        (["data=jsn"], "unknown data 'jsn'; did you mean jsonl?"),
        (["bugdet=128"], "unknown setting 'bugdet'; did you mean budget"),
        (["methods.echokv.step=3"], "unknown setting 'methods.echokv.step'"),
        (["methods.snapkv.window=3"], "unknown setting 'methods.snapkv.window': the method is not chosen"),
        (["model.dtyp=float32"], "unknown setting 'model.dtyp'"),
        (["method=[a"], "cannot read 'method=[a'"),
        (["budget=0"], "budget is 0; give a whole number of tokens per head, at least 1"),
        (["budget=-5"], "budget is -5"),
        (["budget=lots"], "budget is 'lots'"),
        (["budget=12.5"], "budget is 12.5"),
        (["budget=[]"], "budget is an empty list"),
        (["method=snapkv", "budget=32"], "budget 32 is too small for SnapKV: it needs at least 33"),
        (["method=streamingllm", "budget=4"], "budget 4 is too small for StreamingLLM: it needs at least 5"),
        (["method=[full,h2o]", "budget=[128,16]"], "budget 16 is too small for H2O: it needs at least 33"),
        (["method=pyramidkv", "budget=8"], "budget 8 is too small for PyramidKV: it needs at least 9"),
        (["method=laq", "methods.laq.workspace=null", "budget=32"], "budget 32 is too small for LAQ"),
        (["methods.echokv.steps=1"], "EchoKV.steps is 1; it must be at least 2"),
        (["methods.echokv.workspace=0"], "EchoKV.workspace is 0; it must be at least 1"),
        (["methods.echokv.eos=maybe"], "EchoKV.eos is 'maybe'; it must be stop or continue"),
        (["method=snapkv", "methods.snapkv.kernel=4"], "SnapKV.kernel is 4; it must be odd and positive"),
        (["+methods.echokv.speed=9"], "method echokv: "),
        (["subset=hotpot"], "unknown subset 'hotpot'; did you mean hotpotqa"),
        (["limit=0"], "limit is 0; give a whole number"),
        (["shard=4/4"], "shard is '4/4'; give i/n"),
        (["shard=half"], "shard is 'half'"),
        (["decode_rows=0"], "decode_rows is 0"),
        (["data.length=100"], "length"),
        (["data.records=0"], "data.records is 0"),
        (["preset.chat=sometimes"], "preset.chat is 'sometimes'"),
        (["data=jsonl"], "data=jsonl needs data.path=FOLDER"),
        (["data=jsonl", "data.path=/nowhere", "subset=hotpotqa"], "/nowhere"),
    ],
)
def test_before_any_model_is_loaded(fail: Any, arguments: list[str], message: str) -> None:
    assert message in fail(*arguments)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["model.device=cuda"], "device 'cuda' asked for, but torch sees no CUDA GPU: use model.device=cpu"),
        (["model.attention=flash_attention_2"], "flash-attn is not installed"),
        (["model.attention=eagre"], "attention 'eagre' is unknown; use sdpa or flash_attention_2"),
        (["model.dtype=float8"], "dtype 'float8' is unknown"),
        (["model.prompt_limit=1"], "a prompt limit of 1 tokens"),
    ],
)
def test_what_the_machine_or_model_lacks(fail: Any, tiny: list[str], arguments: list[str], message: str) -> None:
    assert message in fail(*tiny, *arguments)


def test_missing_model_folder(fail: Any) -> None:
    message = fail("model.name=/models/none", "limit=1", "data.length=512")
    assert "model folder /models/none does not exist: give an existing folder or a hub name" in message


def test_folder_without_weights(fail: Any, tiny_folder: Path, tmp_path: Path) -> None:
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json"):
        (tmp_path / name).write_bytes((tiny_folder / name).read_bytes())
    (tmp_path / "pytorch_model.bin").write_bytes(b"not read")
    assert "safetensors" in fail(f"model.name={tmp_path}", "limit=1", "data.length=512", "subset=syn_fact")


def test_sliding_window_model_is_refused(fail: Any, tiny_folder: Path, tmp_path: Path) -> None:
    for path in tiny_folder.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    config = json.loads((tmp_path / "config.json").read_text())
    config |= {"model_type": "mistral", "architectures": ["MistralForCausalLM"], "sliding_window": 64}
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert "sliding_attention" in fail(f"model.name={tmp_path}", "limit=1", "data.length=512", "subset=syn_fact")


def test_prompt_beyond_the_positions(fail: Any, tmp_path: Path) -> None:
    from tests.tiny import write

    folder = write(tmp_path / "short", positions=600)
    message = fail(f"model.name={folder}", "limit=1", "data.length=512", "subset=syn_fact")
    assert "exceeds the model's 600 positions: lower model.prompt_limit" in message


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "line 1"),
        (json.dumps({**RECORD, "context": ""}), "context"),
        (json.dumps({key: RECORD[key] for key in RECORD if key != "answers"}), "answers"),
        (json.dumps({**RECORD, "answers": "word"}), "answers"),
        (json.dumps({**RECORD, "answers": []}), "answers"),
        (json.dumps(RECORD) + "\n" + json.dumps(RECORD), "_id"),
    ],
)
def test_malformed_records(fail: Any, tmp_path: Path, line: str, message: str) -> None:
    (tmp_path / "hotpotqa.jsonl").write_text(line + "\n")
    said = fail("data=jsonl", f"data.path={tmp_path}", "subset=hotpotqa")
    assert message in said
    assert "hotpotqa.jsonl" in said


def test_unwritable_results(fail: Any, tmp_path: Path, tiny: list[str]) -> None:
    (tmp_path / "file").write_text("")
    assert "choose a writable folder" in fail(*tiny, f"results={tmp_path / 'file' / 'below'}")


def test_results_of_another_version(
    fail: Any, tmp_path: Path, tiny: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["run.py", f"results={tmp_path / 'results'}", *tiny])
    assert program.main() == 0
    manifest = next(tmp_path.rglob("manifest.json"))
    manifest.write_text(manifest.read_text().replace('"format": 1', '"format": 0'))
    answers = next(tmp_path.rglob("syn_fact.jsonl")).read_bytes()
    assert "was written in format 0" in fail(*tiny)
    assert next(tmp_path.rglob("syn_fact.jsonl")).read_bytes() == answers


def test_answers_to_another_text(fail: Any, tmp_path: Path, tiny_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "hotpotqa.jsonl"
    path.write_text(json.dumps(RECORD) + "\n")
    arguments = [f"model.name={tiny_folder}", "data=jsonl", f"data.path={path}"]
    monkeypatch.setattr(sys, "argv", ["run.py", f"results={tmp_path / 'results'}", *arguments])
    assert program.main() == 0
    path.write_text(json.dumps({**RECORD, "context": "other " * 200}) + "\n")
    assert "for another text or other subset settings: use another results= folder" in fail(*arguments)


def test_no_hub_access() -> None:
    """In a process of its own: the hub's address is read when its client is imported."""
    environment = {**os.environ, "HF_ENDPOINT": "http://127.0.0.1:9", "HF_HUB_OFFLINE": "1", "HF_HOME": "/tmp/none"}
    command = [sys.executable, "run.py", "model=mistral", "limit=1", "data.length=512"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert "point to a local folder with model.name=/path/to/folder" in done.stderr.splitlines()[-1]
