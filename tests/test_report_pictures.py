"""The report with few and many methods and tasks, wide and narrow, light and dark: nothing cut, nothing over another.

Pictures of what was seen go to the folder that REPORT_PICTURES names, if it is set.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from eval.report.build import build
from eval.report.look import REFERENCES, family
from eval.tables import naming
from eval.tables.naming import Name
from tests.browsing import picture, visit, wait
from tests.eval import gallery

VIEWS = {
    "tables": ("#/tables?", ".table[data-built] .entry"),
    "budgets": ("#/budgets?", ".drawing svg"),
    "costs": ("#/costs?", ".drawing svg"),
    "differences": ("#/differences?method=full&", ".drawing svg"),
    "examples": ("#/examples?", ".list a"),
    "example": ("#/example?task=hotpotqa&n=0&look=two&a=echokv-128&b=full&token=5&", ".prompt .t"),
}
# Text that does not fit into its box, or is wider than the page; what scrolls or folds on purpose is let be.
BOXES = "h1, p, button, a, #page label, figcaption, .tabulator-col-title, .key li, .entry *, .points"
CUT = """(boxes) => [...document.querySelectorAll(boxes)]
  .filter((one) => one.offsetParent && !one.closest(".said, .skip, .prompt"))
  .filter((one) => one.scrollWidth > one.clientWidth + 1 && getComputedStyle(one).display !== "inline")
  .map((one) => one.outerHTML.slice(0, 160))"""
# Choices whose text is wider than they are.
CLIPPED = """() => [...document.querySelectorAll("select")].filter((one) => one.offsetParent).filter((one) => {
    const whole = one.cloneNode(false);
    whole.append(one.selectedOptions[0].cloneNode(true));
    whole.style.cssText = "max-width: none; width: max-content; position: absolute";
    one.after(whole);
    const cut = whole.offsetWidth > one.offsetWidth + 1;
    whole.remove();
    return cut;
  }).map((one) => `${one.id}: ${one.selectedOptions[0].textContent}`)"""
# Words of a drawing that reach beyond it.
BEYOND = """() => [...document.querySelectorAll(".drawing svg")].flatMap((svg) => {
    const box = svg.getBoundingClientRect();
    return [...svg.querySelectorAll("text")].filter((one) => {
      const own = one.getBoundingClientRect();
      return own.width && (own.left < box.left - 1 || own.right > box.right + 1);
    }).map((one) => one.textContent);
  })"""
# Marks, or words, that lie on each other where each method and budget has a line of its own.
OVER = """() => [...document.querySelectorAll(".drawing svg")].flatMap((svg) =>
  [...svg.querySelectorAll("g[aria-label=text], g[aria-label=dot]")].flatMap((group) => {
    const boxes = [...group.children].map((one) => one.getBoundingClientRect());
    return boxes.flatMap((one, place) => boxes.slice(place + 1).filter((other) =>
      one.left < other.right && other.left < one.right && one.top + 2 < other.bottom && other.top + 2 < one.bottom));
  })).length"""
SHOWN = (REFERENCES, "the paper's")  # at first, of many methods
LINED = ("costs", "differences")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    results = tmp_path_factory.mktemp("gallery") / "results"
    gallery.fabricate(results)
    build(results, results / "report")
    return results / "report"


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize(("methods", "tasks"), gallery.SIZES)
def test_every_size_can_be_looked_at(browser: Any, root: Path, methods: int, tasks: int, width: int) -> None:
    page = browser.new_page(viewport={"width": width, "height": 1000}, color_scheme="light", reduced_motion="reduce")
    page.set_default_timeout(10_000)
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    for name, (address, shown) in VIEWS.items():
        visit(page, root, f"{address}table=longbench/{gallery.label(methods, tasks)}/paper")
        page.wait_for_selector(shown)
        assert page.evaluate("document.documentElement.scrollWidth") <= width, name
        assert page.evaluate(CUT, BOXES) == [], name
        assert page.evaluate(CLIPPED) == [], name
        assert page.evaluate(BEYOND) == [], name
        if name in LINED:
            assert page.locator(".drawing svg g[aria-label=dot] *").count(), name
            assert page.evaluate(OVER) == 0, name
        for theme in ("light", "dark"):
            page.emulate_media(color_scheme=theme)
            picture(page, f"{name}-{methods}-methods-{tasks}-tasks-{width}-{theme}")
    page.close()
    assert not said


def test_of_many_methods_one_family_is_in_colour(browser: Any, root: Path) -> None:
    page = browser.new_page(viewport={"width": 390, "height": 1000}, reduced_motion="reduce")
    page.set_default_timeout(10_000)
    behind = page.locator(".drawing >> nth=0").locator("[aria-label^='behind ']")
    key = page.locator(".key button")
    visit(page, root, f"#/budgets?table=longbench/{gallery.label(26, 3)}/paper")
    page.wait_for_selector(".drawing svg")
    assert key.all_inner_texts() == [naming.title(name) for name in gallery.EVERY if family(Name(name)) in SHOWN]
    assert behind.count() == 26 - key.count()
    page.select_option("#family", "keys and values alone")
    wait(page, "document.querySelectorAll('.key button').length === 6")
    assert key.all_inner_texts()[3:] == ["KeyDiff", "Knorm", "LagKV"]
    assert behind.count() == 20
    assert page.evaluate(CLIPPED) == []
    page.select_option("#family", "all")
    wait(page, "!document.querySelector(\"[aria-label^='behind ']\")")
    assert page.locator("details.many:not([open])").count() == 1  # a long key is folded on a narrow screen
    visit(page, root, f"#/budgets?table=longbench/{gallery.label(7, 3)}/paper")
    page.wait_for_selector(".drawing svg")
    assert page.locator("#family").count() == 0
    page.close()
