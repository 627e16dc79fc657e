"""Tables 1, 2 and 6 on a tiny model: what they write, and what they make of wrong or missing data."""

import json
from pathlib import Path

import pytest

from eval.analysis import __main__ as program
from eval.console.errors import UserError
from tests.eval.analyses import analyse, drawn, read
from tests.test_configs import composed

pytestmark = pytest.mark.usefixtures("whole_figures")


def test_table1(tiny_settings: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    analyse("table1", tiny_settings, "subset=[syn_facts,syn_trec]", "methods.echokv.workspace=200", "budget=64")
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


def test_table2(tiny_settings: list[str], tmp_path: Path) -> None:
    analyse("table2", tiny_settings, "subset=syn_facts", "budget=64", "analysis.layers=[1]")
    table = read(tmp_path, "table2").set_index(["strategy", "layer"])
    assert len(table) == 6 * 2
    assert table.loc[("prompt", 0), "paper"] == 0.927
    (tex,) = tmp_path.rglob("table2.tex")
    assert len([line for line in tex.read_text().splitlines() if line.startswith("1 &")]) == 1
    drawn(tmp_path, "table2")


def test_table6(tiny_settings: list[str], tmp_path: Path) -> None:
    chosen = ["method=[full,laq,echokv]", "methods.laq.workspace=200", "methods.echokv.workspace=200"]
    analyse("table6", tiny_settings, "subset=[syn_facts,syn_hops]", "budget=[64,128]", *chosen)
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
    tiny_settings: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
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
    own = [word for word in tiny_settings if not word.startswith("data")]
    analyse(
        "table6", own, *data, "model.prompt_limit=900", "method=[echokv]", "methods.echokv.workspace=200", "budget=64"
    )
    said = capsys.readouterr().out
    assert "1 of 3 examples name no evidence" in said
    assert "Hot: truncation touched 2 of 3 evidence spans, which are not counted; examples that lost all" in said
    (line,) = read(tmp_path, "table6_evidence").dropna(subset=["source"]).to_dict("records")
    assert (line["examples"], line["spans"], line["truncated"], line["gone"]) == (2, 3, 2, 1)
    assert read(tmp_path, "table6_evidence")["without"].sum() == 1


def test_one_id_in_two_tasks_is_two_examples(tiny_settings: list[str], tmp_path: Path) -> None:
    about = {"_id": "1", "input": "Q?", "answers": ["words"], "length": 240, "language": "en", "all_classes": None}
    for place, name in enumerate(("hotpotqa", "musique")):
        record = {**about, "context": f"Filler {place} words go on. " * 40, "dataset": name, "evidence": [[0, 8]]}
        (tmp_path / f"{name}.jsonl").write_text(json.dumps(record))
    own = [word for word in tiny_settings if not word.startswith("data")]
    data = ["data=jsonl", f"data.path={tmp_path}", "subset=[hotpotqa,musique]", "budget=64"]
    analyse("table1", own, *data, "methods.echokv.workspace=200", "methods.stage1_only.workspace=200")
    table = read(tmp_path, "table1")
    gains = table[table["method"] == "echokv - stage1_only"]
    assert len(gains)
    assert set(gains["n"]) == {2}
    analyse("table6", own, *data, "method=[snapkv]")
    (tex,) = tmp_path.rglob("table6_final.tex")
    assert "n=2 examples" in tex.read_text()


def test_evidence_is_asked_for_before_the_work(tmp_path: Path, tiny_folder: Path) -> None:
    record = {"_id": "1", "input": "Q?", "context": "word", "answers": ["a"], "length": 1, "dataset": "qasper"}
    (tmp_path / "qasper.jsonl").write_text(json.dumps(record | {"language": "en", "all_classes": None}))
    own = [f"data.path={tmp_path}", "subset=qasper", f"model.name={tiny_folder}"]
    config = composed("experiment=table6", "data=jsonl", *own, f"results={tmp_path}")
    with pytest.raises(UserError, match="no record of qasper names its evidence"):
        program.run(config)
