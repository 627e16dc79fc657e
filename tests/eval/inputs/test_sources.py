"""Sources of records: the three that are there, and one of the user's own."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from eval.answering import runner
from eval.console.errors import UserError
from eval.inputs import sources
from eval.planning.data import read
from tests.test_configs import composed

OWN = '''
from eval.inputs.data import Loaded


class Words:
    """Records of one word each."""

    name = "words"

    def __init__(self, many, word="river"):
        self.many, self.word = many, word
        self.identity = {"source": "words", "word": word}

    def subsets(self):
        return ["hotpotqa"]

    def read(self, subset):
        record = {"input": "Which word?", "context": f"The word is {self.word}. " * 9, "answers": [self.word]}
        about = {"length": 36, "dataset": subset, "language": "en", "all_classes": None}
        return Loaded(tuple({"_id": str(n), **record, **about} for n in range(self.many)), "words", "0" * 64, None)
'''


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The settings that choose a source of one's own."""
    (tmp_path / "my_words.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "my_words", raising=False)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "words.yaml").write_text("_target_: my_words.Words\nmany: 2\n")
    return [f"hydra.searchpath=[file://{tmp_path}]", "data=words"]


def test_a_source_of_ones_own(own: list[str], tiny_folder: Path, tmp_path: Path) -> None:
    results = tmp_path / "results"
    runner.run(composed(*own, f"model.name={tiny_folder}", "model.label=tiny", f"results={results}", "+data.word=lake"))
    (run,) = results.glob("words/tiny/*/manifest.json")
    assert '"word": "lake"' in run.read_text()
    assert sum(len(path.read_text().splitlines()) for path in run.parent.glob("*.jsonl")) == 2


def test_settings_that_the_class_does_not_take(own: list[str]) -> None:
    with pytest.raises(UserError, match=r"data source my_words\.Words: .*unexpected keyword argument 'letters'"):
        read(composed(*own, "+data.letters=3"))


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("nothing", "data._target_: 'nothing' is no import path"),
        ("no_such.module.X", "data._target_: cannot import no_such.module"),
        ("pathlib.Nope", "data._target_: pathlib has no Nope"),
        ("pathlib.PurePath", "data source pathlib.PurePath has no identity, subsets, read"),
    ],
)
def test_what_is_no_source(path: str, says: str) -> None:
    with pytest.raises(UserError) as refused:
        sources.made(path, {})
    assert says in str(refused.value)
