"""The README's pictures from a real run of SmolLM2: `python scripts/screenshots.py`, some minutes the first time.

Answers the demo's questions with the kept tokens recorded, writes the report and photographs it in Chromium:
docs/pictures/table.png, the table; docs/pictures/example.png, one example, two methods side by side.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

from eval.console.errors import UserError
from eval.report.browser import chromium
from eval.report.build import build

ROOT = Path(__file__).resolve().parent.parent
TABLE = "table=synthetic/smollm2/equal_bytes"
PICTURES = {  # name -> (view, what must be there)
    "table": (f"#/tables?{TABLE}", ".table[data-built]"),
    "example": (
        f"#/example?{TABLE}&task=syn_fact&n=2&a=echokv-128&b=snapkv-128&look=two",
        ".pane + .pane .prompt .t",
    ),
}


def answer(results: Path) -> None:
    """Run the demo at three budgets, selections recorded; what is stored already is not done again."""
    settings = ["experiment=demo", "budget=[64,128,256]", "record.selections=true", f"results={results}"]
    subprocess.run([sys.executable, str(ROOT / "run.py"), *settings], cwd=ROOT, check=True)


def photograph(root: Path, folder: Path) -> None:
    """Save every picture at 1280 x 860, two device pixels a pixel.

    Raises:
        UserError: Chromium or Playwright is missing.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with chromium() as browser:
        for name, (view, shown) in PICTURES.items():
            page = browser.new_page(viewport={"width": 1280, "height": 860}, color_scheme="light")
            page.goto((root / "index.html").resolve().as_uri() + view)
            page.wait_for_selector(shown)
            page.keyboard.press("e")  # of an example: to its evidence
            page.wait_for_timeout(500)  # fonts and drawings
            page.screenshot(path=folder / f"{name}.png")
            page.close()


def main() -> int:
    """Run the command line; returns the exit status, 1 with one line on stderr for what is missing."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--results", type=Path, default=ROOT / "results", help="folder of the stored answers")
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "pictures", help="folder of the pictures")
    chosen = parser.parse_args()
    try:
        answer(chosen.results)
        build(chosen.results, chosen.results / "report")
        photograph(chosen.results / "report", chosen.out)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except subprocess.CalledProcessError as error:
        return int(error.returncode)
    print(chosen.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
