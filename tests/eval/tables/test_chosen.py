"""A table of the runs that settings name, whatever else lies in the folder, and what the commands take."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from eval import compare
from eval.answering import runner
from eval.tables import __main__ as tables
from tests.eval.stores import pattern, write
from tests.test_configs import composed

ROOT = Path(__file__).parents[3]
GRID = ["method=[full,laq,echokv]", "budget=[48]", "methods.echokv.workspace=64", "methods.laq.workspace=64"]
GRID += ["methods.echokv.steps=4", "methods.laq.steps=4"]


@pytest.fixture
def stored(tiny_settings: list[str]) -> list[str]:
    """Settings of a grid; beside its answers lie those of another field, budget, preset and data."""
    settings = [*tiny_settings, "subset=[syn_fact]", "limit=1", *GRID]
    more = [["methods.echokv.steps=2"], ["budget=[56]"], ["preset=paper"], ["data.seed=1"]]
    for other in ([], *more):
        runner.run(composed(*settings, *other))
    return settings


def rows(text: str) -> list[tuple[str, str]]:
    lines = [line.split("|") for line in text.splitlines() if line.startswith("|")][2:]
    return [(line[1].strip(), line[2].strip()) for line in lines]


def test_a_table_holds_the_runs_of_its_settings_alone(stored: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert tables.main(["table3", *stored, "against=full"]) == 0
    assert rows(capsys.readouterr().out) == [("FullKV", "--"), ("LAQ", "48"), ("EchoKV", "48")]
    assert tables.main(["table3", *stored, "budget=[48,56]"]) == 0
    found = rows(capsys.readouterr().out)
    assert found[1:] == [("LAQ", "48"), ("EchoKV", "48"), ("LAQ", "56"), ("EchoKV", "56")]
    assert tables.main(["table3", *stored, "methods.echokv.steps=[2,4]"]) == 0
    assert rows(capsys.readouterr().out)[2:] == [("EchoKV (steps=2)", "48"), ("EchoKV (steps=4)", "48")]
    for other in ("methods.laq.steps=3", "data.seed=2", "budget=[40]", "model.dtype=float64"):
        assert tables.main(["table3", *stored, other]) == (0 if other in ("methods.laq.steps=3", "budget=[40]") else 1)
        captured = capsys.readouterr()
        assert ("EchoKV" in captured.out) is (other == "methods.laq.steps=3")
        assert "LAQ" not in captured.out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["modl=smollm2"], "unknown setting 'modl'; did you mean model"),
        (["model=smollm2", "data=synthetic"], "no run of these settings is stored in"),
        (["model=smollm2", "--data", "jsonl"], "--data beside settings such as model=smollm2"),
        (["against=snapkv", "edit=letters", "--model", "smollm2"], "edit is 'letters'; use"),
        (["no_errors=maybe", "--model", "smollm2"], "no_errors is 'maybe'; give true or false"),
        (["oops"], "'oops': write NAME=VALUE"),
    ],
)
def test_a_setting_that_nobody_takes_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    write(tmp_path, "laq", 128, {"trec": [True]})
    assert tables.main(["table3", *words, "--results", str(tmp_path)]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line


def test_compare_takes_each_table_at_hand_and_narrows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for method in ("laq", "echokv", "snapkv"):
        for source, label in (("jsonl", "smollm2"), ("synthetic", "smollm2")):
            write(tmp_path, method, 128, {"trec": pattern(len(method), 10)}, source=source, label=label)
    write(tmp_path, "full", None, {"trec": pattern(5, 10)}, label="other")
    results = f"results={tmp_path}"
    assert compare.main([results]) == 0
    out = capsys.readouterr().out
    assert out.count("Each method minus LAQ") == 2
    assert "longbench other paper: --against 'laq' was not run; known: full" in out
    assert compare.main([results, "data=jsonl", "against=snapkv"]) == 0
    out = capsys.readouterr().out
    assert out.count("Each method minus SnapKV") == 1
    assert compare.main([results, "foo=1"]) == 1
    assert "'foo' is no setting of this command; " in capsys.readouterr().err
    for word, said in (("data=hub", "known: jsonl, longbench, synthetic"), ("model=smolm2", "did you mean smollm2?")):
        assert compare.main([results, word]) == 1
        told = capsys.readouterr().err
        assert "no such answers" in told
        assert said in told
    assert compare.main([results, "data=jsonl", "model=other"]) == 1
    assert "--model 'other': no such answers" in capsys.readouterr().err, "there are, but not of this data"


def test_make_hands_each_setting_to_those_who_take_it() -> None:
    """By what it would do; nothing is run."""

    def commands(*words: str) -> list[str]:
        done = subprocess.run(["make", "-n", *words], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True)
        return [line for line in done.stdout.splitlines() if "-m eval." in line or "run.py" in line]

    run, table = commands("table3", "model=smollm2", "data.path=records/", "against=snapkv", "all_columns=true")
    assert sorted(run.split()[2:]) == ["data.path=records/", "experiment=table3", "model=smollm2"]
    settings = ["against=snapkv", "all_columns=true", "data.path=records/", "experiment=table3", "model=smollm2"]
    assert sorted(table.split()[4:]) == settings
    run, table = commands("rivals", "limit=2", "against=snapkv")
    assert run.split()[2:] == ["experiment=rivals", "limit=2"]
    assert table.split()[3:5] == ["rivals", "experiment=rivals"]
    assert sorted(table.split()[5:]) == ["against=snapkv", "limit=2"]
    (compared,) = commands("compare", "against=snapkv", "foo=1")
    assert sorted(compared.split()[3:]) == ["against=snapkv", "foo=1"]


@pytest.mark.parametrize("module", ["tables.__main__", "compare", "show", "status", "figures"])
def test_what_reads_stored_answers_imports_no_torch(module: str, tmp_path: Path) -> None:
    for method in ("laq", "echokv"):
        write(tmp_path, method, 128, {"trec": pattern(3, 10), "gov_report": [True]})
    words = {"tables.__main__": ["table3", "--model", "smollm2", "--results"], "status": []}.get(module, ["--results"])
    work = f"main({[*words, str(tmp_path)]!r})" if module != "figures" else "0"  # its pictures are another matter
    code = f"import sys; from eval.{module} import main; sys.exit({work} or "
    code += "', '.join({'torch', 'transformers', 'scipy', 'matplotlib'} & sys.modules.keys()) or None)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
