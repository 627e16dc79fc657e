"""Ablations on a tiny model: tables, figures, and what is compared with what."""

import json
from pathlib import Path

import pytest

from eval.analysis import ablation, outcomes, study
from eval.analysis.settings import Outcomes
from tests.eval.analyses import analyse, drawn, read, studied
from tests.test_configs import composed

pytestmark = pytest.mark.usefixtures("whole_figures")


def test_ablation(tiny_settings: list[str], tmp_path: Path) -> None:
    analyse("ablation_refresh", tiny_settings, "limit=1", "analysis.workspace=200")
    table = read(tmp_path, "ablation_refresh").set_index(["method", "measure"])
    rows = read(tmp_path, "ablation_refresh_examples")
    mine, base = (rows[rows["method"] == name]["retained"].mean() for name in ("feedback", "frozen"))
    assert table.loc[("feedback", "retained"), "difference"] == pytest.approx(mine - base, abs=1e-3)
    assert table.loc[("feedback", "score"), "n"] == 2
    (markdown,) = tmp_path.rglob("ablation_refresh.md")
    lines = markdown.read_text().splitlines()
    assert lines[2].startswith("| choice of the second workspace | Budget | score | diff. | retained (%) |")
    assert lines[5].startswith("| random | 128 |")
    drawn(tmp_path, "ablation_refresh")


def test_a_method_without_a_budget_stands_beside_an_ablation(tiny_settings: list[str], tmp_path: Path) -> None:
    analyse("ablation_refresh", tiny_settings, "limit=1", "subset=syn_facts", "method=[full]", "analysis.workspace=200")
    table = read(tmp_path, "ablation_refresh").set_index(["method", "measure"])
    assert table.loc[("full", "retained"), "mean"] == 100
    (tex,) = tmp_path.rglob("ablation_refresh.tex")
    assert sum(line.startswith("full & ") for line in tex.read_text().splitlines()) == 1


def test_differences_are_taken_within_a_class(tiny_settings: list[str], tmp_path: Path) -> None:
    more = ["limit=1", "subset=syn_facts", "budget=[64,96]", "analysis.workspace=200"]
    analyse("ablation_granularity", tiny_settings, *more)
    table = read(tmp_path, "ablation_granularity").dropna(subset=["against"])
    assert set(zip(table["method"], table["against"], strict=True)) == {
        ("laq_query_head", "laq_kv_head"),
        ("echokv_query_head", "echokv_kv_head"),
    }
    assert set(table["budget"]) == {64, 96}
    drawn(tmp_path, "ablation_granularity")


def test_a_varied_number_is_the_x_axis(tiny_settings: list[str], tmp_path: Path) -> None:
    analyse("ablation_workspace", tiny_settings, "limit=1", "subset=syn_facts", "budget=64")
    table = read(tmp_path, "ablation_workspace")
    assert sorted(set(table["x"])) == [64, 256, 512, 1024, 2048, 4096]
    assert set(table["series"]) == {"LAQ", "EchoKV"}
    drawn(tmp_path, "ablation_workspace")


def test_values_of_lists_and_nulls_have_a_place_on_the_axis(tiny_settings: list[str]) -> None:
    one = studied("ablation_refresh_count", tiny_settings)
    places = ablation._places(one)
    assert places["refreshes_0"] == "never"
    assert places["refreshes_2"] == "3,5"
    one = studied("ablation_refresh_step", tiny_settings)
    assert [ablation._places(one)[name] for name in ("after_3", "every")] == ["3", "1 to 7"]
    one = studied("ablation_workspace", tiny_settings)
    assert ablation._places(one)["laq_budget"] is None  # told by each row's budget
    assert ablation._places(one)["laq_512"] == 512


def test_outcomes_are_those_of_a_run(tiny_settings: list[str], tmp_path: Path) -> None:
    """The analysis answers as run.py does."""
    from eval.answering import runner

    grid = ["subset=syn_facts", "method=[snapkv,echokv]", "budget=64"]
    config = composed(*tiny_settings, *grid)
    runner.run(config)
    stored = {
        (answer["method"], answer["_id"]): answer
        for file in (tmp_path / "synthetic").rglob("*.jsonl")
        for answer in map(json.loads, file.read_text().splitlines())
    }
    _, measured = outcomes.outcomes(study.Study.of(config, Outcomes(name="x", steps=4)))
    found = {(cell["method"], row["_id"]): cell for row in measured.rows for cell in row["cells"]}
    assert {key: (cell["pred"], cell["entries"]) for key, cell in found.items()} == {
        key: (answer["pred"], answer["entries"]) for key, answer in stored.items()
    }
