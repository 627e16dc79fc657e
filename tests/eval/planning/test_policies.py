"""Whose answer is it: a method's identity holds all its fields and the code behind them."""

import importlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from echokv import EchoKV
from echokv.installed import ROOT
from eval.answering import answers, runner
from eval.console.errors import UserError
from eval.keeping import digests
from eval.keeping.manifests import digest
from eval.planning import policies
from eval.planning.policies import Policy
from eval.tables import collect
from tests.eval.answering.test_runner import stored
from tests.test_configs import composed, names

PRESS = '''\
"""A press of one's own."""

from dataclasses import dataclass

from torch import Tensor

from echokv import Prefill
from own_press.base import Base
from own_press import helper as helping


@dataclass(frozen=True, kw_only=True)
class KeyNorm(Base):
    """Keep the shortest keys."""

    window: int = 8

    def score(self, prefill: Prefill, budget: int | None = None) -> list[Tensor]:
        from .late import weight

        return [-helping.norm(keys) * weight for keys in prefill.keys]
'''
FILES = {
    "__init__.py": "",
    "press.py": PRESS,
    "base.py": "from dataclasses import dataclass\nfrom echokv import Press\n\n\n"
    "@dataclass(frozen=True, kw_only=True)\nclass Base(Press):\n    share: float = 1\n",
    "helper.py": "from .deeper import power\n\n\ndef norm(keys):\n    return keys.norm(dim=-1) ** power\n",
    "deeper.py": "power = 1.0\n",
    "late.py": "weight = 1.0\n",
    "unrelated.py": "number = 1\n",
}


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Write a user's package: its files, with changes of their text, as a new process would import them."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # or edits within one second would be missed
    monkeypatch.setenv("ECHOKV_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "own_press"
    folder.mkdir()

    def forget() -> None:
        for name in [name for name in sys.modules if name.split(".")[0] == "own_press"]:
            del sys.modules[name]
        importlib.invalidate_caches()

    def written(**changes: tuple[str, str]) -> None:
        for name, text in FILES.items():
            old, new = changes.get(name.removesuffix(".py"), ("", ""))
            assert old in text
            (folder / name).write_text(text.replace(old, new) if old else text + new)
        forget()

    written()
    yield written
    forget()


SETTINGS = {"_target_": "own_press.press.KeyNorm"}


def one(**more: Any) -> Policy:
    (found,) = policies.policies("keynorm", SETTINGS | more)
    return found


@pytest.mark.parametrize(
    ("changes", "differs"),
    [
        ({"press": ("return [-helping", "return [helping")}, {"code"}),
        ({"press": ("window: int = 8", "window: int = 9")}, {"code", "window"}),
        ({"base": ("share: float = 1", "share: float = 2")}, {"code", "share"}),
        ({"helper": ("dim=-1", "dim=-2")}, {"code"}),
        ({"deeper": ("1.0", "2.0")}, {"code"}),
        ({"late": ("1.0", "2.0")}, {"code"}),
        ({"__init__": ("", "import math\n")}, {"code"}),
        ({"press": ("class KeyNorm", "# shortest first\nclass KeyNorm")}, set()),
        ({"press": ('"""Keep the shortest keys."""', '"""Keep short keys."""')}, set()),
        (
            {
                "press": (
                    "[-helping.norm(keys) * weight for",
                    "[\n            -helping.norm(keys) * weight\n            for",
                )
            },
            set(),
        ),
        ({"unrelated": ("1", "2")}, set()),
    ],
    ids=["sign", "default", "base", "helper", "deeper", "late", "package", "comment", "docstring", "format", "other"],
)
def test_an_edit_makes_another_method_and_a_comment_does_not(
    write: Callable[..., None], changes: dict[str, tuple[str, str]], differs: set[str]
) -> None:
    before = one().identity
    write(**changes)
    after = one().identity
    assert {key for key in after if after[key] != before[key]} == differs


def test_an_identity_holds_all_fields(write: Callable[..., None]) -> None:
    found = one(window=4)
    assert found.fields == {"granularity": "kv_head", "precision": "float32", "share": 1.0, "window": 4}
    assert found.identity["_target_"] == SETTINGS["_target_"]
    assert found.identity["scoring"] == policies.SCORING
    assert digest(one(share=2).identity) == digest(one(share=2.0).identity), "a number is a number"
    assert (found.least_budget, found.takes_budget, found.title) == (1, True, "KeyNorm")


def test_what_is_known_is_kept_until_a_file_changes(
    write: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = one()
    with monkeypatch.context() as patch:
        patch.setattr(policies, "_class", None)  # what imports the method
        again = one()
    assert vars(again) == vars(before)
    press = tmp_path / "own_press" / "press.py"
    stat = press.stat()
    press.write_text(press.read_text().replace("int = 8", "int = 7"))
    os.utime(press, ns=(stat.st_atime_ns, stat.st_mtime_ns))  # the same size and time
    for name in [name for name in sys.modules if name.startswith("own_press")]:
        del sys.modules[name]
    assert one().fields["window"] == 7


STORED = """
import sys
sys.argv = ["run.py", *sys.argv[1:]]
import run
status = run.main()
print(status, "torch" in sys.modules, "transformers" in sys.modules, file=sys.stderr)
"""


def test_a_run_whose_answers_are_stored_needs_no_torch(tiny_settings: list[str]) -> None:
    some = [*tiny_settings, "subset=syn_fact", "method=[full,snapkv,echokv]"]
    for begins in ("0 of 6", "6 of 6"):
        done = subprocess.run([sys.executable, "-c", STORED, *some], cwd=ROOT, capture_output=True, text=True)
        assert f"{begins} answers are stored" in done.stderr
    assert done.stderr.splitlines()[-1] == "0 False False"


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b'{"key": 1, "value": 2}', None])
def test_a_damaged_entry_is_as_good_as_none(write: Callable[..., None], tmp_path: Path, content: bytes | None) -> None:
    before = vars(one())
    (entry,) = (tmp_path / "cache" / "policies").iterdir()
    kept = json.loads(entry.read_text())
    kept["value"]["policies"] = [{"name": "keynorm"}]
    entry.write_bytes(json.dumps(kept).encode() if content is None else content)
    assert vars(one()) == before


def test_a_module_of_the_same_name_elsewhere_is_another(
    write: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = one()
    other = tmp_path / "elsewhere"
    (other / "own_press").mkdir(parents=True)
    for name, text in FILES.items():
        (other / "own_press" / name).write_text(text.replace("-helping", "helping"))
    monkeypatch.syspath_prepend(other)
    for name in [name for name in sys.modules if name.startswith("own_press")]:
        del sys.modules[name]
    assert one().code != before.code


def imported(modules: set[str]) -> set[str]:
    """Modules of baselines, and all of them that these import: read off the lines of their files."""
    found, waiting = set(), set(modules)
    while waiting:
        found |= waiting
        texts = [(ROOT / f"{name.replace('.', '/')}.py").read_text() for name in waiting]
        waiting = {
            f"baselines.{name}" for text in texts for name in re.findall(r"^from \.(\w+) import", text, re.M)
        } - found
    return found


@pytest.mark.parametrize("name", names("method"))
def test_shipped_methods_hold_their_modules_and_those_of_their_bases(name: str) -> None:
    if name == "kvpress":
        pytest.importorskip("kvpress", reason="needs kvpress: see docs/library.md")
    without_file = ["methods.headkv.heads=uniform"] if name == "headkv" else []
    settings = composed(f"method={name}", *without_file).methods[name]
    (found,) = policies.policies(name, settings)
    modules = digests.modules_of([type(found.press)])
    wanted = {one.__module__ for one in type(found.press).__mro__ if one.__module__.startswith("baselines.")}
    assert set(modules) - {"baselines"} == imported(wanted)
    assert (found.code is None) == (not wanted)


def test_nothing_installed_counts() -> None:
    """A harness's own test module reaches far; what it imports of site-packages and the library stays out."""
    modules = digests.modules_of([NeverUsed])
    assert "tests.eval.planning.test_policies" in modules
    assert not {name.split(".")[0] for name in modules} & {"torch", "pytest", "echokv", "eval", "json", "hydra"}


class NeverUsed(EchoKV):
    """Stands for a user's class."""


@pytest.mark.parametrize(
    ("code", "same"),
    [
        ("def f(a, b):\n    return a + b\n", True),
        ('"""What."""\ndef f(a,b):   # sum\n    "Words."\n    return (a +\n            b)\n', True),
        ("def f(a, b):\n    return b + a\n", False),
        ("def f(a, b=None):\n    return a + b\n", False),
        ("def f(a, b):\n    'not at the top' + str(a)\n    return a + b\n", False),
        ("async def f(a, b):\n    return a + b\n", False),
    ],
)
def test_only_what_runs_is_digested(tmp_path: Path, code: str, same: bool) -> None:
    (tmp_path / "a.py").write_text("def f(a, b):\n    return a + b\n")
    (tmp_path / "b.py").write_text(code)
    found = [digests.digest([("module", tmp_path / name)]) for name in ("a.py", "b.py")]
    assert (found[0] == found[1]) == same


def test_a_relative_import_is_the_absolute_one(tmp_path: Path) -> None:
    for name, code in (
        ("a.py", "from .near import f"),
        ("b.py", "from package.near import f"),
        ("c.py", "from . import f"),
    ):
        (tmp_path / name).write_text(code)
    relative, absolute, other = (
        digests.digest([("package.own", tmp_path / name)]) for name in ("a.py", "b.py", "c.py")
    )
    assert relative == absolute != other


def swept(*settings: str) -> list[Policy]:
    ((name, chosen),) = composed(*settings).methods.items()
    return policies.policies(name, chosen)


def test_several_values_of_a_field_are_several_rows() -> None:
    found = swept("methods.echokv.steps=[4,8,4]")
    assert [(one.label, one.fields["steps"]) for one in found] == [("echokv steps=4", 4), ("echokv steps=8", 8)]
    alone = [swept(f"methods.echokv.steps={steps}")[0] for steps in (4, 8)]
    assert [one.identity for one in found] == [one.identity for one in alone]
    assert [one.label for one in alone] == ["echokv", "echokv"]
    pairs = swept("methods.echokv.steps=[4,8]", "methods.echokv.pooling=[none,max]")
    assert [one.variant for one in pairs] == [f"steps={s} pooling={p}" for s in (4, 8) for p in ("none", "max")]


def test_a_list_that_a_field_takes_is_one_value() -> None:
    (found,) = swept("+methods.echokv.refresh_at=[3,5]")
    assert (found.variant, found.fields["refresh_at"]) == ("", [3, 5])
    several = swept("+methods.echokv.refresh_at=[null,[],[3,5]]")
    assert [one.variant for one in several] == ["refresh_at=null", "refresh_at=[]", "refresh_at=[3,5]"]


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ("methods.echokv.steps=[4,few]", "EchoKV.steps is [4, 'few']; it must be a whole number"),
        ("methods.echokv.steps=[]", "EchoKV.steps is []; it must be a whole number"),
        ("methods.echokv.steps=[4,1]", "EchoKV.steps is 1; it must be at least 2"),
        ("methods.echokv._target_=echokv.Prefill", "echokv.Prefill is not a Press"),
    ],
)
def test_a_wrong_value_among_several_is_told(setting: str, says: str) -> None:
    with pytest.raises(UserError) as refused:
        swept(setting)
    assert says in str(refused.value)


def test_a_field_of_a_reserved_name_is_refused(write: Callable[..., None]) -> None:
    write(press=("window: int = 8", "code: int = 8"))
    with pytest.raises(UserError, match="KeyNorm has a field 'code': give it another name"):
        one()


def test_rows_of_one_run_share_its_prefill_and_are_those_of_runs_alone(
    tiny_settings: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    prefill, made = answers.prefill, []
    monkeypatch.setattr(answers, "prefill", lambda *given: made.append(1) or prefill(*given))
    some = [*tiny_settings, "subset=syn_fact", "budget=[64,96]"]
    runner.run(composed(*some, "methods.echokv.steps=[4,8]"))
    table = capsys.readouterr().out
    assert "echokv steps=4 64" in table
    assert "echokv steps=8 96" in table
    assert len(made) == 2, "one for each example"
    together = stored(tmp_path)
    assert len(together) == 2 * 2 * 2
    alone = tmp_path / "alone"
    for steps in (4, 8):
        runner.run(composed(*some, f"methods.echokv.steps={steps}", f"results={alone}", "decode_rows=1"))
    assert stored(alone) == {name: answer for name, answer in together.items() if "alone" not in name}
    runner.run(composed(*some, "methods.echokv.steps=8"))
    assert "4 of 4 answers are stored" in capsys.readouterr().err, "one value finds what a sweep has stored"


def test_a_changed_method_is_answered_anew_and_says_which_answers_are_old(
    write: Callable[..., None], tiny_settings: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = [*tiny_settings, "subset=syn_fact", "methods.echokv._target_=own_press.press.KeyNorm"]
    settings += [f"~methods.echokv.{name}" for name in composed().methods["echokv"] if name != "_target_"]
    runner.run(composed(*settings))
    (old,) = (path.parent for path in tmp_path.rglob("manifest.json"))
    assert "note" not in capsys.readouterr().err
    write(press=("class KeyNorm", "# words\nclass KeyNorm"))
    runner.run(composed(*settings))
    assert "2 of 2 answers are stored" in capsys.readouterr().err
    write(press=("return [-helping", "return [helping"))
    runner.run(composed(*settings))
    said = capsys.readouterr().err
    assert "0 of 2 answers are stored" in said
    assert (
        f"note: the code of echokv has changed since {old} was answered: those answers are kept and not used here; "
        f"`python -m eval.show --results {tmp_path}` shows both\n" in said
    )
    assert len(list(tmp_path.rglob("manifest.json"))) == 2
    runner.run(composed(*settings))
    assert "note" not in capsys.readouterr().err, "told once"


def earlier(folder: Path) -> None:
    """Make a run's folder what versions wrote whose identities held neither weights nor code."""
    content = json.loads((folder / "manifest.json").read_text())
    identity = content["identity"]
    model = {key: identity["model"][key] for key in ("dtype", "attention")}
    identity["model"] = {"name": "tiny", "content": "0123456789abcdef", **model}
    set_then = (
        "_target_",
        "steps",
        "workspace",
        "anchors",
        "stage2_window",
        "pooling",
        "eos",
        "granularity",
        "precision",
    )
    identity["method"] = {"name": "echokv", **{key: identity["method"][key] for key in set_then}}
    (folder / "manifest.json").write_text(json.dumps({"format": content["format"], "identity": identity}))
    folder.rename(folder.with_name(f"{folder.name[:-8]}{digest(identity)}"))


def test_answers_of_earlier_versions_are_read_and_not_served(
    tiny_settings: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runner.run(composed(*tiny_settings, "subset=syn_fact"))
    (folder,) = (path.parent for path in tmp_path.rglob("manifest.json"))
    earlier(folder)
    (old,) = collect.find(tmp_path, "synthetic", "tiny")
    assert len(collect.answers([old]).frame) == 2, "a table of them alone"
    capsys.readouterr()
    runner.run(composed(*tiny_settings, "subset=syn_fact"))
    said = capsys.readouterr().err
    assert "0 of 2 answers are stored" in said
    assert f"note: what answers are known by has changed since {old.folder} was answered" in said
    with pytest.raises(UserError) as refused:
        collect.answers(collect.find(tmp_path, "synthetic", "tiny"))
    assert "\n" not in str(refused.value)


def test_other_files_of_a_model_are_told(
    tiny_settings: list[str], tiny_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "models" / "tiny"
    other.mkdir(parents=True)
    for path in tiny_folder.iterdir():
        (other / path.name).write_bytes(path.read_bytes())
    settings = [*tiny_settings, f"model.name={other}", "subset=syn_fact"]
    runner.run(composed(*settings))
    (other / "chat_template.jinja").write_text((other / "chat_template.jinja").read_text() + " ")
    capsys.readouterr()
    runner.run(composed(*settings))
    assert "note: the model's files have changed since" in capsys.readouterr().err
