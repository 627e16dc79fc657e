"""A metric of the user's own: a function that a subset's YAML names by its import path."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from eval import score
from eval.answering import runner
from eval.console import conf
from eval.console.errors import UserError
from eval.inputs import subsets
from eval.scoring import memory, official
from eval.scoring import rows as plain
from tests.eval.inputs.test_examples import records
from tests.test_configs import composed

CODE = '''
def initial(prediction, answer, classes=None):
    """1 if both begin alike."""
    return float(prediction[:1] == answer[:1])


def broken(prediction, answer, classes=None):
    return prediction.no_such_thing


def percent(prediction, answer, classes=None):
    return 100
'''


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "my_metrics.py"
    path.write_text(CODE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "my_metrics", raising=False)
    return path


@pytest.fixture
def task(tmp_path: Path, module: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A task of one's own that is scored by `initial`."""
    shutil.copytree(conf.CONF / "subsets", tmp_path / "conf" / "subsets")
    shutil.copy(conf.CONF / "longbench_e.yaml", tmp_path / "conf")
    settings = yaml.safe_load((conf.CONF / "subsets" / "qasper.yaml").read_text())
    settings |= {"name": "city", "records": None, "template": "{context}\n{input}", "metric": "my_metrics.initial"}
    (tmp_path / "conf" / "subsets" / "city.yaml").write_text(json.dumps(settings))
    monkeypatch.setattr(conf, "CONF", tmp_path / "conf")
    subsets._read.cache_clear()
    yield "city"
    subsets._read.cache_clear()


def test_it_scores_a_run_and_files_of_predictions(
    task: str, tiny_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = records(tmp_path / "own", subset=task)
    where = ["data=jsonl", f"data.path={own}", f"results={tmp_path / 'results'}"]
    runner.run(composed(f"model.name={tiny_folder}", "model.label=tiny", *where))
    assert "city" in capsys.readouterr().out
    rows = [{"pred": pred, "answers": ["Ann"], "all_classes": None, "length": 1} for pred in ("Al", "Bo", "Ada", "A")]
    (tmp_path / "city.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert score.main([str(tmp_path / "city.jsonl")]) == 0
    assert " 75.00" in capsys.readouterr().out


def test_kept_scores_are_those_of_the_code_as_it_is(task: str, module: Path, tmp_path: Path) -> None:
    rows = [{"pred": "Al", "answers": ["Ann"], "all_classes": None}]
    subset, kept = subsets.load(task), tmp_path / "scores"
    assert memory.points(kept, subset, rows, "difflib") == [100.0]
    module.write_text(CODE.replace("prediction[:1] ==", "prediction[:2] =="))
    del sys.modules["my_metrics"]
    assert memory.points(kept, subset, rows, "difflib") == [0.0]
    module.write_text(CODE + "# a remark\n")
    del sys.modules["my_metrics"]
    assert memory.points(kept, subset, rows, "difflib") == [100.0]


def test_each_score_is_computed_once(task: str, module: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [{"pred": pred, "answers": ["Ann"], "all_classes": None} for pred in ("Al", "Bo")]
    subset, kept, real, computed = subsets.load(task), tmp_path / "scores", plain.points, []
    monkeypatch.setattr(plain, "points", lambda own, some, edit: computed.append(len(some)) or real(own, some, edit))
    for _ in range(2):
        assert memory.points(kept, subset, rows, "difflib") == [100.0, 0.0]
    assert computed == [2]
    memory.points(kept, subset, [{**rows[0], "all_classes": ["Ann"]}, *rows], "difflib")
    assert computed == [2, 1], "a metric is given the classes too"
    monkeypatch.setattr(memory, "distributions", list)
    memory.points(kept, subset, rows, "difflib")
    assert computed == [2, 1, 2], "a package that it may import has changed"


@pytest.mark.parametrize(
    ("name", "says"),
    [
        (
            "my_metrics.broken",
            "metric my_metrics.broken: AttributeError: 'str' object has no attribute",
        ),
        ("my_metrics.percent", "metric my_metrics.percent gave 100 to a prediction for city; give 0 to 1"),
        ("my_metrics.nothing", "metric: my_metrics has no nothing"),
        ("no_such_module.f", "metric: cannot import no_such_module"),
        ("f1", "unknown metric 'f1'; did you mean qa_f1"),
    ],
)
def test_wrong_ones_are_told_in_one_line(task: str, name: str, says: str) -> None:
    from dataclasses import replace

    with pytest.raises(UserError) as refused:
        official.score("a", ["a"], replace(subsets.load(task), metric=name))
    assert says in str(refused.value)


def test_an_unknown_metric_is_told_before_anything_is_answered(task: str, tmp_path: Path) -> None:
    path = tmp_path / "conf" / "subsets" / "city.yaml"
    path.write_text(path.read_text().replace("my_metrics.initial", "f1"))
    own = records(tmp_path / "own", subset=task)
    with pytest.raises(UserError, match="_id 'a': unknown metric 'f1'; did you mean qa_f1"):
        runner.run(composed("data=jsonl", f"data.path={own}", f"results={tmp_path / 'results'}"))
