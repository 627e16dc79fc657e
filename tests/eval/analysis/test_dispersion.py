"""Dispersion: paired by example, folders of their own, by number of pieces."""

import json
import math
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from eval.analysis import __main__ as program
from eval.analysis import dispersion, figures, study
from eval.answering import loading
from eval.console.errors import UserError
from tests.eval.analyses import analyse, drawn, read
from tests.test_configs import composed

pytestmark = pytest.mark.usefixtures("whole_figures")


def fabricated(scores: dict[tuple[str, float, int], float]) -> Any:
    """A stand-in for `outcomes` that knows the score of a method, dispersion and example."""

    def give(one: study.Study, load: Any = None) -> tuple[pd.DataFrame, study.Measured]:
        far = one.plan.settings.data.own["dispersion"]
        lines = [
            {"_id": f"{far}-{number}", "number": number, "dataset": "syn_facts", "method": method, "budget": 64,
             "entries": 1, "score": score, "retained": 2 * score, "fidelity": 50.0}
            for (method, at, number), score in scores.items() if at == far
        ]  # fmt: skip
        frame = pd.DataFrame(lines).astype({"budget": "Int64"})
        return frame, study.Measured([], one.place(one.part, {"of": far}).folder)

    return give


def test_dispersion_is_paired_by_example(
    tiny_settings: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
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
        tiny_settings,
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


def test_dispersions_of_other_settings_lie_apart(
    tiny_settings: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Tables of each settings in a folder of their own; what two of them share is measured once."""
    more = ["method=[snapkv]", "budget=64", "analysis.facts=[2]", "limit=1"]
    analyse("dispersion", tiny_settings, *more, "analysis.dispersions=[0,1]")
    analyse("dispersion", tiny_settings, *more, "analysis.dispersions=[1.0,0.0]")
    (first,) = tmp_path.rglob("dispersion.csv")
    before = first.read_text()
    assert "echokv and laq of analysis.compare not run" in capsys.readouterr().out
    analyse("dispersion", tiny_settings, *more, "analysis.dispersions=[0,0.5,1]")
    analyse("dispersion", tiny_settings, *more, "analysis.dispersions=[0,1]", "budget=96")
    assert len(list(tmp_path.rglob("dispersion.csv"))) == 3
    assert first.read_text() == before
    assert first.parent.parent == tmp_path / "analysis" / "dispersion" / "synthetic" / "tiny"
    levels = sorted(path.parent.name.rsplit("-", 1)[0] for path in tmp_path.rglob("manifest.json"))
    at_64 = [f"dispersion{far}_facts2-64" for far in ("0.0", "0.5", "1.0")]
    assert levels == sorted([*at_64, "dispersion0.0_facts2-96", "dispersion1.0_facts2-96"])
    monkeypatch.setattr(loading, "load_model", None)
    analyse("dispersion", tiny_settings, *more, "analysis.dispersions=[0,1]")


def test_dispersion_by_number_of_pieces(tiny_settings: list[str], tmp_path: Path) -> None:
    more = ["method=[full,snapkv,echokv]", "methods.echokv.workspace=200", "budget=[64,96]", "limit=1"]
    analyse("dispersion", tiny_settings, *more, "analysis.facts=[2,4]", "analysis.dispersions=[0,1]")
    (markdown,) = tmp_path.rglob("dispersion.md")
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in markdown.read_text().splitlines()[2:]]
    rows = rows[: 2 + 5 * 3]  # a method and budget has a line per number of pieces and one for all
    values = ["score at 0", "at 1", "change", "retained at 0", "at 1", "change"]
    assert rows[0] == ["Method", "Budget", "Pieces", *values]
    assert [row[2] for row in rows[2:]] == ["2", "4", "all"] * 5
    assert [row[0] for row in rows[2::3]] == ["FullKV", "SnapKV", "SnapKV", "EchoKV", "EchoKV"]
    assert all(bool(row[5]) == (row[2] == "all") for row in rows[2:])
    levels = read(tmp_path, "dispersion_levels")
    assert len(levels) == 4
    for row in levels.itertuples():
        (manifest,) = tmp_path.rglob(f"{row.folder}/manifest.json")
        data = json.loads(manifest.read_text())["identity"]["cells"][0]["data"]
        assert (data["dispersion"], data["facts"]) == (row.dispersion, row.facts)
    for budget in (64, 96):
        drawn(tmp_path, f"dispersion_{budget}")


def test_every_panel_shows_its_lines_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Panels of a row share their scale, the highest line in the last of them too."""
    made: list[Any] = []
    monkeypatch.setattr(figures, "save", lambda figure, *where: made.append(figure))
    common = {"method": "snapkv", "budget": 128, "error": 1.0}
    rows = [
        {**common, "facts": facts, "dispersion": far, "measure": measure, "mean": height}
        for facts, height in ((2, 0.0), (4, 1.0), (8, 47.0))
        for far in (0.0, 1.0)
        for measure in ("score", "retained")
    ]
    figures.dispersion(tmp_path, "dispersion", pd.DataFrame(rows))
    (figure,) = made
    limits = [axis.get_ylim() for axis in figure.axes]
    assert len(limits) == 6
    assert len(set(limits)) == 1
    assert limits[0][0] < 0
    assert limits[0][1] >= 48


def test_only_synthetic_evidence_can_be_dispersed() -> None:
    with pytest.raises(UserError, match="it needs data=synthetic"):
        program.run(composed("experiment=dispersion", "data=jsonl"))


def test_one_example_has_no_interval() -> None:
    row = {"measure": "score", "change": "wide - narrow", "budget": 64, "mean": 5.0, "p": 1.0}
    changes = pd.DataFrame(
        [{**row, "method": method, "low": math.nan, "high": math.nan} for method in ("laq", "echokv", "echokv - laq")]
    )
    (said,) = dispersion._claims(changes, ["laq", "echokv"])
    assert said.endswith("from narrow to wide (budget 64): +5.0 n = 1, no interval")
