"""A wheel is built, installed without the repository, and used from another folder."""

import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from email.parser import Parser
from pathlib import Path

import pandas as pd
import pytest

from baselines.ada import AdaSnapKV
from eval.answering.frame import evaluate
from eval.keeping import digests

ROOT = Path(__file__).parent.parent
PARTS = ("pyproject.toml", "setup.py", "README.md", "LICENSE", "run.py", "conf", "echokv", "eval", "baselines",
         "results/paper", "scripts/slurm")  # fmt: skip
PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet")
HARNESS = "echokv/_harness/"
DIGEST = """
import sys, echokv
sys.path.insert(0, echokv.__path__[0] + "/_harness")
from baselines.ada import AdaSnapKV
from eval.keeping import digests
print(digests.__file__)
print(digests.digest(digests.modules_of([AdaSnapKV]).items()), digests.modules_of([echokv.EchoKV]))
"""


def called(*command: str | Path, cwd: Path, path: str = "") -> subprocess.CompletedProcess[str]:
    """A process that knows nothing of this one's modules and asks no network."""
    apart = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    told = {**apart, "PIP_NO_INDEX": "1", "COLUMNS": "120", **({"PYTHONPATH": path} if path else {})}
    return subprocess.run(list(map(str, command)), cwd=cwd, env=told, capture_output=True, text=True, timeout=120)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    source, made = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    for name in PARTS:
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (shutil.copytree if (ROOT / name).is_dir() else shutil.copy)(ROOT / name, source / name)
    stale = source / "build" / "lib" / "eval" / "gone.py"  # of an earlier build
    stale.parent.mkdir(parents=True)
    stale.touch()
    done = called(*PIP, "wheel", ".", "--no-deps", "--no-build-isolation", "-w", made, cwd=source)
    assert done.returncode == 0, done.stderr
    (found,) = made.glob("echokv-*.whl")
    return found


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel alone."""
    folder = tmp_path_factory.mktemp("environment")
    assert called(sys.executable, "-m", "venv", "--without-pip", folder, cwd=folder).returncode == 0
    found = folder / "bin" / "python"
    done = called(*PIP, "--python", found, "install", "--no-deps", wheel, cwd=folder)
    assert done.returncode == 0, done.stderr
    return found


@pytest.fixture(scope="module")
def packages() -> str:
    """The installed packages as plain folders, so that no editable install of the repository is seen."""
    return os.pathsep.join(path for path in sys.path if Path(path).name in digests.INSTALLED)


@pytest.fixture
def words(tiny_folder: Path) -> list[str]:
    """Settings of a small run; results are in the current folder."""
    return [f"model.name={tiny_folder}", "model.label=tiny", "data.length=512", "subset=syn_fact", "budget=64"]


def stored(folder: Path) -> dict[str, bytes]:
    """Every file of a results folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def names(folder: Path, patterns: Sequence[str]) -> set[str]:
    return {path.relative_to(folder).as_posix() for pattern in patterns for path in folder.rglob(pattern)}


def test_it_holds_what_it_needs_under_one_name(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as opened:
        held = {name for name in opened.namelist() if ".dist-info/" not in name}
        (about,) = (name.split("/")[0] for name in opened.namelist() if name.endswith("/METADATA"))
        metadata = Parser().parsestr(opened.read(f"{about}/METADATA").decode())
        assert opened.read(f"{about}/top_level.txt").decode().split() == ["echokv"]
        stand_in = opened.getinfo(f"{HARNESS}scripts/slurm/bin/sacct")
        assert stand_in.external_attr >> 16 & 0o111, "it must be executable"
    harness = {name.removeprefix(HARNESS) for name in held if name.startswith(HARNESS)}
    code = {f"{part}/{name}" for part in ("eval", "baselines") for name in names(ROOT / part, ["*.py"])}
    page = {f"eval/report/{path.parent.name}/{path.name}" for path in (ROOT / "eval/report").glob("[pv]*/*.*")}
    conf = {f"conf/{name}" for name in names(ROOT / "conf", ["*.yaml", "*.json"])}
    paper = {f"results/paper/{name}" for name in names(ROOT / "results/paper", ["*.csv"])}
    assert page
    assert paper
    page = {name for name in page if "__pycache__" not in name}
    assert harness == code | page | conf | paper | {"run.py", "scripts/slurm/bin/sacct"}
    assert held - {f"{HARNESS}{name}" for name in harness} == {f"echokv/{one.name}" for one in ROOT.glob("echokv/*.py")}
    asked = [line for line in metadata.get_all("Requires-Dist") or [] if "extra ==" not in line]
    assert sorted(line.split(">")[0] for line in asked) == ["jaxtyping", "safetensors", "torch", "transformers"]
    assert {"harness", "report", "slurm"} <= set(metadata.get_all("Provides-Extra") or [])


def test_without_the_harness_the_command_says_what_to_install(python: Path, tmp_path: Path) -> None:
    assert called(python, "-c", "import echokv, echokv.baselines", cwd=tmp_path).returncode == 0
    for words, extra in (["show"], "harness"), (["budget=128"], "harness"), (["figures"], "report"):
        done = called(python.parent / "echokv", *words, cwd=tmp_path)
        assert done.returncode == 1
        assert done.stderr.startswith("error: accelerate, ")
        assert done.stderr.endswith(f"not installed, which this needs: pip install 'echokv[{extra}]'\n")
        assert ("matplotlib" in done.stderr) == (extra == "report")


def test_evaluate_says_what_to_install(python: Path, packages: str, tmp_path: Path) -> None:
    code = "import echokv\ntry: import echokv.harness\nexcept echokv.UsageError as error: print(error)"
    said = called(python, "-c", code, cwd=tmp_path).stdout
    assert said.startswith("accelerate, ")
    assert said.endswith("not installed, which this needs: pip install 'echokv[harness]'\n")
    (tmp_path / "eval.py").touch()
    said = called(python, "-c", f"import eval\n{code}", cwd=tmp_path, path=packages).stdout
    assert said == f"{tmp_path}/eval.py has been imported as 'eval', a name that the harness needs: give it another\n"


def test_its_baselines_leave_top_level_names_alone(python: Path, packages: str, tmp_path: Path) -> None:
    """A user's own modules of such names are found."""
    for name in ("baselines", "eval", "conf", "run"):
        (tmp_path / f"{name}.py").write_text("whose = 'mine'\n")
    shipped = sorted(path.stem for path in (ROOT / "baselines").glob("[!_]*.py"))
    code = (
        "import baselines; from echokv import EchoKV; from echokv.baselines.ada import AdaSnapKV\n"
        f"from importlib import import_module as i; [i('echokv.baselines.' + name) for name in {shipped}]\n"
        "print(baselines.whose, AdaSnapKV().least_budget, AdaSnapKV.__module__)\n"
        "import importlib.util as u; print([(s := u.find_spec(n)) and s.origin for n in ('eval', 'conf', 'run')])"
    )
    done = called(python, "-c", code, cwd=tmp_path, path=packages)
    own = [str(tmp_path / f"{name}.py") for name in ("eval", "conf", "run")]
    assert done.stdout == f"mine {AdaSnapKV().least_budget} echokv.baselines.ada\n{own}\n", done.stderr


def test_the_command_works_in_any_folder(python: Path, packages: str, tmp_path: Path) -> None:
    (tmp_path / "eval.py").write_text("raise RuntimeError('not this one')\n")
    command = python.parent / "echokv"
    done = called(command, "subset=syn_facts", "method=[snapkv,echokv]", "--cfg", "job", cwd=tmp_path, path=packages)
    assert "_target_: baselines.snapkv.SnapKV" in done.stdout, done.stderr
    done = called(command, "show", cwd=tmp_path, path=packages)
    assert (done.returncode, done.stderr) == (
        1, "error: no answers in results: run echokv first, or name another folder with --results\n"
    )  # fmt: skip
    for words, makes in (["method=headkv"], "heads"), (["cache=kvquant_c"], "calibrate"):  # what a library's class says
        done = called(command, *words, "subset=syn_fact", cwd=tmp_path, path=packages)
        assert f", which echokv {makes} MODEL makes (" in done.stderr
    done = called(command, "paper-check", cwd=tmp_path, path=packages)
    assert "second-best marks" in done.stdout, done.stderr
    done = called(command, "tables", "table3", "--wrong", cwd=tmp_path, path=packages)
    assert "(see echokv tables --help)" in done.stderr
    done = called(command, "bugdet=3", cwd=tmp_path, path=packages)
    assert done.stderr.startswith("error: unknown setting 'bugdet'; did you mean budget")
    assert [path.name for path in tmp_path.iterdir()] == ["eval.py"]


def test_the_command_names_its_commands(python: Path, tmp_path: Path) -> None:
    command = python.parent / "echokv"
    assert " analysis anomaly calibrate compare figures " in called(command, "--help", cwd=tmp_path).stdout
    done = called(command, "tabels", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (1, "error: unknown command 'tabels'; did you mean tables?\n")
    done = called(command, "zzz", cwd=tmp_path)
    assert done.stderr.endswith("status, tables; settings are NAME=VALUE\n")
    assert called(command, "", cwd=tmp_path).stderr.startswith("error: accelerate, "), "no word is no command"


def test_answers_are_the_same_ones(python: Path, packages: str, tmp_path: Path) -> None:
    """What a method's answers depend on is told alike in the repository and where the wheel is installed."""
    done = called(python, "-c", DIGEST, cwd=tmp_path, path=packages)
    where, told = done.stdout.splitlines()
    assert where.startswith(str(python.parent.parent))
    assert told == f"{digests.digest(digests.modules_of([AdaSnapKV]).items())} {{}}"


def test_a_run_as_a_data_frame_goes_on_in_a_checkout(
    python: Path, packages: str, words: list[str], tmp_path: Path
) -> None:
    """Own YAMLs and classes beside; the repository finds the other answers in the store, which tells no path."""
    method = tmp_path / "conf" / "method" / "mine.yaml"
    method.parent.mkdir(parents=True)
    method.write_text("# @package methods\nmine: {_target_: mine.Mine}\n")
    (tmp_path / "mine.py").write_text("from echokv.baselines.knorm import Knorm\nclass Mine(Knorm): pass\n")
    words += ["limit=1"]
    own = ["hydra.searchpath=[file://conf]", "method=[full,snapkv,mine]"]
    code = f"from echokv.harness import evaluate\nevaluate(*{words + own}).to_json('frame.json')"
    done = called(python, "-c", code, cwd=tmp_path, path=os.pathsep.join([packages, str(tmp_path)]))
    assert done.returncode == 0, done.stderr
    made = stored(tmp_path / "results")
    here = evaluate(*words, f"results={tmp_path / 'results'}", "method=[full,snapkv]")
    assert stored(tmp_path / "results") == made, "the checkout answered again"
    frame = pd.read_json(tmp_path / "frame.json")
    assert list(frame["method"]) == ["full", "snapkv", "mine"]
    assert list(frame["pred"][:2]) == list(here["pred"])
    assert not [name for name, content in made.items() if str(python.parent.parent).encode() in content]


def test_a_sweep_of_a_local_task(python: Path, packages: str, words: list[str], tmp_path: Path) -> None:
    pytest.importorskip("hydra_plugins.hydra_submitit_launcher")
    swept = [*words, "method=snapkv", "limit=1"]  # one task is enough: each imports torch anew
    command = [python.parent / "echokv", "-m", "hydra/launcher=local", *swept]
    done = called(*command, cwd=tmp_path, path=packages)
    assert done.returncode == 0, done.stderr
    assert {path.name for path in tmp_path.iterdir()} == {"results", "sweeps"}
    answers = [path.read_text().splitlines() for path in (tmp_path / "results").rglob("syn_fact.*.jsonl")]
    assert [len(lines) for lines in answers] == [1]
