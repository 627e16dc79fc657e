"""What docs/extending.md shows works as it stands there, in a copy of the project."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PARTS = ("run.py", "conf", "echokv", "baselines", "eval", "results/paper", "tests")


def shown(page: str) -> dict[str, str]:
    """The blocks of a page by the file that a comment in their first two lines names."""
    text = (ROOT / page).read_text(encoding="utf-8")
    found = {}
    for block in re.findall(r"^```(?:python|yaml)\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE):
        head = " ".join(line for line in block.split("\n")[:2] if line.startswith("#"))
        if named := re.search(r"[\w/]+\.(?:py|yaml)", head):
            found[named[0]] = block
    return found


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the project with every file that README.md and docs/extending.md show."""
    folder = tmp_path_factory.mktemp("project")
    for name in PARTS:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        (folder / name).parent.mkdir(exist_ok=True)
        copy(ROOT / name, folder / name)
    for name, content in (shown("README.md") | shown("docs/extending.md")).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content, encoding="utf-8")
    return folder


def run(project: Path, *words: str) -> str:
    done = subprocess.run([sys.executable, *words], cwd=project, capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_page_shows_each_kind(project: Path) -> None:
    files = (
        "tests/test_valuenorm.py",
        "conf/model/mine.yaml",
        "sources/texts.py",
        "conf/data/texts.yaml",
        "my_metrics.py",
    )
    assert all((project / file).is_file() for file in files)


def test_the_method_s_test_passes(project: Path) -> None:
    run(
        project, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", "-c", "/dev/null", "tests/test_valuenorm.py"
    )


def test_source_metric_and_model_make_a_run(project: Path, tiny_folder: Path) -> None:
    for name in ("cat", "dog"):
        (project / "my_texts").mkdir(exist_ok=True)
        (project / "my_texts" / f"{name}.txt").write_text(f"{name} " + "and so on " * 200, encoding="utf-8")
    task = (project / "conf" / "subsets" / "multifieldqa_en.yaml").read_text(encoding="utf-8")
    task = re.sub(r"^metric: .*", "metric: my_metrics.exact", task, flags=re.MULTILINE)
    (project / "conf" / "subsets" / "multifieldqa_en.yaml").write_text(task, encoding="utf-8")
    mine = (project / "conf" / "model" / "mine.yaml").read_text(encoding="utf-8")
    mine = mine.replace("my-org/my-finetune", str(tiny_folder)).replace("31500", "300")
    (project / "conf" / "model" / "mine.yaml").write_text(mine, encoding="utf-8")
    said = run(project, "run.py", "model=mine", "data=texts", "data.path=my_texts/", "method=valuenorm", "budget=64")
    assert "mine: score" in said
    assert "multifieldqa_en" in said
    assert len(list((project / "results" / "texts" / "mine").glob("valuenorm-64-*/multifieldqa_en.*.jsonl"))) == 1
