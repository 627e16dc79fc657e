"""Typed settings: a wrong one is told in one line, with its name, its value and what to give."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import pytest
from pydantic import Field

from eval.console.errors import UserError
from eval.console.fields import LocalPath, Section, Texts, checked, texts


class Inner(Section):
    size: int = Field(ge=1, description="a whole number, at least 1")
    rule: Literal["early", "late"] = "late"


class Outer(Section):
    inner: Inner = Field(description="settings of its own: inner.size=1")
    name: str = Field(min_length=1, description="a name")
    share: float = Field(0.5, description="a number")
    folder: LocalPath | None = Field(None, description="a folder")
    words: Texts = Field(("a",), description="a word or a list of them")


PLAIN: dict[str, Any] = {"inner": {"size": 1}, "name": "x"}


def told(**changes: Any) -> str:
    with pytest.raises(UserError) as refused:
        checked(Outer, {**PLAIN, **changes}, "outer.")
    return str(refused.value)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"name": None}, "outer.name is null; give a name"),
        ({"name": ""}, "outer.name is ''; give a name"),
        ({"name": True}, "outer.name is true; give a name; in a YAML file a text of digits needs quotes"),
        ({"name": 7}, "outer.name is 7; give a name; in a YAML file a text of digits needs quotes"),
        ({"name": ["a"]}, 'outer.name is ["a"]; give a name'),
        ({"share": "half"}, "outer.share is 'half'; give a number"),
        ({"share": float("nan")}, "outer.share is NaN; give a number"),
        ({"inner": True}, "outer.inner is true; give settings of its own: inner.size=1"),
        ({"inner": {}}, "outer.inner.size is missing; give a whole number, at least 1"),
        ({"inner": {"size": 0}}, "outer.inner.size is 0; give a whole number, at least 1"),
        ({"inner": {"size": 1.0}}, "outer.inner.size is 1.0; give a whole number, at least 1"),
        ({"inner": {"size": True}}, "outer.inner.size is true; give a whole number, at least 1"),
        ({"inner": {"size": 1, "rule": "never"}}, "outer.inner.rule is 'never'; give early, late"),
        ({"inner": {"size": 1, "sise": 2}}, "unknown setting 'outer.inner.sise'; did you mean outer.inner.size"),
        ({"folder": " "}, "outer.folder is ' '; give a folder"),
        ({"words": []}, "outer.words is []; give a word or a list of them"),
        ({"words": ["a", 2]}, 'outer.words is ["a", 2]; give a word or a list of them'),
        ({"nmae": "y"}, "unknown setting 'outer.nmae'; did you mean outer.name"),
    ],
)
def test_one_line(changes: dict[str, Any], says: str) -> None:
    assert told(**changes).startswith(says)


def test_right_values_are_typed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/ann")
    found = checked(Outer, {**PLAIN, "share": 1, "folder": "~/my records", "words": "b"})
    assert (found.inner.size, found.inner.rule, found.share, found.words) == (1, "late", 1.0, ("b",))
    assert found.folder == Path("/home/ann/my records")


def test_which_fields_hold_texts() -> None:
    assert texts(Outer, "outer.") == {"outer.name", "outer.folder", "outer.words"}
