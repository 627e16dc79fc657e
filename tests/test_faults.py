"""Under kill -9, double starts, full disks, jumping clocks and merges the scores are those of an unbroken run."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eval import score, status
from eval.console.errors import UserError
from eval.keeping import reading, store
from eval.keeping.store import RunKey, Store
from eval.merge import main as merge_command
from eval.merge import merge
from tests import forked

ROOT = Path(__file__).parent.parent
KEY = RunKey("synthetic", "tiny", "snapkv", 128, {"protocol": "a"})


@pytest.fixture(scope="module")
def accidents(tmp_path_factory: pytest.TempPathFactory, tiny_folder: Path) -> tuple[Path, dict[str, Any]]:
    """The folder of all the runs of tests.forked, and what happened to them."""
    folder = tmp_path_factory.mktemp("accidents")
    command = [sys.executable, "-m", "tests.forked", str(folder), str(tiny_folder)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder, json.loads(done.stdout)


def answered(results: Path) -> dict[str, Any]:
    """Every answer by run, subset and id, without what depends on the machine's speed, and all scores as text."""
    found: dict[str, Any] = {}
    for manifest in sorted(results.rglob("manifest.json")):
        for name in reading.stored_subsets(manifest.parent):
            for key, answer in reading.stored(manifest.parent, name).items():
                kept = {k: v for k, v in answer.items() if not k.endswith(("seconds", "peak_bytes", "rows"))}
                found[f"{manifest.parent.name} {name} {key}"] = kept
    return found


def scores(results: Path, capsys: pytest.CaptureFixture[str]) -> str:
    assert score.main([str(results), "--json"]) == 0
    return capsys.readouterr().out.replace(str(results), "")


NAMES = [
    *(f"killed-{seed}" for seed in range(forked.SEEDS)),
    *(f"pair-{seed}" for seed in range(3)),
    *("merged", "copied", "clock", "full", "interrupted"),
]


@pytest.mark.parametrize("name", NAMES)
def test_answers_and_scores_are_those_of_an_unbroken_run(
    accidents: tuple[Path, dict[str, Any]], name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, _ = accidents
    unbroken = answered(folder / "unbroken")
    assert len(unbroken) == 2 * forked.EXAMPLES * forked.CELLS
    assert answered(folder / name) == unbroken
    assert scores(folder / name, capsys) == scores(folder / "unbroken", capsys)
    assert not any(line.missing for line in status.standing(folder / name))


def test_the_accidents_did_happen(accidents: tuple[Path, dict[str, Any]]) -> None:
    folder, happened = accidents
    assert happened["kills"] >= 30
    assert set(happened["statuses"]) <= {0, 1, -signal.SIGKILL}
    assert happened["full"] == 3
    torn = [path for path in (folder / "full").rglob("*.jsonl") if not path.read_bytes().endswith(b"\n")]
    assert torn, "no line was cut short"
    assert all(forked.met(folder / f"pair-{seed}") for seed in range(3))


def test_ctrl_c_and_sigterm_end_a_run_within_seconds(accidents: tuple[Path, dict[str, Any]]) -> None:
    _, happened = accidents
    assert happened["interrupted"] == [130, 143]
    assert happened["seconds"] < 10


WAITING = """
import hashlib, sys
from eval.console import signals
try:
    with signals.caught(grace=0.3):
        print("ready", flush=True)
        {work}
except signals.Interrupted as error:
    print(error, file=sys.stderr)
    sys.exit(error.status)
"""


@pytest.mark.parametrize(
    "work",
    [
        "hashlib.pbkdf2_hmac('sha256', b'', b'', 2**31 - 1)",  # Python sees no signal before its end, minutes later
        "sys.stdin.read()",
        "\n        try: sys.stdin.read()\n        except BaseException: sys.stdin.read()",  # swallows the exception
    ],
)
def test_a_signal_ends_even_a_deaf_process(work: str) -> None:
    code = WAITING.format(work=work)
    with subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdin=-1, stdout=-1, stderr=-1, text=True) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        assert process.stderr is not None
        process.stdout.readline()
        sent = time.monotonic()
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=8) == 143
        assert time.monotonic() - sent < 5
        assert "interrupted by SIGTERM" in process.stderr.read()


def answer(name: str, pred: str = "x") -> dict[str, Any]:
    return {"_id": name, "pred": pred, "fingerprint": "f"}


class Cut(BaseException):
    """The process is gone."""


@given(
    st.lists(st.tuples(st.integers(0, 1), st.sampled_from("abcdef"), st.none() | st.integers(0, 60)), max_size=14),
    st.lists(st.tuples(st.integers(0, 1), st.integers(0, 14)), max_size=4),
)
@settings(deadline=None, max_examples=60)
def test_any_history_of_cuts_and_merges_keeps_every_whole_answer(
    tmp_path_factory: pytest.TempPathFactory, writes: list[tuple[int, str, int | None]], merges: list[tuple[int, int]]
) -> None:
    """Two machines write, some writes are cut at a byte, and now and then one's folder is merged into the other's."""
    root = tmp_path_factory.mktemp("history")
    machines = [root / "0", root / "1"]
    stores = [Store(machine, KEY) for machine in machines]
    known: list[set[str]] = [set(), set()]
    for step, (machine, name, cut) in enumerate(writes):
        if cut is None:
            stores[machine].append("qasper", answer(name), {})
            known[machine].add(name)
        else:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(os, "write", cutting(cut))
                with pytest.raises(Cut):
                    stores[machine].append("qasper", answer(name), {})
        for source, when in merges:
            if when == step and machines[source].exists():
                merge(machines[source], machines[1 - source])
                known[1 - source] |= known[source]
        for place, names in zip(machines, known, strict=True):
            assert set(Store(place, KEY).answers("qasper")) == names


def cutting(size: int) -> Any:
    write = os.write

    def cut(file: int, content: bytes) -> int:
        write(file, content[: min(size, len(content) - 1)])
        raise Cut

    return cut


def test_merging_takes_the_longer_file_and_refuses_an_edited_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    writer = Store(here, KEY)
    writer.append("qasper", answer("a"), {})
    assert merge_command([str(here), str(there)]) == 0
    writer.append("qasper", answer("b"), {})
    assert merge(there, here) == 0, "the older copy changes nothing"
    assert set(Store(here, KEY).answers("qasper")) == {"a", "b"}
    assert merge(here, there) == 1
    writer.append("qasper", answer("c"), {})
    assert set(Store(here, KEY).answers("qasper")) == {"a", "b", "c"}
    (path,) = reading.parts(there / KEY.path, "qasper")
    path.write_bytes(path.read_bytes().replace(b'"x"', b'"y"'))
    capsys.readouterr()
    assert merge_command([str(here), str(there)]) == 1
    assert "differ, so one was edited" in capsys.readouterr().err
    assert merge_command([str(tmp_path / "none"), str(there)]) == 1
    assert "holds no stored answers" in capsys.readouterr().err


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = Store(tmp_path, KEY)
    for name in ("first", "sécond"):
        made.append("qasper", answer(name), {})
    return made.folder


def test_file_cut_at_every_byte_of_its_last_line_is_redone(folder: Path, tmp_path: Path) -> None:
    (path,) = reading.parts(folder, "qasper")
    content = path.read_bytes()
    for length in range(content.index(b"\n") + 1, len(content)):
        path.write_bytes(content[:length])
        again = Store(tmp_path, KEY)
        assert list(again.answers("qasper")) == ["first"]
        again.append("qasper", answer("sécond"), {})
        assert sorted(Store(tmp_path, KEY).answers("qasper")) == ["first", "sécond"]
        (new,) = set(reading.parts(folder, "qasper")) - {path}
        new.unlink()


@pytest.mark.parametrize("garbage", [b"\xff\xfe", b"\x00\x00", b'{"_id": "third"', b"[]", b'{"_id": 3}', b""])
def test_garbage_is_torn_at_the_end_and_refused_within(folder: Path, garbage: bytes) -> None:
    (path,) = reading.parts(folder, "qasper")
    content = path.read_bytes()
    path.write_bytes(content + garbage)
    assert len(reading.stored(folder, "qasper")) == 2
    path.write_bytes(garbage + b"\n" + content)
    with pytest.raises(UserError, match=f"{path}, line 1: not a stored answer"):
        reading.stored(folder, "qasper")


def test_a_failed_write_is_never_followed_by_another_in_its_file(folder: Path, tmp_path: Path) -> None:
    broken = Store(tmp_path, KEY)
    broken.append("qasper", answer("third"), {})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda file: (_ for _ in ()).throw(OSError(28, "No space left on device")))
        with pytest.raises(UserError, match="no space left"):
            broken.append("qasper", answer("fourth"), {})
    broken.append("qasper", answer("fifth"), {})
    assert len(reading.parts(folder, "qasper")) == 3
    assert set(reading.stored(folder, "qasper")) == {"first", "sécond", "third", "fourth", "fifth"}


def test_answers_to_different_texts_are_never_mixed(folder: Path, tmp_path: Path) -> None:
    other = Store(tmp_path / "other", KEY)
    other.append("qasper", {**answer("first"), "fingerprint": "g"}, {})
    shutil.copytree(tmp_path / "other", tmp_path, dirs_exist_ok=True)
    with pytest.raises(UserError, match="answer 'first' for different texts"):
        reading.stored(folder, "qasper")


def test_a_text_that_utf8_cannot_hold_comes_back_as_it_was(tmp_path: Path) -> None:
    made = Store(tmp_path, KEY)
    made.append("qasper", answer("\ud800", "\udfff \u2028 é"), {})
    assert Store(tmp_path, KEY).answers("qasper") == {"\ud800": answer("\ud800", "\udfff \u2028 é")}


@pytest.mark.parametrize("place", ["file/below", "/proc/1/none", "/sys/none", "x" * 300])
def test_where_nothing_can_be_written_one_line_says_so(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="choose a writable folder"):
        store.check_writable(tmp_path / place)
    with pytest.raises(UserError, match="choose a writable folder"):
        Store(tmp_path / place, KEY).append("qasper", answer("a"), {})


def test_an_archive_that_changed_is_refused(tmp_path: Path) -> None:
    def key(sha: str, **more: Any) -> RunKey:
        return RunKey("longbench", "tiny", "laq", 128, {"data": {"source": "longbench", "sha256": [sha]}, **more})

    Store(tmp_path, key("one")).append("qasper", answer("a"), {})
    assert Store(tmp_path, key("one")).answers("qasper")
    with pytest.raises(UserError, match="another SHA-256"):
        Store(tmp_path, key("two"))
    Store(tmp_path, key("two", protocol="b"))  # other settings make another run anyway
    Store(tmp_path / "elsewhere", key("two"))


@pytest.mark.parametrize("name", ["../up", "a/b", "/etc", "", ".hidden", "a b", "a\nb", "*"])
def test_a_label_is_no_path(tmp_path: Path, name: str) -> None:
    with pytest.raises(UserError, match="cannot name a folder of answers"):
        Store(tmp_path, RunKey("synthetic", name, "laq", 128, {}))
    assert list(tmp_path.iterdir()) == []
