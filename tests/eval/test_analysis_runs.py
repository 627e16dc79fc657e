"""Whole analyses on a tiny model: what they write, that they resume, and what they say of wrong input."""

import json
import sys
from pathlib import Path
from typing import Any

import matplotlib.image
import numpy as np
import pandas as pd
import pytest

from eval.analysis import __main__ as program
from eval.analysis import ablation, dispersion, forensics, outcomes, report, study
from eval.errors import UserError
from tests.test_configs import composed

ANALYSES = program.names()


@pytest.fixture
def settings(tiny_folder: Path, tmp_path: Path) -> list[str]:
    """A tiny model on two short synthetic examples."""
    data = ["data=synthetic", "data.length=512", "limit=2", "preset=equal_bytes"]
    return ["model=smollm2", f"model.name={tiny_folder}", "model.label=tiny", f"results={tmp_path}", *data]


def analyse(name: str, settings: list[str], *more: str) -> None:
    program.run(composed(f"experiment={name}", *settings, *more))


def read(root: Path, name: str) -> pd.DataFrame:
    (file,) = root.rglob(f"{name}.csv")
    return pd.read_csv(file)


def drawn(root: Path, name: str) -> None:
    """There is a figure and it is not blank."""
    (png,) = root.rglob(f"{name}.png")
    image = matplotlib.image.imread(png)[..., :3]
    assert 0.01 < float(np.mean(image < 0.9)) < 0.6
    (pdf,) = root.rglob(f"{name}.pdf")
    assert pdf.read_bytes().startswith(b"%PDF")


def test_table1(settings: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    analyse("table1", settings, "subset=[syn_facts,syn_trec]", "methods.echokv.workspace=200", "budget=64")
    table = read(tmp_path, "table1")
    examples, layers = read(tmp_path, "table1_examples"), read(tmp_path, "table1_layers")
    own = table[table["measure"] == "overlap"].set_index(["method", "step"])
    assert set(own.loc["echokv"].index) == set(range(1, 9))
    by_hand = examples[(examples["method"] == "echokv") & (examples["step"] == 5)]["overlap"]
    assert own.loc[("echokv", 5), "mean"] == pytest.approx(by_hand.mean(), rel=1e-4)
    assert own.loc[("echokv", 5), "error"] == pytest.approx(by_hand.std() / len(by_hand) ** 0.5, rel=1e-4)
    assert own.loc[("echokv", 8), "paper"] == 0.80
    assert own.loc[("stage1_only", 8), "paper"] == 0.77
    gain = own.loc[("echokv - stage1_only", 8), "mean"]
    assert gain == pytest.approx(own.loc[("echokv", 8), "mean"] - own.loc[("stage1_only", 8), "mean"], abs=1e-5)
    at = layers[(layers["method"] == "echokv") & (layers["step"] == 5)]["mean"]
    assert at.mean() == pytest.approx(own.loc[("echokv", 5), "mean"], rel=1e-4)
    agreeing = table[table["measure"] == "overlap_same_so_far"].set_index(["method", "step"])["n"]
    shares = table[table["measure"] == "same_so_far"].set_index(["method", "step"])
    counts = (shares["mean"] * shares["n"]).round()
    assert agreeing.to_dict() == counts[counts > 0].to_dict()
    assert "paper, refreshed (Mistral-7B)" in capsys.readouterr().out
    (tex,) = tmp_path.rglob("table1.tex")
    assert "paper, frozen" in tex.read_text()
    drawn(tmp_path, "table1")


def test_table2(settings: list[str], tmp_path: Path) -> None:
    analyse("table2", settings, "subset=syn_facts", "budget=64", "analysis.layers=[1]")
    table = read(tmp_path, "table2").set_index(["strategy", "layer"])
    assert len(table) == 6 * 2
    assert table.loc[("prompt", 0), "paper"] == 0.927
    (tex,) = tmp_path.rglob("table2.tex")
    assert len([line for line in tex.read_text().splitlines() if line.startswith("1 &")]) == 1
    drawn(tmp_path, "table2")


def test_table6(settings: list[str], tmp_path: Path) -> None:
    chosen = ["method=[full,laq,echokv]", "methods.laq.workspace=200", "methods.echokv.workspace=200"]
    analyse("table6", settings, "subset=[syn_facts,syn_hops]", "budget=[64,128]", *chosen)
    table = read(tmp_path, "table6")
    whole = table[table["dataset"] == "all"].set_index(["method", "selection", "budget"])["mean"]
    assert whole["full"].item() == 100
    assert set(table[table["method"] == "echokv"]["selection"]) == {"W1", "W2", "W2 - W1", "final"}
    rows = read(tmp_path, "table6_examples")
    one = rows[(rows["method"] == "echokv") & (rows["selection"] == "W2") & (rows["dataset"] == "syn_hops")]
    listed = table[(table["dataset"] == "syn_hops") & (table["method"] == "echokv") & (table["selection"] == "W2")]
    assert listed["mean"].item() == pytest.approx(one["retained"].mean(), rel=1e-4)
    drawn(tmp_path, "table6")


def test_table6_of_real_form_counts_what_is_left_out(
    settings: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "Filler words go on. " * 60
    records = [
        {"evidence": [[0, 18], [800, 818]]},  # the second will be cut out
        {"evidence": []},
        {"evidence": [[790, 810]]},  # all of it will be
    ]
    about = {"input": "Q?", "context": text, "answers": ["words"], "length": 240, "dataset": "hotpotqa"}
    about |= {"language": "en", "all_classes": None}
    lines = [json.dumps({"_id": str(place), **about, **record}) for place, record in enumerate(records)]
    (tmp_path / "records").mkdir()
    (tmp_path / "records" / "hotpotqa.jsonl").write_text("\n".join(lines))
    data = ["data=jsonl", f"data.path={tmp_path / 'records'}", "subset=hotpotqa", "limit=null"]
    own = [word for word in settings if not word.startswith("data")]
    analyse(
        "table6", own, *data, "model.prompt_limit=900", "method=[echokv]", "methods.echokv.workspace=200", "budget=64"
    )
    said = capsys.readouterr().out
    assert "1 of 3 examples name no evidence" in said
    assert "Truncation touched 2 of 3 evidence spans, which are not counted; 1 examples lost all" in said


def test_ablation(settings: list[str], tmp_path: Path) -> None:
    analyse("ablation_refresh", settings, "limit=1", "analysis.workspace=200")
    table = read(tmp_path, "ablation_refresh").set_index(["method", "measure"])
    rows = read(tmp_path, "ablation_refresh_examples")
    mine, base = (rows[rows["method"] == name]["retained"].mean() for name in ("feedback", "frozen"))
    assert table.loc[("feedback", "retained"), "difference"] == pytest.approx(mine - base, abs=1e-3)
    assert table.loc[("feedback", "score"), "n"] == 2
    drawn(tmp_path, "ablation_refresh")


def test_a_varied_number_is_the_x_axis(settings: list[str], tmp_path: Path) -> None:
    analyse("ablation_workspace", settings, "limit=1", "subset=syn_facts", "budget=64")
    table = read(tmp_path, "ablation_workspace")
    assert sorted(set(table["x"])) == [64, 256, 512, 1024, 2048, 4096]
    assert set(table["series"]) == {"LAQ", "EchoKV"}
    drawn(tmp_path, "ablation_workspace")


def test_second_run_measures_nothing(settings: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    more = ["subset=syn_facts", "method=[snapkv]", "budget=64"]
    analyse("table6", settings, *more, "limit=1")
    first = read(tmp_path, "table6_examples")
    analyse("table6", settings, *more)  # one example more
    both = read(tmp_path, "table6_examples")
    assert both[both["_id"].isin(first["_id"])].reset_index(drop=True).equals(first)
    assert both["_id"].nunique() == 2
    monkeypatch.setattr(study, "load_model", None)
    analyse("table6", settings, *more)
    assert read(tmp_path, "table6_examples").equals(both)


def test_interrupted_run_goes_on(settings: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    more = ["subset=syn_facts", "method=[stage1_only]", "budget=64"]
    plain, calls = study.case, []

    def failing(*given: Any) -> Any:
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return plain(*given)

    monkeypatch.setattr(study, "case", failing)
    with pytest.raises(KeyboardInterrupt):
        analyse("table2", settings, *more)
    analyse("table2", settings, *more)
    assert len(calls) == 3
    assert read(tmp_path, "table2_examples")["_id"].nunique() == 2


def fabricated(scores: dict[tuple[str, float, int], float]) -> Any:
    """A stand-in for `outcomes` that knows the score of a method, dispersion and example."""

    def give(one: study.Study, load: Any = None) -> tuple[pd.DataFrame, study.Measured]:
        far = one.config["data"]["dispersion"]
        lines = [
            {"_id": f"{far}-{number}", "number": number, "dataset": "syn_facts", "method": method, "budget": 64,
             "entries": 1, "score": score, "retained": 2 * score, "fidelity": 50.0}
            for (method, at, number), score in scores.items() if at == far
        ]  # fmt: skip
        frame = pd.DataFrame(lines).astype({"budget": "Int64"})
        return frame, study.Measured([], Path(one.config["results"]) / "analysis" / "dispersion" / "made")

    return give


def test_dispersion_is_paired_by_example(
    settings: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """LAQ falls by 10 and 30, EchoKV by 0 and 10: its advantage grows by 10 and 20."""
    values = {"laq": ((90.0, 70.0), (80.0, 40.0)), "echokv": ((90.0, 60.0), (90.0, 50.0))}
    scores = {
        (method, far, number): levels[place][number]
        for method, levels in values.items()
        for place, far in enumerate((0.0, 1.0))
        for number in (0, 1)
    }
    monkeypatch.setattr(dispersion, "outcomes", fabricated(scores))
    analyse(
        "dispersion",
        settings,
        "analysis.facts=[4]",
        "analysis.dispersions=[0.0,1.0]",
        "method=[laq,echokv]",
        "budget=64",
    )
    changes = read(tmp_path, "dispersion_changes").set_index(["method", "measure", "change"])["mean"]
    assert changes["laq", "score", "wide - narrow"] == -20
    assert changes["echokv", "score", "wide - narrow"] == -5
    assert changes["echokv - laq", "score", "at 0.0"] == -5
    assert changes["echokv - laq", "score", "wide - narrow"] == 15
    assert changes["echokv - laq", "retained", "wide - narrow"] == 30
    assert "echokv - laq, score from narrow to wide (budget 64): +15.0" in capsys.readouterr().out
    drawn(tmp_path, "dispersion")


def test_forensics_ranks_by_distance(settings: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    printed = forensics.row("3:laq@128")
    assert printed["hotpotqa"] == 40.35
    assert "average" not in printed
    offsets = {"laq_max_query_head_1024": 1.0, "laq_none_kv_head_1024": -3.0}

    def give(one: study.Study) -> tuple[pd.DataFrame, study.Measured]:
        lines = [
            {"_id": "1", "dataset": name, "method": method, "budget": 128, "score": printed["hotpotqa"] + offset}
            for method, offset in offsets.items()
            for name in ("hotpotqa",)
        ]
        return pd.DataFrame(lines).astype({"budget": "Int64"}), study.Measured([], tmp_path)

    monkeypatch.setattr(forensics, "outcomes", give)
    record = {"_id": "1", "input": "Q?", "context": "word", "answers": ["a"], "length": 1, "dataset": "hotpotqa"}
    (tmp_path / "hotpotqa.jsonl").write_text(json.dumps(record | {"language": "en", "all_classes": None}))
    own = [word for word in settings if not word.startswith("data")]
    analyse("forensics", own, "data=jsonl", f"data.path={tmp_path}", "subset=hotpotqa")
    ranking = read(tmp_path, "forensics")
    assert list(ranking["method"]) == list(offsets)
    assert list(ranking["distance"]) == pytest.approx([1, 3])
    assert list(ranking["pooling"]) == ["max", "none"]
    drawn(tmp_path, "forensics")


def test_outcomes_are_those_of_a_run(settings: list[str], tmp_path: Path) -> None:
    """The analysis answers as run.py does."""
    from eval import runner

    grid = ["subset=syn_facts", "method=[snapkv,echokv]", "budget=64", "+analysis.name=x", "+analysis.steps=4"]
    config = composed(*settings, *grid)
    runner.run(config)
    stored = {
        (answer["method"], answer["_id"]): answer
        for file in (tmp_path / "synthetic").rglob("*.jsonl")
        for answer in map(json.loads, file.read_text().splitlines())
    }
    _, measured = outcomes.outcomes(study.Study.of("x", config))
    found = {(cell["method"], row["_id"]): cell for row in measured.rows for cell in row["cells"]}
    assert {key: (cell["pred"], cell["entries"]) for key, cell in found.items()} == {
        key: (answer["pred"], answer["entries"]) for key, answer in stored.items()
    }


@pytest.fixture
def fail(settings: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """Run the program in this process and return its one line of error."""

    def call(*arguments: str) -> str:
        first = [word for word in arguments if "=" not in word]
        rest = {word.split("=")[0]: word for word in [*settings, *arguments] if "=" in word}
        monkeypatch.setattr(sys, "argv", ["analysis", *first, *rest.values()])
        assert program.main() == 1
        lines = capsys.readouterr().err.strip().splitlines()
        assert lines[-1].startswith("error: ")
        return lines[-1].removeprefix("error: ")

    return call


FACTS = "subset=syn_facts"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["tabel1"], "unknown analysis 'tabel1'; did you mean table1"),
        ([], "name an analysis first: ablation_anchors"),
        (["experiment=demo"], "this experiment is no analysis"),
        (["table1"], "subset 'hotpotqa' is not synthetic"),
        (["table1", FACTS, "method=[snapkv]"], "snapkv decodes nothing ahead"),
        (["table1", FACTS, "budget=[64,128]"], "table1 is for one budget, [64, 128] given"),
        (["table1", FACTS, "analysis.shown=[1,9]"], "step 9 asked for, the lookahead makes 8: set methods."),
        (["table1", FACTS, "analysis.shown=[0]"], "analysis.shown is [0]; give a list of steps"),
        (["table1", FACTS, "budget=5000"], "every prompt fits the budget"),
        (["table2", FACTS, "analysis.layers=[0,2]"], "analysis.layers names layer 2; tiny has layers 0 to 1"),
        (["table2", FACTS, "analysis.step=2"], "analysis.step is 2; give a whole number from 3 on"),
        (["table2", FACTS, "analysis.step=9"], "step 9 asked for, the lookahead makes 8"),
        (["table2", FACTS, "method=[laq,echokv]"], "from one method, 2 given: write method=stage1_only"),
        (["ablation_refresh", FACTS, "analysis.against=never"], "analysis.against is 'never', which was not run"),
        (["ablation_refresh", FACTS, "analysis.x=kernel"], "analysis.x is 'kernel', which method frozen does not set"),
        (["ablation_refresh", FACTS, "analysis.steps=0"], "analysis.steps is 0; give the number of true queries"),
        (["ablation_refresh", FACTS, "analysis.kind=ablatoin"], "analysis.kind is 'ablatoin'; did you mean ablation"),
        (["dispersion", "analysis.dispersions=[1.0]"], "two at least make a comparison"),
        (["dispersion", "analysis.facts=[4,4]"], "analysis.facts is [4, 4]; give a list of different numbers"),
        (["forensics", FACTS], "row 3:laq@128 has none of syn_facts"),
        (["forensics", FACTS, "analysis.row=3:lak@128"], "analysis.row is '3:lak@128'; name a printed row"),
        (["table6", FACTS, "analysis.stand_in=[multifieldqa]"], "unknown subset 'multifieldqa'"),
    ],
)
def test_wrong_input_is_one_line(arguments: list[str], message: str, fail: Any) -> None:
    assert message in fail(*arguments, "limit=1")


def test_only_synthetic_evidence_can_be_dispersed() -> None:
    with pytest.raises(UserError, match="it needs data=synthetic"):
        program.run(composed("experiment=dispersion", "data=jsonl"))


def test_answers_that_end_too_early(fail: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where every token is a stop id, the lookahead makes one step."""
    from eval import asked

    monkeypatch.setattr(asked, "stop_ids", lambda *_: frozenset(range(300)))
    said = fail("table1", FACTS, "limit=1", "budget=64")
    assert said.startswith("step 8 lies beyond the end of every answer, the longest has 1 steps")
    said = fail("table2", FACTS, "limit=1", "budget=64")
    assert said.startswith("step 3 lies beyond the end of every answer")


def test_evidence_is_asked_for_before_the_work(fail: Any, tmp_path: Path) -> None:
    record = {"_id": "1", "input": "Q?", "context": "word", "answers": ["a"], "length": 1, "dataset": "qasper"}
    (tmp_path / "qasper.jsonl").write_text(json.dumps(record | {"language": "en", "all_classes": None}))
    monkey = [f"data.path={tmp_path}", "subset=qasper"]
    settings = composed("experiment=table6", "data=jsonl", *monkey, f"results={tmp_path}")
    with pytest.raises(UserError, match="no record of qasper names its evidence"):
        program.run(settings)


def test_values_of_lists_and_nulls_have_a_place_on_the_axis(settings: list[str]) -> None:
    one = study.Study.of("x", composed("experiment=ablation_refresh_count", *settings))
    row = pd.Series({"method": "m", "budget": 64})
    places = [
        ablation._value(one, fields, row)
        for fields in ({"refresh_at": []}, {"refresh_at": [2, 4]}, {"refresh_at": None})
    ]
    assert places == ["never", "2,4", 64]


def test_every_analysis_has_its_section() -> None:
    assert {"table1", "table2", "table6", "dispersion", "forensics"} < set(ANALYSES)
    for name in ANALYSES:
        config = composed(f"experiment={name}")
        assert config["analysis"]["name"] == name
        if config["analysis"]["kind"] == "ablation":
            assert config["analysis"]["against"] in config["methods"]


def test_summary_by_hand() -> None:
    frame = pd.DataFrame({"a": ["x", "x", "x", "y"], "v": [1.0, 2.0, 6.0, 5.0]})
    table = report.summarise(frame, ["a"], "v").set_index("a")
    assert table.loc["x", "mean"] == 3
    assert table.loc["x", "error"] == pytest.approx((7 / 3) ** 0.5)
    assert table.loc["y", "n"] == 1
    assert np.isnan(table.loc["y", "error"])
    assert report.number(0.5, float("nan"), 2) == "0.50"
