"""Joining LongBench records with upstream evidence, on small upstream files in their published forms."""

import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit
from zipfile import ZipFile

import pytest

from eval.inputs.data import REPOSITORY, read_jsonl
from scripts import join_evidence
from tests.hub import COMMIT, serving

ROOT = Path(__file__).resolve().parents[2]

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


PARQUET = {  # what the hub's copies look like: columns within columns, or JSON within a string
    ("hotpotqa/hotpot_qa", "distractor/validation-00000-of-00001.parquet"): {
        "question": ["What did Ada write?", "Another?"],
        "context": [{"title": ["Ada", "Bert"], "sentences": [lines for _, lines in SENTENCES]}] * 2,
        "supporting_facts": [{"title": ["Ada"], "sent_id": [1]}] * 2,
    },
    ("hotpotqa/hotpot_qa", "distractor/train-00000-of-00001.parquet"): {"question": ["not asked for"]},
    ("xanhho/2WikiMultihopQA", "dev.parquet"): {
        "question": ["Who met Ada?"],
        "context": [json.dumps(SENTENCES)],
        "supporting_facts": [json.dumps([["Bert", 0]])],
    },
    ("allenai/qasper", "qasper/train/0000.parquet"): {
        "qas": [{"question": ["Which data?"], "answers": [{"answer": [{"evidence": ["He sang."]}]}]}],
    },
    ("allenai/qasper", "qasper/test/0000.parquet"): {
        "qas": [{"question": ["Which code?"], "answers": [{"answer": [{"evidence": ["Ada was a poet."]}]}]}],
    },
}
ASKED = {  # LongBench's records: of each task one that has a match and one that has none
    "hotpotqa": ["What did Ada write", "Unknown?"],
    "2wikimqa": ["who met Ada?", "Unknown?"],
    "qasper": ["Which code?", "Unknown?"],
    "multifieldqa_en": ["Anything?"],
}


def served() -> dict[str, bytes]:
    """The hub's files by their address."""
    import pandas as pd

    files = {}
    for (repository, path), columns in PARQUET.items():
        file = io.BytesIO()
        pd.DataFrame(columns).to_parquet(file)
        files[f"/datasets/{repository}/resolve/{COMMIT}/{path}"] = file.getvalue()
    archive = io.BytesIO()
    with ZipFile(archive, "w") as packed:
        for subset, asked in ASKED.items():
            lines = [json.dumps(record(number, question)) for number, question in enumerate(asked)]
            packed.writestr(f"data/{subset}.jsonl", "\n".join(lines))
    return files | {f"/datasets/{REPOSITORY}/resolve/main/data.zip": archive.getvalue()}


def listing(address: str, files: dict[str, bytes]) -> Any:
    """What the hub's API says of a repository's revision or tree, None for what it does not know."""
    match = re.fullmatch(r"/api/datasets/([^/]+/[^/]+)/(revision|tree)/(.+)", unquote(urlsplit(address).path))
    known = {repository: [path for own, path in PARQUET if own == repository] for repository, _ in PARQUET}
    if match is None or match[1] not in known:
        return None
    revisions = {revision for repository, _, revision in join_evidence.HUB.values() if repository == match[1]}
    if match[2] == "revision":
        return {"id": match[1], "sha": COMMIT, "siblings": []} if match[3] in revisions else None
    return [
        {"type": "file", "path": path, "size": len(files[f"/datasets/{match[1]}/resolve/{COMMIT}/{path}"]), "oid": path}
        for path in known[match[1]]
    ]


@pytest.fixture
def hub() -> Iterator[tuple[str, dict[str, bytes], list[str]]]:
    """An HTTP server that answers as the hub does: its address, its files, and the files that were asked for."""
    files = served()

    def content(path: str) -> bytes | None:
        found = listing(path, files)
        return json.dumps(found).encode() if found is not None else files.get(unquote(path))

    with serving(content) as (endpoint, asked):
        yield endpoint, files, asked


def from_hub(endpoint: str, folder: Path, *given: str) -> subprocess.CompletedProcess[str]:
    """Run the script against a hub, with a cache of its own."""
    environment = {**os.environ, "HF_ENDPOINT": endpoint, "HF_HOME": str(folder / "home"), "HF_HUB_DISABLE_XET": "1"}
    environment |= {"HF_HUB_DISABLE_PROGRESS_BARS": "1", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, str(ROOT / "scripts" / "join_evidence.py"), "--out", str(folder / "out"), *given]
    return subprocess.run(command, env=environment, capture_output=True, text=True)


def test_everything_from_the_hub(hub: tuple[str, dict[str, bytes], list[str]], tmp_path: Path) -> None:
    endpoint, _, asked = hub
    done = from_hub(endpoint, tmp_path)
    assert done.returncode == 0, done.stderr
    found = {file.stem: read_jsonl(file) for file in (tmp_path / "out").iterdir()}
    assert set(found) == set(ASKED)
    assert [spelt(one) for one in found["hotpotqa"]] == [["She wrote\ncode too."]]
    assert [spelt(one) for one in found["2wikimqa"]] == [["Bert met Ada."]]
    assert [spelt(one) for one in found["qasper"]] == [["Ada was a poet."]]
    assert "evidence" not in found["multifieldqa_en"][0]
    for subset in join_evidence.HUB:
        line = f"{subset}: 1 of 2 records joined (0 with part of their evidence); left out: 1 without a match, 0 whose"
        assert line in done.stdout
    downloaded = {path.rsplit("/", 1)[1] for path in asked if path.startswith("/datasets/")}
    assert downloaded == {"data.zip", "validation-00000-of-00001.parquet", "dev.parquet", "0000.parquet"}
    once = len(asked)
    assert from_hub(endpoint, tmp_path).returncode == 0
    assert not [path for path in asked[once:] if path.startswith("/datasets/")]  # all in the cache


@pytest.mark.parametrize(
    ("flaw", "message"),
    [
        ("unreachable", "cannot get hotpotqa/hotpot_qa from the hub (LocalEntryNotFoundError): check network and"),
        ("gone", "cannot get hotpotqa/hotpot_qa from the hub (RepositoryNotFoundError): check network and"),
        ("renamed", "hotpotqa/hotpot_qa at main has no distractor/validation-*.parquet any more: look for them there"),
        ("damaged", "cannot read"),
    ],
)
def test_a_hub_that_fails_is_one_line(
    flaw: str,
    message: str,
    hub: tuple[str, dict[str, bytes], list[str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    endpoint, files, _ = hub
    (own,) = [key for key in PARQUET if "validation" in key[1]]
    if flaw == "gone":
        for key in [key for key in PARQUET if key[0] == own[0]]:
            monkeypatch.delitem(PARQUET, key)
    elif flaw == "renamed":
        monkeypatch.delitem(PARQUET, own)
    elif flaw == "damaged":
        files[f"/datasets/{own[0]}/resolve/{COMMIT}/{own[1]}"] = b"PAR1 no more"
    (tmp_path / "hotpotqa.jsonl").write_text(json.dumps(record(1, "Q?")))
    given = ["--only", "hotpotqa", "--longbench", str(tmp_path)]
    done = from_hub("http://127.0.0.1:9" if flaw == "unreachable" else endpoint, tmp_path, *given)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: ")
    assert message in line
    assert ("--hotpotqa FILE" in line) == (flaw != "damaged")
