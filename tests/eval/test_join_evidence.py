"""Joining LongBench records with upstream evidence, on small upstream files in their published forms."""

import json
from pathlib import Path
from typing import Any

import pytest

from eval.errors import UserError
from scripts import join_evidence

CONTEXT = "Passage 1:\nAda\nAda was a poet.  She wrote\ncode too.\nPassage 2:\nBert\nBert met Ada. He sang."
SENTENCES = [["Ada", ["Ada was a poet.", " She wrote code too."]], ["Bert", ["Bert met Ada.", " He sang."]]]


def record(number: int, question: str, context: str = CONTEXT) -> dict[str, Any]:
    return {
        "_id": str(number), "input": question, "context": context, "answers": ["code"], "length": 20,
        "dataset": "hotpotqa", "language": "en", "all_classes": None,
    }  # fmt: skip


def hotpot(question: str, facts: list[list[Any]]) -> dict[str, Any]:
    return {"question": question, "context": SENTENCES, "supporting_facts": facts}


def spelt(one: dict[str, Any]) -> list[str]:
    return [one["context"][start:end] for start, end in one["evidence"]]


def test_multi_hop_by_question() -> None:
    items = [hotpot("What did Ada write?", [["Ada", 1], ["Bert", 0]]), hotpot("Another?", [["Ada", 0]])]
    records = [record(1, " what did  Ada write "), record(2, "Unknown?")]
    joined = join_evidence.join(records, join_evidence.questions("hotpotqa", items))
    assert (joined.unmatched, joined.unfound, joined.partly) == (1, 0, 0)
    (one,) = joined.records
    assert spelt(one) == ["She wrote\ncode too.", "Bert met Ada."]
    assert {key: value for key, value in one.items() if key != "evidence"} == records[0]
    assert "evidence" not in records[0]


def test_columns_and_packed_strings_read_the_same() -> None:
    rows = hotpot("Q?", [["Ada", 1], ["Bert", 7]])  # the second points past its paragraph, as some published ones do
    columns = {
        "question": "Q?",
        "context": {"title": ["Ada", "Bert"], "sentences": [lines for _, lines in SENTENCES]},
        "supporting_facts": {"title": ["Ada", "Bert"], "sent_id": [1, 7]},
    }
    packed = {**rows, "context": json.dumps(SENTENCES), "supporting_facts": json.dumps(rows["supporting_facts"])}
    forms = [list(join_evidence.questions("2wikimqa", [form])) for form in (rows, columns, packed)]
    assert forms[0] == forms[1] == forms[2]
    assert forms[0][0].texts == (" She wrote code too.",)


def test_of_equal_questions_the_one_with_found_evidence() -> None:
    qasper = {
        "a": {"qas": [{"question": "Which data?", "answers": [{"answer": {"evidence": ["Not in this paper."]}}]}]},
        "b": {
            "qas": {
                "question": ["Which data?"],
                "answers": [{"answer": [{"evidence": ["Bert met Ada.", "FLOAT SELECTED: Table 1"]}]}],
            }
        },
    }
    upstream = join_evidence.questions("qasper", qasper.values())
    (one,) = join_evidence.join([record(1, "Which data?")], upstream).records
    assert spelt(one) == ["Bert met Ada."]


def test_what_is_lost_is_counted() -> None:
    items = [hotpot("Partly?", [["Ada", 0], ["Bert", 1]]), hotpot("Gone?", [["Ada", 0]])]
    records = [record(1, "Partly?", "Nothing but: He sang."), record(2, "Gone?", "Nothing."), record(3, "New?")]
    joined = join_evidence.join(records, join_evidence.questions("hotpotqa", items))
    assert (len(joined.records), joined.unmatched, joined.unfound, joined.partly) == (1, 1, 1, 1)


def test_touching_spans_become_one() -> None:
    assert join_evidence.merged([[5, 9], [0, 3], [3, 4], [6, 7]]) == [[0, 4], [5, 9]]


def test_command_writes_records_that_the_harness_reads(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from eval.data import read_jsonl

    (tmp_path / "lb").mkdir()
    (tmp_path / "lb" / "hotpotqa.jsonl").write_text(
        json.dumps(record(1, "Q?")) + "\n" + json.dumps(record(2, "R?")) + "\n"
    )
    (tmp_path / "hotpot.json").write_text(json.dumps([hotpot("Q?", [["Ada", 0]])]))
    given = ["--longbench", str(tmp_path / "lb"), "--out", str(tmp_path / "out"), "--only", "hotpotqa"]
    assert join_evidence.main([*given, "--hotpotqa", str(tmp_path / "hotpot.json")]) == 0
    assert "hotpotqa: 1 of 2 records joined" in capsys.readouterr().out
    (one,) = read_jsonl(tmp_path / "out" / "hotpotqa.jsonl")
    assert spelt(one) == ["Ada was a poet."]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[{}]", "item 1 is not of the data set's published form"),
        ("{", "cannot read"),
        ('[{"question": "Z?", "context": [], "supporting_facts": []}]', "no record joined"),
    ],
)
def test_wrong_files_are_one_line(
    content: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "hotpotqa.jsonl").write_text(json.dumps(record(1, "Q?")) + "\n")
    (tmp_path / "up.json").write_text(content)
    given = ["--longbench", str(tmp_path), "--out", str(tmp_path / "out"), "--only", "hotpotqa"]
    assert join_evidence.main([*given, "--hotpotqa", str(tmp_path / "up.json")]) == 1
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert line.startswith("error: ")
    assert message in line


def test_real_supporting_facts_are_found_again(shared: Path) -> None:
    """Records whose spans are known, given upstream sentences alone, get the same spans back."""
    file = shared / "evidence" / "hotpotqa.jsonl"
    if not file.is_file():
        pytest.skip("the shared folder holds no evidence/hotpotqa.jsonl")
    same = total = 0
    for line in file.read_text(encoding="utf-8").split("\n")[:100]:
        if not line:
            continue
        one = json.loads(line)
        facts = [[fact["title"], fact["sent_id"]] for fact in one["evidence"]]
        lines: dict[str, list[str]] = {title: [""] * 50 for title, _ in facts}
        for fact in one["evidence"]:
            lines[fact["title"]][fact["sent_id"]] = fact["text"]
        item = {"question": one["input"], "context": list(lines.items()), "supporting_facts": facts}
        joined = join_evidence.join([one], join_evidence.questions("hotpotqa", [item]))
        known = join_evidence.merged([fact["start"], fact["end"]] for fact in one["evidence"])
        same += joined.records[0]["evidence"] == known
        total += 1
    assert same >= 0.98 * total


def test_missing_hub_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    import datasets

    def fail(*_given: Any, **_named: Any) -> None:
        raise ConnectionError("no route")

    monkeypatch.setattr(datasets, "load_dataset", fail)
    with pytest.raises(UserError, match=r"cannot get hotpotqa/hotpot_qa from the hub .*--hotpotqa FILE"):
        join_evidence.from_hub("hotpotqa")
