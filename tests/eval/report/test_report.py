"""The report's folder: what is in its data, what it refuses, and the local server."""

from __future__ import annotations

import http.client
import json
import re
import subprocess
import sys
import threading
from functools import partial
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from eval.console.errors import UserError
from eval.report import __main__ as command
from eval.report import serve
from eval.report.build import HERE, build
from eval.scoring import statistics
from tests.eval import kept
from tests.eval.stores import pattern, write

BREAK = "document.body.dataset.broken='yes'"
EVIL = f"</script><script>{BREAK}</script><img src=x onerror={BREAK}>"
ROOT = Path(__file__).resolve().parents[3]


def read(root: Path, name: str) -> Any:
    """The value that a data file hands over."""
    text = (root / "data" / f"{name}.js").read_text(encoding="ascii")
    found = re.fullmatch(r"report\.receive\((\".*?\"), (\".*\")\);\n", text)
    assert found, text[:80]
    assert json.loads(found[1]) == name
    return json.loads(json.loads(found[2]))


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """Three rows on two tasks, one of them without the second task."""
    root = tmp_path / "results"
    write(root, "full", None, {"hotpotqa": pattern(8, 10), "trec": pattern(6, 10)})
    run = write(root, "echokv", 128, {"hotpotqa": pattern(5, 10), "trec": pattern(7, 10)})
    write(root, "laq", 128, {"hotpotqa": pattern(6, 10)})
    kept.write(run, "hotpotqa", 2, [f"word{place} " for place in range(40)], ("W1", "W2"))
    return root


def test_data(results: Path) -> None:
    built = build(results, results / "report")
    assert (built.tables, built.answers, built.recorded, built.analyses, built.problems) == (1, 50, 1, 0, ())
    overview = read(results / "report", "overview")
    (table,) = overview["tables"]
    assert table["key"] == "longbench/smollm2/paper"
    assert [row["cell"] for row in table["rows"]] == ["full", "laq-128", "echokv-128"]
    assert set(table["cells"]["laq-128"]) == {"hotpotqa"}  # no average of half the tasks, no made-up cell
    score = table["fields"].index("score")
    assert table["cells"]["echokv-128"]["hotpotqa"][score] == 50
    assert table["rows"][0]["identity"]["method"]["name"] == "full"


def test_differences_are_paired(results: Path) -> None:
    build(results, results / "report")
    found = read(results / "report", "t0/differences")
    values = [100.0 * (number < 8) - 100.0 * (number < 5) for number in range(10)]
    expected = statistics.estimate([np.array(values)])
    assert found["full|echokv-128"]["hotpotqa"] == pytest.approx(
        [expected.mean, expected.error, expected.low, expected.high, 10], abs=1e-4
    )
    assert "average" not in found["full|laq-128"]
    assert "average" in found["full|echokv-128"]


def test_examples_and_selections(results: Path) -> None:
    root = results / "report"
    build(results, root)
    examples = read(root, "t0/hotpotqa")
    assert [one["id"] for one in examples["examples"]] == [f"hotpotqa-{number}" for number in range(10)]
    assert examples["answers"]["echokv-128"][7][:2] == ["no", 0]
    assert examples["prompts"] == {"echokv-128": [None, None, "p2", *[None] * 7]}
    told = read(root, "t0/hotpotqa/2/echokv-128")
    assert (told["length"], [step["name"] for step in told["steps"]]) == (40, ["W1", "W2", "final"])
    assert read(root, "t0/prompts/p2")["evidence"] == [[0, 3]]
    assert read(root, "t0/scores")["trec"]["scores"]["full"].count(100) == 6


def test_hostile_text_is_only_ever_a_string(results: Path) -> None:
    write(results, "h2o", 128, {"hotpotqa": pattern(3, 10)}, change={"pred": EVIL + "\u2028"})
    root = results / "report"
    build(results, root)
    assert read(root, "t0/hotpotqa")["answers"]["h2o-128"][0][0].startswith(EVIL)
    assert EVIL not in "".join(path.read_text(encoding="utf-8") for path in root.glob("*.html"))


def test_a_second_build_writes_nothing_anew_and_leaves_nothing_old(results: Path) -> None:
    root = results / "report"
    build(results, root)
    times = {path: path.stat().st_mtime_ns for path in root.rglob("*") if path.is_file()}
    (root / "data" / "old.js").write_text("old")
    build(results, root)
    assert {path: path.stat().st_mtime_ns for path in root.rglob("*") if path.is_file()} == times


def test_tables_that_differ_in_a_setting_say_so(results: Path) -> None:
    write(results, "laq", 128, {"hotpotqa": pattern(3, 10)}, protocol={"chat": "all"})
    build(results, results / "report")
    tables = read(results / "report", "overview")["tables"]
    assert {table["key"] for table in tables} == {
        f"longbench/smollm2/paper/protocol.chat={chat}" for chat in ("all", "official")
    }
    assert all(table["key"].rpartition("/")[2] in table["caption"] for table in tables)


def test_two_settings_of_a_method_are_two_rows(results: Path) -> None:
    for workspace in (96, 192):
        write(results / "two", "laq", 128, {"hotpotqa": pattern(1, 10)}, method={"workspace": workspace})
    build(results / "two", results / "report")
    (table,) = read(results / "report", "overview")["tables"]
    assert [row["title"] for row in table["rows"]] == ["LAQ (workspace=96)", "LAQ (workspace=192)"]
    examples = read(results / "report", "t0/hotpotqa")["answers"]
    assert set(examples) == {row["cell"] for row in table["rows"]}


def test_a_table_that_cannot_be_made_does_not_hide_the_others(results: Path) -> None:
    write(results, "full", None, {"trec": pattern(1, 2)}, label="other", change={"new_tokens": None})
    built = build(results, results / "report")
    assert built.tables == 1
    assert "new_tokens must be a number" in built.problems[0]
    assert read(results / "report", "overview")["problems"] == list(built.problems)


def test_analyses(results: Path) -> None:
    folder = results / "analysis" / "table1" / "jsonl" / "smollm2" / "table1-128-0123"
    folder.mkdir(parents=True)
    (folder / "table1.csv").write_text("method,step,mean,low,high\nechokv,1,0.5,,\nlaq,1,0.25,0.1,0.4\n")
    (folder / "table1_examples.csv").write_text("_id\n1\n")
    root = results / "report"
    build(results, root)
    (analysis,) = read(root, "overview")["analyses"]
    first, second = analysis["files"]
    assert read(root, first["data"])["rows"] == [["echokv", 1, 0.5, None, None], ["laq", 1, 0.25, 0.1, 0.4]]
    assert second["data"] is None
    assert (root / second["csv"]).read_text() == "_id\n1\n"


def test_analyses_alone_are_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "analysis" / "table1" / "synthetic"
    folder.mkdir(parents=True)
    (folder / "table1.csv").write_text("method,step,mean\nlaq,1,0.25\n")
    assert command.main(["--results", str(tmp_path)]) == 0
    assert "0 tables, 0 answers, 0 of them with kept tokens, 1 analyses" in capsys.readouterr().out
    overview = read(tmp_path / "report", "overview")
    assert (overview["tables"], len(overview["analyses"])) == ([], 1)


def test_foreign_folders_are_left_alone(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (results / "mine").mkdir()
    (results / "mine" / "thesis.txt").write_text("years of work")
    assert command.main(["--results", str(results), "--out", str(results / "mine")]) == 1
    assert "holds other files" in capsys.readouterr().err
    assert [path.name for path in (results / "mine").iterdir()] == ["thesis.txt"]


def test_nothing_to_show(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--results", str(tmp_path)]) == 1
    assert capsys.readouterr().err.startswith("error: no answers in")


def test_help_is_quick() -> None:
    code = "import sys, eval.report.__main__; sys.exit('pandas' in sys.modules or 'torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)


def test_libraries_come_with_their_licences() -> None:
    names = {path.name for path in (HERE / "vendor").iterdir()}
    assert {"LICENSE.plot", "LICENSE.d3", "LICENSE.tabulator"} <= names
    page = (HERE / "page" / "index.html").read_text(encoding="utf-8")
    asked = set(re.findall(r'(?:src|href)="(\w+/[^"]+)"', page))
    assert all((HERE / name).is_file() for name in asked)
    assert "http" not in page.replace("http-equiv", "")


@pytest.fixture
def port(results: Path) -> Any:
    build(results, results / "report")
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(serve.Handler, directory=str(results / "report")))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server.server_address[1]
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize(
    ("host", "path", "status"),
    [
        ("localhost", "/", 200),
        ("127.0.0.1", "/data/overview.js", 200),
        ("evil.example", "/data/overview.js", 403),
        ("localhost", "/data/", 404),
        ("localhost", "/../manifest.json", 404),
    ],
)
def test_server(port: int, host: str, path: str, status: int) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    connection.request("GET", path, headers={"Host": f"{host}:{port}"})
    answer = connection.getresponse()
    assert answer.status == status
    assert answer.headers["Cache-Control"] == "no-store"
    answer.read()
    connection.close()


def test_server_follows_the_answers(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve, "EVERY", 0.05)
    rebuilt, stop = threading.Event(), threading.Event()
    thread = threading.Thread(target=serve._watch, args=(results, rebuilt.set, stop))
    thread.start()
    assert not rebuilt.wait(0.3)
    write(results, "h2o", 128, {"hotpotqa": pattern(3, 10)})
    assert rebuilt.wait(5)
    stop.set()
    thread.join(5)


def test_a_taken_port_is_told(port: int, results: Path) -> None:
    with pytest.raises(UserError, match="--port"):
        serve.serve(results, results / "report", port, lambda: None)
