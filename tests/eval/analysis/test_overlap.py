"""Tables 1 and 2 and the refresh controls beside naive computations."""

from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor

from baselines.laq import LAQ
from echokv import EchoKV
from echokv.controls import OracleRefresh, RandomRefresh
from eval.analysis import overlap, positions
from eval.analysis.overlap import MEASURES, layer_overlap
from eval.analysis.study import Case
from tests import twin
from tests.policies import as_lists, shared_prefill, trace
from tests.twin_model import decode, rotate

LENGTH, BUDGET, STEPS = 200, 40, 8


def case(name: str, length: int = LENGTH) -> Case:
    """What a measurement reads of an example: its prefill alone."""
    return Case(None, None, shared_prefill(name, length), None, 8)  # type: ignore[arg-type]


@cache
def true_queries(name: str) -> list[Tensor]:
    """Queries of greedy decoding with nothing evicted, by the naive twin."""
    return decode(trace(name, LENGTH), None, STEPS + 1)[1]


def chosen(queries: list[Tensor], keys: list[Tensor], budget: int = BUDGET) -> list[list[set[int]]]:
    """I_B of Eq. 3 per layer and group, by the naive twin."""
    seen = [keys[0].shape[1]] * queries[0].shape[1]
    return [
        [set(row) for row in layer]
        for layer in twin.keep(twin.score(queries, keys, seen, "kv_head"), [budget] * len(keys))
    ]


def shared(left: list[list[set[int]]], right: list[list[set[int]]]) -> list[float]:
    """Eq. 1 of each layer."""
    return [
        sum(len(a & b) / BUDGET for a, b in zip(one, other, strict=True)) / len(one)
        for one, other in zip(left, right, strict=True)
    ]


@pytest.mark.parametrize("name", ["llama", "qwen3"])
def test_overlap_is_the_naive_one(name: str) -> None:
    prompt = trace(name, LENGTH)
    press = EchoKV(workspace=80, eos="continue")
    found = overlap.measure(case(name), {"echokv": press}, BUDGET)["methods"]["echokv"]
    rounds = twin.echokv(prompt, BUDGET, workspace=80, eos="continue").rounds
    mine = [torch.cat([part.queries[layer] for part in rounds], 1) for layer in range(3)]
    true = true_queries(name)
    for step in range(STEPS):
        alone, pool = slice(step, step + 1), slice(step + 1)
        own, other = ([q[:, alone] for q in queries] for queries in (mine, true))
        own_pool, other_pool = ([q[:, pool] for q in queries] for queries in (mine, true))
        expected = {
            "overlap": shared(chosen(own, prompt.keys), chosen(other, prompt.keys)),
            "pooled": shared(chosen(own_pool, prompt.keys), chosen(other, prompt.keys)),
            "joint": shared(chosen(own_pool, prompt.keys), chosen(other_pool, prompt.keys)),
        }
        for measure in MEASURES:
            assert [layer[step] for layer in found[measure]] == pytest.approx(expected[measure], abs=1e-6)
    tokens = [token for part in rounds for token in part.tokens]
    assert found["same"] == [a == b for a, b in zip(tokens, decode(prompt, None, STEPS + 1)[0], strict=False)]


def test_overlap_is_one_where_the_workspace_holds_everything() -> None:
    presses = {"frozen": EchoKV(workspace=LENGTH, refresh_at=()), "refreshed": EchoKV(workspace=LENGTH)}
    for found in overlap.measure(case("mistral"), presses, BUDGET)["methods"].values():
        assert all(found["same"])
        for measure in ("overlap", "joint"):
            assert all(share == 1 for layer in found[measure] for share in layer)


def test_frozen_and_refreshed_agree_until_the_refresh() -> None:
    presses = {"frozen": EchoKV(workspace=60, refresh_at=()), "refreshed": EchoKV(workspace=60)}
    found = overlap.measure(case("llama"), presses, BUDGET)["methods"]
    one, other = (torch.tensor(found[name]["overlap"]) for name in presses)
    assert torch.equal(one[:, :4], other[:, :4])
    assert not torch.equal(one[:, 4:], other[:, 4:])


def test_oracle_decodes_once_for_all_presses(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    plain = overlap.oracle
    monkeypatch.setattr(overlap, "oracle", lambda *given: calls.append(1) or plain(*given))
    presses = {"a": EchoKV(workspace=60), "b": LAQ(workspace=60, mask="none"), "c": EchoKV(workspace=60, steps=4)}
    found = overlap.measure(case("llama"), presses, BUDGET)
    assert len(calls) == 1
    assert found["true_steps"] == 8
    assert len(found["methods"]["c"]["same"]) == 4


def test_pool_of_one_step_is_the_step() -> None:
    filled = shared_prefill("qwen2", LENGTH)
    queries = true_queries("qwen2")[0][:, :1]
    shares = layer_overlap(queries, queries.flip(0), filled.keys[0], filled.scaling, BUDGET)
    assert shares["overlap"] == shares["pooled"] == shares["joint"]


@pytest.mark.parametrize("name", ["llama", "qwen2"])
def test_positions_are_the_naive_ones(name: str) -> None:
    """Contents are taken before rotation here, and rotated once; the library moves rotated queries."""
    prompt, filled, step = trace(name, LENGTH), shared_prefill(name, LENGTH), 3
    kept = twin.echokv(prompt, BUDGET, workspace=80, refresh_at=(), eos="continue").rounds[0]
    lookahead = kept.queries[0]
    back = [rotate_back(prompt.model, lookahead[:, i : i + 1], LENGTH + i) for i in range(step)]
    last = prompt.raw[0][:, LENGTH - 1 : LENGTH]
    contents = {
        "prompt": last,
        "locked": back[0],
        "locked_latest": back[1],
        "linear": 2 * back[1] - back[0],
        "linear_prompt": last + 3 * (back[0] - last),
        "lookahead": back[2],
    }
    mine = positions.moved(filled, 0, lookahead, step)
    assert set(mine) == set(positions.STRATEGIES) == set(contents)
    for strategy, content in contents.items():
        expected = rotate(prompt.model, content, [LENGTH + step - 1])[:, 0]
        # The model computes its cosines in float32: turning back and forth rounds at 1e-7.
        torch.testing.assert_close(mine[strategy], expected, rtol=1e-6, atol=1e-6)


def rotate_back(model: Any, vectors: Tensor, position: int) -> Tensor:
    """Undo R(position), by solving for the vector that it turns into the given one."""
    dim = vectors.shape[-1]
    matrix = rotate(model, torch.eye(dim, dtype=vectors.dtype)[None], [position] * dim)[0]  # rows: R e_i
    return vectors @ torch.linalg.inv(matrix)


def test_table_2_lookahead_is_table_1() -> None:
    press = EchoKV(workspace=80, refresh_at=())
    by_layer = positions.measure(case("llama"), press, BUDGET, 3)["overlap"]["lookahead"]
    table1 = overlap.measure(case("llama"), {"frozen": press}, BUDGET)["methods"]["frozen"]["overlap"]
    assert by_layer == [layer[2] for layer in table1]


def test_positions_of_a_prompt_that_fits_are_left_out() -> None:
    assert positions.measure(case("llama"), EchoKV(workspace=80), LENGTH, 3) == {"overlap": None}


@pytest.mark.parametrize("observe", ["same", "next"])
def test_oracle_refresh_takes_the_true_queries(observe: str) -> None:
    press = OracleRefresh(workspace=80, eos="continue", observe=observe)  # type: ignore[arg-type]
    first, second = press.rounds(shared_prefill("llama", LENGTH), BUDGET)
    some = slice(0, 4) if observe == "same" else slice(4, 8)
    expected = chosen([layer[:, some] for layer in true_queries("llama")], trace("llama", LENGTH).keys, 80)
    assert [[set(head) for head in layer] for layer in as_lists(second.workspace)] == expected
    plain, _ = EchoKV(workspace=80, eos="continue").rounds(shared_prefill("llama", LENGTH), BUDGET)
    assert as_lists(first.workspace) == as_lists(plain.workspace)


def test_random_refresh_is_random_and_repeatable() -> None:
    filled = shared_prefill("llama", LENGTH)
    spaces = [list(RandomRefresh(workspace=80, seed=seed).rounds(filled, BUDGET))[1].workspace for seed in (0, 0, 1)]
    assert as_lists(spaces[0]) == as_lists(spaces[1]) != as_lists(spaces[2])
    flat = torch.cat([layer.flatten() for layer in spaces[0].indices]).double()
    assert len(flat) == 3 * 2 * 80
    assert abs(float(flat.mean()) - (LENGTH - 1) / 2) < 12  # three standard errors of a uniform draw
