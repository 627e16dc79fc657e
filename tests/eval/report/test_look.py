"""Looks: every method has its own, in colour and in grey."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from eval.console.conf import CONF
from eval.report.look import FAMILIES, KNOWN, OTHERS, REFERENCES, SHAPES, Look, family, looks
from eval.tables.naming import Name
from tests.eval.gallery import METHODS

OKLAB = (  # B. Ottosson, "A perceptual color space for image processing", 2020
    np.array([[0.41222, 0.53633, 0.05145], [0.21190, 0.68070, 0.10740], [0.08830, 0.28172, 0.62998]]),
    np.array([[0.21045, 0.79362, -0.00407], [1.97800, -2.42859, 0.45059], [0.02590, 0.78277, -0.80868]]),
)
SEEN_BY = {  # linear RGB as others see it: Machado, Oliveira, Fernandes, 2009, severity 1
    "most": np.eye(3),
    "protanopes": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
    "deuteranopes": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
}
PANELS = {"light": "#ffffff", "dark": "#1a2029"}  # of the page
PAPERS = "the paper's"


def linear(colour: str) -> np.ndarray:
    shares = np.array([int(colour[at : at + 2], 16) for at in (1, 3, 5)]) / 255
    return np.where(shares <= 0.04045, shares / 12.92, ((shares + 0.055) / 1.055) ** 2.4)


def perceived(colour: str, who: str = "most") -> np.ndarray:
    return OKLAB[1] @ np.cbrt(OKLAB[0] @ (SEEN_BY[who] @ linear(colour)).clip(0, 1))


def contrast(one: str, other: str) -> float:
    low, high = sorted(float(linear(colour) @ [0.2126, 0.7152, 0.0722]) for colour in (one, other))
    return (high + 0.05) / (low + 0.05)


def test_twenty_methods_are_told_apart() -> None:
    found = looks([*METHODS[20], "stage1_only", "iterative_only"])
    assert len(found) == 22
    assert len({(look.symbol, look.turn, look.filled) for look in found.values()}) == 22  # in grey
    for ground in ("light", "dark"):
        colours = [getattr(look, ground) for look in found.values()]
        assert min(np.linalg.norm(perceived(a) - perceived(b)) for a, b in combinations(colours, 2)) > 0.055
        assert min(contrast(colour, PANELS[ground]) for colour in colours) >= 3


def test_every_method_has_a_look_of_its_own() -> None:
    assert {path.stem for path in (CONF / "method").glob("*.yaml")} == set(KNOWN)
    assert len({(look.symbol, look.turn, look.filled) for look in KNOWN.values()}) == len(KNOWN)  # in grey
    for ground in ("light", "dark"):
        colours = [getattr(look, ground) for look in KNOWN.values()]
        assert min(np.linalg.norm(perceived(a) - perceived(b)) for a, b in combinations(colours, 2)) > 0.04
        assert min(contrast(colour, PANELS[ground]) for colour in colours) >= 3


@pytest.mark.parametrize("ground", PANELS)
@pytest.mark.parametrize("title", [title for title, own in FAMILIES.items() if len(own) > 1])
def test_colours_of_a_family_are_told_apart_by_all_eyes(title: str, ground: str) -> None:
    """And from the references, which are in every panel. The paper's were chosen before and for most eyes alone."""
    own = [getattr(look, ground) for look in {**FAMILIES[REFERENCES], **FAMILIES[title]}.values()]
    for who in SEEN_BY if title != PAPERS else ("most",):
        seen = [perceived(colour, who) for colour in own]
        least = min(np.linalg.norm(one - other) for one, other in combinations(seen, 2))
        assert least > (0.08 if title != PAPERS else 0.055), who


def test_a_row_is_of_one_family() -> None:
    assert len(KNOWN) == sum(map(len, FAMILIES.values()))
    assert family(Name("echokv", "steps=4")) == PAPERS
    assert family(Name("echokv", "+ KIVI-2, steps=4")) == family(Name("full", "+ KIVI-2")) == "KIVI-2"
    assert family(Name("mine")) == OTHERS


def test_a_hundred_methods_are_told_apart() -> None:
    found = looks([f"m{number:03}" for number in range(100)])
    assert len(set(found.values())) == 100


def test_no_method_looks_like_one_of_the_papers() -> None:
    found = looks(["full", "echokv", "echokv_mine", "zzz"])
    assert found["full"] == KNOWN["full"]
    assert not {found["echokv_mine"], found["zzz"]} & set(KNOWN.values())
    assert looks(reversed(["full", "echokv", "echokv_mine", "zzz"])) == found  # whatever the order


@pytest.mark.parametrize("look", KNOWN.values(), ids=KNOWN)
def test_paper_and_page_show_the_same(look: Look) -> None:
    assert look.lines["marker"] == SHAPES[look.told["symbol"], look.told["turn"]]
    assert look.lines["color"] == look.told["light"]
    assert (look.lines["markerfacecolor"] == "white") is not look.told["filled"]
