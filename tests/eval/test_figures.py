"""Figures for a paper: files that are there and hold what they should."""

from __future__ import annotations

import string
import subprocess
import sys
from collections.abc import Sequence
from itertools import combinations, pairwise
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.text import Text

from eval import figures
from eval.report import canvas, curves, groups, memory, numbers, plots
from eval.report.look import FAMILIES, KNOWN, Look, looks
from eval.tables import naming
from eval.tables.options import Selected
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


def test_tables_that_differ_in_a_setting_have_figures_of_their_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for length in (512, 640):
        for sha256 in ("a" * 64, "b" * 64):
            settings = {"data": {"source": "synthetic", "length": length, "sha256": [sha256]}}
            write(tmp_path, "laq", 128, {"trec": pattern(4, 10)}, source="synthetic", **settings)
    assert figures.main(["--results", str(tmp_path)]) == 0
    made = [Path(line) for line in capsys.readouterr().out.splitlines()]
    assert {folder.name for folder in made} == {
        f"synthetic-smollm2-paper-sha256.0_{letter * 12}-length_{length}" for length in (512, 640) for letter in "ab"
    }
    assert len(made) == 4
    assert all((folder / "budgets.pdf").is_file() for folder in made)


def test_values_that_look_alike_are_told_apart(tmp_path: Path) -> None:
    said = ["a/b", "A b", ["a", "b"], "x" * 99, "x" * 98]
    options = [{}, {"y" * 150: 1}, {"a/b": 1}, *({"said": value} for value in said)]
    for value in options:
        write(tmp_path, "laq", 128, {"trec": [True]}, protocol={"template_options": value})
    found = groups.find(tmp_path)
    assert len({group.name.lower() for group in found}) == len({tuple(group.apart) for group in found}) == len(options)
    assert all(set(group.name) <= set(string.ascii_letters + string.digits + "._+-") for group in found)
    assert max(len(group.name) for group in found) < 100


def test_an_empty_setting_is_not_a_missing_one(tmp_path: Path) -> None:
    for more in ({}, {"filter": {}}):
        write(tmp_path, "laq", 128, {"trec": [True]}, data=more)
    first, second = groups.find(tmp_path)
    assert first.name != second.name
    assert first.apart != second.apart


def test_what_is_of_another_command_is_not_there(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert figures.main(["--results", str(results)]) == 0
    (folder,) = map(Path, capsys.readouterr().out.splitlines())
    assert (folder / "differences.png").is_file()
    for path in results.glob("*/*/laq-*/*.jsonl"):
        path.unlink()
    assert figures.main(["--results", str(results)]) == 0
    assert (folder / "costs.png").is_file()
    assert not list(folder.glob("differences.*"))


def test_a_row_at_no_common_budget_is_not_compared_with(tmp_path: Path) -> None:
    for method, budget in (("full", None), ("laq", 128)):
        write(tmp_path, method, budget, {"trec": pattern(4, 10)})
    assert figures.main(["--results", str(tmp_path)]) == 0
    assert (tmp_path / "figures" / "longbench-smollm2-paper" / "costs.png").is_file()
    assert not list(tmp_path.glob("figures/*/differences.*"))


@pytest.mark.parametrize(("low", "high"), [(1.05, 4.3), (9.1, 36.9), (5.9, 46.7), (19.5, 79), (0.5, 80), (2, 3000)])
def test_a_log_axis_has_at_least_three_labels(low: float, high: float) -> None:
    ticks = canvas.ticks(low, high)
    assert 3 <= len(ticks) <= 8
    assert all(low <= tick <= high for tick in ticks)
    assert all(len(f"{tick:g}") <= 4 for tick in ticks)


def chosen(results: Path) -> tuple[Selected, pd.DataFrame, dict[str, Look]]:
    """The one table, its cells, and the looks of its methods."""
    (group,) = groups.find(results)
    selected = groups.select(group, results, None)
    frame = numbers.cells_of(selected)
    return selected, frame, looks(map(str, plots.rows(frame)))


def test_the_costs_say_what_they_show(results: Path) -> None:
    for method in ("h2o", "snapkv"):  # as many bytes as LAQ's, and nearly its score
        for budget, good in ((128, 4), (256, 5), (512, 4)):
            write(results, method, budget, {"hotpotqa": pattern(good, 10), "trec": pattern(4, 10)})
    _, frame, look = chosen(results)
    figure = plots.costs(frame, look)
    score, stored = figure.axes  # no seconds: what a batch took is nobody's
    assert (score.get_xlabel(), stored.get_xlabel()) == ("score, average", "stored MB per answer (log scale)")
    assert score.get_xlim()[0] == 0
    assert len(stored.get_xticklabels()) >= 3
    assert figure.get_suptitle() == "n = 20; bars: 95% intervals"
    cells = [("FullKV", None), ("H2O  128", 128), ("256", 256), ("512", 512), ("SnapKV  128", 128)]
    assert [text.get_text() for text in score.get_yticklabels()][: len(cells)] == [label for label, _ in cells]
    own = frame[frame["subset"] == "average"]
    for panel, name, size in ((score, "score", 1), (stored, "bytes", 1e6)):
        drawn = sorted(float(line.get_xdata()[0]) for line in panel.get_lines())
        assert drawn == pytest.approx(sorted(own[name] / size))  # where it belongs, moved aside by nothing


def test_no_mark_lies_on_another_whatever_they_cost(results: Path) -> None:
    for place in range(14):
        write(results, f"method_{place}", 128, {"hotpotqa": pattern(4, 10), "trec": pattern(4, 10)})
    _, frame, look = chosen(results)
    figure = plots.costs(frame, look)
    figure.draw_without_rendering()
    for panel in figure.axes:
        boxes = [line.get_window_extent() for line in panel.get_lines()]
        assert len(boxes) == 19
        assert not any(one.overlaps(other) for one, other in combinations(boxes, 2))
    labels = [text.get_window_extent() for text in figure.axes[0].get_yticklabels()]
    assert not any(one.overlaps(other) for one, other in combinations(labels, 2))


def test_seconds_are_drawn_where_all_were_measured_alone(tmp_path: Path) -> None:
    for method, budget in (("full", None), ("laq", 128), ("echokv", 128)):
        write(tmp_path, method, budget, {"trec": pattern(4, 10)}, change={"alone": True})
    _, frame, look = chosen(tmp_path)
    assert [panel.get_xlabel() for panel in plots.costs(frame, look).axes] == [
        "score, average",
        "stored MB per answer (log scale)",
        "seconds per answer",
    ]
    write(tmp_path, "h2o", 128, {"trec": pattern(4, 10)})
    _, frame, look = chosen(tmp_path)
    assert len(plots.costs(frame, look).axes) == 2


def test_curves_show_the_scores(results: Path) -> None:
    _, frame, look = chosen(results)
    figure = curves.together(frame, ["average", "hotpotqa", "trec"], look)
    panels = figure.axes
    assert [panel.get_title() for panel in panels] == ["average", "Hot", "TREC"]
    lines = {line.get_label(): line for line in panels[1].get_lines()}
    assert list(lines) == ["FullKV", "LAQ", "EchoKV"]  # the paper's order
    assert lines["EchoKV"].get_xdata() == pytest.approx([128, 512], rel=0.1)
    assert lines["EchoKV"].get_ydata().tolist() == [60, 60]
    between = lines["LAQ"].get_xdata() / lines["EchoKV"].get_xdata()
    assert (between < 1).all()  # beside each other
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["FullKV", "LAQ", "EchoKV"]
    assert figure.legends[0].get_title().get_text() == "n = 10 per task; bars and bands: 95% intervals"


def test_variants_are_lines_of_their_own(results: Path) -> None:
    for steps in (4, 8):
        method = {"steps": steps}
        write(results, "laq", 256, {"hotpotqa": pattern(steps, 10), "trec": pattern(4, 10)}, method=method)
    _, frame, look = chosen(results)
    shown = [str(name) for name in plots.rows(frame) if name.method == "laq"]
    assert len(shown) == len({look[name] for name in shown}) >= 2
    titles = [text.get_text() for text in curves.together(frame, ["trec"], look).legends[0].get_texts()]
    assert {"LAQ (steps=4)", "LAQ (steps=8)"} <= set(titles)


def test_panels_share_a_scale_from_zero_and_no_words_stand_twice(results: Path) -> None:
    for budget in (128, 512):
        write(results, "h2o", budget, {"hotpotqa": pattern(0, 10), "trec": pattern(0, 10)})
    _, frame, look = chosen(results)
    figure = curves.together(frame, ["average", "hotpotqa", "trec"], look)
    assert {panel.get_ylim() for panel in figure.axes} == {figure.axes[0].get_ylim()}
    assert figure.axes[0].get_ylim()[0] == 0
    assert not any(panel.get_xlabel() or panel.get_ylabel() for panel in figure.axes)
    none = frame[frame["method"] == "h2o"].assign(low=0.0, high=0.0)
    assert curves.together(none, ["trec"], look).axes[0].get_ylim() == (0, 1.05)  # not -0.05 to 0.05


def many(results: Path, names: Sequence[str]) -> None:
    for place, name in enumerate(names):
        for budget in (128, 256):
            write(results, name, budget, {"hotpotqa": pattern(1 + place % 8, 10), "trec": pattern(4, 10)})


def test_many_methods_are_drawn_family_by_family(tmp_path: Path) -> None:
    names = [name for name in KNOWN if name not in ("full", "kvpress")]
    write(tmp_path, "full", None, {"hotpotqa": pattern(9, 10), "trec": pattern(6, 10)})
    many(tmp_path, [*names, *(f"mine_{number}" for number in range(9))])
    _, frame, look = chosen(tmp_path)
    found = curves.figures(frame, ["average", "hotpotqa", "trec"], look)
    assert list(found) == ["budgets", "tasks"]
    assert found["budgets"].get_suptitle().startswith("average, n = 20; bars")
    panels = found["budgets"].axes
    others = [f"other methods ({number} of 2)" for number in (1, 2)]
    assert sorted(panel.get_title("left") for panel in panels) == sorted([*list(FAMILIES)[1:-1], *others])
    assert len(found["tasks"].axes) == 2 * len(panels)
    for panel in panels:
        drawn = {line.get_label() for line in panel.get_lines() if not line.get_label().startswith("_")}
        quiet = [line for line in panel.get_lines() if line.get_color() == "0.86"]
        assert len(drawn) + len(quiet) == len(names) + 10  # every method is in every panel
        assert {"FullKV", "Oracle", "Random"} <= drawn
        wanted = FAMILIES.get(panel.get_title("left"))
        assert wanted is None or drawn - {"FullKV", "Oracle", "Random"} == {naming.title(name) for name in wanted}
        named = {text.get_text() for text in panel.texts}
        assert named >= drawn - {"FullKV", "Oracle", "Random"}
    assert sum("FullKV" in {text.get_text() for text in panel.texts} for panel in panels) == 1


def test_no_name_lies_on_another(tmp_path: Path) -> None:
    write(tmp_path, "full", None, {"hotpotqa": pattern(4, 10), "trec": pattern(4, 10)})
    many(tmp_path, [name for name in KNOWN if name not in ("full", "kvpress")])
    _, frame, look = chosen(tmp_path)
    level = frame.assign(score=frame["score"].where(frame["subset"] != "trec", 40.0))  # lines end in one place
    for figure in curves.figures(level, ["average", "trec"], look).values():
        figure.draw_without_rendering()
        names = [Text.get_window_extent(text) for panel in figure.axes for text in panel.texts]  # without its line
        assert len(names) > 20
        assert not any(one.overlaps(other) for one, other in combinations(names, 2))
        whole = figure.bbox
        assert all(whole.containsx(box.x0) and whole.containsx(box.x1) for box in names)


@given(st.lists(st.floats(0, 1), max_size=12))
def test_places_are_apart_in_order_and_near(wanted: list[float]) -> None:
    places = canvas.spread(wanted, 0.08)
    order = sorted(range(len(wanted)), key=lambda number: (wanted[number], number))
    assert all(places[up] - places[low] > 0.08 - 1e-9 for low, up in pairwise(order))
    assert all(-1e-9 <= place <= 1 + 1e-9 for place in places)
    if all(wanted[up] - wanted[low] >= 0.08 for low, up in pairwise(order)):
        assert places == pytest.approx(wanted)


def test_differences_of_many_methods_stand_by_budget(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plots, "MANY", 5)
    many(results, [f"mine_{number}" for number in range(4)])
    selected, _, look = chosen(results)
    figure = plots.differences(selected, "laq", ["hotpotqa", "trec"], look)
    assert [panel.get_title() for panel in figure.axes] == ["Hot, budget 128", "Hot, budget 512"]
    assert [len(panel.get_yticklabels()) for panel in figure.axes] == [5, 1]


def test_differences_are_to_the_method_asked_for(results: Path) -> None:
    selected, _, look = chosen(results)
    panel = plots.differences(selected, "laq", ["hotpotqa"], look).axes[0]
    assert [text.get_text() for text in panel.get_yticklabels()] == ["EchoKV 128", "EchoKV 512"]
    assert [line.get_xdata()[0] for line in panel.get_lines() if len(line.get_xdata()) == 1] == [20, 20]


def test_an_unknown_method_to_compare_with(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert figures.main(["--results", str(results), "--against", "nosuch"]) == 1
    captured = capsys.readouterr()
    assert captured.err.startswith("error: --against 'nosuch' was not run")
    assert not captured.out
    assert not (results / "figures").exists()


def test_nothing_to_draw(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert figures.main(["--results", str(tmp_path)]) == 1
    assert capsys.readouterr().err.startswith("error: no answers in")


def test_writing_none_imports_no_model(tmp_path: Path) -> None:
    heavy = ("torch", "transformers", "matplotlib")
    code = f"import sys, eval.figures; sys.exit(any(name in sys.modules for name in {heavy}))"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).resolve().parents[2])


def test_score_against_stored_bytes_has_a_panel_a_method_and_a_line_a_codec(tmp_path: Path) -> None:
    codes = {"cache": {"name": "KIVI-2", "bits": 2}}
    write(tmp_path, "full", None, {"trec": pattern(9, 10)}, change={"bytes": 64_000_000})
    write(tmp_path, "full", None, {"trec": pattern(8, 10)}, change={"bytes": 8_000_000}, **codes)
    for method in ("laq", "echokv"):
        for budget, size in ((128, 2_000_000), (512, 8_000_000)):
            write(tmp_path, method, budget, {"trec": pattern(6, 10)}, change={"bytes": size})
            write(tmp_path, method, budget, {"trec": pattern(4, 10)}, change={"bytes": size // 8}, **codes)
    assert figures.main(["--results", str(tmp_path)]) == 0
    (drawn,) = tmp_path.glob("figures/*/bytes.pdf")
    _, frame, _ = chosen(tmp_path)
    figure = memory.by_bytes(frame)
    assert [panel.get_title() for panel in figure.axes] == ["LAQ", "EchoKV"]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["as it is", "KIVI-2"]
    assert figure.legends[0].get_title().get_text().endswith("bars: 95% intervals; hollow: FullKV so stored")
    for panel in figure.axes:
        lines = [(list(line.get_xdata()), list(line.get_ydata())) for line in panel.get_lines()]
        assert sorted(lines) == [([0.25, 1.0], [40, 40]), ([2.0, 8.0], [60, 60]), ([8.0], [80]), ([64.0], [90])]
    assert memory.by_bytes(frame[frame["variant"] == ""]) is None  # one way alone
    for path in tmp_path.glob("*/*/*/manifest.json"):
        if "cache" in path.read_text():
            path.unlink()
    assert figures.main(["--results", str(tmp_path)]) == 0
    assert not drawn.exists()


@pytest.mark.parametrize("count", range(1, 13))
def test_a_legend_is_no_wider_than_its_figure(count: int) -> None:
    figure, (axes,) = canvas.panels(1, width=5.2, height=3.6)
    for number in range(count):
        label = ("prefill", "StreamingLLM", "PyramidKV", "H2O window")[number % 4] + " " * (number // 4)
        axes.plot([0, 1], [0, number], label=label)
    canvas.above(figure, [axes], "n = 3")
    figure.draw_without_rendering()
    box = figure.legends[0].get_window_extent()
    assert figure.bbox.x0 <= box.x0 <= box.x1 <= figure.bbox.x1
    assert len(figure.legends[0].get_texts()) == count
