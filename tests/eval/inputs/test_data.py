"""Reading records: real files, a stand-in for the hub, and every kind of bad content told in one line."""

from __future__ import annotations

import gzip
import json
import logging
import os
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eval.console.errors import UserError
from eval.inputs import data, jsonlines, subsets
from eval.inputs.sources import longbench
from tests.hub import COMMIT, serving

RECORD: dict[str, Any] = {
    "_id": "a",
    "input": "Who?",
    "context": "Ann did.",
    "answers": ["Ann"],
    "length": 3,
    "dataset": "qasper",
    "language": "en",
    "all_classes": None,
}


def dump(*records: dict[str, Any]) -> bytes:
    return "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records).encode()


def test_real_records(shared: Path) -> None:
    for path in sorted((shared / "longbench").glob("*.jsonl")):
        found = data.load_folder(path.parent, path.stem)
        assert len(found.records) == path.read_bytes().count(b"\n")
        assert found.warning is not None
        assert f"{len(found.records)} of {subsets.load(path.stem).records} official" in found.warning
        assert found.sha256 == sha256(path.read_bytes()).hexdigest()
    assert any("\r" in record["context"] for record in data.load_folder(path.parent, "samsum").records)


def test_evidence_of_real_records_is_a_list_of_spans(shared: Path) -> None:
    for record in data.read_jsonl(shared / "evidence" / "hotpotqa.jsonl"):
        assert record["evidence"]
        for start, end in record["evidence"]:
            assert record["context"][start:end].strip()


@given(st.text(min_size=1).filter(str.strip), st.text())
def test_only_newlines_end_a_line(context: str, question: str) -> None:
    record = {**RECORD, "context": context + "\u2028\x85\r\x0b", "input": question}
    assert data.parse_records(dump(record, {**RECORD, "_id": "b"}), "x")[0] == record


def test_a_full_subset_has_no_warning() -> None:
    records = [{**RECORD, "_id": str(i)} for i in range(200)]
    for count, warned in ((200, False), (199, True)):
        content = dump(*records[:count])
        assert (data._loaded(content, "x", "", "qasper").warning is not None) == warned


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"", "file is empty"),
        (b"\n\n", "file is empty"),
        (b'{"_id": ', "line 1: not JSON"),
        (dump(RECORD) + b"[]\n", "line 2: expected a JSON object, found list"),
        (dump(RECORD) + b'{"_id": "\xff"}', "line 2: not UTF-8"),
        (dump(RECORD).replace(b'"length": 3', b'"length": NaN'), "NaN is no JSON number"),
        (dump(RECORD, RECORD), "line 2: _id 'a' is already that of line 1"),
        (dump({k: v for k, v in RECORD.items() if k not in ("input", "length")}), "no input, length"),
        (b"[" * 100_000, "line 1: not JSON"),
    ],
)
def test_bad_files_are_told(content: bytes, complaint: str) -> None:
    with pytest.raises(UserError, match=complaint) as caught:
        data.parse_records(content, "file.jsonl")
    assert str(caught.value).startswith("file.jsonl")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("_id", ""),
        ("_id", 3.5),
        ("_id", True),
        ("_id", None),
        ("input", None),
        ("context", ""),
        ("context", " \n"),
        ("answers", "Ann"),
        ("answers", []),
        ("answers", [1]),
        ("answers", None),
        ("length", -1),
        ("length", True),
        ("length", "3"),
        ("language", 1),
        ("all_classes", "Ann"),
        ("evidence", [[0, 9]]),
        ("evidence", [[3, 3]]),
        ("evidence", [[-1, 3]]),
        ("evidence", [["0", "3"]]),
        ("evidence", [{"start": 0}]),
    ],
)
def test_a_wrong_field_is_told(key: str, value: Any) -> None:
    with pytest.raises(UserError, match=f"x, line 1: {key} must be"):
        data.parse_records(dump({**RECORD, key: value}), "x")


def test_both_forms_of_evidence() -> None:
    spans = [[0, 3], {"start": 4, "end": 8, "title": "Ann"}]
    assert data.parse_records(dump({**RECORD, "evidence": spans}), "x")[0]["evidence"] == [[0, 3], [4, 8]]


def archive(path: Path, **members: bytes) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as made:
        for name, content in members.items():
            made.writestr(name, content)
    return path


def test_folders_zips_and_single_files_hold_the_same(tmp_path: Path) -> None:
    (tmp_path / "official" / "data").mkdir(parents=True)
    (tmp_path / "official" / "data" / "qasper.jsonl").write_bytes(dump(RECORD))
    (tmp_path / "one.jsonl").write_bytes(dump(RECORD))
    packed = archive(tmp_path / "data.zip", **{"data/qasper.jsonl": dump(RECORD), "../../evil.jsonl": b"no"})
    for path in (tmp_path / "official", tmp_path / "official" / "data", tmp_path / "one.jsonl", packed):
        assert data.load_folder(path, "qasper").records == (RECORD,)
    assert data.load_folder(packed, "qasper").sha256 == sha256(packed.read_bytes()).hexdigest()
    assert {path.name for path in tmp_path.iterdir()} == {"official", "one.jsonl", "data.zip"}


def test_places_without_the_subset_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "qasper.jsonl").write_bytes(dump(RECORD))
    packed = archive(tmp_path / "data.zip", **{"data/qasper.jsonl": dump(RECORD)})
    for path, subset, complaint in (
        (tmp_path, "lcc", "no lcc.jsonl; known: qasper"),
        (tmp_path, "qaspr", "unknown subset 'qaspr'; did you mean qasper"),
        (packed, "lcc", "data.zip: no lcc.jsonl; known: qasper"),
        (tmp_path / "none", "lcc", "No such file"),
        (tmp_path / "none.zip", "lcc", "No such file"),
    ):
        with pytest.raises(UserError, match=complaint):
            data.load_folder(path, subset)
    (tmp_path / "bad.zip").write_bytes(packed.read_bytes()[:-30])
    with pytest.raises(UserError, match="not a readable zip"):
        data.load_folder(tmp_path / "bad.zip", "qasper")
    content = bytearray(packed.read_bytes())
    content[60] ^= 0xFF  # in the compressed bytes
    (tmp_path / "bad.zip").write_bytes(content)
    with pytest.raises(UserError, match="not a readable zip"):
        data.load_folder(tmp_path / "bad.zip", "qasper")
    monkeypatch.setattr(jsonlines, "LIMIT", 50)
    with pytest.raises(UserError, match="unpacks to more than"):
        data.load_folder(packed, "qasper")


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[str]:
    """Serve a data.zip the way the hub does, and nothing else."""
    body = archive(tmp_path / "served.zip", **{"data/qasper.jsonl": dump(RECORD)}).read_bytes()
    path = f"/datasets/{data.REPOSITORY}/resolve/main/data.zip"
    with serving(lambda asked: body if asked == path else None) as (endpoint, _):
        yield endpoint


def of_the_hub(subset: str, revision: str = "main", **where: Any) -> data.Loaded:
    path = longbench.archive(data.REPOSITORY, revision, **where)
    return longbench.of_archive(path, subset, data.REPOSITORY)


def test_the_hubs_archive(hub: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = tmp_path / "cache"
    found = of_the_hub("qasper", cache=cache, endpoint=hub)
    assert found.records == (RECORD,)
    assert found.sha256 == sha256((tmp_path / "served.zip").read_bytes()).hexdigest()
    assert found.source == f"{data.REPOSITORY}@{COMMIT}:data/qasper.jsonl"
    with pytest.raises(UserError, match=r"cannot get data\.zip .* at v9 .*data\.path="):
        of_the_hub("qasper", revision="v9", cache=cache, endpoint=hub)
    with pytest.raises(UserError, match=r"no lcc\.jsonl; known: qasper"):
        of_the_hub("lcc", cache=cache, endpoint=hub)

    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert of_the_hub("qasper", cache=cache, endpoint=hub) == found  # from the cache
    with pytest.raises(UserError, match=r"cannot get data\.zip .*data=jsonl data\.path="):
        of_the_hub("qasper", cache=tmp_path / "empty", endpoint=hub)


def test_what_the_hub_tries_again_is_not_told(hub: str, tmp_path: Path) -> None:
    """Of a hub out of reach one line is told; its client sets the level of its log when it is imported."""
    logging.getLogger("huggingface_hub").setLevel(logging.WARNING)
    of_the_hub("qasper", cache=tmp_path / "cache", endpoint=hub)
    assert not logging.getLogger("huggingface_hub.utils._http").isEnabledFor(logging.WARNING)


def test_the_environments_hub_is_used(hub: str, tmp_path: Path) -> None:
    code = "from eval.inputs.sources.longbench import LongBench; print(LongBench().read('qasper').source)"
    environment = {**os.environ, "HF_ENDPOINT": hub, "HF_HOME": str(tmp_path / "home")}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == f"{data.REPOSITORY}@{COMMIT}:data/qasper.jsonl"


def test_a_zip_is_what_it_holds(tmp_path: Path) -> None:
    members = {
        "records/qasper.jsonl": dump(RECORD),
        "hotpotqa_e.jsonl.gz": gzip.compress(dump(RECORD)),
        "a/b/lcc.jsonl": b"",
    }
    packed = archive(tmp_path / "some.zip", **members, **{"__MACOSX/._qasper.jsonl": b"x", "README.md": b""})
    assert data.present(packed) == ("qasper", "hotpotqa_e")
    for name in data.present(packed):
        assert data.load_folder(packed, name).records == (RECORD,)
    with pytest.raises(UserError, match=r"none\.zip holds no SUBSET\.jsonl of a known subset \(but mine\.jsonl\)"):
        data.present(archive(tmp_path / "none.zip", **{"mine.jsonl": dump(RECORD)}))
    twice = archive(tmp_path / "twice.zip", **{"data/qasper.jsonl": b"", "qasper.jsonl": b""})
    with pytest.raises(UserError, match=r"2 files for qasper \(data/qasper\.jsonl, qasper\.jsonl\)"):
        data.load_folder(twice, "qasper")


def test_packed_files_and_byte_order_marks(tmp_path: Path) -> None:
    (tmp_path / "qasper.jsonl.gz").write_bytes(gzip.compress(b"\xef\xbb\xbf" + dump(RECORD)))
    assert data.present(tmp_path) == data.present(tmp_path / "qasper.jsonl.gz") == ("qasper",)
    for place in (tmp_path, tmp_path / "qasper.jsonl.gz"):
        assert data.load_folder(place, "qasper").records == (RECORD,)
    (tmp_path / "qasper.jsonl").write_bytes(dump(RECORD))
    with pytest.raises(UserError, match=r"qasper\.jsonl and qasper\.jsonl\.gz are both there"):
        data.load_folder(tmp_path, "qasper")
    (tmp_path / "lcc.jsonl.gz").write_bytes(b"plain")
    with pytest.raises(UserError, match="not a readable gzip"):
        data.load_folder(tmp_path / "lcc.jsonl.gz", "lcc")


def test_an_id_may_be_a_number() -> None:
    records = data.parse_records(dump({**RECORD, "_id": 7}, {**RECORD, "_id": "8"}), "x")
    assert [record["_id"] for record in records] == ["7", "8"]
    with pytest.raises(UserError, match="line 2: _id '7' is already that of line 1"):
        data.parse_records(dump({**RECORD, "_id": 7}, {**RECORD, "_id": "7"}), "x")
