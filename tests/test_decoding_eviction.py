"""Eviction while decoding: the step-by-step form of policies, against naive twins, and memory that stays the same."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from baselines.full import FullKV
from baselines.h2o import H2O
from baselines.pyramidkv import PyramidKV
from baselines.snapkv import SnapKV
from baselines.streaming_llm import StreamingLLM
from baselines.tova import TOVA
from echokv import EchoKV, UsageError, compress
from tests import twin
from tests.models import prompt, tiny
from tests.policies import trace
from tests.twin_model import Kept, Trace, forward, greedy

LENGTH, BUDGET, ANSWER = 120, 24, 30


def step_by_step(prompt_trace: Trace, held: Kept, choose: Callable[[Trace, Kept, Kept], Kept]) -> list[int]:
    """Before each token is fed, one position a head is let go: the budget holds with the new token in it.

    held: what the prompt's eviction left. choose: of the held, BUDGET - 1; it is told what the last query saw.
    """
    state, tokens, seen = prompt_trace, [greedy(prompt_trace.logits)], held
    while len(tokens) < ANSWER:
        held = choose(state, held, seen)
        end = state.keys[0].shape[1]
        past = Trace(state.model, end, state.queries, state.raw, state.keys, state.values, state.logits)
        state = forward(state.model, tokens[-1:], past, held)
        held = [[[*head, end] for head in layer] for layer in held]
        seen = held
        tokens.append(greedy(state.logits))
    return tokens


def sinks_and_recent(state: Trace, held: Kept, seen: Kept) -> Kept:
    return [[[*head[:4], *head[len(head) - (BUDGET - 5) :]] for head in layer] for layer in held]


class HeavyHitters:
    """H2O's running sums: each step adds the new query's attention to those that it saw."""

    def __init__(self, prompt_trace: Trace, window: int) -> None:
        self.window, self.sums = window, twin.window_score(prompt_trace, window, "kv_head", "none", 1, LENGTH)
        for layer, q, k in zip(self.sums, prompt_trace.queries, prompt_trace.keys, strict=True):
            ratio = len(q) // len(k)
            for group, row in enumerate(layer):  # the protected tokens' sums, too: they may be let go later
                for head in range(group * ratio, (group + 1) * ratio):
                    full = twin.attention_sums(q[head], k[group], range(1, LENGTH + 1))
                    for place in range(LENGTH - window, LENGTH):
                        row[place] = full[place] + (0.0 if row[place] == torch.inf else row[place])

    def __call__(self, state: Trace, held: Kept, seen: Kept) -> Kept:
        end = state.keys[0].shape[1]
        chosen: Kept = []
        for layer, (q, k) in enumerate(zip(state.queries, state.keys, strict=True)):
            ratio, heads = len(q) // len(k), []
            for group, own in enumerate(held[layer]):
                row = self.sums[layer][group]
                if end > LENGTH:
                    row += [0.0] * (end - len(row))
                    for head in range(group * ratio, (group + 1) * ratio):
                        found = twin.attention_sums(q[head][-1:], k[group, own], [len(own)])
                        for place, value in zip(own, found, strict=True):
                            row[place] += value
                free, last = own[: len(own) - self.window], own[len(own) - self.window :]
                scores = [row[place] for place in free]
                best = twin.top(scores, BUDGET - 1 - self.window)
                heads.append([*(free[place] for place in best), *last])
            chosen.append(heads)
        return chosen


@pytest.mark.parametrize("name", ["llama", "qwen3"])
def test_streaming_step_by_step(name: str) -> None:
    state = trace(name, LENGTH)
    kept = twin.streaming_llm(state, BUDGET).kept
    expected = step_by_step(state, kept, sinks_and_recent)
    held = compress(state.model, list(prompt(LENGTH)), StreamingLLM(), BUDGET)
    assert held.generate(max_new_tokens=ANSWER, evict_every=1) == [expected]
    assert held.entries == [BUDGET * 3 * 2]


@pytest.mark.parametrize("name", ["llama", "qwen3"])
def test_heavy_hitters_step_by_step(name: str) -> None:
    state = trace(name, LENGTH)
    kept = twin.h2o(state, BUDGET, window=8).kept
    expected = step_by_step(state, kept, HeavyHitters(state, 8))
    held = compress(state.model, list(prompt(LENGTH)), H2O(window=8), BUDGET)
    assert held.generate(max_new_tokens=ANSWER, evict_every=1) == [expected]


@pytest.mark.parametrize(
    "press",
    [SnapKV(window=8), EchoKV(workspace=20), TOVA(), H2O(window=8), StreamingLLM()],
    ids=lambda one: type(one).__name__,
)
@pytest.mark.parametrize("every", [1, 7])
def test_no_head_ever_holds_more_than_the_budget(press: Any, every: int, monkeypatch: pytest.MonkeyPatch) -> None:
    held = compress(tiny("llama"), [list(prompt(LENGTH)), list(prompt(15))], press, BUDGET)
    most: list[int] = []
    from echokv import compressing

    advance = compressing.advance

    def watched(*stretches: Any) -> None:
        advance(*stretches)
        most.extend(one.session.prefill.length + len(one.session.fed) for one in stretches)

    monkeypatch.setattr(compressing, "advance", watched)
    answers = held.generate(max_new_tokens=60, evict_every=every)
    assert max(most) == BUDGET
    assert [len(answer) for answer in answers] == [60, 60]
    assert [len(ids) for ids in held.ids] == [LENGTH + 60, 75]
    alone = compress(tiny("llama"), list(prompt(15)), press, BUDGET)
    assert alone.generate(max_new_tokens=60, evict_every=every) == [answers[1]]
    held.feed([[1, 2, 3], [4]])
    assert [answer[:1] for answer in held.generate(max_new_tokens=5, evict_every=every)]


def test_where_nothing_is_let_go_nothing_changes() -> None:
    held = compress(tiny("llama"), list(prompt(40)), SnapKV(window=8), 200)
    assert held.copy().generate(max_new_tokens=50, evict_every=20) == held.copy().generate(max_new_tokens=50)


def test_wrong_intervals_are_told() -> None:
    held = compress(tiny("llama"), list(prompt(LENGTH)), SnapKV(window=8), BUDGET)
    for wrong in (0, 16, 2.0, True):
        with pytest.raises(UsageError, match=r"evict_every is .*; at budget 24 SnapKV takes 1 to 15"):
            held.generate(max_new_tokens=5, evict_every=wrong)
    with pytest.raises(UsageError, match="FullKV evicts nothing: leave it out"):
        compress(tiny("llama"), list(prompt(60)), FullKV()).generate(max_new_tokens=5, evict_every=2)
    uneven = compress(tiny("llama"), list(prompt(LENGTH)), PyramidKV(), BUDGET)
    before = uneven.ids
    with pytest.raises(UsageError, match="keeps unequally many tokens in layers or heads"):
        uneven.generate(max_new_tokens=5, evict_every=2)
    assert uneven.ids == before
