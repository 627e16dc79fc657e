"""Acceptance tests of lookahead: rounds, stop ids, and what EchoKV and LAQ reduce to."""

from typing import Any

import pytest
import torch

from baselines.full import FullKV
from baselines.laq import LAQ
from echokv import EchoKV, Prefill, Session, Stretch, advance, decode, decode_rows, prefill
from tests import twin
from tests.models import ARCHITECTURES, counting, prompt, tiny
from tests.policies import ALL, EVERYTHING, WORKSPACE, as_lists, close, compare, shared_prefill, trace
from tests.twin_model import Trace, forward
from tests.twin_model import decode as twin_decode

LENGTH = 200
BUDGET = 96
LOOKAHEAD = [name for name, policy in ALL.items() if policy.lookahead()]
architectures = pytest.mark.parametrize("name", ARCHITECTURES)


def compare_rounds(rounds: list[Any], naive: list[twin.Round]) -> None:
    """Assert the same tokens on the same workspaces with the same queries."""
    assert [done.tokens for done in rounds] == [done.tokens for done in naive]
    for done, other in zip(rounds, naive, strict=True):
        assert as_lists(done.workspace) == other.workspace
        for mine, theirs in zip(done.queries, other.queries, strict=True):
            close(mine, theirs)


# 10. Hygiene


@pytest.mark.parametrize("granularity", ["kv_head", "query_head"])
@pytest.mark.parametrize("policy", LOOKAHEAD)
def test_rounds_equal_the_twins(policy: str, granularity: str) -> None:
    for name in ("mistral", "qwen3"):
        press, p = ALL[policy].press(granularity=granularity), shared_prefill(name, LENGTH)
        naive = ALL[policy].twin(trace(name, LENGTH), BUDGET, granularity=granularity)
        compare_rounds(press.rounds(p, BUDGET), naive.rounds)


@pytest.mark.parametrize("policy", LOOKAHEAD)
def test_lookahead_leaves_nothing_behind(policy: str) -> None:
    p, press = prefill(tiny("qwen2"), torch.tensor(prompt(LENGTH)), EVERYTHING), ALL[policy].press()
    before = [tensor.clone() for tensor in (*p.keys, *p.values, p.logits)]
    selection = press.select(p, BUDGET)
    session = Session(p, selection)
    tokens = decode_rows([session], 8)[0]
    assert all(torch.equal(*pair) for pair in zip(before, (*p.keys, *p.values, p.logits), strict=True))
    assert all(int(layer.max()) < LENGTH for layer in selection.indices)
    assert tokens[0] == int(p.logits.argmax()) == decode(p, FullKV().select(p, None), 1)[0]
    assert tokens == twin_decode(trace("qwen2", LENGTH), as_lists(selection), 8)[0]
    assert press.rounds(p, BUDGET)[0].tokens[0] == tokens[0]


# 11. Stop ids during lookahead: `counting` answers n with n + 1, so the step that produces one is known

LAST = 10


def counting_prompt() -> tuple[int, ...]:
    return (*prompt(LENGTH)[:-1], LAST)


@pytest.fixture(scope="module")
def counted() -> Trace:
    return forward(counting(), counting_prompt())


def stopped(stop: int, minimum: int = 0) -> Prefill:
    ids = torch.tensor(counting_prompt())
    return prefill(counting(), ids, EVERYTHING, stop_ids=[stop], min_new_tokens=minimum)


@pytest.mark.parametrize("steps", [2, 5, 8])
@pytest.mark.parametrize("policy", ["laq", "echokv", "stage1_only", "iterative_only"])
def test_a_stop_id_ends_the_lookahead(policy: str, steps: int, counted: Trace) -> None:
    halves = [steps // 2, steps - steps // 2] if policy in ("echokv", "iterative_only") else [steps]
    for fed in range(1, steps + 1):
        stop = LAST + 1 + fed  # produced by the forward number `fed`
        naive = ALL[policy].twin(counted, BUDGET, steps=steps, stop=[stop])
        press, p = ALL[policy].press(steps=steps), stopped(stop)
        rounds = press.rounds(p, BUDGET)
        first = min(fed, halves[0])
        assert [len(done.tokens) for done in rounds] == [n for n in (first, fed - first) if n]
        assert [token for done in rounds for token in done.tokens] == list(range(LAST + 1, LAST + 1 + fed))
        assert [done.queries[0].shape[1] for done in rounds] == [len(done.tokens) for done in rounds]
        compare_rounds(rounds, naive.rounds)
        compare(press, p, BUDGET, naive)
        assert decode(p, press.select(p, BUDGET), 20) == list(range(LAST + 1, stop + 1))


@pytest.mark.parametrize("policy", ["laq", "echokv"])
def test_a_stop_id_as_the_first_token_is_fed_all_the_same(policy: str, counted: Trace) -> None:
    naive = ALL[policy].twin(counted, BUDGET, stop=[LAST + 1])
    press, p = ALL[policy].press(), stopped(LAST + 1)
    rounds = press.rounds(p, BUDGET)
    assert [token for done in rounds for token in done.tokens] == list(range(LAST + 1, LAST + 9))
    compare_rounds(rounds, naive.rounds)
    assert decode(p, press.select(p, BUDGET), 20) == [LAST + 1]


@pytest.mark.parametrize("policy", ["laq", "echokv"])
@pytest.mark.parametrize("minimum", [1, 3])
def test_lookahead_bans_the_stop_ids_that_decoding_bans(policy: str, minimum: int, counted: Trace) -> None:
    for stop in (LAST + 1, LAST + 2, LAST + 3, LAST + 4):
        naive = ALL[policy].twin(counted, BUDGET, stop=[stop], minimum=minimum)
        press, p = ALL[policy].press(), stopped(stop, minimum)
        compare_rounds(press.rounds(p, BUDGET), naive.rounds)
        selection = press.select(p, BUDGET)
        assert decode(p, selection, 12) == twin_decode(counted, as_lists(selection), 12, [stop], minimum)[0]


@pytest.mark.parametrize("policy", ["laq", "echokv"])
def test_lookahead_can_go_on_past_a_stop_id(policy: str, counted: Trace) -> None:
    for fed in (1, 4, 8):
        press, p = ALL[policy].press(eos="continue"), stopped(LAST + 1 + fed)
        compare(press, p, BUDGET, ALL[policy].twin(counted, BUDGET, eos="continue", stop=[LAST + 1 + fed]))
        assert sum(len(done.tokens) for done in press.rounds(p, BUDGET)) == 8


# 12. Reductions


@pytest.mark.parametrize(("steps", "granularity"), [(2, "kv_head"), (5, "query_head"), (8, "kv_head")])
@architectures
def test_a_whole_workspace_gives_the_queries_of_full_kv(name: str, steps: int, granularity: str) -> None:
    p = shared_prefill(name, LENGTH)
    session = Session(p, FullKV().select(p, None), record=True)
    advance(Stretch(session, steps))
    press = EchoKV(steps=steps, workspace=LENGTH, granularity=granularity)
    rounds = press.rounds(p, BUDGET)
    assert all(as_lists(done.workspace) == twin.everything(trace(name, LENGTH)) for done in rounds)
    assert [len(done.tokens) for done in rounds] == [steps // 2, steps - steps // 2]
    ahead = [torch.cat(pair, 1) for pair in zip(*(done.queries for done in rounds), strict=True)]
    naive = twin_decode(trace(name, LENGTH), None, steps + 1)[1]
    for mine, other, uncut in zip(ahead, session.queries, naive, strict=True):
        close(mine, other)
        close(mine, uncut)
    # Equal queries choose equal keys: the overlap of Eq. 1 is 1.
    truth = twin.score(session.queries, p.keys, [LENGTH] * steps, granularity)
    assert as_lists(press.select(p, BUDGET)) == twin.keep(truth, [BUDGET] * 3)


@pytest.mark.parametrize("granularity", ["kv_head", "query_head"])
@architectures
def test_echokv_on_one_workspace_of_snapkv_is_laq(name: str, granularity: str) -> None:
    p = shared_prefill(name, LENGTH)
    common = {"workspace": WORKSPACE, "granularity": granularity}
    echo = EchoKV(bootstrap="window", pooling="max", refresh_at=(), **common)
    laq = LAQ(mask="none", **common)
    assert as_lists(echo.select(p, BUDGET)) == as_lists(laq.select(p, BUDGET))
    for mine, other in zip(echo.scores(p, BUDGET), laq.scores(p, BUDGET), strict=True):
        close(mine, other)
    official = LAQ(**common)
    assert as_lists(official.select(p, BUDGET)) != as_lists(laq.select(p, BUDGET))  # the mask is no no-op


def test_the_official_mask_shifts_scores_as_published() -> None:
    """Uniform attention of 4 queries on 20 keys, the last keys hidden in steps; the sums are known."""
    seen = [20 - 3 + step for step in range(4)]
    sums = twin.attention_sums(torch.zeros(4, 2), torch.zeros(20, 2), seen)
    assert [round(value, 3) for value in sums[-6:]] == [0.217, 0.217, 0.217, 0.158, 0.103, 0.050]
