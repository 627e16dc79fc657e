"""A press of the user's own that is wrong: one line that says what, and where in the user's file."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from eval.answering import runner
from eval.console.errors import UserError
from tests.eval.answering.test_runner import ROOT
from tests.test_configs import composed

SOURCE = """\
from dataclasses import dataclass

import torch

from echokv import Press
from echokv.scores import protect


@dataclass(frozen=True, kw_only=True)
class Own(Press):
    {extra}

    def score(self, prefill, budget=None):
        scores = [-keys.norm(dim=-1).float() for keys in prefill.keys]
        {change}
        return scores
"""
BUDGETS = "def layer_budgets(self, budget, prefill): return "


def written(folder: Path, change: str = "pass", extra: str = "pass") -> Path:
    path = folder / "own_press.py"
    path.write_text(SOURCE.format(change=change, extra=extra))
    return path


@pytest.fixture
def settings(tiny_settings: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A run of one example with the class `own_press.Own`, which has yet to be written."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "own_press", raising=False)
    return [
        *tiny_settings,
        "limit=1",
        "subset=syn_fact",
        "method=full",
        "+methods.own._target_=own_press.Own",
        "budget=64",
    ]


def test_a_right_one_answers(settings: list[str], tmp_path: Path) -> None:
    written(tmp_path)
    runner.run(composed(*settings))
    assert [path.parent.name[:4] for path in tmp_path.rglob("syn_fact.*.jsonl")].count("own-") == 1


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ("scores = scores[:1]", r"Own\.score gave 1 layers; it must be a list of 2 tensors, one a layer"),
        ("scores = None", r"Own\.score gave a value of type NoneType; it must be a list of 2"),
        ("scores = torch.stack(scores)", r"Own\.score gave a value of type Tensor; it must be a list of 2"),
        (
            "scores[1] = scores[1][:1]",
            r"Own\.score gave \[1, 2\d{3}\] for layer 1; it must be \[2, 2\d{3}\], kv_heads by",
        ),
        ("scores[0] = scores[0][:, 1:]", r"Own\.score gave \[2, 2\d{3}\] for layer 0; it must be \[2, 2\d{3}\]"),
        ("scores[0] = scores[0].repeat(2, 1)", r"Own\.score gave \[4, 2\d{3}\] for layer 0; it must be \[2, 2\d{3}\]"),
        ("scores[0] = scores[0][0]", r"Own\.score gave \[2\d{3}\] for layer 0; it must be \[2, 2\d{3}\]"),
        ("scores[1] = 3", r"Own\.score gave a value of type int for layer 1; it must be \[2, 2\d{3}\]"),
        ("scores[0] = scores[0] > 0", r"gave torch\.bool on cpu for layer 0; it must be floating point on cpu"),
        (
            "scores[0] = scores[0].to('meta')",
            r"gave torch\.float32 on meta for layer 0; it must be floating point on cpu",
        ),
        ("yield scores[0]", r"Own\.score yielded a value of type Tensor; it may yield a Stretch"),
        ("yield", r"Own\.score yielded a value of type NoneType; it may yield a Stretch"),
    ],
)
def test_scores_of_a_wrong_form(settings: list[str], tmp_path: Path, change: str, says: str) -> None:
    written(tmp_path, change)
    with pytest.raises(UserError, match=says):
        runner.run(composed(*settings))


@pytest.mark.parametrize(
    ("budgets", "says"),
    [
        (
            "[budget]",
            r"Own\.layer_budgets gave \[64\]; it must be 2 numbers, one a layer, from 1 to the prompt's 2\d{3}",
        ),
        ("[budget, 0]", r"Own\.layer_budgets gave \[64, 0\]; it must be 2 numbers"),
        ("[budget, 9999]", r"Own\.layer_budgets gave \[64, 9999\]; it must be 2 numbers"),
    ],
)
def test_layer_budgets_of_a_wrong_form(settings: list[str], tmp_path: Path, budgets: str, says: str) -> None:
    written(tmp_path, extra=BUDGETS + budgets)
    with pytest.raises(UserError, match=says):
        runner.run(composed(*settings))


@pytest.mark.parametrize(
    ("change", "extra", "says", "line"),
    [
        ("scores[7]", "pass", "Own: IndexError: list index out of range", "scores[7]"),
        ("open('statistics.pt')", "pass", "Own: FileNotFoundError: [Errno 2] No such file", "open('statistics.pt')"),
        ("scores[0] + torch.ones(3)", "pass", "Own: RuntimeError: The size of tensor a", "scores[0] + torch.ones(3)"),
        ("protect(scores[0], 'x')", "pass", "Own: TypeError: ", "protect(scores[0], 'x')"),
        ("raise KeyError", "pass", "Own: KeyError: no message", "raise KeyError"),
        ("pass", "least_budget = property(lambda self: 1 / 0)", "method own: ZeroDivisionError", "1 / 0)"),
        ("pass", "needs = property(lambda self: self.windw)", "method own: AttributeError: 'Own'", "self.windw)"),
    ],
)
def test_an_error_in_it_is_shown_with_its_line(
    settings: list[str], tmp_path: Path, change: str, extra: str, says: str, line: str
) -> None:
    path = written(tmp_path, change, extra)
    number = next(n for n, text in enumerate(path.read_text().splitlines(), 1) if text.strip().endswith(line))
    with pytest.raises(UserError) as refused:
        runner.run(composed(*settings))
    said = str(refused.value)
    assert said.startswith(says)
    assert said.endswith(f" ({path}, line {number}: {path.read_text().splitlines()[number - 1].strip()})")


def test_the_command_ends_with_that_line_and_nothing_around_it(settings: list[str], tmp_path: Path) -> None:
    path = written(tmp_path, "open('statistics.pt')")
    command = [sys.executable, "run.py", *settings]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert "results=" not in done.stderr
    assert done.stderr.splitlines()[-1].startswith("error: Own: FileNotFoundError")
    assert str(path) in done.stderr.splitlines()[-1]


def test_an_error_of_ours_keeps_its_traceback(
    settings: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from echokv import press

    written(tmp_path)
    monkeypatch.setattr(press, "cut", None)
    with pytest.raises(TypeError, match="not callable"):
        runner.run(composed(*settings))
