"""What tests of the report do and ask in a browser.

Pictures of what was seen go to the folder that REPORT_PICTURES names, if it is set.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

CONTRAST = """(names) => {
  const box = document.createElement("span");
  document.body.append(box);
  const canvas = document.createElement("canvas").getContext("2d", {willReadFrequently: true});
  const light = (colour) => {
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    const [r, g, b] = [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3).map((v) => v / 255)
      .map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const found = names.map((name) => {
    box.className = name;
    const style = getComputedStyle(box);
    const [high, low] = [light(style.color), light(style.backgroundColor)].sort((a, b) => b - a);
    return [name, (high + 0.05) / (low + 0.05)];
  });
  box.remove();
  return Object.fromEntries(found);
}"""

WAIT = """async () => {
  const begun = performance.now();
  while (!(CONDITION)) {
    if (performance.now() - begun > 15000) throw new Error("it does not come about");
    await new Promise((done) => setTimeout(done, 10));
  }
}"""

UNNAMED = """() => [...document.querySelectorAll("button, a[href], select, input, [role=region], svg[role=img]")]
  .filter((one) => !(one.getAttribute("aria-label") || one.textContent.trim() || one.labels?.length || one.title))
  .map((one) => one.outerHTML.slice(0, 120))"""


def visit(page: Any, root: Path, address: str = "") -> None:
    page.goto("about:blank")
    page.goto((root / "index.html").as_uri() + address)
    page.wait_for_selector("[data-loaded]")


def wait(page: Any, condition: str) -> None:
    """Wait until a condition holds. Playwright's own way makes code of a string, which the page's policy forbids."""
    page.evaluate(WAIT.replace("CONDITION", condition))


def picture(page: Any, name: str) -> None:
    if folder := os.environ.get("REPORT_PICTURES"):
        Path(folder).mkdir(parents=True, exist_ok=True)
        page.screenshot(path=Path(folder) / f"{name}.png")


def classes(page: Any, pane: int = 0) -> list[str]:
    return page.eval_on_selector_all(f".pane:nth-child({pane + 1}) .prompt .t", "all => all.map(one => one.className)")
