"""Wrong commands: one clear line, exit status 1, no traceback, nothing lost. docs/errors.md lists them all."""

import contextlib
import importlib
import io
import json
import os
import re
import subprocess
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import ModuleType
from unittest import mock

import pytest
import torch

import run as program
from echokv import Press, UsageError
from eval.analysis import __main__ as analysis
from eval.answering import runner
from eval.console.errors import UserError
from tests.flaws import RECORD, Mistake
from tests.mistakes import GROUPS
from tests.test_configs import composed

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "errors.md"
MISTAKES = [mistake for group in GROUPS.values() for mistake in group]
HEAD = """\
# What goes wrong, and what is said

Every wrong command, option, file or environment, whatever the command, ends with one line on standard error that begins
with `error:`, and with exit status 1; stored answers stay. Ctrl-C ends with status 130, SIGTERM with 143. Of a sweep
(`-m`) the line names each job that failed and what it said; an error in the code of a method of your own names the line
that raised it. This page is written by tests/test_mistakes.py, which runs each of these commands on a machine without a
GPU: DIR is a folder with the flaw that the second column names, MODEL that of a working model. Runs have
results=DIR/results where they name no other.
"""


WITH_HYDRA = {"run.py": program.main, "eval.analysis": analysis.main}  # which read their arguments from sys.argv


def module_of(name: str) -> ModuleType:
    """Return the module that `python -m` runs: of a package its `__main__`."""
    module = importlib.import_module(name)
    return importlib.import_module(f"{name}.__main__") if hasattr(module, "__path__") else module


def called(name: str, arguments: list[str]) -> tuple[int, str]:
    """Run a program in this process and return its exit status and what it wrote to standard error."""
    said = io.StringIO()
    main = WITH_HYDRA.get(name) or partial(module_of(name).main, arguments)
    with (
        contextlib.redirect_stderr(said),
        contextlib.redirect_stdout(io.StringIO()),
        mock.patch.object(sys, "argv", [name, *arguments]),
    ):
        try:
            status = main()
        except Exception:  # one failure must not hide the outcomes of the others
            return 99, traceback.format_exc()
    return status, said.getvalue()


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory, tiny_folder: Path) -> dict[Mistake, tuple[int, str]]:
    """Exit status and words of every mistake."""
    found = {}
    for mistake in MISTAKES:
        here = tmp_path_factory.mktemp("mistake")
        places = {"here": str(here), "model": str(tiny_folder)}
        default = [f"results={here / 'results'}"] if mistake.program == "run.py" else []
        if mistake.first is not None:
            if "hotpotqa.jsonl" in mistake.first:
                (here / "hotpotqa.jsonl").write_text(json.dumps(RECORD) + "\n")
            assert called(mistake.program, [*default, *mistake.first.format(**places).split()])[0] == 0
        mistake.prepare(here, tiny_folder)
        status, said = called(mistake.program, [*default, *mistake.command.format(**places).split()])
        said = said.replace(str(here), "DIR").replace(str(tiny_folder), "MODEL")
        said = re.sub(r"-[0-9a-f]{8}\b", "-HASH", re.sub(r"\.[0-9a-f]{12}\.jsonl", ".RUN.jsonl", said))
        found[mistake] = status, said
    return found


def ident(mistake: Mistake) -> str:
    return mistake.says[:40]


@pytest.fixture
def no_gpu() -> None:
    if torch.cuda.is_available():
        pytest.skip("what is said of a missing GPU needs a machine without one")


@pytest.mark.parametrize("mistake", MISTAKES, ids=ident)
def test_one_line_and_status_1(
    outcomes: dict[Mistake, tuple[int, str]], mistake: Mistake, request: pytest.FixtureRequest
) -> None:
    if "no CUDA GPU" in mistake.says:
        request.getfixturevalue("no_gpu")
    status, said = outcomes[mistake]
    last = said.strip().splitlines()[-1]
    assert status == 1
    assert last.startswith("error: ")
    assert mistake.says in last
    assert "Traceback" not in said


def test_there_are_enough_of_them() -> None:
    assert len(set(MISTAKES)) >= 60


@pytest.mark.usefixtures("no_gpu")
def test_page_lists_them_all(outcomes: dict[Mistake, tuple[int, str]]) -> None:
    page = HEAD
    for title, group in GROUPS.items():
        page += f"\n## {title}\n\n| command | flaw | status | message |\n|---|---|---|---|\n"
        for mistake in group:
            status, said = outcomes[mistake]
            words = mistake.command.format(here="DIR", model="MODEL")
            start = "python run.py" if mistake.program == "run.py" else f"python -m {mistake.program}"
            message = said.strip().splitlines()[-1].replace("|", "\\|")
            page += f"| `{f'{start} {words}'.strip()}` | {mistake.flaw} | {status} | {message} |\n"
    present = PAGE.read_text(encoding="utf-8") if PAGE.exists() else ""
    if page != present:
        PAGE.parent.mkdir(exist_ok=True)
        PAGE.write_text(page, encoding="utf-8")
    assert page == present, f"{PAGE.name} was out of date and has been written anew: look at it and commit it"


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("import nosuchmodule", "ModuleNotFoundError: No module named 'nosuchmodule'"),
        ("class KeyNorm(Pres): pass", "NameError: name 'Pres' is not defined"),
        ("class KeyNorm(:", "SyntaxError: "),
        ("", "No module named 'keynorm_user.KeyNorm'"),
    ],
)
def test_why_a_method_cannot_be_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str, says: str) -> None:
    (tmp_path / "keynorm_user.py").write_text(f"{code}\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "keynorm_user", raising=False)
    with pytest.raises(UserError, match="there is no class keynorm_user") as refused:
        runner.run(composed("methods.echokv._target_=keynorm_user.KeyNorm", f"results={tmp_path}"))
    assert says in str(refused.value)


@dataclass(frozen=True, kw_only=True)
class OfManyTypes(Press):
    """A user's press with fields of every kind that a YAML can set, and one that it cannot."""

    share: float = 0.5
    label: str | None = None
    strict: bool = False
    layers: tuple[int, ...] = ()
    hook: Callable[[], None] | None = None


def test_fields_of_a_press_are_of_their_types() -> None:
    OfManyTypes(share=1, label="a", strict=True, layers=[1, 2], hook=lambda: None)  # type: ignore[arg-type]
    wrong = {
        "share": ("half", "'half'; it must be a number"),
        "label": (3, "3; it must be a text or null"),
        "strict": (1, "1; it must be true or false"),
        "layers": ([1, 2.5], "[1, 2.5]; it must be a list, each a whole number"),
        "precision": ("double", "'double'; it must be float32 or legacy"),
    }
    for field, (value, says) in wrong.items():
        with pytest.raises(UsageError, match="OfManyTypes") as refused:
            OfManyTypes(**{field: value})  # type: ignore[arg-type]
        assert str(refused.value) == f"OfManyTypes.{field} is {says}"


def test_no_hub_access() -> None:
    """In a process of its own: the hub's address is read when its client is imported."""
    environment = {**os.environ, "HF_ENDPOINT": "http://127.0.0.1:9", "HF_HUB_OFFLINE": "1", "HF_HOME": "/tmp/none"}
    command = [sys.executable, "run.py", "model=mistral", "data=synthetic", "limit=1", "data.length=512"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert "point to a local folder with model.name=/path/to/folder" in done.stderr.splitlines()[-1]
