"""What the tests of runs and analyses share."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from eval.analysis import figures


@pytest.fixture
def tiny_settings(tiny_folder: Path, tmp_path: Path) -> list[str]:
    """A tiny model on two short synthetic examples."""
    data = ["data=synthetic", "data.length=512", "limit=2", "preset=equal_bytes"]
    return ["model=smollm2", f"model.name={tiny_folder}", "model.label=tiny", f"results={tmp_path}", *data]


@pytest.fixture
def short_of_memory(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any, str, int], list[int]]:
    """Let one call of a module's function run out of memory: given its number, a list that grows with each call."""

    def set_up(module: Any, name: str, number: int) -> list[int]:
        plain, calls = getattr(module, name), []

        def counted(*given: Any) -> Any:
            calls.append(1)
            if len(calls) == number:
                raise torch.OutOfMemoryError
            return plain(*given)

        monkeypatch.setattr(module, name, counted)
        return calls

    return set_up


@pytest.fixture
def whole_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything that an analysis draws lies within the axes that it is drawn in."""
    plain = figures.save

    def save(figure: Any, folder: Path, name: str) -> None:
        plain(figure, folder, name)
        for axes in figure.axes:
            points = np.concatenate([np.asarray(line.get_xydata(), dtype="float64") for line in axes.lines])
            points = points[np.isfinite(points).all(axis=1)]
            (left, right), (low, high) = sorted(axes.get_xlim()), sorted(axes.get_ylim())
            assert len(points)
            assert ((left <= points[:, 0]) & (points[:, 0] <= right)).all()
            assert ((low <= points[:, 1]) & (points[:, 1] <= high)).all()

    monkeypatch.setattr(figures, "save", save)
