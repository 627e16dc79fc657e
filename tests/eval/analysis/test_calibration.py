"""A calibration: its points and ranges against naive ones, and from records of a tiny model to a run."""

import json
from collections.abc import Callable, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from echokv import prefill
from echokv.calibrated import Calibration
from eval import calibrate as door
from eval.analysis import calibration
from eval.analysis.points import BINS, Counts, best_points, distances
from eval.analysis.settings import Calibrate
from eval.answering.runner import carry_out
from eval.console.errors import UserError
from eval.planning.plan import Plan
from tests.eval.analyses import analyse
from tests.models import ARCHITECTURES, VOCAB, tiny
from tests.test_configs import composed
from tests.test_kvquant import twin_outliers, twin_turn

SMALL = ["analysis.sequences=3", "analysis.length=64", "subset=[syn_fact,syn_trec]"]


# --- Points -------------------------------------------------------------------------------------------------


def twin_cost(numbers: Sequence[float], points: Sequence[float]) -> float:
    return sum(min((x - point) ** 2 for point in points) for x in numbers)


def twin_best(numbers: Sequence[float], k: int) -> float:
    """The least squared distance in all, over every cut of the ordered numbers into k parts."""
    ordered, costs = sorted(numbers), []
    for cut in combinations(range(1, len(ordered)), k - 1):
        parts = [ordered[a:b] for a, b in zip((0, *cut), (*cut, len(ordered)), strict=True)]
        costs.append(twin_cost(ordered, [sum(part) / len(part) for part in parts]))
    return min(costs)


@given(st.lists(st.integers(-8, 8), min_size=4, max_size=11), st.integers(1, 4))
def test_no_other_points_lie_nearer(places: list[int], k: int) -> None:
    """Numbers that each have a bin of their own, some of them several times."""
    numbers = torch.tensor(places).double() / 10
    counted = Counts.none(1)
    counted.add(0, numbers)
    if len(set(places)) < k:
        with pytest.raises(UserError, match="too alike for"):
            best_points(counted.numbers[0], counted.sums[0], k)
        return
    found = best_points(counted.numbers[0], counted.sums[0], k)
    assert found.tolist() == sorted(found.tolist())
    cost = twin_cost(numbers.tolist(), found.tolist())
    assert cost == pytest.approx(twin_best(numbers.tolist(), k), abs=1e-12)
    assert float(distances(counted, found[None])) == pytest.approx(cost / len(places), abs=1e-12)


def lloyd(numbers: Tensor, points: Tensor, steps: int = 200) -> Tensor:
    """Plain k-means from a start: every point becomes the mean of what is nearest to it."""
    for _ in range(steps):
        own = (numbers[:, None] - points).abs().argmin(dim=1)
        points = torch.stack([numbers[own == i].mean() if (own == i).any() else points[i] for i in range(len(points))])
    return points


@pytest.mark.parametrize("k", [4, 16])
def test_plain_k_means_finds_none_better(k: int) -> None:
    """From ten starts, on the numbers themselves and not their bins: what bins cost is far below what points leave."""
    generator = torch.Generator().manual_seed(k)
    numbers = torch.randn(5000, generator=generator, dtype=torch.float64).div(3).clamp(-1, 1)
    counted = Counts.none(1)
    counted.add(0, numbers)
    mine = best_points(counted.numbers[0], counted.sums[0], k)

    def cost(points: Tensor) -> float:
        return float((numbers[:, None] - points).square().amin(dim=1).mean())

    starts = [numbers[torch.randperm(5000, generator=generator)[:k]] for _ in range(10)]
    assert cost(mine) <= min(cost(lloyd(numbers, start)) for start in starts) + (2 / BINS) ** 2
    assert cost(lloyd(numbers, mine)) == pytest.approx(cost(mine), abs=(2 / BINS) ** 2)


# --- Ranges and units ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ARCHITECTURES)
@pytest.mark.parametrize(("share", "sinks"), [(0.99, 5), (0.8, 0), (1.0, 3)])
def test_ranges_and_counts_are_the_naive_ones(name: str, share: float, sinks: int) -> None:
    model, length = tiny(name), 40
    options = Calibrate(
        name="c", kind="calibrate", sequences=3, length=length, share=share, sinks=sinks, bits=[4]  # type: ignore[arg-type]
    )  # fmt: skip
    # No token twice: in the first layer its keys would be the same numbers twice, but for rounding.
    ids = torch.randperm(VOCAB, generator=torch.Generator().manual_seed(1))[: 3 * length].view(3, length)
    filled = [prefill(model, one) for one in ids]
    low, high = calibration.ranges(iter(filled), options)
    keys, values = calibration.counts(iter(filled), low, high, options)
    for layer in range(3):
        units: dict[str, list[float]] = {"keys": [], "values": []}
        for group in range(2):
            plain = [twin_turn(model, one.keys[layer][group], range(length), back=True)[sinks:] for one in filled]
            for channel, column in enumerate(torch.cat(plain).T.tolist()):
                lowest, highest, own = twin_units(column, share)
                assert float(low[layer, group, channel]) == pytest.approx(lowest, abs=1e-9)
                assert float(high[layer, group, channel]) == pytest.approx(highest, abs=1e-9)
                units["keys"] += own
            for one in filled:
                for row in one.values[layer][group, sinks:].tolist():
                    units["values"] += twin_units(row, share)[2]
        for kind, counted in (("keys", keys), ("values", values)):
            naive = torch.tensor(units[kind], dtype=torch.float64)
            assert int(counted.numbers[layer].sum()) == len(naive)
            assert float(counted.sums[layer].sum()) == pytest.approx(float(naive.sum()), abs=1e-6)
            in_bins = counted.numbers[layer].view(16, -1).sum(dim=1)
            assert (in_bins - naive.clamp(-1, 1).histc(16, -1, 1)).abs().max() <= 1  # one may lie on an edge


def twin_units(numbers: list[float], share: float) -> tuple[float, float, list[float]]:
    """The range of what is no outlier, and that in units of half its width from its middle."""
    count = twin_outliers(len(numbers), share)
    inside = sorted(numbers)[count : len(numbers) - count]
    middle, half = (inside[0] + inside[-1]) / 2, (inside[-1] - inside[0]) / 2
    return inside[0], inside[-1], [(x - middle) / half for x in inside]


# --- From records to a run ----------------------------------------------------------------------------------


def calibrated(settings: list[str], results: Path, *more: str) -> Path:
    analyse("calibrate", [word for word in settings if not word.startswith("results")], *SMALL, *more,
            f"results={results}")  # fmt: skip
    (path,) = results.rglob("calibration.safetensors")
    return path


def test_from_records_to_a_run(tiny_settings: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = calibrated(tiny_settings, tmp_path / "one")
    said = capsys.readouterr().out
    assert f"cache=kvquant_c cache.file={path}" in said
    assert "3 sequences of 64 tokens from 1 prompts (synthetic)" in said
    made, about = Calibration.read(str(path)), json.loads(path.with_suffix(".about.json").read_text())
    assert made.low.shape == (2, 2, 8)
    assert (made.low < made.high).all()
    assert {bits: tuple(part.shape) for bits, part in made.keys.items()} == {4: (2, 16), 2: (2, 4)}
    assert all((part.diff() > 0).all() and part.abs().max() <= 1 for one in (made.keys, made.values)
               for part in one.values())  # fmt: skip
    assert (about["title"], about["sequences"], about["length"], len(about["records"])) == ("tiny", 3, 64, 1)
    assert "weights" in about["model"]
    assert calibrated(tiny_settings, tmp_path / "two").read_bytes() == path.read_bytes()

    run = [*tiny_settings, "method=snapkv", "budget=64", "subset=syn_fact", "cache=kvquant_c", "cache.bits=[4,2]"]
    plan = Plan.of(composed(*run, f"cache.file={path}"))
    assert [cell.label for cell in plan.grid] == ["snapkv + KVQuant-c-4 64", "snapkv + KVQuant-c-2 64"]
    assert plan.grid[0].store.key.identity["cache"]["file"].startswith("sha256:")
    carry_out(plan)
    for cell in plan.grid:
        (first, _) = cell.store.answers("syn_fact").values()
        assert cell.codec is not None
        assert first["bytes"] == 4 * cell.codec.bytes(64, 8, 4)

    moved = tmp_path / "elsewhere.safetensors"
    moved.write_bytes(path.read_bytes())
    assert Plan.of(composed(*run, f"cache.file={moved}")).grid[0].store.folder == plan.grid[0].store.folder
    other = calibrated(tiny_settings, tmp_path / "three", "data.seed=5")
    assert Plan.of(composed(*run, f"cache.file={other}")).grid[0].store.folder != plan.grid[0].store.folder

    path.with_suffix(".about.json").write_text(json.dumps(about | {"model": {"name": "another"}, "title": "another"}))
    with pytest.raises(UserError, match=r"cache: file=.*calibration\.safetensors is of another, this run of"):
        Plan.of(composed(*run, f"cache.file={path}"))
    with pytest.raises(UserError, match=r"cache: cannot read .*none: No such file"):
        Plan.of(composed(*run, f"cache.file={tmp_path}/none"))


def test_prompts_are_taken_task_by_task(tiny_settings: list[str], tmp_path: Path) -> None:
    """The first record of each task, then the second ones, as far as they are needed."""
    path = calibrated(tiny_settings, tmp_path, "analysis.sequences=80")
    used = json.loads(path.with_suffix(".about.json").read_text())["records"]
    plan = Plan.of(composed("experiment=calibrate", *tiny_settings, *SMALL))
    fact, other_fact, trec, other_trec = (example.fingerprint for example in plan.data.examples)
    assert used == [fact, trec, other_fact, other_trec][: len(used)]
    assert 2 < len(used) < 4


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["analysis.sequences=999"],
            r"the 4 prompts have [\d,]+ tokens, and 999 sequences of 64 are wanted: give more",
        ),
        (["analysis.length=40000"], "analysis.length is 40000; this model has 32768 positions: take no more"),
        (["analysis.bits=[3]"], "analysis.bits is .*; give a list of different numbers of bits, 2 or 4"),
        (["analysis.share=0.2"], "analysis.share is 0.2; give a number from 0.5 to 1"),
        (["cache=kivi"], "analyses are of caches that are stored as they are"),
    ],
)
def test_wrong_ones_are_refused(tiny_settings: list[str], words: list[str], said: str) -> None:
    with pytest.raises(UserError, match=said):
        analyse("calibrate", tiny_settings, *SMALL, *words)


def test_what_does_not_fit_is_told(
    tiny_settings: list[str], short_of_memory: Callable[[Any, str, int], list[int]]
) -> None:
    short_of_memory(calibration, "prefill", 2)
    with pytest.raises(UserError, match=r"64 tokens do not fit into the device's memory: take analysis\.length= less"):
        analyse("calibrate", tiny_settings, *SMALL)


@pytest.mark.parametrize("words", [[], ["data.records=3"], ["--help"]])
def test_a_model_is_named_first(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["calibrate", *words])
    with pytest.raises(UserError, match=r"name a model first: python -m eval\.calibrate smollm2"):
        door.begin()
