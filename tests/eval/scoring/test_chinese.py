"""Where the word segmenter keeps what it has read: a folder of our own, or nowhere."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

CODE = "from eval.scoring.chinese import words; print('/'.join(words('我来到北京清华大学')))"


def cut(folder: Path, **places: str) -> str:
    """The words that another process finds, whose temporary files go to `folder`."""
    kept = {name: value for name, value in os.environ.items() if name not in ("ECHOKV_CACHE", "XDG_CACHE_HOME")}
    environment = {**kept, "TMPDIR": str(folder), **places}
    done = subprocess.run([sys.executable, "-c", CODE], env=environment, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return done.stdout.strip()


@pytest.mark.parametrize("variable", ["ECHOKV_CACHE", "XDG_CACHE_HOME"])
def test_a_strangers_cache_is_not_read(tmp_path: Path, variable: str) -> None:
    temporary, own = tmp_path / "tmp", tmp_path / "own"
    temporary.mkdir()
    (temporary / "jieba.cache").write_bytes(b"\xe9\x01\x00\x00\x00")  # whose words would be taken for Chinese
    assert cut(temporary, **{variable: str(own)}) == "我/来到/北京/清华大学"
    assert (temporary / "jieba.cache").read_bytes() == b"\xe9\x01\x00\x00\x00"
    assert [path.name for path in own.rglob("jieba.cache")] == ["jieba.cache"]


def test_without_a_place_it_works_as_well(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert cut(tmp_path, ECHOKV_CACHE=str(tmp_path / "file")) == "我/来到/北京/清华大学"
