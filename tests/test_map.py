"""README's map names what is there, and docs/extending.md leads through a run in the order in which it happens."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import FrameType

import pytest

import run as program

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
# Of each file that the way through a run names, the function that does there what the page says.
WAY = {
    "run.py": "app",
    "eval/planning/settings.py": "settings",
    "eval/planning/plan.py": "of",
    "eval/planning/todo.py": "missing",
    "eval/answering/work.py": "answer_all",
    "eval/inputs/asked.py": "of",
    "eval/answering/answers.py": "answers",
    "echokv/prefilling.py": "prefill",
    "eval/answering/together.py": "choose",
    "echokv/press.py": "selecting",
    "echokv/decoding.py": "decode_rows",
    "eval/keeping/store.py": "append",
    "eval/answering/summary.py": "summary",
}


def section(page: str, title: str) -> str:
    text = (ROOT / page).read_text(encoding="utf-8")
    return text.split(f"## {title}\n", 1)[1].split("\n## ", 1)[0]


def test_the_map_is_short_and_names_every_room_and_command() -> None:
    lines = section("README.md", "What lies where").split("```")[1].strip("\n").split("\n")
    assert len(lines) <= 20
    inner = [name.rstrip("/") for name in re.findall(r"(?:^|  )(\w+/|\w+\.py)(?=\s)", "\n".join(lines), re.MULTILINE)]
    rooms = {path.parent.name for path in (ROOT / "eval").glob("*/__init__.py")}
    assert rooms <= set(inner)
    for name in inner:
        assert (ROOT / name).exists() or (ROOT / "eval" / name).is_dir(), name
    said = next(line for line in lines if line.startswith("eval/")).partition("commands: ")[2]
    commands = {path.stem for path in (ROOT / "eval").glob("*.py")} - {"__init__"}
    commands |= {path.parent.name for path in (ROOT / "eval").glob("*/__main__.py")}
    assert set(said.split(", ")) == commands


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_files_that_a_page_names_are_there(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    made = set(re.findall(r"^# ([\w/]+\.(?:py|yaml))$", text, flags=re.MULTILINE))  # what the page itself shows
    for name in re.findall(r"`((?:conf|echokv|baselines|eval|scripts|examples|tests)/[\w./-]+\.\w+)`", text):
        assert name in made or (ROOT / name).exists() or "NAME" in name, name


def test_a_run_goes_the_way_that_the_page_tells(
    tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = re.findall(r"`((?:\w+/)*\w+\.py)`", section("docs/extending.md", "One run, from top to bottom"))
    assert told[: len(WAY)] == list(WAY)
    begun: list[str] = []
    functions = {(str(ROOT / name), function): name for name, function in WAY.items()}

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and (name := functions.get((frame.f_code.co_filename, frame.f_code.co_name))):
            begun.append(name)

    settings = ["method=[snapkv,echokv]", "budget=64", "data.length=512", "subset=syn_fact", "limit=1"]
    model = [f"model.name={tiny_folder}", "model.label=tiny", f"results={tmp_path}"]
    monkeypatch.setattr(sys, "argv", ["run.py", *model, *settings])
    sys.setprofile(note)
    try:
        assert program.main() == 0
    finally:
        sys.setprofile(None)
    assert list(dict.fromkeys(begun)) == list(WAY)
