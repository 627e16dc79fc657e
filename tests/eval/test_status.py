"""What the status command reads off a store."""

import os
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from eval import status
from eval.keeping import reading
from eval.keeping.store import RunKey, Store

COSTS = {"prefill_seconds": 2.0, "selection_seconds": 0.5, "decode_seconds": 1.0}


def run(root: Path, method: str, budget: int | None, subset: str, done: int, planned: int, **changes: Any) -> Path:
    """Store `done` answers of a run that set out to answer `planned`; changes as of `process`."""
    return process(root, method, budget, subset, range(done), planned, None, **changes)


def process(
    root: Path,
    method: str,
    budget: int | None,
    subset: str,
    numbers: Iterable[int],
    planned: int,
    shard: str | None,
    *,
    preset: str = "paper",
    shared: Mapping[str, Any] = MappingProxyType({}),
    **fields: Any,
) -> Path:
    """Store the answers to the examples `numbers` as one process does.

    shared: of the identity, what rows of one table have alike. fields: of the method.
    """
    settings = {"method": {"name": method, **fields}, "budget": budget, **shared}
    made = Store(root, RunKey("synthetic", "tiny", method, budget, settings))
    about = {"examples": {subset: planned}, "config": {"shard": shard}}
    for number in numbers:
        made.append(subset, {"_id": f"{number}", "pred": "x", "preset": preset, **COSTS}, about)
    return made.folder


def by_cell(lines: list[status.Progress]) -> dict[tuple[str, str], tuple[int, int, int]]:
    return {(line.cell, line.subset): (line.done, line.running, line.missing) for line in lines}


def test_done_running_and_missing(tmp_path: Path) -> None:
    run(tmp_path, "full", None, "syn_fact", 4, 4)
    old = run(tmp_path, "laq", 128, "syn_fact", 1, 4)
    (path,) = reading.parts(old, "syn_fact")
    found = by_cell(status.standing(tmp_path))
    assert found == {("full", "syn_fact"): (4, 0, 0), ("laq 128", "syn_fact"): (1, 1, 3)}
    for age, running in ((status.FRESH + 60, 0), (-3600.0, 1)):  # an hour ahead: the file server's clock is off
        os.utime(path, (time.time() - age,) * 2)
        assert by_cell(status.standing(tmp_path))["laq 128", "syn_fact"] == (1, running, 3)


def test_what_no_run_has_begun_is_named_by_hand(tmp_path: Path) -> None:
    run(tmp_path, "laq", 128, "syn_fact", 2, 7)
    found = by_cell(status.standing(tmp_path, ("hotpotqa", "syn_hops")))
    assert found["laq 128", "hotpotqa"] == (0, 0, 200)
    assert found["laq 128", "syn_hops"][2] > 0


def test_each_run_is_to_have_what_it_set_out_for_itself(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(tmp_path, "full", None, "syn_fact", 2, 2)
    run(tmp_path, "laq", 128, "syn_facts", 1, 1)
    run(tmp_path, "laq", 256, "syn_facts", 3, 3)
    found = by_cell(status.standing(tmp_path))
    assert found == {
        ("full", "syn_fact"): (2, 0, 0),
        ("laq 128", "syn_facts"): (1, 0, 0),
        ("laq 256", "syn_facts"): (3, 0, 0),
    }
    assert status.main([str(tmp_path), "--watch", "0.01"]) == 0
    assert "all 6 answers are stored" in capsys.readouterr().out
    named = by_cell(status.standing(tmp_path, ("syn_facts",)))
    assert named["full", "syn_facts"] == (0, 0, 3), "named by hand, it is asked of all"
    assert named["laq 128", "syn_facts"] == (1, 0, 2)
    assert ("laq 128", "syn_fact") not in named


def test_a_process_that_has_done_its_shard_is_not_running(tmp_path: Path) -> None:
    def running(numbers: Iterable[int], planned: int, shard: str | None) -> int:
        process(tmp_path, "laq", 128, "syn_fact", numbers, planned, shard)
        return by_cell(status.standing(tmp_path))["laq 128", "syn_fact"][1]

    assert running([0, 2], 3, "0/2") == 0
    assert running([1], 5, "1/2") == 1, "3 is missing"
    assert running([3], 5, "1/2") == 0, "another process has finished the shard"
    assert by_cell(status.standing(tmp_path))["laq 128", "syn_fact"] == (4, 0, 1)
    assert running([5], 9, None) == 1


def test_rows_of_one_method_are_named_by_what_differs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for size, budget in ((1024, 128), (512, 256), (512, 128)):
        run(tmp_path, "laq", budget, "syn_fact", 1, 1, workspace=size, window=32)
    run(tmp_path, "snapkv", 128, "syn_fact", 1, 1, window=32)
    run(tmp_path, "full", None, "syn_fact", 2, 2)
    found = status.standing(tmp_path)
    in_order = ["full", "snapkv 128", "laq workspace=512 128", "laq workspace=512 256", "laq workspace=1024 128"]
    assert [line.cell for line in found] == in_order, "as in the tables"
    assert {line.table for line in found} == {"synthetic/tiny paper"}
    monkeypatch.setenv("COLUMNS", "200")  # on one line
    assert status.main([str(tmp_path)]) == 0
    assert "; ".join(in_order[1:]) in capsys.readouterr().out


def test_presets_and_settings_that_all_rows_share_are_titles(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for preset, number in (("paper", 3), ("equal_bytes", 1)):
        shared = {"protocol": {"chat": preset}, "data": {"length": 512}}
        run(tmp_path, "full", None, "syn_fact", number, number, preset=preset, shared=shared)
        run(tmp_path, "laq", 128, "syn_fact", number, number, preset=preset, shared=shared)
    assert status.main([str(tmp_path)]) == 0
    first, second = capsys.readouterr().out.split("synthetic/tiny ")[1:]
    assert first.startswith("equal_bytes ")
    assert "all 2 answers are stored" in first
    assert second.startswith("paper ")
    assert "all 6 answers are stored" in second
    longer = {"protocol": {"chat": "paper"}, "data": {"length": 4096}}
    run(tmp_path, "full", None, "syn_fact", 2, 2, shared=longer)
    titles = {line.table for line in status.standing(tmp_path)}
    assert titles == {
        f"synthetic/tiny {name}" for name in ("equal_bytes", "paper data.length=512", "paper data.length=4096")
    }


def test_a_run_without_an_answer_yet_is_named_too(tmp_path: Path) -> None:
    folder = run(tmp_path, "laq", 128, "syn_fact", 1, 4)
    run(tmp_path, "full", None, "syn_fact", 4, 4)
    (path,) = reading.parts(folder, "syn_fact")
    path.write_text('{"_id": "0", "pr')  # killed while it wrote the first
    assert by_cell(status.standing(tmp_path)) == {("full", "syn_fact"): (4, 0, 0), ("laq 128", "syn_fact"): (0, 1, 4)}


def test_answers_are_read_again_once_there_are_more(tmp_path: Path) -> None:
    """A look after the first reads only what was added; the preset of what was is known by then."""
    run(tmp_path, "laq", 128, "syn_fact", 1, 4)
    assert {line.table for line in status.standing(tmp_path)} == {"synthetic/tiny paper"}
    process(tmp_path, "laq", 128, "syn_fact", [1], 4, None, preset="own")
    found = status.standing(tmp_path)
    assert {line.table: line.done for line in found} == {"synthetic/tiny own": 2, "synthetic/tiny paper": 2}, (
        "answers of one identity are done under either name"
    )


def test_time_left_counts_a_shared_prefill_once(tmp_path: Path) -> None:
    run(tmp_path, "full", None, "syn_fact", 1, 3)
    run(tmp_path, "laq", 128, "syn_fact", 2, 3)
    lines = status.standing(tmp_path)
    # Two examples lack an answer: two prefills of 2 s, and three answers of 1.5 s.
    assert status.seconds_left(lines) == pytest.approx(2 * 2.0 + 3 * 1.5)
    more = status.standing(tmp_path, ("hotpotqa",))
    assert status.seconds_left(more) == pytest.approx(8.5 + 200 * (2.0 + 2 * 1.5))
    assert status.seconds_left([]) is None


def test_a_damaged_plan_costs_no_answer(tmp_path: Path) -> None:
    folder = run(tmp_path, "laq", 128, "syn_fact", 2, 9)
    for path in (folder / "runs").iterdir():
        path.write_text("{")
    assert by_cell(status.standing(tmp_path)) == {("laq 128", "syn_fact"): (2, 0, 0)}


def test_table_and_watching(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(tmp_path, "full", None, "syn_fact", 2, 2)
    run(tmp_path, "laq", 128, "syn_fact", 2, 2)
    assert status.main([str(tmp_path), "--watch", "0.01"]) == 0, "it ends when nothing is missing"
    said = capsys.readouterr().out
    assert "synthetic/tiny" in said
    assert "all 2" in said
    assert "all 4 answers are stored" in said
    run(tmp_path, "laq", 256, "syn_fact", 1, 2)
    assert status.main([str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert "laq 256" in said
    assert "5 of 6 answers are stored; 1 process answered in the last 10 minutes" in " ".join(said.split())


def test_between_two_subsets_a_process_is_at_work_on_the_next(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    about = {"examples": {"syn_fact": 2, "syn_hops": 3}, "config": {"shard": None}}
    for method in ("full", "laq"):
        made = Store(tmp_path, RunKey("synthetic", "tiny", method, 128, {"method": {"name": method}, "budget": 128}))
        for number in range(2 if method == "full" else 1):
            made.append("syn_fact", {"_id": f"{number}", "pred": "x", **COSTS}, about)
    found = by_cell(status.standing(tmp_path))
    assert found == {
        ("full 128", "syn_fact"): (2, 0, 0),
        ("full 128", "syn_hops"): (0, 1, 3),
        ("laq 128", "syn_fact"): (1, 1, 1),
        ("laq 128", "syn_hops"): (0, 0, 3),
    }
    assert status.main([str(tmp_path)]) == 0
    assert "1 process answered in the last 10 minutes" in " ".join(capsys.readouterr().out.split()), "one does both"
    for path in tmp_path.rglob("*.jsonl"):
        os.utime(path, (time.time() - status.FRESH - 60,) * 2)
    assert status.main([str(tmp_path)]) == 0
    assert "none is running" in capsys.readouterr().out


@pytest.mark.parametrize("order", ["--watch {}", "{} --watch", "--watch 0.01 {}", "{} --watch 0.01"])
def test_watching_waits_for_the_first_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], order: str
) -> None:
    waited: list[float] = []

    def answer_meanwhile(seconds: float) -> None:
        waited.append(seconds)
        run(tmp_path / "later", "full", None, "syn_fact", len(waited), 2)

    monkeypatch.setattr(status.time, "sleep", answer_meanwhile)
    assert status.main(order.format(tmp_path / "later").split()) == 0
    assert waited == [0.01 if "0.01" in order else 5.0] * 2
    assert "all 2 answers are stored" in capsys.readouterr().out


@pytest.mark.parametrize("seconds", ["0", "-1", "nan", "inf", "soon"])
def test_seconds_that_are_none(tmp_path: Path, capsys: pytest.CaptureFixture[str], seconds: str) -> None:
    assert status.main([str(tmp_path), f"--watch={seconds}"]) == 1
    assert f"--watch {seconds}: give the seconds between two looks" in capsys.readouterr().err
