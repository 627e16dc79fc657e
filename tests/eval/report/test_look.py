"""Looks: every method has its own, in colour and in grey."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from eval.report.look import KNOWN, SHAPES, Look, looks
from tests.eval.gallery import METHODS

OKLAB = (  # B. Ottosson, "A perceptual color space for image processing", 2020
    np.array([[0.41222, 0.53633, 0.05145], [0.21190, 0.68070, 0.10740], [0.08830, 0.28172, 0.62998]]),
    np.array([[0.21045, 0.79362, -0.00407], [1.97800, -2.42859, 0.45059], [0.02590, 0.78277, -0.80868]]),
)
PANELS = {"light": "#ffffff", "dark": "#1a2029"}  # of the page


def linear(colour: str) -> np.ndarray:
    shares = np.array([int(colour[at : at + 2], 16) for at in (1, 3, 5)]) / 255
    return np.where(shares <= 0.04045, shares / 12.92, ((shares + 0.055) / 1.055) ** 2.4)


def perceived(colour: str) -> np.ndarray:
    return OKLAB[1] @ np.cbrt(OKLAB[0] @ linear(colour))


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
