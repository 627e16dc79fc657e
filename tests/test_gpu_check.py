"""The script for the first day on a GPU, tried where there is none."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parent.parent
SCRIPT = [sys.executable, str(ROOT / "scripts" / "gpu_check.py")]
PARTS = {"kernels", "kept", "prefills", "rows", "steps", "projected"}


def test_the_whole_script_runs_dry(tmp_path: Path) -> None:
    hidden = "import sys; sys.modules.update(dict.fromkeys(['hydra', 'datasets', 'pandas', 'eval'])); "
    run = f"{hidden}import runpy; sys.argv = ['x', '--dry', '--out', {str(tmp_path)!r}]; "
    command = [sys.executable, "-c", f"{run}runpy.run_path({SCRIPT[1]!r}, run_name='__main__')"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    figures = json.loads((tmp_path / "page.json").read_text())["figures"]
    assert {one["part"] for one in figures} == PARTS
    assert "-" not in [one["value"] for one in figures], figures  # no part broke off
    assert [one for one in figures if one["ok"] is False] == []
    assert sum(one["ok"] is True for one in figures) >= 11
    page = (tmp_path / "page.txt").read_text()
    assert "DRY RUN: times mean nothing" in page
    assert "PROJECTED" in page
    assert done.returncode == 0, done.stderr
    assert "0 of " in done.stdout


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a GPU")
def test_without_a_gpu_one_line_says_so(tmp_path: Path) -> None:
    done = subprocess.run([*SCRIPT, "--out", str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr == ("error: torch sees no CUDA GPU here: nothing is checked; --dry tries the script itself\n")
    assert not list(tmp_path.iterdir())
