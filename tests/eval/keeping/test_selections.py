"""Kept tokens on disk: what is packed comes back, compactly, and damage is told in one line."""

from __future__ import annotations

import base64
import json
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eval.console.errors import UserError
from eval.keeping import selections
from eval.keeping.selections import Step


@st.composite
def steps(draw: st.DrawFn) -> Step:
    length, heads = draw(st.integers(1, 60_000)), draw(st.integers(1, 3))
    layers = []
    number = st.integers(0, min(length, 9))
    for sizes in draw(st.lists(st.lists(number, min_size=heads, max_size=heads), min_size=1, max_size=3)):
        if draw(st.booleans()):  # of equal length, as most methods leave them
            sizes = [sizes[0]] * heads
        rows = [sorted(draw(st.sets(st.integers(0, length - 1), min_size=size, max_size=size))) for size in sizes]
        layers.append([np.array(row, dtype=np.int64) for row in rows])
    return Step("final", length, tuple(layers))


def naive(step: dict[str, Any]) -> list[list[list[int]]]:
    """Positions per layer and head, read byte by byte."""
    raw = list(zlib.decompress(base64.b64decode(step["data"])))
    layers = []
    for size in step["kept"]:
        heads = []
        for own in size if isinstance(size, list) else [size] * step["heads"]:
            row: list[int] = []
            for _ in range(own):
                gap, shift = 0, 0
                while True:
                    byte = raw.pop(0)
                    gap += (byte % 128) * 2**shift
                    shift += 7
                    if byte < 128:
                        break
                row.append((row[-1] if row else -1) + 1 + gap)
            heads.append(row)
        layers.append(heads)
    assert not raw
    return layers


@given(steps())
def test_what_is_packed_comes_back(step: Step) -> None:
    packed = json.loads(json.dumps(selections.pack(step)))
    back = selections.unpack(packed, step.length)
    kept = [[head.tolist() for head in layer] for layer in step.layers]
    assert [[head.tolist() for head in layer] for layer in back.layers] == kept
    if packed["data"] is not None:
        assert naive(packed) == kept


@given(steps(), st.data())
def test_counts(step: Step, data: st.DataObject) -> None:
    head = data.draw(st.none() | st.integers(0, len(step.layers[0]) - 1))
    layer = data.draw(st.none() | st.integers(0, len(step.layers) - 1))
    expected = [0] * step.length
    for place, rows in enumerate(step.layers):
        for number, row in enumerate(rows):
            if layer in (None, place) and head in (None, number):
                for token in row:
                    expected[token] += 1
    assert step.counts(None if layer is None else [layer], head).tolist() == expected


def test_a_whole_prompt_takes_no_room() -> None:
    whole = np.tile(np.arange(31_000), (8, 1))
    packed = selections.pack(Step("final", 31_000, (whole,) * 32))
    assert len(json.dumps(packed)) < 400
    assert all((np.array(layer) == whole).all() for layer in selections.unpack(packed, 31_000).layers)


def test_a_position_takes_about_a_byte() -> None:
    random = np.random.default_rng(0)
    layers = tuple(
        np.sort(random.permuted(np.tile(np.arange(4000), (8, 1)), axis=1)[:, :256], axis=1) for _ in range(4)
    )
    size = len(json.dumps(selections.pack(Step("final", 4000, layers))))
    assert size < 1.3 * 4 * 8 * 256


@pytest.mark.parametrize("layer", [[[3, 3]], [[4, 2]], [[0, 9]]])
def test_positions_that_are_none_are_refused(layer: list[list[int]]) -> None:
    with pytest.raises(ValueError, match="ascend"):
        selections.pack(Step("final", 9, (np.array(layer),)))


@pytest.mark.parametrize(
    "data", ["!", base64.b64encode(b"no").decode(), base64.b64encode(zlib.compress(b"\x81")).decode()]
)
def test_damage_is_told(data: str) -> None:
    row = {"_id": "x", "prompt_tokens": 9, "steps": [{"name": "final", "heads": 1, "kept": [2], "data": data}]}
    with pytest.raises(UserError, match="'x' are damaged"):
        selections.steps(row)


@given(st.text(), st.lists(st.integers(0, 40)))
def test_pieces_make_up_the_text(text: str, ends: list[int]) -> None:
    pieces = selections.cut(text, sorted(min(end, len(text)) for end in ends))
    assert len(pieces) == len(ends)
    assert not ends or "".join(pieces) == text


def test_a_missing_prompt_is_told(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="missing or damaged"):
        selections.prompt(tmp_path / "jsonl" / "m" / "run", "0123")
