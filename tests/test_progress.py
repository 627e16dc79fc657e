"""The bar of a prefill: layers counted on a terminal, nothing elsewhere, and the same answers."""

import io
import re
from collections.abc import Callable
from functools import partial

import pytest
from tqdm import tqdm

from baselines.snapkv import SnapKV
from echokv import UsageError, compress, compressing, progress
from tests.models import prompt, tiny

LENGTH = 60


class Screen(io.StringIO):
    def __init__(self, terminal: bool) -> None:
        super().__init__()
        self.terminal = terminal

    def isatty(self) -> bool:
        return self.terminal


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> Callable[[bool], Screen]:
    def made(terminal: bool) -> Screen:
        found = Screen(terminal)
        monkeypatch.setattr("sys.stderr", found)
        return found

    return made


def hooks() -> int:
    return sum(len(layer._forward_hooks) for layer in tiny("llama").get_decoder().layers)


def test_layers_of_all_prompts_are_counted(screen: Callable[[bool], Screen], monkeypatch: pytest.MonkeyPatch) -> None:
    each = partial(tqdm, mininterval=0, miniters=1)  # else ten times a second
    monkeypatch.setattr("transformers.utils.logging.tqdm", each)
    model, said = tiny("llama"), screen(True)
    with progress.layer_bar(model, 2, delay=0):
        compress(model, [list(prompt(LENGTH)), list(prompt(LENGTH - 7))], SnapKV(), 40)
    total = 2 * len(model.get_decoder().layers)
    assert [int(n) for n in re.findall(rf" (\d+)/{total} ", said.getvalue())] == list(range(total + 1))
    assert said.getvalue().endswith("\r")  # wiped
    assert hooks() == 0


@pytest.mark.parametrize(("terminal", "wanted"), [(False, True), (True, False)])
def test_nothing_is_said_elsewhere(screen: Callable[[bool], Screen], terminal: bool, wanted: bool) -> None:
    said = screen(terminal)
    with progress.layer_bar(tiny("llama"), 1, wanted, delay=0):
        assert hooks() == 0
    assert said.getvalue() == ""


def test_what_is_quick_is_not_drawn_and_answers_are_the_same(screen: Callable[[bool], Screen]) -> None:
    said, model = screen(True), tiny("llama")
    shown, plain = (compress(model, list(prompt(LENGTH)), SnapKV(), 40, progress=on) for on in (True, False))
    assert shown.generate(max_new_tokens=8) == plain.generate(max_new_tokens=8)
    assert said.getvalue() == ""


def test_nothing_is_left_behind_by_an_error(screen: Callable[[bool], Screen], monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: object, **__: object) -> None:
        assert hooks() > 0
        raise UsageError("it overflows")

    screen(True)
    monkeypatch.setattr(compressing, "prefill", failing)
    with pytest.raises(UsageError, match="overflows"):
        compress(tiny("llama"), list(prompt(LENGTH)), SnapKV(), 40, progress=True)
    assert hooks() == 0
