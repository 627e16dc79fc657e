"""What every analysis shares: resuming, one line for wrong input, and how numbers are written down."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from eval.analysis import __main__ as program
from eval.analysis import report, study
from eval.analysis.settings import Ablation, typed
from eval.answering import loading
from eval.console.errors import UserError
from tests.eval.analyses import analyse, read
from tests.test_configs import composed

pytestmark = pytest.mark.usefixtures("whole_figures")


ANALYSES = program.names()
FACTS = "subset=syn_facts"


def test_second_run_measures_nothing(tiny_settings: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    more = ["subset=syn_facts", "method=[snapkv]", "budget=64"]
    analyse("table6", tiny_settings, *more, "limit=1")
    first = read(tmp_path, "table6_examples")
    analyse("table6", tiny_settings, *more)  # one example more
    both = read(tmp_path, "table6_examples")
    assert both[both["_id"].isin(first["_id"])].reset_index(drop=True).equals(first)
    assert both["_id"].nunique() == 2
    monkeypatch.setattr(loading, "load_model", None)
    analyse("table6", tiny_settings, *more)
    assert read(tmp_path, "table6_examples").equals(both)


def test_interrupted_run_goes_on(tiny_settings: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    more = ["subset=syn_facts", "method=[stage1_only]", "budget=64"]
    plain, calls = study.case, []

    def failing(*given: Any) -> Any:
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return plain(*given)

    monkeypatch.setattr(study, "case", failing)
    with pytest.raises(KeyboardInterrupt):
        analyse("table2", tiny_settings, *more)
    analyse("table2", tiny_settings, *more)
    assert len(calls) == 3
    assert read(tmp_path, "table2_examples")["_id"].nunique() == 2


def test_what_does_not_fit_is_left_undone(
    tiny_settings: list[str], short_of_memory: Callable[[Any, str, int], list[int]], capsys: pytest.CaptureFixture[str]
) -> None:
    more = ["subset=syn_facts", "method=[snapkv]", "budget=64"]
    calls = short_of_memory(study, "case", 1)
    with pytest.raises(UserError, match="1 examples are left undone for lack of memory; the others are stored"):
        analyse("table6", tiny_settings, *more)
    assert "does not fit into the device's memory: left undone" in capsys.readouterr().err
    analyse("table6", tiny_settings, *more)
    assert len(calls) == 3


@pytest.fixture
def fail(tiny_settings: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """Run the program in this process and return its one line of error."""

    def call(*arguments: str) -> str:
        first = [word for word in arguments if "=" not in word]
        rest = {word.split("=")[0]: word for word in [*tiny_settings, *arguments] if "=" in word}
        monkeypatch.setattr(sys, "argv", ["analysis", *first, *rest.values()])
        assert program.main() == 1
        lines = capsys.readouterr().err.strip().splitlines()
        assert lines[-1].startswith("error: ")
        return lines[-1].removeprefix("error: ")

    return call


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
        (
            ["table1", FACTS, "analysis.shwon=[1]"],
            "unknown setting 'analysis.shwon': no such field in the chosen conf/exp",
        ),
        (["table1", FACTS, "analysis.shown=[0]"], "analysis.shown is [0]; give a list of steps"),
        (["table1", FACTS, "budget=5000"], "every prompt fits the budget"),
        (["table2", FACTS, "analysis.layers=[0,2]"], "analysis.layers names layer 2; tiny has layers 0 to 1"),
        (["table2", FACTS, "analysis.step=2"], "analysis.step is 2; give a whole number from 3 on"),
        (["table2", FACTS, "analysis.step=9"], "step 9 asked for, the lookahead makes 8"),
        (["table2", FACTS, "method=[laq,echokv]"], "from one method, 2 given: write method=stage1_only"),
        (["ablation_refresh", FACTS, "analysis.against=never"], "analysis.against is 'never', which was not run"),
        (
            ["ablation_refresh", FACTS, "analysis.x=colour"],
            "analysis.x is 'colour', which method frozen has no field of",
        ),
        (["ablation_refresh", FACTS, "analysis.steps=0"], "analysis.steps is 0; give the number of true queries"),
        (["ablation_refresh", FACTS, "analysis.kind=ablatoin"], "analysis.kind is 'ablatoin'; did you mean ablation"),
        (["dispersion", "analysis.dispersions=[1.0]"], "two at least make a comparison"),
        (["dispersion", "analysis.facts=[4,4]"], "analysis.facts is [4, 4]; give a list of different numbers"),
        (["dispersion", "analysis.facts=[few]"], 'analysis.facts is ["few"]; give a list of different numbers'),
        (["dispersion", "analysis.dispersions=[0,2]"], "data.dispersion is 2.0; give a number from 0 (together) to 1"),
        (["dispersion", "analysis.compare=[echokv]"], 'analysis.compare is ["echokv"]; give two methods'),
        (["dispersion", "subset=syn_trec"], "the evidence of syn_trec cannot be dispersed: choose subset=syn_facts"),
        (["dispersion", "subset=syn_hops"], "syn_hops has two pieces of evidence, analysis.facts is [2, 4, 8]"),
        (["forensics", FACTS], "row 3:laq@128 has none of syn_facts"),
        (["forensics", FACTS, "analysis.row=3:lak@128"], "analysis.row is '3:lak@128'; name a printed row"),
        (["table6", FACTS, "analysis.stand_in=[multifieldqa]"], "unknown subset 'multifieldqa'"),
    ],
)
def test_wrong_input_is_one_line(arguments: list[str], message: str, fail: Any) -> None:
    assert message in fail(*arguments, "limit=1")


def test_answers_that_end_too_early(fail: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where every token is a stop id, the lookahead makes one step."""
    from eval.inputs import asked

    monkeypatch.setattr(asked, "stop_ids", lambda *_: frozenset(range(300)))
    said = fail("table1", FACTS, "limit=1", "budget=64")
    assert said.startswith("step 8 lies beyond the end of every answer, the longest has 1 steps")
    said = fail("table2", FACTS, "limit=1", "budget=64")
    assert said.startswith("step 3 lies beyond the end of every answer")


def test_every_analysis_has_its_section() -> None:
    assert {"table1", "table2", "table6", "dispersion", "forensics"} < set(ANALYSES)
    for name in ANALYSES:
        config = composed(f"experiment={name}")
        assert config.analysis is not None
        options = typed(config.analysis)
        assert options.name == name
        if isinstance(options, Ablation):
            assert set(options.against) <= set(config.methods)


def test_summary_by_hand() -> None:
    frame = pd.DataFrame({"a": ["x", "x", "x", "y"], "v": [1.0, 2.0, 6.0, 5.0]})
    table = report.summarise(frame, ["a"], "v").set_index("a")
    assert table.loc["x", "mean"] == 3
    assert table.loc["x", "error"] == pytest.approx((7 / 3) ** 0.5)
    assert table.loc["y", "n"] == 1
    assert np.isnan(table.loc["y", "error"])
    assert report.number(0.5, float("nan"), 2) == "0.50"
    assert [report.number(value, 0.25, 1, "+") for value in (0.5, -0.5)] == ["+0.5 ± 0.2", "-0.5 ± 0.2"]


def test_markdown_is_shown_as_it_is() -> None:
    text = report.markdown(pd.DataFrame({"a_b": ["x|y"]}), "One [1]", ["A *note*"])
    assert text == "One \\[1\\]\n\n| a\\_b |\n| --- |\n| x\\|y |\n\nA \\*note\\*\n"
