"""Paired comparisons, the power to see the claimed gains, and the chat-template experiment."""

from __future__ import annotations

import math
import random
from pathlib import Path

import pandas as pd
import pytest

from eval import anomaly, compare
from eval.inputs import subsets
from eval.tables import __main__ as tables
from eval.tables import cells, collect
from tests.eval.stores import pattern, write


def coins(share: float, n: int, seed: int) -> list[bool]:
    dice = random.Random(seed)
    return [dice.random() < share for _ in range(n)]


def test_claimed_gains_are_those_of_the_tables() -> None:
    gains = {(gain.model, gain.budget, gain.subset): gain for gain in compare.claimed_gains()}
    assert gains["mistral", 128, "average"].points == pytest.approx(0.26)
    assert gains["mistral", 128, "multifieldqa_en"].points == pytest.approx(1.02)
    assert gains["qwen", 128, "2wikimqa"].points == pytest.approx(1.54)
    assert "Table 5 caption" in gains["mistral", 128, "hotpotqa"].sections
    assert ("mistral", 128, "2wikimqa") not in gains  # the table has a loss there
    assert list(gains.values()) == sorted(gains.values(), key=lambda gain: -gain.points)


def test_power(tmp_path: Path) -> None:
    tasks = ["hotpotqa", "2wikimqa", "musique"]
    for method, seed in (("laq", 1), ("echokv", 2)):
        right = {name: coins(0.5, 40, seed + place) for place, name in enumerate(tasks[:2])}
        write(tmp_path, method, 128, right | {"musique": pattern(3, 4)})
    frame = collect.answers(collect.find(tmp_path, "longbench", "smollm2")).frame
    pairs = cells.cells(cells.scored(frame, "difflib", tmp_path), tasks, "laq")
    gains = [
        compare.Gain("mistral", budget, task, points, ("5.2",))
        for budget, task, points in [
            (128, "hotpotqa", 1.0), (128, "2wikimqa", 90.0), (128, "musique", 1.0), (128, "average", 1.0),
            (256, "hotpotqa", 1.0),
        ]
    ]  # fmt: skip
    table = compare.power_table(gains, pairs)
    assert list(table["verdict"]) == [
        "too small for the data at hand",
        "can be detected",
        "not judged: no pair differs",
        "not judged: 3 of 16 tasks at hand",
        "no pairs of EchoKV and LAQ at hand",
    ]
    error = pairs[(pairs["method"] == "echokv") & (pairs["subset"] == "hotpotqa")]["paired_error"].iloc[0]
    assert float(table["detectable"][0]) == pytest.approx(2.8016 * error, abs=0.01)
    assert int(table["needed n"][0].replace(",", "")) == math.ceil(40 * (2.801585 * error / 1.0) ** 2)


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for method, share in (("laq", 0.2), ("echokv", 0.9), ("snapkv", 0.2)):
        write(tmp_path, method, 128, {name: coins(share, 20, len(method)) for name in subsets.ENGLISH})
    words = ["--results", str(tmp_path), "--model", "smollm2"]
    assert compare.main(words) == 0
    out = capsys.readouterr().out
    lines = [line.split() for line in out.splitlines() if "average of 16" in line]
    assert [line[0] for line in lines] == ["SnapKV", "EchoKV"]
    assert float(lines[1][-1]) < 0.001  # Holm
    assert "Table 5 caption" in out
    assert "no pairs" not in out
    assert "\n6 more are of tasks or budgets that EchoKV and LAQ lack here" in out
    assert compare.main([*words, "--against", "snapk"]) == 1
    assert "--against 'snapk' was not run; did you mean snapkv" in capsys.readouterr().err
    assert tables.main(["table3", *words, "--against", "snapk"]) == 1
    assert "--against 'snapk' was not run; did you mean snapkv" in capsys.readouterr().err
    assert not (tmp_path / "tables").exists()


def test_claims_without_both_methods_are_not_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for method in ("snapkv", "echokv"):
        write(tmp_path, method, 128, {"trec": [True, False]})
    assert compare.main(["--results", str(tmp_path), "--model", "smollm2", "--against", "snapkv"]) == 0
    assert capsys.readouterr().out.rstrip().endswith("\n\nnot judged: EchoKV and LAQ were not both run")


def test_laq_need_not_be_run_for_a_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, "echokv", 128, {"trec": [True, False]})
    words = ["--results", str(tmp_path), "--model", "smollm2"]
    assert tables.main(["table3", *words]) == 0
    assert compare.main(words) == 1
    assert "--against 'laq' was not run; known: echokv" in capsys.readouterr().err


CORNERS = [(chat, generation) for chat in ("all", "official") for generation in ("checkpoint", "bare")]


def square(
    results: Path, good: dict[tuple[str, str], int], tasks: tuple[str, ...] = ("lcc", "repobench-p")
) -> list[str]:
    """FullKV's answers under four pairs of rules, each with so many right ones of 40; the words that compare them."""
    for chat, generation in good:
        right = {name: pattern(good[chat, generation], 40) for name in (*tasks, "trec")}
        write(results, "full", None, right, protocol={"chat": chat, "generation": generation})
    return ["--results", str(results), "--model", "smollm2"]


TEMPLATE = "the low FullKV scores on code come from the template"
SETTINGS = "the low FullKV scores on code come from the settings"


@pytest.mark.parametrize(
    ("good", "verdicts"),
    [
        # Both rules alone do nothing; together they ruin the answers.
        (
            (2, 38, 38, 38),
            [
                f"supports the reading that {TEMPLATE}",
                f"speaks against the reading that {TEMPLATE}: not one answer on code changes",
                f"supports the reading that {SETTINGS}",
                f"speaks against the reading that {SETTINGS}: not one answer on code changes",
            ],
        ),
        # The template alone, and a little of the settings.
        (
            (2, 3, 38, 38),
            [
                f"supports the reading that {TEMPLATE}",
                f"supports the reading that {TEMPLATE}",
                f"does not decide whether {SETTINGS}",
                f"speaks against the reading that {SETTINGS}: not one answer on code changes",
            ],
        ),
        ((38, 38, 2, 20), [f"speaks against the reading that {TEMPLATE}"] * 2),
    ],
)
def test_anomaly(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], good: tuple[int, ...], verdicts: list[str]
) -> None:
    words = square(tmp_path, dict(zip(CORNERS, good, strict=True)))
    assert anomaly.main(words) == 0
    out = capsys.readouterr().out
    said = [line for line in out.splitlines() if line.startswith("- ")]
    starts = [
        "- With the generation settings, the chat template: ",
        "- Without the generation settings, the chat template: ",
        "- In the chat template, the checkpoint's generation settings: ",
        "- As LongBench has the template, the checkpoint's generation settings: ",
    ]
    assert len(said) == 4
    for line, start in zip(said, starts, strict=True):
        assert line.startswith(start)
    for line, verdict in zip(said, verdicts, strict=False):
        assert line.endswith(f"; this {verdict}.")
    assert "This is SmolLM2-135M-Instruct (a 135M model), not Qwen: for Table 4 it is an analogy." in out
    assert "| 6.62 |" in out
    assert (tmp_path / "tables" / "anomaly.md").read_text().strip() == out.strip()
    differences = pd.read_csv(tmp_path / "tables" / "anomaly.csv").dropna(subset=["rule"])
    assert len(differences) == 4 * 3
    assert (differences["p_holm"] >= differences["p"]).all()
    lcc = differences[differences["subset"] == "lcc"].set_index(["on", "off"])["paired_difference"]
    shares = {", ".join(corner): 100 * count / 40 for corner, count in zip(CORNERS, good, strict=True)}
    for (on, off), points in lcc.items():
        assert points == pytest.approx((shares[on] - shares[off]) * unit(tmp_path), abs=1e-6)


def unit(results: Path) -> float:
    """How much more a right answer of lcc scores than a wrong one, as a share of all points."""
    scores = pd.read_csv(results / "tables" / "anomaly.csv")
    own = scores[(scores["subset"] == "lcc") & scores["rule"].isna()].drop_duplicates("score")
    counts = {float(row.score) for row in own.itertuples()}
    (low, high) = min(counts), max(counts)
    return (high - low) / 90  # of 2 and 38 right ones of 40


def test_anomaly_needs_all_four_pairs_and_code(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = square(tmp_path, dict.fromkeys(CORNERS[:3], 20), ())
    assert anomaly.main(words) == 1
    told = (
        "no FullKV answers with preset.chat=official preset.generation=bare; run python run.py -m experiment=anomaly "
    )
    assert told in capsys.readouterr().err
    square(tmp_path, {CORNERS[3]: 20}, ())
    assert anomaly.main(words) == 0
    assert capsys.readouterr().out.count("no code task was run") == 4
