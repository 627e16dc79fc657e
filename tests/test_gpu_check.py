"""The script for the first day on a GPU, tried where there is none."""

import json
import subprocess
import sys
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from scripts import gpu_check
from tests.counting import cuda
from tests.elsewhere import DEVICE, elsewhere

__all__ = ["cuda"]

ROOT = Path(__file__).parent.parent
SCRIPT = [sys.executable, str(ROOT / "scripts" / "gpu_check.py")]
PARTS = {"machine", "kernels", "attention", "kept", "prefills", "rows", "steps", "projected"}


def test_the_whole_script_runs_dry(tmp_path: Path) -> None:
    absent = ["hydra", "datasets", "pandas", "omegaconf", "pydantic", "rich", "rouge", "jieba"]
    hidden = f"import sys; sys.modules.update(dict.fromkeys({absent})); "
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


class Profile:
    """A profiler that has seen two kernels and a call of the host's."""

    def __init__(self, activities: Any) -> None:
        assert activities == [torch.profiler.ProfilerActivity.CUDA]

    def __enter__(self) -> "Profile":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def events(self) -> list[Any]:
        kinds = torch.autograd.DeviceType
        seen = [("short", 1.0, kinds.CUDA), ("flash_fwd", 9.0, kinds.CUDA), ("cudaLaunchKernel", 99.0, kinds.CPU)]
        return [SimpleNamespace(name=name, device_time_total=time, device_type=kind) for name, time, kind in seen]


@pytest.mark.usefixtures("cuda")
def test_every_part_runs_on_another_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a GPU, in halves too, but for what only CUDA has: a clock, a profiler, graphs and their memory."""
    modes = []

    def told(mode: str) -> None:
        modes.append(mode)
        warnings.warn("Synchronization debug mode is a prototype feature", stacklevel=1)
        if mode == "warn":
            warnings.warn("called a synchronizing CUDA operation", stacklevel=1)

    monkeypatch.setattr(torch.profiler, "profile", Profile)
    monkeypatch.setattr(torch.cuda, "set_sync_debug_mode", told)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda *_: None)
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda: None)
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda: 5e9)
    for part in (gpu_check.rows, gpu_check.steps):
        monkeypatch.setitem(part.__globals__, "cuda_graph", lambda step, device: step)
    bench = gpu_check.Bench(dry=True)
    bench.device, bench.dtypes, bench.dry = torch.device(DEVICE), gpu_check.Bench(dry=False).dtypes, False
    bench.lengths, bench.budgets, bench.short = (200, 240), (64,), 120  # small: it takes a while
    figures = []
    with elsewhere():
        for part in gpu_check.PARTS:
            figures += list(part(bench))
    # Times say nothing here.
    wrong = [
        one for one in figures if one.ok is False and (one.bar == "yes" or "error" in one.said or "alike" in one.said)
    ]
    assert wrong == []
    found = {one.said: one for one in figures}
    assert found["kernel of the prefill's attention"].value == "flash"
    assert found["the longest that it launches"].value == "flash_fwd"
    for kind in ("float16", "bfloat16", "float32"):
        assert found[f"decode attention, Whole+Block, {kind}: error"].ok
    assert found["recorded steps give the same tokens"].ok
    assert found["its launches (19 rows, 200 tokens)"].value == 2
    assert found["its waits (19 rows, 200 tokens)"].value == 1
    assert found["its waits (19 rows, 200 tokens)"].ok is False
    assert found["its peak memory, GB (240 tokens)"].value == 5.0
    assert modes == ["warn", "default"] * (len(modes) // 2)


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a GPU")
def test_without_a_gpu_one_line_says_so(tmp_path: Path) -> None:
    done = subprocess.run([*SCRIPT, "--out", str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr == ("error: torch sees no CUDA GPU here: nothing is checked; --dry tries the script itself\n")
    assert not list(tmp_path.iterdir())
