"""Values on the command line that Hydra has another meaning for."""

from __future__ import annotations

from typing import Any

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from hypothesis import given
from hypothesis import strategies as st

from eval.console.overrides import keep_texts, quoted

PARSER = OverridesParser.create()
PATHS = ["~/records", "/tmp/a=b", "records[1]", "a(b)", "it's", "naïve", "a{b}", "with #", "half\\", "x\\'y", "#1"]


@pytest.mark.parametrize("path", PATHS)
def test_a_path_that_hydra_cannot_read_arrives_as_it_was_written(path: str) -> None:
    (word,) = quoted([f"results={path}"])
    assert PARSER.parse_override(word).value() == path


@given(st.text(st.characters(min_codepoint=32, exclude_categories=["Cs"]), min_size=1))
def test_whatever_is_quoted_is_read_back(text: str) -> None:
    word = f"results={text}"
    (found,) = quoted([word])
    if found != word:
        assert PARSER.parse_override(found).value() == text


@pytest.mark.parametrize(
    "word", ["method=[a", "budget=128,256", "+x=3", "~x", "--help", "-m", "a='b'", "b={c: 1}", "x"]
)
def test_other_words_are_left_as_they_are(word: str) -> None:
    assert quoted([word]) == [word]


def test_each_path_of_a_sweep() -> None:
    flag, word = quoted(["-m", "data.path=~/a,b,c=d"])
    assert flag == "-m"
    assert PARSER.parse_override(word).is_sweep_override()
    assert word == "data.path='~/a',b,'c=d'"


@pytest.mark.parametrize("text", ["2e00731", "1e5", "1_000", "0x1f", "7", "1.50", "true", "inf"])
def test_a_text_that_looks_like_a_number_stays_a_text(text: str) -> None:
    word = f"data.revision={text}"
    content: dict[str, Any] = {"data": {"revision": PARSER.parse_override(word).value()}, "limit": 3}
    keep_texts(content, [word, "limit=3", "other.thing=4"], {"data.revision", "other.thing"})
    assert content == {"data": {"revision": text}, "limit": 3}
