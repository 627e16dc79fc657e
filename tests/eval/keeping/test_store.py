"""The store: nothing lost, doubled or mixed."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eval.console.errors import UserError
from eval.keeping.manifests import digest
from eval.keeping.reading import parts, readable
from eval.keeping.store import RunKey, Store
from eval.merge import merge

texts = st.text(alphabet=st.characters(codec="utf-8"), max_size=40)


def key(**identity: Any) -> RunKey:
    return RunKey("synthetic", "tiny", "snapkv", 128, {"protocol": "a", **identity})


def answer(name: str, pred: str = "x") -> dict[str, Any]:
    return {"_id": name, "pred": pred}


def filled(root: Path, names: list[str]) -> Store:
    store = Store(root, key())
    for name in names:
        store.append("qasper", answer(name), {"versions": {}})
    return store


@given(st.lists(st.tuples(texts, texts), max_size=12, unique_by=lambda pair: pair[0]), st.data())
@settings(deadline=None, max_examples=40)
def test_any_split_over_processes_reads_back(
    tmp_path_factory: pytest.TempPathFactory, pairs: list[tuple[str, str]], data: st.DataObject
) -> None:
    root = tmp_path_factory.mktemp("store")
    stores = [Store(root, key()) for _ in range(3)]
    for name, pred in pairs:
        data.draw(st.sampled_from(stores)).append("qasper", answer(name, pred), {})
    found = Store(root, key()).answers("qasper")
    assert {name: found[name]["pred"] for name in found} == dict(pairs)


@given(
    st.recursive(
        st.none() | st.floats(allow_nan=False) | st.text(),
        lambda one: st.lists(one) | st.dictionaries(st.text(), one),
        max_leaves=6,
    ),
    st.booleans(),
)
def test_what_is_read_to_be_shown_can_be_written(value: Any, ascii_only: bool) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only)
    assert json.loads(text) == value
    found = readable(text)
    json.dumps(found, ensure_ascii=False).encode("utf-8")
    assert found == value


def test_half_of_a_pair_is_read_as_the_replacement_character() -> None:
    assert readable(r'{"a": ["x\ud800y\udfff", "\ud83d\ude00"], "\udc00": 1.5}') == {
        "a": ["x\ufffdy\ufffd", "😀"],
        "\ufffd": 1.5,
    }


def test_file_cut_at_every_byte_of_its_last_line_loses_that_line_alone(tmp_path: Path) -> None:
    store = filled(tmp_path, ["first", "sécond"])
    (path,) = parts(store.folder, "qasper")
    content = path.read_bytes()
    for length in range(content.index(b"\n") + 1, len(content)):
        path.write_bytes(content[:length])
        assert list(Store(tmp_path, key()).answers("qasper")) == ["first"]
    again = Store(tmp_path, key())
    again.append("qasper", answer("sécond"), {})
    assert sorted(Store(tmp_path, key()).answers("qasper")) == ["first", "sécond"]
    assert path.read_bytes() == content[:-1], "the torn file itself stays as it was"


def test_two_writers_never_share_a_file(tmp_path: Path) -> None:
    one, two = Store(tmp_path, key()), Store(tmp_path, key())
    one.append("qasper", answer("a", "from one"), {})
    two.append("qasper", answer("a", "from two"), {})
    assert len(parts(one.folder, "qasper")) == 2
    first = parts(one.folder, "qasper")[0].read_text()
    assert Store(tmp_path, key()).answers("qasper") == {"a": json.loads(first)}


def test_subsets_with_a_common_beginning_stay_apart(tmp_path: Path) -> None:
    store = Store(tmp_path, key())
    store.append("qasper_e", answer("e"), {})
    store.append("qasper", answer("a"), {})
    assert list(store.answers("qasper")) == ["a"]
    assert list(store.answers("qasper_e")) == ["e"]


def test_a_broken_line_in_the_middle_is_told(tmp_path: Path) -> None:
    store = filled(tmp_path, ["a"])
    (path,) = parts(store.folder, "qasper")
    path.write_bytes(b"\xff\xfe\n" + path.read_bytes())
    with pytest.raises(UserError, match="line 1: not a stored answer"):
        Store(tmp_path, key()).answers("qasper")


def test_manifest_says_what_made_the_answers(tmp_path: Path) -> None:
    store = filled(tmp_path, ["a"])
    assert json.loads((store.folder / "manifest.json").read_text())["identity"] == {"protocol": "a"}
    assert len(list((store.folder / "runs").glob("*.json"))) == 1


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"format": 0, "identity": {"protocol": "a"}}', "format 0, this version writes format 1"),
        ('{"format": 1, "identity": {"protocol": "b"}}', "names other settings"),
        ("{", "unreadable"),
        ("[]", "unreadable"),
    ],
)
def test_foreign_folder_is_refused(tmp_path: Path, content: str, message: str) -> None:
    store = filled(tmp_path, ["a"])
    (store.folder / "manifest.json").write_text(content)
    with pytest.raises(UserError, match=message):
        Store(tmp_path, key())


def test_full_disk_is_told_and_keeps_what_is_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(tmp_path, key())
    store.append("qasper", answer("a"), {})
    write = os.write

    def full(file: int, content: bytes) -> int:
        if len(content) < 10:
            raise OSError(28, "No space left on device")
        return write(file, content[:10])

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(UserError, match="no space left"):
        store.append("qasper", answer("b"), {})
    monkeypatch.undo()
    assert list(Store(tmp_path, key()).answers("qasper")) == ["a"]


def test_unwritable_folder_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="choose a writable folder"):
        Store(tmp_path / "file", key()).append("qasper", answer("a"), {})


@given(st.dictionaries(texts, st.integers() | texts | st.none(), max_size=5))
def test_digest_ignores_the_order_of_keys(values: dict[str, Any]) -> None:
    assert digest(values) == digest(dict(reversed(values.items())))


def of_kernel(root: Path, dtype: str, *names: str) -> Store:
    """A store to which processes with these prefill kernels have appended, one after the other."""
    for name in names:
        store = Store(root, key(model={"dtype": dtype}))
        store.append("qasper", answer(name), {"attention": name})
    return store


def test_half_precision_answers_of_two_prefill_kernels_are_not_one_result(tmp_path: Path) -> None:
    store = of_kernel(tmp_path, "float16", "flash", "flash")
    with pytest.raises(UserError, match=r"kernel flash; this is cpu, which rounds .* model\.dtype=float32"):
        store.refuse_other_rounding({"attention": "cpu"})
    with pytest.raises(UserError, match="kernel flash; this is cpu"):
        of_kernel(tmp_path, "float16", "cpu")
    assert set(store.answers("qasper")) == {"flash"}
    of_kernel(tmp_path, "float32", "flash", "cpu")  # to float32's rounding they are
    store.refuse_other_rounding({})  # an earlier version named none


def test_merging_half_precision_answers_of_two_kernels_is_refused(tmp_path: Path) -> None:
    for name in ("flash", "cpu", "float32/flash", "float32/cpu"):
        of_kernel(tmp_path / name, "float32" if "/" in name else "bfloat16", Path(name).name)
    merge(tmp_path / "float32/flash", tmp_path / "float32/cpu")
    with pytest.raises(UserError, match="kernel cpu; this is flash"):
        merge(tmp_path / "flash", tmp_path / "cpu")
    assert set(Store(tmp_path / "cpu", key(model={"dtype": "bfloat16"})).answers("qasper")) == {"cpu"}


def decoded_by(root: Path, rows: int | None, dtype: str = "float16") -> Store:
    """A store with an answer of a process that decoded so many as one batch."""
    store = Store(root, key(model={"dtype": dtype}))
    store.append("qasper", answer(str(rows)), {"attention": "flash", "decode_rows": rows})
    return store


def test_half_precision_answers_of_two_batches_are_not_one_result(tmp_path: Path) -> None:
    store = decoded_by(tmp_path, 56)
    store.refuse_other_rounding({"attention": "flash", "decode_rows": 56})
    store.refuse_other_rounding({"attention": "flash"})  # what an analysis measures decodes nothing
    for rows, said in ((None, "one example"), (152, "152")):
        with pytest.raises(UserError, match=rf"those of 56 were decoded as one batch, here of {said}, which rounds"):
            decoded_by(tmp_path, rows)
    assert set(store.answers("qasper")) == {"56"}
    decoded_by(tmp_path, 56)  # what was refused has left no note
    for rows in (56, None):
        decoded_by(tmp_path / "exact", rows, "float32")


def test_merging_half_precision_answers_of_two_batches_is_refused(tmp_path: Path) -> None:
    for rows in (56, None):
        decoded_by(tmp_path / str(rows), rows)
        decoded_by(tmp_path / "float32" / str(rows), rows, "float32")
    merge(tmp_path / "float32/56", tmp_path / "float32/None")
    with pytest.raises(UserError, match="those of one example were decoded as one batch, here of 56"):
        merge(tmp_path / "56", tmp_path / "None")
    store = Store(tmp_path / "None", key(model={"dtype": "float16"}))
    assert set(store.answers("qasper")) == {"None"}
    (noted,) = store.folder.glob("runs/*.json")
    noted.write_text("{}")  # an earlier version, which decoded one example at a time
    with pytest.raises(UserError, match="those of one example"):
        merge(tmp_path / "56", tmp_path / "None")
