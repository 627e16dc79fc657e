"""Tables from stored answers: marks, missing cells, partial data, gates, and LaTeX that compiles."""

from __future__ import annotations

import csv
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eval import compare, show
from eval.inputs import data, subsets
from eval.report import groups, numbers
from eval.tables import __main__ as tables
from eval.tables import gates, latex, layout
from eval.tables.layout import Entry, Row, Table
from tests.eval.stores import answer, pattern, write

GOLDEN = Path(__file__).parent / "golden"
HOSTILE = 'a_b%c&d#e$f{g}h~i^j\\k|l<m>n"o\np\t中±é*`[x](y)'
SMALL = {
    "full": (None, (8, 6, 7)),
    "streamingllm": (128, (1, 4, 7)),
    "snapkv": (128, (4, 4, 2)),
    "laq": (128, (6, 2, 7)),
    "echokv": (128, (6, 3, 6)),
}


def small(results: Path) -> None:
    """Five rows on three tasks; SnapKV was not run on one, and StreamingLLM lacks two of its examples."""
    for method, (budget, good) in SMALL.items():
        right = {task: pattern(n, 10) for task, n in zip(("hotpotqa", "trec", "lcc"), good, strict=True)}
        if method == "snapkv":
            del right["lcc"]
        if method == "streamingllm":
            right["trec"] = right["trec"][:8]
        write(results, method, budget, right)


def run(results: Path, *words: str) -> int:
    return tables.main([*words, "--results", str(results)])


def test_the_golden_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    small(tmp_path)
    chosen = ["--model", "smollm2", "--subset", "hotpotqa", "trec", "lcc"]
    assert run(tmp_path, "table3", "--no-errors", *chosen) == 0
    for ending in ("tex", "md"):
        written = (tmp_path / "tables" / f"table3.{ending}").read_text()
        assert written == (GOLDEN / f"table3.{ending}").read_text()
    assert capsys.readouterr().out.strip() == written.strip()


def test_the_csv_has_every_cell_once(tmp_path: Path) -> None:
    small(tmp_path)
    assert run(tmp_path, "table3", "--model", "smollm2") == 0
    lines = list(csv.DictReader((tmp_path / "tables" / "table3.csv").open()))
    cells = {(line["method"], line["budget"], line["subset"]): line for line in lines}
    assert len(cells) == len(lines) == 5 * 4 - 2  # SnapKV has neither lcc nor an average
    one = cells["echokv", "128", "hotpotqa"]
    assert (float(one["score"]), one["n"], one["records"], one["against"]) == (60.0, "10", "200", "laq")
    assert cells["full", "", "trec"]["settings"] != ""


def test_a_table_of_the_16_tasks_shows_what_is_missing(tmp_path: Path) -> None:
    small(tmp_path)
    texts = {}
    for more in ((), ("--all-columns",)):
        assert run(tmp_path, "table3", "--model", "smollm2", *more) == 0
        text = texts[more] = (tmp_path / "tables" / "table3.md").read_text()
        (row,) = [line for line in text.splitlines() if line.startswith("| SnapKV")]
        assert row.count(" -- ") == (16 if more else 3)  # of KV and the average as well
        assert " 0.00" not in row
        assert "| Avg of 3 |" in text
        assert ("| Nrtv |" in text) is bool(more)
        assert "n=8 to 10 per task, partial" in text
        assert "no data (Nrtv, Qas" in text
        assert "streamingllm 128 lacks examples that others have: 2 of 10 in trec" in text
        lines = text.splitlines()
        assert "± is the standard error over examples. KV: entries stored, mean per answer." in lines
        short = "3 of 16 tasks with fewer records than LongBench, 13 of 16 without any"
        assert f"Partial data: {short}. Prompts cut at 7,600 tokens (paper: 31,500)." in lines
        stored = [[field.strip() for field in line.split("|")[1:4]] for line in lines if line.startswith("|")]
        assert ["FullKV", "--", "900k"] in stored
        assert ["StreamingLLM", "128", "34.6k"] in stored
        assert ["SnapKV", "128", "--"] in stored
        assert ["EchoKV", "128", "11.5k"] in stored
    tex = (tmp_path / "tables" / "table3.tex").read_text()
    assert r"$\pm$ is the standard error over examples." in tex
    assert sum("parbox" in line for line in tex.splitlines()) == 2
    assert tex.count("% Missing: streamingllm 128 lacks") == 1
    assert run(tmp_path, "table3", "--model", "smollm2", "--no-errors") == 0
    assert "±" not in (tmp_path / "tables" / "table3.md").read_text()


def test_a_chosen_setting_is_in_the_caption(tmp_path: Path) -> None:
    for length in (512, 640):
        write(tmp_path, "laq", 128, {"trec": [True, False]}, data={"length": length})
    for length in (512, 640):
        assert run(tmp_path, "table3", "--model", "smollm2", "--where", f"data.length={length}") == 0
        assert f"on LongBench; data.length={length}; preset" in (tmp_path / "tables" / "table3.md").read_text()


def test_records_that_spell_control_tokens_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In every table made with them, once each, whatever the number of methods."""
    for rule, spelled, taken in (("token", 3, "these tokens"), ("text", 3, "plain text"), ("token", 0, None)):
        results = tmp_path / f"{rule}{spelled}"
        for method in ("laq", "echokv"):
            settings = {"change": {"control_tokens": spelled}, "protocol": {"control_text": rule}}
            write(results, method, 128, {"trec": [True, False]}, **settings)
        said = f"2 of 2 records spell control tokens in their text (6 in all), taken as {taken} (control text: {rule})."
        for main, *words in ((tables.main, "table3", "--model", "smollm2"), (compare.main, "--model", "smollm2")):
            assert main([*words, "--results", str(results)]) == 0
            out = capsys.readouterr().out
            assert out.count(said) == (taken is not None)
            assert taken or "control tokens" not in out
        assert show.main(["--results", str(results), "--width", "300"]) == 0
        assert (said in capsys.readouterr().out) is (taken is not None)
        (group,) = groups.find(results)
        selected = groups.select(group, results, None)
        assert (said in numbers.table(group, selected, numbers.cells_of(selected))["notes"]) is (taken is not None)


def test_another_prompt_limit_than_the_papers_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = "Prompts were cut at 2,048 tokens; the paper's were most probably cut at 31,500."
    for limit, task, expected in ((2048, "trec", True), (31_500, "trec", False), (2048, "syn_trec", False)):
        results = tmp_path / f"{limit}-{task}"
        for method in ("laq", "echokv"):
            write(results, method, 128, {task: [True, False]}, protocol={"prompt_limit": limit})
        for main, *words in ((tables.main, "table3", "--model", "smollm2"), (compare.main, "--model", "smollm2")):
            assert main([*words, "--results", str(results)]) == 0
            lines = [line.removeprefix("- ") for line in capsys.readouterr().out.splitlines()]
            assert (said in lines) is expected
        short = "Prompts cut at 2,048 tokens (paper: 31,500)."
        assert (short in (results / "tables" / "table3.tex").read_text()) is expected
        assert show.main(["--results", str(results), "--width", "200"]) == 0
        assert (said in capsys.readouterr().out) is expected
        (group,) = groups.find(results)
        selected = groups.select(group, results, None)
        assert (said in numbers.table(group, selected, numbers.cells_of(selected))["notes"]) is expected


def test_scores_by_length_are_longbench_es(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    chosen = ["table3", "--model", "smollm2", "--by-length"]
    write(tmp_path, "full", None, {"trec": pattern(1, 2)})
    assert run(tmp_path, *chosen) == 1
    assert "no answers to LongBench-E" in capsys.readouterr().err
    assert not (tmp_path / "tables").exists()
    for method, budget in (("full", None), ("laq", 128), ("stage1_only", 128)):
        folder = write(tmp_path, method, budget, {"hotpotqa_e": pattern(2, 3), "trec": pattern(1, 2)})
        (path,) = folder.glob("hotpotqa_e.*")
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        for row, length in zip(rows, (3999, 4000, 7999), strict=True):
            row["length"] = length
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert run(tmp_path, *chosen) == 0
    lines = list(csv.DictReader((tmp_path / "tables" / "table3-by-length.csv").open()))
    found = [[line[name] for name in ("method", "budget", "subset", "length", "n", "score")] for line in lines]
    buckets = [["0-4k", "1", "100.0"], ["4-8k", "2", "50.0"], ["8k+", "0", ""]]
    heads = [["full", "", "hotpotqa_e"], ["laq", "128", "hotpotqa_e"]]
    assert found == [[*head, *bucket] for head in heads for bucket in buckets]
    assert float(lines[1]["standard_error"]) == 50
    assert lines[0]["standard_error"] == ""
    assert run(tmp_path, "table3", "--model", "smollm2", "--subset", "longbench_e", "--by-length") == 0


def test_real_records_go_through_the_whole_chain(shared: Path, tmp_path: Path) -> None:
    names = ("hotpotqa", "gov_report", "trec", "samsum", "passage_count", "passage_retrieval_en", "lcc")
    for method, perfect in (("full", True), ("laq", False)):
        folder = write(tmp_path, method, None if perfect else 128, {})
        for name in names:
            records = data.load_folder(shared / "longbench", name).records[:3]
            budget = None if perfect else 128
            lines = [
                answer(name, number, "", method, budget, "smollm2")
                | {key: record[key] for key in ("_id", "answers", "all_classes", "length")}
                | {"pred": record["answers"][0] if perfect else "?"}
                for number, record in enumerate(records)
            ]
            (folder / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert run(tmp_path, "table3", "--model", "smollm2", "--edit", "difflib") == 0
    table = list(csv.DictReader((tmp_path / "tables" / "table3.csv").open()))
    scores = {(line["method"], line["subset"]): float(line["score"]) for line in table}
    assert {name for method, name in scores if method == "full"} == {*names, "average"}
    for (method, name), score in scores.items():
        if method == "full":
            assert score == pytest.approx(100, abs=0.01), name
        else:
            assert score < 10, name


def test_table_5_has_two_tasks_and_the_average_of_all(tmp_path: Path) -> None:
    everything = {name: pattern(2, 2) for name in subsets.ENGLISH}
    for method in ("full", "laq", "stage1_only", "iterative_only", "echokv", "snapkv"):
        for budget in (None,) if method == "full" else (128, 256):
            write(tmp_path, method, budget, everything, label="mistral")
    assert run(tmp_path, "table5") == 0
    text = (tmp_path / "tables" / "table5.md").read_text()
    rows = [line.split("|")[1:-1] for line in text.splitlines() if line.startswith("|") and "±" in line]
    assert [row[0].strip() for row in rows] == ["LAQ", "EchoKV, stage 1 only", "EchoKV, iterative only", "EchoKV"]
    assert {len(row) for row in rows} == {6}
    assert "100.00" in rows[0][5]
    lines = list(csv.DictReader((tmp_path / "tables" / "table5.csv").open()))
    published = {line["method"]: line["paper"] for line in lines if line["subset"] == "average"}
    assert published == {"laq": "39.29", "stage1_only": "39.38", "iterative_only": "39.42", "echokv": "39.55"}
    assert run(tmp_path, "table3") == 0
    assert "stage 1" not in (tmp_path / "tables" / "table3.md").read_text()


@given(st.lists(st.sampled_from([0.0, 0.004, 0.006, 41.114, 41.1149, 41.116, 99.0, None]), min_size=1, max_size=7))
def test_marks_go_by_the_printed_value(scores: list[float | None]) -> None:
    column = [Entry(layout.MISSING if score is None else f"{score:.2f}") for score in scores]
    placed = layout.placed(column)
    assert [entry.text for entry in placed] == [entry.text for entry in column]
    printed = [round(score, 2) for score in scores if score is not None]
    for entry, score in zip(placed, scores, strict=True):
        better = {value for value in printed if score is not None and value > round(score, 2)}
        expected = 0 if score is None or len(set(printed)) < 2 or len(better) > 1 else len(better) + 1
        assert entry.place == expected


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--model", "smollm3"], "no answers of smollm3 on longbench"),
        (["--model", "smollm2", "--subset", "trek"], "unknown subset 'trek'; did you mean trec"),
        (["--model", "smollm2", "--where", "workspace"], "--where 'workspace': write NAME=VALUE"),
        (["--model", "smollm2", "--preset", "fair"], "no answers of preset 'fair'"),
    ],
)
def test_wrong_input_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    small(tmp_path)
    assert run(tmp_path, "table3", *words) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ")
    assert message in line


def test_a_preset_without_a_file_needs_an_edit_similarity(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, "laq", 128, {"lcc": [True]}, change={"preset": HOSTILE})
    assert run(tmp_path, "table3", "--model", "smollm2") == 1
    assert "choose --edit" in capsys.readouterr().err
    assert run(tmp_path, "table3", "--model", "smollm2", "--edit", "difflib") == 0


def gate_lines(results: Path, right: dict[str, list[bool]], **settings: Any) -> str:
    write(results, "full", None, right, label="mistral", **settings)
    assert run(results, "table3") == 0
    return (results / "tables" / "table3.tex").read_text()


def test_gates_name_the_cause_of_a_miss(tmp_path: Path) -> None:
    met = gate_lines(tmp_path / "met", {"trec": pattern(142, 200)})  # published: 71.00
    assert "Warning" not in met
    missed = gate_lines(tmp_path / "missed", {"trec": pattern(144, 200)})
    assert "Warning: full on trec scores 72.00, published 71.00 (band 0.5): the chat rule differs" in missed
    few = gate_lines(tmp_path / "few", {"trec": pattern(9, 10)})
    assert r"Protocol gate not tried: full on trec has 10 of 200 records." in few


def test_gates_of_selection_ask_for_query_heads(tmp_path: Path) -> None:
    right = {"trec": pattern(90, 200)}
    for granularity, expected in (("query_head", True), ("kv_head", False)):
        results = tmp_path / granularity
        write(results, "snapkv", 128, right, label="mistral", method={"granularity": granularity})
        assert run(results, "table3") == 0
        text = (results / "tables" / "table3.md").read_text()
        assert ("snapkv 128 on trec scores 45.00, published 47.50 to 48.00" in text) is expected
        assert "FullKV was not run" in text
    assert gates.gates("smollm2") == []


def hostile() -> Table:
    entries = (Entry("1.00", "", 1), Entry(layout.MISSING))
    bracket = Row("[3pt] after a line's end", "256", entries)
    return Table(
        "table3",
        HOSTILE,
        ((HOSTILE, 1),),
        (HOSTILE, "Avg"),
        ((Row(HOSTILE, "128", entries, "11.5k", HOSTILE), bracket),),
        (HOSTILE,),
    )


def test_hostile_names_stay_in_their_cell() -> None:
    text = layout.markdown(hostile())
    (row,) = [line for line in text.splitlines() if "128" in line]
    assert len(row.replace(r"\|", "").split("|")) == 7
    assert "<m>" not in text


def compiled(folder: Path, *names: str) -> str:
    """The text of the document that inputs these files."""
    if shutil.which("pdflatex") is None:
        pytest.skip("needs pdflatex (Debian: texlive-latex-recommended)")
    found = subprocess.run(["kpsewhich", "booktabs.sty"], capture_output=True, check=False)
    if found.returncode:
        pytest.skip("needs LaTeX's booktabs.sty (Debian: texlive-latex-recommended)")
    inputs = "".join(rf"\input{{{name}}}" for name in names)
    head = r"\documentclass{article}\usepackage{booktabs}\begin{document}"
    (folder / "page.tex").write_text(rf"{head}{inputs}\end{{document}}")
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "page.tex"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, errors="replace", timeout=60)
    assert done.returncode == 0, done.stdout[-2000:]
    assert (folder / "page.pdf").is_file()
    return done.stdout


def test_tables_compile_with_booktabs_alone(tmp_path: Path) -> None:
    small(tmp_path)
    assert run(tmp_path, "table3", "--model", "smollm2") == 0
    shutil.copy(tmp_path / "tables" / "table3.tex", tmp_path)
    shutil.copy(GOLDEN / "table3.tex", tmp_path / "golden.tex")
    (tmp_path / "hostile.tex").write_text(latex.render(hostile()))
    every = "".join(map(chr, range(32, 127)))
    (tmp_path / "ascii.tex").write_text(latex.escape(every))
    output = compiled(tmp_path, "table3", "golden", "hostile", "ascii")
    assert r"{[}3pt]" in latex.render(hostile())
    assert "Missing character" not in output


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0"),
        (512, "512"),
        (999.4, "999"),
        (999.6, "1.00k"),
        (11_520, "11.5k"),
        (900_000, "900k"),
        (999_600, "1.00M"),
    ],
)
def test_what_is_stored_has_three_digits(number: float, text: str) -> None:
    assert layout.short(number) == text


@pytest.mark.parametrize("errors", [True, False])
def test_a_table_of_many_methods_goes_on_over_pages(tmp_path: Path, errors: bool) -> None:
    """26 methods at three budgets: no float is larger than its page, no row is lost or said twice."""
    entry = Entry("50.00", "1.00" if errors else "")
    full = (Row("FullKV", "--", (entry, entry)),)
    blocks = [
        tuple(Row(f"M{number}", size, (entry, entry), heading=size) for number in range(26))
        for size in ("128", "256", "512")
    ]
    text = latex.render(Table("long", "Many.", (("QA", 1),), ("Hot", "Avg"), (full, *blocks), ("Note.",)))
    assert text.count(r"\caption{Many.}") == text.count(r"\label{tab:long}") == 1
    assert text.count(r"\caption{Continued.}") == text.count(r"\begin{table}") - 1 == (2 if errors else 1)
    assert [text.count(f"M{number} &") for number in range(26)] == [3] * 26
    (tmp_path / "long.tex").write_text(text)
    output = compiled(tmp_path, "long")
    assert "Float too large" not in output
    assert "Overfull" not in output


def test_a_budget_that_fits_no_page_is_cut_within() -> None:
    rows = tuple(Row(f"M{number}", "128", (Entry("50.00"),), heading="128") for number in range(100))
    text = latex.render(Table("long", "Many.", (("QA", 1),), ("Hot",), (rows,), ()))
    assert text.count("Budget 128") == text.count(r"\begin{table}") == 2
