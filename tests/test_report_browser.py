"""The report in a real browser, opened from disk: from the overview to one token, on a wide and a narrow screen.

Pictures of what was seen go to the folder that REPORT_PICTURES names, if it is set.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from functools import partial
from http.server import ThreadingHTTPServer
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from eval.report.build import build
from eval.report.serve import Handler
from eval.scoring import statistics
from tests.browsing import CONTRAST, UNNAMED, classes, picture, visit, wait
from tests.eval import kept
from tests.eval.stores import pattern, write

BREAK = "document.documentElement.dataset.broken='yes'"
EVIL = f"</script><script>{BREAK}</script><img src=x onerror={BREAK}><svg/onload={BREAK}>"
METHODS = {"full": (None,), "snapkv": (128, 256), "laq": (128, 256), "echokv": (128, 256)}
STEPS = {"laq": ("W1",), "echokv": ("W1", "W2")}
SUBSETS = {"hotpotqa": 6, "trec": 6, "lcc": 4}
LONG = 31_000
SHADES = [f"{letter}{level}" for letter in "ab" for level in range(1, 8)]
CELLS = [f"{way}-{level}" for way in ("more", "less") for level in range(1, 6)]


def pieces(length: int) -> list[str]:
    words = ["the ", "quiet ", "river ", "carried ", "seven ", "letters", ".\n"]
    return [words[place % len(words)] for place in range(length)]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report whose data try to break out wherever a data set could."""
    results = tmp_path_factory.mktemp("report") / "results"
    for method, budgets in METHODS.items():
        for place, budget in enumerate(budgets):
            right = {name: pattern(1 + place + len(method) % n, n) for name, n in SUBSETS.items()}
            if (method, budget) == ("snapkv", 256):
                del right["lcc"]
            evil = {"pred": EVIL, "answers": [EVIL, "seven letters"], "all_classes": [EVIL, "seven letters"]}
            change = evil if (method, budget) == ("laq", 128) else None
            run = write(results, method, budget, right, change=change)
            for number, length in ((0, 120), (1, LONG)):
                text = [EVIL, *pieces(length - 1)]
                kept.write(run, "hotpotqa", number, text, STEPS.get(method, ()), 100 * (method != "echokv"))
    build(results, results / "report")
    return results / "report"


@pytest.fixture
def page(browser: Any) -> Iterator[Any]:
    """A page that must not complain: no error, no message, no breach of its own policy, no request to the outside."""
    opened = browser.new_page(viewport={"width": 1280, "height": 900}, color_scheme="light")
    opened.set_default_timeout(10_000)
    said: list[str] = []
    opened.on("console", lambda message: said.append(message.text))
    opened.on("pageerror", lambda error: said.append(str(error)))
    opened.on(
        "request", lambda request: said.append(request.url) if not request.url.startswith(("file:", "data:")) else None
    )
    yield opened
    broken = opened.evaluate("document.documentElement.dataset.broken")
    opened.close()
    assert not said
    assert broken is None


def example(**state: Any) -> str:
    asked = {"task": "hotpotqa", "n": 0, "a": "echokv-128", "b": "snapkv-128", **state}
    return "#/example?" + "&".join(f"{name}={value}" for name, value in asked.items())


def test_from_the_overview_to_a_layer(page: Any, root: Path) -> None:
    visit(page, root)
    page.wait_for_selector(".table[data-built]")
    assert page.locator(".entry.missing").count() == 2  # SnapKV 256 lacks a task, and so the average
    picture(page, "tables")
    page.get_by_role("button", name="EchoKV 128, Hot").click()
    page.get_by_role("link", name="Examples of this cell").click()
    page.wait_for_selector(".list .tabulator-row")
    page.locator("#a").select_option("echokv-128")
    page.get_by_role("link", name="hotpotqa-0").click()
    page.wait_for_selector(".prompt .t")
    picture(page, "example")
    before = classes(page)
    page.locator("#a").select_option("laq-128")
    wait(page, "document.querySelector('.pane h3').textContent.startsWith('LAQ 128')")
    switched = classes(page)
    assert switched != before
    page.get_by_label("Layer").select_option("1")
    wait(page, "location.hash.includes('layer=1')")
    wait(page, "document.querySelector('#layer').value === '1'")
    assert classes(page) != switched
    picture(page, "layer")


def test_shades_are_the_shares_that_were_stored(page: Any, root: Path) -> None:
    visit(page, root, example(layer=1, head=1))
    page.wait_for_selector(".prompt .t")
    kept_tokens = set(kept.step("final", 120, 15, 9).layers[1][1].tolist())
    shown = {place for place, name in enumerate(classes(page)) if " a7" in name}
    assert shown == kept_tokens
    assert {place for place, name in enumerate(classes(page)) if " ev" in name} == {0, 1, 2}
    page.get_by_label("Head").select_option("")
    wait(page, "!location.hash.includes('head')")
    shares = kept.step("final", 120, 15, 9).counts([1]) / 2
    wait(page, "document.querySelector('#head').value === ''")
    levels = [int(name.split(" a")[1][0]) for name in classes(page)]
    limits = [0.0001, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8]
    assert levels == [sum(share >= limit for limit in limits) for share in shares]


def test_steps_and_looks(page: Any, root: Path) -> None:
    visit(page, root, example())
    page.wait_for_selector(".prompt .t")
    final = classes(page)
    page.get_by_role("radio", name="W2").check()
    wait(page, "document.querySelector('.pane h3').textContent.includes('W2')")
    assert classes(page) != final
    page.keyboard.press("]")
    wait(page, "document.querySelector('.pane h3').textContent.includes('final')")
    assert classes(page) == final
    page.keyboard.press("2")
    wait(page, "document.querySelector('.pane h3').textContent.startsWith('SnapKV')")
    page.keyboard.press("3")
    page.wait_for_selector(".pane + .pane .t")
    assert classes(page, 0) == final
    assert classes(page, 1) != final
    page.keyboard.press("4")
    wait(page, "document.querySelectorAll('.pane').length === 1")
    assert any(re.search(r" ?a[1-7]", name) for name in classes(page))
    assert any(re.search(r" ?b[1-7]", name) for name in classes(page))
    page.keyboard.press("s")
    wait(page, "location.hash.includes('a=snapkv-128')")


def test_keys_links_and_search(page: Any, root: Path) -> None:
    visit(page, root, example())
    page.wait_for_selector(".prompt .t")
    page.locator(".prompt .t").nth(5).click()
    page.wait_for_selector(".t.current")
    page.locator(".prompt").press("ArrowRight")
    wait(page, "location.hash.includes('token=6')")
    assert page.locator(".token figure").count() == 1
    page.keyboard.press("/")
    page.keyboard.type("seven letters")
    wait(page, "document.querySelector('.find output').textContent.startsWith('1 of')")
    assert page.locator(".t.hit2").count() == 2
    page.keyboard.press("Enter")
    wait(page, "document.querySelector('.find output').textContent.startsWith('2 of')")
    address = page.url
    page.reload()  # every state has a link
    page.wait_for_selector(".t.hit2")
    assert page.url == address
    page.locator("h1").click()
    page.keyboard.press("n")
    wait(page, "location.hash.includes('n=1')")
    page.keyboard.press("?")
    page.wait_for_selector("dialog[open]")
    assert page.get_by_text("next / previous example").is_visible()


def test_a_long_prompt_is_virtual_and_whole(page: Any, root: Path) -> None:
    visit(page, root, example(n=1, look="two"))
    page.wait_for_selector(".pane + .pane .t")
    text = page.eval_on_selector(".prompt", "box => box.textContent")
    assert text == "".join([EVIL, *pieces(LONG - 1)])
    assert page.locator(".prompt .t").count() < 8000
    visit(page, root, example(n=1, token=LONG - 5))
    page.wait_for_selector(".t.current")
    box = page.locator(".prompt").bounding_box()
    token = page.locator(".t.current").bounding_box()
    assert box["y"] <= token["y"] <= box["y"] + box["height"]
    assert page.locator(".prompt .t").count() < 8000


def test_where_a_beats_b(page: Any, root: Path) -> None:
    visit(page, root, "#/examples?a=echokv-256&b=full&when=better")
    page.wait_for_selector(".list .tabulator-row")
    gaps = page.eval_on_selector_all(
        ".list [tabulator-field=gap]:not(.tabulator-col)", "all => all.map(one => one.textContent)"
    )
    assert gaps
    assert all(gap.startswith("+") for gap in gaps)
    page.get_by_label("Search").fill("no such text")
    page.get_by_label("Search").press("Enter")
    wait(page, "document.querySelector('.count').textContent === '0 examples'")


def test_settings_are_one_click_away(page: Any, root: Path) -> None:
    visit(page, root)
    page.wait_for_selector(".table[data-built]")
    page.get_by_role("button", name="EchoKV").first.click()
    page.wait_for_selector("dialog[open]")
    assert page.get_by_text("prompt_limit").is_visible()
    page.keyboard.press("Escape")
    page.get_by_role("button", name="FullKV, Hot").focus()
    page.keyboard.press("ArrowDown")
    page.wait_for_selector("#tip")
    assert "95% interval" in page.locator("#tip").inner_text()
    page.get_by_role("radio", name="Stored bytes").check()
    wait(page, "document.querySelector('.entry b').textContent.endsWith('MB')")


def test_a_zero_difference_has_no_sign_of_an_error(page: Any, root: Path) -> None:
    visit(page, root, "#/tables?show=difference&against=full")
    page.wait_for_selector(".table[data-built]")
    shown = page.eval_on_selector_all(".entry:not(.missing) b", "all => all.map(one => one.textContent)")
    assert "0.0" in shown
    assert not any("\u00b1" in text for text in shown)
    assert "standard error of the difference" in page.locator(".hint").first.inner_text()


def test_one_example_has_no_interval(page: Any, tmp_path: Path) -> None:
    for method, budget in (("full", None), ("laq", 128), ("echokv", 128)):
        write(tmp_path, method, budget, {"trec": [method == "laq"]})
    build(tmp_path, tmp_path / "report")
    visit(page, tmp_path / "report")
    page.wait_for_selector(".table[data-built]")
    page.get_by_role("button", name="EchoKV 128, TREC").click()
    told = page.locator("#tip").inner_text()
    assert "n = 1, no interval" in told
    assert "\u00b1" not in told


def test_standard_errors_need_no_pointing(page: Any, root: Path) -> None:
    visit(page, root)
    page.wait_for_selector(".table[data-built]")
    shown = page.get_by_role("button", name="FullKV, Hot").inner_text().split()
    values = [100.0] * 5 + [0.0]
    assert shown == ["83.3", f"\u00b1{statistics.estimate([np.array(values)]).error:.1f}"]


def test_colours_fit_the_differences(page: Any, tmp_path: Path) -> None:
    for method, budget, good in (("full", None, 10), ("snapkv", 128, 9), ("echokv", 128, 6)):
        write(tmp_path, method, budget, {"trec": pattern(good, 10)})
    build(tmp_path, tmp_path / "report")
    visit(page, tmp_path / "report")
    page.wait_for_selector(".table[data-built]")
    assert page.get_by_role("button", name="EchoKV 128, TREC").get_attribute("class").split()[1] == "less-5"
    assert page.get_by_role("button", name="SnapKV 128, TREC").get_attribute("class").split()[1] == "less-2"
    swatches = page.eval_on_selector_all(".key .swatch", "all => all.map(one => one.className)")
    assert [name.split()[1] for name in swatches] == [f"less-{step}" for step in (5, 4, 3, 2, 1)]  # nothing is gained


def test_where_all_are_equal_nothing_is_marked(page: Any, tmp_path: Path) -> None:
    for method in ("snapkv", "echokv"):
        write(tmp_path, method, 128, {"trec": pattern(4, 10)})
    build(tmp_path, tmp_path / "report")
    visit(page, tmp_path / "report")
    page.wait_for_selector(".table[data-built]")
    assert page.locator(".entry").count() == 4
    assert page.locator(".entry.best, .entry.second").count() == 0


def test_seconds_are_shown_where_each_answer_was_measured_alone(page: Any, root: Path, tmp_path: Path) -> None:
    visit(page, root, "#/costs")
    page.wait_for_selector(".drawing svg")
    assert "Seconds are not shown" in page.locator("p.caption").inner_text()
    assert page.locator(".drawing").count() == 1
    for method, budget in (("full", None), ("laq", 128)):
        write(tmp_path, method, budget, {"trec": pattern(4, 10)}, change={"alone": True})
    build(tmp_path, tmp_path / "report")
    visit(page, tmp_path / "report", "#/costs")
    page.wait_for_selector(".drawing svg")
    assert page.locator("figcaption").all_inner_texts() == [
        "Score against stored bytes per answer",
        "Score against seconds per answer",
    ]
    visit(page, tmp_path / "report", "#/example?task=trec&n=0")
    page.wait_for_selector(".card.a .cost")
    assert page.locator(".card.a .cost").inner_text() == "4 tokens, 17.7 MB stored, 1.80 s"
    visit(page, root, example())
    page.wait_for_selector(".card.a .cost")
    assert page.locator(".card.a .cost").inner_text() == "4 tokens, 5.90 MB stored"
    visit(page, tmp_path / "report", "#/tables?show=seconds")
    page.wait_for_selector(".table[data-built]")
    assert page.locator(".entry b").first.inner_text().endswith(" s")
    assert page.locator(".swatch").count() == 0  # no colours, so none to explain


def test_marks_of_a_budget_stand_beside_each_other(page: Any, root: Path) -> None:
    visit(page, root, "#/budgets")
    page.wait_for_selector(".drawing svg")
    found = page.locator(".drawing svg").first.locator("[aria-label=dot] path")
    places = sorted(
        found.evaluate_all("all => all.map(one => Number(one.getAttribute('transform').match(/[0-9.]+/)[0]))")
    )
    assert len(places) == 5  # three methods at 128, two at 256
    assert min(right - left for left, right in pairwise(places)) > 9


def test_the_list_shows_what_was_answered(page: Any, root: Path) -> None:
    visit(page, root, "#/examples?a=laq-128&b=echokv-256")
    page.wait_for_selector(".list .tabulator-row")
    first = page.locator(".list .tabulator-row").first
    wait(page, "!document.querySelector('.list .tabulator-row').textContent.includes('\u2026')")
    assert EVIL in first.inner_text().replace("\n", "")
    page.set_viewport_size({"width": 390, "height": 844})
    page.wait_for_selector(".cards .card")
    wait(page, "document.querySelector('.card').textContent.includes('blue whale')")


def test_a_narrow_page_has_the_average_first_and_one_pane(page: Any, root: Path) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    visit(page, root)
    page.wait_for_selector(".table[data-built]")
    assert page.locator(".table .tabulator-col-title").all_inner_texts()[:3] == ["Method", "Avg of 3", "Hot"]
    assert page.locator(".budget").all_inner_texts() == ["without a budget", "budget 128", "budget 256"]
    visit(page, root, example(look="two"))
    page.wait_for_selector(".pane .t")
    assert page.locator(".pane").count() == 1
    assert page.get_by_role("radio", name="side by side").count() == 0


def test_analyses_without_answers(page: Any, tmp_path: Path) -> None:
    folder = tmp_path / "analysis" / "table1" / "synthetic"
    folder.mkdir(parents=True)
    (folder / "table1.csv").write_text("method,step,mean\nlaq,1,0.25\nlaq,2,0.5\n")
    build(tmp_path, tmp_path / "report")
    for address in ("", "#/tables", "#/example?n=3"):
        visit(page, tmp_path / "report", address)
        page.wait_for_selector(".drawing svg")
        assert page.locator("#menu a").all_inner_texts() == ["Analyses"]
        assert page.get_by_text("No answers are stored").is_visible()


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_every_view_fits_and_can_be_read(page: Any, root: Path, width: int, theme: str) -> None:
    page.set_viewport_size({"width": width, "height": 844})
    page.emulate_media(color_scheme=theme)
    views = {
        "tables": ("#/tables", ".table[data-built]"),
        "budgets": ("#/budgets", ".drawing svg"),
        "costs": ("#/costs", ".drawing svg"),
        "differences": ("#/differences", ".drawing svg"),
        "examples": ("#/examples", ".list a"),
        "example": (example(look="two", token=5), ".pane + .pane .t" if width > 640 else ".pane .t"),
        "analyses": ("#/analyses", "h1"),
    }
    for name, (address, shown) in views.items():
        visit(page, root, address)
        page.wait_for_selector(shown)
        assert page.evaluate("document.documentElement.scrollWidth") <= width, name
        assert page.evaluate(UNNAMED) == [], name
        picture(page, f"{name}-{width}-{theme}")
    faint = {name: ratio for name, ratio in page.evaluate(CONTRAST, SHADES + CELLS).items() if ratio < 4.5}
    assert not faint


def test_a_served_report_follows_the_answers(browser: Any, root: Path) -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(root)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    page = browser.new_page()
    try:
        page.goto(f"http://localhost:{server.server_address[1]}/")
        page.wait_for_selector(".table[data-built]")
        assert page.get_by_role("button", name="H2O", exact=True).count() == 0
        write(root.parent, "h2o", 128, {"hotpotqa": pattern(3, 6)})
        build(root.parent, root)
        wait(page, "document.querySelector('#news').textContent.startsWith('Updated')")
        page.get_by_role("button", name="H2O", exact=True).wait_for()
    finally:
        page.close()
        server.shutdown()
        server.server_close()
