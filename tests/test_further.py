"""Further turns on an evicted cache: held against a naive twin that masks what was evicted, and positions absolute."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from baselines.ada import AdaSnapKV
from baselines.expected_attention import ExpectedAttention
from baselines.full import FullKV
from baselines.h2o import H2O
from baselines.pyramidkv import PyramidKV
from baselines.snapkv import SnapKV
from baselines.streaming_llm import StreamingLLM
from echokv import EchoKV, Session, Stretch, UsageError, advance, compress, prefill
from echokv.further import PIECE, feed
from tests import twin
from tests.models import ARCHITECTURES, prompt, tiny
from tests.policies import ALL, EVERYTHING, as_lists, close, shared_prefill, trace
from tests.twin_model import Kept, Trace, forward, greedy

LENGTH, BUDGET, ANSWER, MORE = 200, 48, 11, 17


@pytest.mark.parametrize("name", ARCHITECTURES)
@pytest.mark.parametrize("policy", ["full", "snapkv", "pyramidkv", "query_heads", "ragged"])
def test_many_tokens_at_once_are_tokens_one_by_one(name: str, policy: str) -> None:
    """Causal among the new, all of the kept and of the tail before: on rectangles and on heads of unequal length."""
    press: Any = {
        "full": FullKV(), "snapkv": SnapKV(), "pyramidkv": PyramidKV(),
        "query_heads": SnapKV(granularity="query_head"), "ragged": AdaSnapKV(),
    }[policy]  # fmt: skip
    p = shared_prefill(name, LENGTH)
    selection = press.select(p, BUDGET)
    kept, state = as_lists(selection), trace(name, LENGTH)
    session = Session(p, selection, record=True)
    advance(Stretch(session, 3))
    state = forward(p.model, session.fed, state, kept)
    for tokens in (prompt(9, seed=1), prompt(1, seed=2), prompt(30, seed=3)):
        logits = feed(session, list(tokens))
        state = forward(p.model, list(tokens), state, kept)
        close(logits, state.logits)
        for mine, other in zip(session.tail_keys, state.keys, strict=True):
            close(mine, other[:, LENGTH:])
        for mine, other in zip(session.queries, state.queries, strict=True):
            close(mine[:, mine.shape[1] - len(tokens) :], other)
    session.next_token = int(logits.argmax())
    advance(Stretch(session, 5))
    for token in session.fed[43:]:
        assert token == greedy(state.logits)
        state = forward(p.model, [token], state, kept)


def test_a_turn_longer_than_a_piece() -> None:
    p = shared_prefill("llama", LENGTH)
    session = Session(p, SnapKV().select(p, BUDGET))
    tokens = list(prompt(PIECE + 40, seed=4))
    kept = as_lists(session.selection)
    close(feed(session, tokens), forward(p.model, tokens, trace("llama", LENGTH), kept).logits)


def talk(trace: Trace, kept: Kept, turn: Sequence[int], answer: int) -> tuple[list[int], Trace, list[Trace]]:
    """Greedy tokens, then a turn: the answer, the trace behind the turn, and the steps."""
    tokens, steps, state = [greedy(trace.logits)], [], trace
    while len(tokens) < answer:
        state = forward(trace.model, tokens[-1:], state, kept)
        steps.append(state)
        tokens.append(greedy(state.logits))
    for given in (tokens[-1:], turn):
        state = forward(trace.model, list(given), state, kept)
        steps.append(state)
    return tokens, state, steps


def held_now(kept: Kept, first: int, end: int) -> Kept:
    """Positions held once the tokens from `first` on have come to those kept."""
    return [[[*head, *range(first, end)] for head in layer] for layer in kept]


def again(state: Trace, held: Kept, queries: list[Tensor], window: int, kernel: int, sums: Any = None) -> Kept:
    """What a window's queries choose of the positions held; or given sums choose, a value a position held."""
    chosen: Kept = []
    for layer, (q, k) in enumerate(zip(queries, state.keys, strict=True)):
        ratio, heads = len(q) // len(k), []
        for group, own in enumerate(held[layer]):
            total = [0.0] * len(own)
            for head in range(group * ratio, (group + 1) * ratio):
                n = q.shape[1]
                seen = [len(own) - n + 1 + i for i in range(n)]
                part = sums[layer][head] if sums else twin.attention_sums(q[head], k[group, own], seen)
                total = [a + b for a, b in zip(total, part, strict=True)]
            free = len(own) - window
            scores = twin.pool(total[:free], "max", kernel) + [torch.inf] * window
            heads.append([own[place] for place in twin.top(scores, BUDGET)])
        chosen.append(heads)
    return chosen


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_two_further_turns_of_snapkv_are_those_of_the_twin(name: str) -> None:
    """What was generated counts as prompt, is evicted again to the budget, and the turn's window is protected."""
    state = trace(name, LENGTH)
    held = compress(state.model, list(prompt(LENGTH)), SnapKV(), BUDGET)
    kept = twin.snapkv(state, BUDGET).kept
    queries = state.queries
    for seed in (1, 2):
        turn = prompt(MORE, seed=seed)
        answer, after, steps = talk(state, kept, turn, ANSWER)
        assert held.generate(max_new_tokens=ANSWER) == [answer]
        held.feed(list(turn))
        first, end = state.keys[0].shape[1], after.keys[0].shape[1]
        queries = [torch.cat([old, *new], 1) for old, *new in zip(queries, *(s.queries for s in steps), strict=True)]
        kept = again(after, held_now(kept, first, end), [part[:, -32:] for part in queries], 32, 7)
        state = replace(after, length=end)
        assert held.entries == [BUDGET * 2 * 3]
        close(held.rows[0].logits, state.logits)
    answer, _, _ = talk(state, kept, turn, ANSWER)
    assert held.generate(max_new_tokens=ANSWER) == [answer]


def test_attention_sums_go_on() -> None:
    """H2O: a held token's sum is of all queries that saw it, those before the eviction included."""
    state = trace("llama", LENGTH)
    held = compress(state.model, list(prompt(LENGTH)), H2O(window=8), BUDGET)
    kept = twin.h2o(state, BUDGET, window=8).kept
    turn = prompt(MORE, seed=1)
    answer, after, steps = talk(state, kept, turn, ANSWER)
    assert held.generate(max_new_tokens=ANSWER) == [answer]
    held.feed(list(turn))
    end = after.keys[0].shape[1]
    now = held_now(kept, LENGTH, end)
    late = [torch.cat(list(new), 1) for new in zip(*(s.queries for s in steps), strict=True)]
    sums: list[list[list[float]]] = []
    for layer, (q, k) in enumerate(zip(state.queries, after.keys, strict=True)):
        rows = []
        for head in range(len(q)):
            group = head // (len(q) // len(k))
            own = now[layer][group]
            first = twin.attention_sums(q[head], k[group, :LENGTH], range(1, LENGTH + 1))
            new = late[layer].shape[1]
            then = twin.attention_sums(late[layer][head], k[group, own], range(len(own) - new + 1, len(own) + 1))
            rows.append([(first[p] if p < LENGTH else 0.0) + s for p, s in zip(own, then, strict=True)])
        sums.append(rows)
    kept = again(after, now, after.queries, 8, 1, sums)
    expected, _, _ = talk(replace(after, length=end), kept, turn, ANSWER)
    assert held.generate(max_new_tokens=ANSWER) == [expected]


@pytest.mark.parametrize("name", ALL)
def test_a_turn_after_nothing_was_evicted_is_a_prefill_of_both(name: str) -> None:
    """Every policy that can go on: its window, sums, proposals and lookahead are those of the joined prompt."""
    press = ALL[name].press()
    first, turn = list(prompt(120)), list(prompt(60, seed=3))
    held = compress(tiny("qwen3"), first, press, 120).feed(turn)
    whole = prefill(tiny("qwen3"), torch.tensor([*first, *turn]), EVERYTHING)
    expected = compress(tiny("qwen3"), [*first, *turn], press, 120)
    assert held.ids == expected.ids
    row, other = held.rows[0], expected.rows[0]
    assert row.prefill.end == other.prefill.end == whole.length == 180
    assert row.selection.kept == other.selection.kept
    for mine, same in zip(row.prefill.keys, other.prefill.keys, strict=True):
        close(mine, same)
    assert held.generate(max_new_tokens=20) == expected.generate(max_new_tokens=20)


def test_a_lookahead_after_evictions_is_at_the_right_positions() -> None:
    """Proposals and the tokens fed stand behind all tokens that there were, evicted ones included."""
    press = EchoKV(workspace=40)
    held = compress(tiny("llama"), list(prompt(LENGTH)), press, BUDGET)
    held.generate(max_new_tokens=ANSWER)
    merged: list[Any] = []
    select = EchoKV.select

    class Watched(EchoKV):
        def select(self, p: Any, budget: int | None = None) -> Any:
            merged.append(p)
            return select(self, p, budget)

    held.press = Watched(workspace=40)
    held.feed(list(prompt(MORE, seed=1)))
    (p,) = merged
    assert (p.length, p.end) == (BUDGET + ANSWER + MORE, LENGTH + ANSWER + MORE)
    # The first proposal of the last query is itself moved by one.
    source, query = p.end - 1, p.last_queries(0, 1)[:, 0]
    close(press.proposals(p)[0][:, 0], p.rotate(0, query, source, torch.tensor([p.end]))[:, 0])
    (session,) = [Session(p, press.rounds(p)[0].workspace, record=True)]
    advance(Stretch(session, 1))
    close(session.queries[0], press.rounds(p)[0].queries[0][:, :1])


def test_questions_share_a_context_and_leave_no_trace() -> None:
    state = trace("mistral", LENGTH)
    held = compress(state.model, list(prompt(LENGTH)), SnapKV(), BUDGET)
    kept = twin.snapkv(state, BUDGET).kept
    before = held.ids
    for seed in (1, 2, 3):
        question = list(prompt(MORE, seed=seed))
        asked = held.copy().feed(question, evict=False)
        behind = forward(state.model, question, state, kept)
        answer, _, _ = talk(behind, kept, [1], ANSWER)
        assert asked.generate(max_new_tokens=ANSWER) == [answer]
        for mine, same in zip(asked.rows[0].prefill.keys, held.rows[0].prefill.keys, strict=True):
            assert mine.data_ptr() == same.data_ptr()
    assert held.ids == before


def test_rows_take_turns_of_their_own() -> None:
    ids, more = [list(prompt(n)) for n in (90, 200, 33)], [list(prompt(n, seed=8)) for n in (5, 40, 12)]
    together = compress(tiny("llama"), ids, SnapKV(), BUDGET)
    alone = [compress(tiny("llama"), own, SnapKV(), BUDGET) for own in ids]
    for _ in range(2):
        assert together.generate(max_new_tokens=9) == [one.generate(max_new_tokens=9)[0] for one in alone]
        together.feed(more)
        for one, turn in zip(alone, more, strict=True):
            one.feed(turn)
    assert together.entries == [one.entries[0] for one in alone]
    with pytest.raises(UsageError, match="1 turns are given for 3 prompts: give one for each"):
        together.feed(more[0])


@pytest.mark.parametrize("press", [PyramidKV(), AdaSnapKV()], ids=["pyramidkv", "ada"])
def test_unequal_heads_take_turns_and_are_not_evicted_again(press: Any) -> None:
    held = compress(tiny("llama"), list(prompt(LENGTH)), press, BUDGET)
    with pytest.raises(UsageError, match=r"keeps unequally many tokens in layers or heads; .* pass evict=False"):
        held.feed(list(prompt(MORE)))
    state, p = trace("llama", LENGTH), shared_prefill("llama", LENGTH)
    kept = as_lists(press.select(p, BUDGET))
    answer, after, _ = talk(state, kept, prompt(MORE), ANSWER)
    assert held.generate(max_new_tokens=ANSWER) == [answer]
    held.feed(list(prompt(MORE)), evict=False)
    answer, _, _ = talk(after, kept, [1], ANSWER)
    assert held.generate(max_new_tokens=ANSWER) == [answer]


def test_what_cannot_go_on_is_told() -> None:
    held = compress(tiny("llama"), list(prompt(LENGTH)), ExpectedAttention(), BUDGET)
    with pytest.raises(UsageError, match="needs the moments of all queries of a prompt, which no further turn has"):
        held.feed([1, 2, 3])
    held = compress(tiny("llama"), list(prompt(LENGTH)), StreamingLLM(), BUDGET)
    for wrong, told in (([], "an empty list"), ([500], "token id 500"), ([1] * 1900, "has 2048 positions: give fewer")):
        with pytest.raises(UsageError, match=told):
            held.feed(wrong)
    assert len(held.generate(max_new_tokens=3)[0]) == 3
