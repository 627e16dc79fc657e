"""Rows and their names: what tells the variants of a method apart, in every command that shows them."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eval import compare, figures, show
from eval.console import conf
from eval.report import groups, numbers
from eval.tables import __main__ as tables
from eval.tables import collect, naming, titles
from eval.tables.naming import Name
from tests.eval.stores import pattern, write
from tests.test_configs import composed

VALUES = st.sampled_from([4, 8, 16, None, True, "none", "max", [3, 5], [], 0.5])
FIELDS = st.fixed_dictionaries({"steps": VALUES, "pooling": VALUES, "code": st.sampled_from(["3f2a77", "3f2b11", "9"])})


@given(st.lists(st.tuples(st.sampled_from(["echokv", "laq"]), FIELDS), min_size=1, max_size=8))
def test_rows_have_one_name_where_they_have_one_setting(grid: list[tuple[str, dict[str, Any]]]) -> None:
    """Against the obvious: two rows are one if method and fields are the same; nothing is said of what all share."""
    found = naming.names(grid)
    for one, left in zip(grid, found, strict=True):
        for other, right in zip(grid, found, strict=True):
            alike = one[0] == other[0] and json.dumps(one[1], sort_keys=True) == json.dumps(other[1], sort_keys=True)
            assert (left == right) is alike
            assert (left.title == right.title) is alike
        siblings = [fields for method, fields in grid if method == one[0]]
        for field in ("steps", "pooling", "code"):
            several = len({json.dumps(fields[field]) for fields in siblings}) > 1
            assert (field in left.variant) is several


@pytest.mark.parametrize(
    ("settings", "variants"),
    [
        ([{"steps": 4}, {"steps": 4}], ["", ""]),
        ([{"steps": 4}, {"steps": 8}], ["steps=4", "steps=8"]),
        ([{"refresh_at": [3, 5]}, {"refresh_at": None}], ["refresh_at=[3,5]", "refresh_at=null"]),
        ([{"steps": 4, "eos": "a"}, {"steps": 8, "eos": "b"}], ["steps=4, eos=a", "steps=8, eos=b"]),
        ([{"code": "3f2a77aa"}, {"code": "771b0000"}], ["code 3f2a", "code 771b"]),
        ([{"code": "3f2a77aa"}, {"code": "3f2a7b00"}], ["code 3f2a77", "code 3f2a7b"]),
        ([{"scoring": 1}, {"scoring": 2}], ["scoring 1", "scoring 2"]),
        ([{"_target_": "a.A", "x": 1}, {"_target_": "b.B"}], ["class a.A", "class b.B"]),
        ([{"steps": 4}, {"steps": 8}, {}], ["steps=4", "steps=8", "steps unknown"]),
        ([{"steps": 4}, {"steps": 4, "eos": "stop"}], ["", ""]),  # what both have is the same
    ],
)  # fmt: skip
def test_variants(settings: list[dict[str, Any]], variants: list[str]) -> None:
    assert [name.variant for name in naming.names([("echokv", one) for one in settings])] == variants


def test_the_order_is_the_papers_then_by_numbers() -> None:
    rows = [Name("laq"), Name("echokv", "steps=4"), Name("echokv", "steps=8"), Name("echokv", "steps=16"),
            Name("echokv", "steps=null"), Name("a_mine"), Name("mine", "x=0.5"), Name("mine", "x=10")]  # fmt: skip
    shuffled = [rows[place] for place in (5, 3, 0, 7, 1, 6, 2, 4)]
    assert sorted(shuffled, key=lambda name: name.order) == rows
    assert str(rows[1]) == "echokv steps=4"
    assert rows[1].title == "EchoKV (steps=4)"


def rows_of(results: Path, settings: list[dict[str, Any]]) -> list[str]:
    for number, own in enumerate(settings):
        write(results, "echokv", 128, {"trec": pattern(number + 1, 10)}, method=own)
    return sorted(str(run.name) for run in collect.answers(collect.find(results, "longbench", "smollm2")).runs)


def test_results_of_earlier_versions_stand_beside_newer_ones(tmp_path: Path) -> None:
    """They lack the fields that their YAML did not list, and the digest of the code."""
    new = {"steps": 8, "eos": "stop", "code": "3f2a77aa", "scoring": 1}
    assert rows_of(tmp_path / "code", [{"steps": 8}, new]) == ["echokv code 3f2a", "echokv code unknown"]
    found = rows_of(tmp_path / "field", [{"steps": 8}, {"steps": 8, "eos": "stop"}])
    assert found == ["echokv eos unknown", "echokv eos=stop"]
    three = rows_of(tmp_path / "three", [{"steps": 8}, {"steps": 8, "x": 1}, new])
    assert len(set(three)) == 3
    assert sum("run " in name for name in three) == 3
    for budget, own in ((128, {"steps": 8}), (256, new)):
        write(tmp_path / "budgets", "echokv", budget, {"trec": pattern(1, 2)}, method=own)
    found = collect.answers(collect.find(tmp_path / "budgets", "longbench", "smollm2")).runs
    assert {run.label for run in found} == {"echokv 128", "echokv 256"}


def test_a_row_that_got_a_name_of_its_own_is_not_left_out(tmp_path: Path) -> None:
    for steps in (4, 8):
        write(tmp_path, "echokv", 128, {"trec": pattern(1, 2)}, method={"steps": steps})
    assert collect.answers(collect.find(tmp_path, "longbench", "smollm2")).left_out == ()


def test_codecs_are_rows_of_every_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Named, as a table, a figure and a comparison have them; and chosen by that name."""
    for method in ("laq", "echokv"):
        write(tmp_path, method, 128, {"trec": pattern(5, 10)})
        for bits in (4, 2):
            write(tmp_path, method, 128, {"trec": pattern(bits, 10)}, cache={"name": f"KIVI-{bits}", "bits": bits})
    model = ["--results", str(tmp_path), "--model", "smollm2"]
    assert tables.main(["memory", *model]) == 0
    out = capsys.readouterr().out
    for name in ("LAQ", "LAQ + KIVI-2", "LAQ + KIVI-4", "EchoKV", "EchoKV + KIVI-2", "EchoKV + KIVI-4"):
        assert f"| {name} | 128 |" in out
    assert "EchoKV + KIVI-2" in (tmp_path / "tables" / "memory.tex").read_text()
    assert compare.main([*model, "--against", "echokv + KIVI-2"]) == 0
    out = capsys.readouterr().out
    assert "Each method minus EchoKV + KIVI-2 on the same examples" in out
    assert "where rows are stored in other ways, they take other bytes" in out
    assert figures.main(["--results", str(tmp_path)]) == 0


@pytest.fixture
def variants(tmp_path: Path) -> Path:
    for steps, good in ((4, 5), (16, 8)):
        for budget in (128, 256):
            write(tmp_path, "echokv", budget, {"trec": pattern(good, 10)}, method={"steps": steps})
    write(tmp_path, "laq", 128, {"trec": pattern(6, 10)})
    return tmp_path


def test_every_command_shows_both_values_of_a_field(variants: Path, capsys: pytest.CaptureFixture[str]) -> None:
    chosen = ["--results", str(variants)]
    model = [*chosen, "--model", "smollm2"]
    titles = ["EchoKV (steps=4)", "EchoKV (steps=16)"]
    assert tables.main(["table3", *model]) == 0
    out = capsys.readouterr().out
    assert [line.split("|")[1:3] for line in out.splitlines() if line.startswith("| E")] == [
        [f" {title} ", f" {budget} "] for budget in (128, 256) for title in titles
    ]
    lines = list(csv.DictReader((variants / "tables" / "table3.csv").open()))
    own = {
        (line["method"], line["variant"], line["budget"]): line["score"] for line in lines if line["subset"] == "trec"
    }
    assert own["echokv", "steps=4", "128"] == "50.0"
    assert own["echokv", "steps=16", "128"] == "80.0"
    assert compare.main(model) == 0
    out = capsys.readouterr().out
    assert all(title in out for title in titles)
    assert "not judged: EchoKV has several rows (EchoKV (steps=4), EchoKV (steps=16)); choose one with --where" in out
    assert compare.main([*model, "--against", "echokv steps=4"]) == 0
    assert "Each method minus EchoKV (steps=4) on the same examples" in capsys.readouterr().out
    assert compare.main([*model, "--against", "echokv"]) == 1
    said = "--against 'echokv' was run with several settings: choose one, 'echokv steps=4' or 'echokv steps=16'"
    assert said in capsys.readouterr().err
    assert show.main([*chosen, "--width", "200"]) == 0
    out = capsys.readouterr().out
    assert all(title in out for title in titles)
    assert figures.main(chosen) == 0


def test_the_reports_data_have_a_row_of_each(variants: Path) -> None:
    (group,) = groups.find(variants)
    selected = groups.select(group, variants, None)
    table = numbers.table(group, selected, numbers.cells_of(selected))
    rows = {row["cell"]: row for row in table["rows"]}
    assert [row["title"] for row in rows.values() if row["budget"] == 256] == ["EchoKV (steps=4)", "EchoKV (steps=16)"]
    assert {row["method"] for row in rows.values()} == {"laq", "echokv steps=4", "echokv steps=16"}
    assert set(table["cells"]) == set(rows)
    scores = {row["title"]: table["cells"][cell]["trec"][0] for cell, row in rows.items() if row["budget"] == 128}
    assert scores == {"LAQ": 60, "EchoKV (steps=4)": 50, "EchoKV (steps=16)": 80}
    found = numbers.differences(numbers.by_cell(selected), selected.tasks)
    pair = next(line for name, line in found.items() if name.count("echokv") == 2 and "-256|" in name)
    assert pair["trec"][0] == -30


def test_a_cells_name_is_one_that_files_and_addresses_take() -> None:
    keys = [naming.Key(Name("mine", variant), 128) for variant in ("x=a/b", "x=a b", "x=a?b#c", "x=[1,2]", "x=é")]
    found = [numbers.name_of(key) for key in keys]
    assert len(set(found)) == len(found)
    assert all(set(name) <= set("abcdefghijklmnopqrstuvwxyz0123456789=_-") for name in found)
    assert numbers.name_of(naming.Key(Name("laq"), 128)) == "laq-128"


def test_titles_are_those_of_the_yaml_and_no_part_of_an_identity(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "conf"
    shutil.copytree(conf.CONF, folder)
    for group, name, text in (
        ("method", "mine", "# @package methods\nmine: {title: My press, _target_: a.B}\n"),
        ("model", "own", "name: me/own-7b\ntitle: Own (7B)\n"),
        ("data", "longbench", "title: The archive\n"),
    ):
        (folder / group / f"{name}.yaml").write_text(text)
    monkeypatch.setattr(conf, "CONF", folder)
    titles.settings.cache_clear()
    try:
        for model in ("me/own-7b", "me/other"):
            results = tmp_path / model.replace("/", "-")
            for steps in (4, 8):
                settings = {"model": {"name": model}, "method": {"steps": steps}}
                write(results, "mine", 128, {"trec": [True]}, label="own", **settings)
            assert tables.main(["table3", "--model", "own", "--results", str(results)]) == 0
            out = capsys.readouterr().out
            assert "| My press (steps=4) | 128 |" in out
            assert f"of {'Own (7B)' if model == 'me/own-7b' else model} on The archive;" in out
            write(results, "mine", 128, {"trec": [True]}, label="own", source="jsonl", data={"label": "records"})
            assert tables.main(["table3", "--model", "own", "--data", "jsonl", "--results", str(results)]) == 0
            assert " on records; preset paper" in capsys.readouterr().out
    finally:
        titles.settings.cache_clear()
    plain = composed("methods.echokv.steps=4").methods["echokv"]
    assert "title" not in plain
    assert composed("model.title=X").model.title == "X"
    assert "title" not in composed("data.title=X").data.own


def test_the_papers_methods_have_titles() -> None:
    assert all(titles.title("method", name) for name in naming.ORDER)
    assert naming.title("echokv") == "EchoKV"
    assert naming.title("unheard_of") == "unheard_of"
