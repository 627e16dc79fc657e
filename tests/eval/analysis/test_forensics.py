"""Forensics: the ranking, how sure it is, and what cannot be a row's settings."""

import json
from pathlib import Path

import pandas as pd
import pytest

from eval.analysis import forensics, study
from tests.eval.analyses import analyse, drawn, read, studied

pytestmark = pytest.mark.usefixtures("whole_figures")


def test_forensics_ranks_by_distance(tiny_settings: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
    own = [word for word in tiny_settings if not word.startswith("data")]
    analyse("forensics", own, "data=jsonl", f"data.path={tmp_path}", "subset=hotpotqa")
    ranking = read(tmp_path, "forensics")
    assert list(ranking["method"]) == list(offsets)
    assert list(ranking["distance"]) == pytest.approx([1, 3])
    assert list(ranking["pooling"]) == ["max", "none"]
    assert list(ranking["workspace"]) == [1024, 1024]
    assert ranking["nearest"].isna().all()  # one example cannot tell
    drawn(tmp_path, "forensics")


def test_how_often_a_setting_is_nearest() -> None:
    """A misses by 10 where it draws one example twice, B by 0 or 50; C is B again and shares what it wins."""
    scores = {"a": (40.0, 60.0), "b": (0.0, 50.0), "c": (0.0, 50.0)}
    rows = pd.DataFrame(
        {"_id": str(number), "dataset": "qasper", "method": method, "budget": 128, "score": score}
        for method, values in scores.items()
        for number, score in enumerate(values)
    ).astype({"budget": "Int64"})
    found = forensics.rank(rows, {"qasper": 50.0}, ["qasper"]).set_index("method")
    assert list(found["distance"]) == [0, 25, 25]
    assert found.loc["a", "nearest"] == pytest.approx(75, abs=3)
    assert found.loc["b", "nearest"] == found.loc["c", "nearest"] == pytest.approx(12.5, abs=2)
    # Distances of a: 0 in half of the draws, 10 in the others.
    assert found.loc["a", "error"] == pytest.approx(5, abs=0.1)


@pytest.mark.parametrize(
    ("address", "budgets", "said"),
    [
        ("3:laq@128", [128], ["another model than tiny: mistral"]),
        ("4:laq@128", [64, 128], ["another model than tiny: qwen", "for budget 128, not 64."]),
        ("5:echokv", [256], ["another model than tiny: mistral", "for budget 128, not 256."]),
        ("3:full", [64], ["another model than tiny: mistral"]),
    ],
)
def test_forensics_says_what_cannot_be_the_rows(
    address: str, budgets: list[int], said: list[str], tiny_settings: list[str]
) -> None:
    one = studied("ablation_pooling", tiny_settings)
    assert forensics.row(address)
    notes = forensics._notes(one, address, pd.DataFrame({"budget": budgets}))
    assert len(notes) == len(said)
    for note, part in zip(notes, said, strict=True):
        assert part in note
