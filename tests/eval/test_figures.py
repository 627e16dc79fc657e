"""Figures for a paper: files that are there and hold what they should."""

from __future__ import annotations

from pathlib import Path

import pytest

from eval import figures
from eval.report import groups
from eval.tables import cells
from tests.eval.stores import pattern, write


@pytest.fixture
def results(tmp_path: Path) -> Path:
    write(tmp_path, "full", None, {"hotpotqa": pattern(8, 10), "trec": pattern(6, 10)})
    for budget in (128, 512):
        for method, good in (("laq", 4), ("echokv", 6)):
            write(tmp_path, method, budget, {"hotpotqa": pattern(good, 10), "trec": pattern(good, 10)})
    return tmp_path


def test_files(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert figures.main(["--results", str(results)]) == 0
    folder = results / "figures" / "longbench-smollm2-paper"
    assert capsys.readouterr().out == f"{folder}\n"
    for name in ("budgets", "costs", "differences"):
        assert (folder / f"{name}.pdf").read_bytes().startswith(b"%PDF")
        assert (folder / f"{name}.png").read_bytes().startswith(b"\x89PNG")


def test_curves_show_the_scores(results: Path) -> None:
    (group,) = groups.find(results)
    selected = groups.select(group, results, None)
    frame = cells.cells(selected.scored, selected.tasks, against="")
    figure = figures.curves(frame, ["hotpotqa", "trec"])
    panel = figure.axes[0]
    lines = {line.get_label(): line for line in panel.get_lines()}
    assert list(lines) == ["FullKV", "LAQ", "EchoKV"]  # the paper's order
    assert lines["EchoKV"].get_xdata().tolist() == [128, 512]
    assert lines["EchoKV"].get_ydata().tolist() == [60, 60]
    assert len(figure.axes) == 2


def test_differences_are_to_the_method_asked_for(results: Path) -> None:
    (group,) = groups.find(results)
    selected = groups.select(group, results, None)
    panel = figures.differences(selected, "laq", ["hotpotqa"]).axes[0]
    assert [text.get_text() for text in panel.get_yticklabels()] == ["EchoKV 128", "EchoKV 512"]
    assert [line.get_xdata()[0] for line in panel.get_lines() if len(line.get_xdata()) == 1] == [20, 20]


def test_methods_look_different() -> None:
    looks = [figures.look(method) for method in ("full", "streamingllm", "h2o", "snapkv", "pyramidkv", "laq", "echokv")]
    assert len({look["color"] for look in looks}) == len(looks)
    assert len({(look["marker"], str(look["linestyle"])) for look in looks}) >= len(looks) - 1


def test_nothing_to_draw(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert figures.main(["--results", str(tmp_path)]) == 1
    assert capsys.readouterr().err.startswith("error: no answers in")
