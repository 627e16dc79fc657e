"""Which stored answers make a table, and one clear line for those that do not."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pandas
import pytest

from eval import compare, score, show
from eval.console.errors import UserError
from eval.report import __main__ as report
from eval.scoring import statistics
from eval.tables import __main__ as tables
from eval.tables import cells, collect, paper
from tests.eval.stores import answer, pattern, write

TWO = {"hotpotqa": pattern(2, 4), "trec": pattern(1, 4)}


def read(results: Path, model: str = "smollm2", **choice: Any) -> collect.Answers:
    return collect.answers(collect.find(results, "longbench", model, choice.pop("where", None)), **choice)


def table(results: Path, against: str = "laq", model: str = "smollm2") -> Any:
    scored = cells.scored(read(results, model).frame, "levenshtein", results)
    found = cells.cells(scored, cells.columns(scored), against)
    return found.set_index(["method", "subset"])


def test_a_cell_tells_score_spread_cost_and_pairs(tmp_path: Path) -> None:
    write(tmp_path, "laq", 128, TWO)
    folder = write(tmp_path, "echokv", 128, {"hotpotqa": pattern(3, 4), "trec": pattern(1, 4)})
    found = table(tmp_path).loc["echokv"]
    cell = found.loc["hotpotqa"]
    assert (cell.score, cell.n, cell.records, cell.budget) == (75.0, 4, 200, 128)
    assert cell.standard_error == pytest.approx(25.0)
    assert cell.low <= 75 <= cell.high
    assert (cell.entries, cell.bytes, cell.settings) == (11_520, 512 * 11_520, folder.name[-8:])
    assert (cell.paired_difference, cell.pairs, cell.p, cell.against) == (25.0, 4, 1.0, "laq")
    average = found.loc["average"]
    assert (average.score, average.n, average.tasks, average.paired_difference) == (50.0, 8, 2, 12.5)
    assert math.isnan(average.paper)
    assert math.isnan(table(tmp_path).loc["laq", "hotpotqa"].p)


def test_without_intervals_a_cell_is_the_same_but_for_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "laq", 128, TWO)
    write(tmp_path, "echokv", 128, {"hotpotqa": pattern(3, 4), "trec": pattern(1, 4)})
    scored = cells.scored(read(tmp_path).frame, "levenshtein", tmp_path)
    whole, short = (cells.cells(scored, cells.columns(scored), "laq", intervals=wanted) for wanted in (True, False))
    assert whole[["low", "high"]].notna().all(axis=None)
    assert short[["low", "high"]].isna().all(axis=None)
    pandas.testing.assert_frame_equal(whole.drop(columns=["low", "high"]), short.drop(columns=["low", "high"]))
    monkeypatch.setattr(statistics, "_resampled_means", None)  # what is not printed is not drawn
    assert show.main(["--results", str(tmp_path)]) == 0


def test_the_papers_value_stands_beside_its_own_model_alone(tmp_path: Path) -> None:
    for model in ("mistral", "smollm2"):
        write(tmp_path, "snapkv", 256, TWO, label=model)
    own = table(tmp_path, model="mistral").loc["snapkv", "trec"]
    assert own.paper == 61.5
    assert own.difference == pytest.approx(25 - 61.5)
    assert math.isnan(table(tmp_path).loc["snapkv", "trec"].paper)
    assert paper.score("mistral", "stage1_only", 128, "average") == 39.38
    assert paper.score("qwen", "stage1_only", 128, "average") is None


def test_pairs_are_the_examples_that_both_have(tmp_path: Path) -> None:
    write(tmp_path, "laq", 128, {"trec": [False, True, True]})
    write(tmp_path, "h2o", 128, {"trec": [True, True]})
    cell = table(tmp_path).loc["h2o", "trec"]
    assert (cell.pairs, cell.paired_difference) == (2, 50.0)
    answers = read(tmp_path).frame
    assert cells.missing(answers, ["trec"]) == ["h2o 128 lacks examples that others have: 1 of 3 in trec"]
    assert cells.missing(answers[answers["method"] == "laq"], ["trec"]) == []


def test_fullkv_can_be_compared_with_at_every_budget(tmp_path: Path) -> None:
    write(tmp_path, "full", None, {"trec": [True, True]})
    write(tmp_path, "h2o", 256, {"trec": [True, False]})
    found = table(tmp_path, against="full")
    assert found.loc["h2o", "trec"].paired_difference == -50
    assert math.isnan(found.loc["full", "trec"].p)
    assert math.isnan(table(tmp_path, against="laq").loc["h2o", "trec"].p)


def test_an_average_needs_every_task_that_another_method_has(tmp_path: Path) -> None:
    write(tmp_path, "laq", 128, TWO)
    write(tmp_path, "h2o", 128, {"trec": [True, True]})
    found = table(tmp_path)
    assert ("laq", "average") in found.index
    assert ("h2o", "average") not in found.index


def test_both_edit_similarities_are_kept(tmp_path: Path) -> None:
    write(tmp_path, "laq", 128, {"lcc": [False]})
    frame = read(tmp_path).frame
    one, other = (cells.scored(frame, edit, tmp_path).iloc[0] for edit in ("levenshtein", "difflib"))
    assert (one.score, one.other_edit) == (other.other_edit, other.score)
    assert one.edit == "levenshtein"


def test_columns_are_the_16_english_tasks_or_what_there_is(tmp_path: Path) -> None:
    write(tmp_path, "laq", 128, {"trec": [True], "dureader": [True]})
    assert len(cells.columns(read(tmp_path).frame)) == 16
    write(tmp_path / "s", "laq", 128, {"syn_trec": [True], "syn_fact": [True]})
    assert cells.columns(read(tmp_path / "s").frame) == ["syn_fact", "syn_trec"]
    assert cells.columns(read(tmp_path).frame, ["lsht"]) == ["lsht"]


def test_a_torn_last_line_and_a_repeated_id_are_no_news(tmp_path: Path) -> None:
    folder = write(tmp_path, "laq", 128, {"trec": [True, True]})
    again = json.dumps(answer("trec", 1, "no", "laq", 128, "smollm2"))
    (folder / "trec.ffffffffffff.jsonl").write_text(f'{again}\n{{"_id": "torn')
    assert table(tmp_path).loc["laq", "trec"].n == 2
    assert table(tmp_path).loc["laq", "trec"].score == 100


def test_two_settings_of_one_cell_are_two_rows_and_can_be_chosen(tmp_path: Path) -> None:
    for workspace in (1024, None):
        write(tmp_path, "laq", 128, TWO, method={"workspace": workspace})
    write(tmp_path, "full", None, TWO)
    rows = {"full", "laq workspace=1024", "laq workspace=null"}
    assert {str(run.name) for run in read(tmp_path).runs} == rows
    found = table(tmp_path, against="laq workspace=null").reset_index()
    assert set(found["variant"]) == {"", "workspace=1024", "workspace=null"}
    assert set(found.loc[found["p"].notna(), "variant"]) == {"workspace=1024"}
    chosen = read(tmp_path, where={"method.workspace": "1024"})
    assert {run.method for run in chosen.runs} == {"laq", "full"}
    with pytest.raises(UserError, match=r"--where method\.workspac: no run in .* did you mean method\.workspace"):
        read(tmp_path, where={"method.workspac": "1024"})
    with pytest.raises(UserError, match=r"no run with method\.workspace=7"):
        read(tmp_path, where={"method.workspace": "7", "method.name": "laq"})


def test_runs_off_the_presets_rules_are_left_out_and_named(tmp_path: Path) -> None:
    write(tmp_path, "full", None, TWO)
    other = write(tmp_path, "full", None, TWO, protocol={"chat": "all"})
    found = read(tmp_path)
    assert found.left_out == (f"{other.name} (chat all)",)
    assert found.deviation == ""
    write(tmp_path / "all", "full", None, TWO, protocol={"chat": "all"})
    assert read(tmp_path / "all").deviation == "chat all"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": {"dtype": "bfloat16"}}, "differ in model .model.dtype: float32, bfloat16"),
        ({"data": {"sha256": ["cd"]}}, "differ in data"),
        ({"protocol": {"prompt_limit": 100}}, "differ in protocol .*prompt_limit"),
        ({"change": {"preset": "equal_bytes"}}, "several presets .equal_bytes, paper.*--preset"),
        ({"change": {"model": "qwen"}}, "answered by 'qwen', in the folder of 'smollm2'"),
        ({"change": {"fingerprint": "new"}}, "different inputs in different runs"),
        ({"change": {"answers": "Food"}}, "-[0-9a-f]{8}, trec, _id 'trec-0': answers must be a list"),
        ({"change": {"pred": None}}, "pred must be a string"),
        ({"change": {"dataset": "lcc"}}, "dataset is 'lcc' in the file of trec"),
        ({"change": {"entries": math.nan}}, "entries must be a number, found nan"),
        ({"change": {"bytes": None}}, "bytes must be a number"),
        ({"change": {"fingerprint": 3}}, "fingerprint must be a string"),
    ],
)
def test_what_makes_no_table(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    write(tmp_path, "laq", 128, {"trec": [True]})
    write(tmp_path, "snapkv", 128, {"trec": [True]}, **changes)
    with pytest.raises(UserError, match=message) as refused:
        read(tmp_path)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("lcc.jsonl", b"", "lcc: the files hold no answer"),
        ("lcc.jsonl", b'{"_id": "torn', "lcc: the files hold no answer"),
        ("trec.jsonl", b"\xff\xfe\n", "line 1: not a stored answer"),
        ("trec.jsonl", b"[]\n", "line 1: not a stored answer"),
        ("trec.jsonl", b"[" * 100_000 + b"\n", "line 1: not a stored answer"),
        ("treck.jsonl", b"{}\n", "unknown subset 'treck'; did you mean trec"),
        ("manifest.json", b"{", "manifest.json is unreadable"),
        ("manifest.json", b'{"format": 99, "identity": {}}', "format 99"),
        ("manifest.json", b'{"format": 1, "identity": {}}', "other settings than its folder's hash"),
    ],
)
def test_broken_files(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    folder = write(tmp_path, "laq", 128, {"trec": [True]})
    (folder / name).write_bytes(content)
    with pytest.raises(UserError, match=message):
        read(tmp_path)


@pytest.mark.parametrize("field", ["pred", "_id", "fingerprint", "language"])
def test_half_of_a_surrogate_pair_in_an_answer_does_no_harm(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], field: str
) -> None:
    results, odd = tmp_path / "results", "Food \ud800"
    for method in ("laq", "echokv"):
        folder = write(results, method, 128, TWO)
        for path in folder.glob("*.jsonl"):
            first, *others = path.read_text().splitlines()
            path.write_text("\n".join([json.dumps(json.loads(first) | {field: odd}), *others, ""]))
    chosen = ["--results", str(results)]
    model = [*chosen, "--model", "smollm2"]
    for main, words in (
        (tables.main, ["table3", *model]),
        (compare.main, model),
        (show.main, chosen),
        (report.main, chosen),
        (score.main, [str(folder), "--json"]),
    ):
        assert main(words) == 0
        capsys.readouterr().out.encode()
    assert "\ud800" not in "".join(read(results).frame["pred"] + read(results).frame["_id"])


def test_nothing_there(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no answers of smollm2 on longbench .*run\.py"):
        read(tmp_path)
    write(tmp_path, "laq", 128, {"trec": [True]})
    with pytest.raises(UserError, match=r"no answers of smollm on longbench.*longbench/smollm2"):
        read(tmp_path, "smollm")
    with pytest.raises(UserError, match="holds no answers of lcc"):
        read(tmp_path, names=["lcc"])
    with pytest.raises(UserError, match="no answers of preset 'papr'; did you mean paper"):
        read(tmp_path, preset="papr")


def test_a_score_that_is_no_number_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "laq", 128, {"trec": [True]})
    monkeypatch.setattr("eval.scoring.rows.points", lambda *_: [math.nan])
    with pytest.raises(UserError, match="laq trec: the score of _id 'trec-0' is not a number"):
        table(tmp_path)
