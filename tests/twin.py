"""The naive twin: every policy once more, slow and obvious, in float64, to compare the library with.

Written from the definitions of the methods alone; it shares no line with the library. Each policy is a
function of the prompt's `Trace`, the budget B and the fields of the press. L prompt length, H query heads,
G KV heads, D head dim.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import inf, sqrt
from typing import Any

import torch
from torch import Tensor

from tests.twin_model import Kept, Trace, forward, greedy, join, rotate

Scores = list[list[list[float]]]  # [layer][head][L], protected tokens +inf


@dataclass(frozen=True)
class Round:
    """One round of lookahead: the tokens fed on a workspace and their queries, per layer [H, n, D]."""

    workspace: Kept
    tokens: list[int]
    queries: list[Tensor]


@dataclass(frozen=True)
class Result:
    kept: Kept
    scores: Scores = field(default_factory=list)  # empty where nothing is evicted
    rounds: list[Round] = field(default_factory=list)


# --- Scores and selection ---------------------------------------------------------------------------------


def attention_sums(queries: Tensor, keys: Tensor, seen: Sequence[int]) -> list[float]:
    """Eq. 3 of one head: attention summed over [n, D] queries; query j sees the first `seen[j]` keys."""
    hidden = torch.arange(len(keys))[None] >= torch.tensor(seen)[:, None]
    weights = (queries @ keys.T / sqrt(keys.shape[1])).masked_fill(hidden, -inf).softmax(-1)
    sums: list[float] = weights.sum(0).tolist()
    return sums


def pool(scores: list[float], kind: str, kernel: int) -> list[float]:
    """Pooling of stride 1: the maximum ignores what lies outside, the average counts it as zeros."""
    half, pooled = kernel // 2, []
    for i, own in enumerate(scores):
        around = scores[max(0, i - half) : i + half + 1]
        pooled.append({"none": own, "max": max(around), "avg": sum(around) / kernel}[kind])
    return pooled


def score(
    queries: list[Tensor], keys: list[Tensor], seen: Sequence[int], granularity: str,
    pooling: str = "none", kernel: int = 7, last: int = 0,
) -> Scores:  # fmt: skip
    """Summed attention, for kv_head over the group's query heads too, then pooled; `last` tokens +inf."""
    result = []
    for q, k in zip(queries, keys, strict=True):
        ratio = len(q) // len(k)
        rows = [attention_sums(q[head], k[head // ratio], seen) for head in range(len(q))]
        if granularity == "kv_head":
            groups = [rows[group * ratio : (group + 1) * ratio] for group in range(len(k))]
            rows = [[sum(column) for column in zip(*group, strict=True)] for group in groups]
        free = k.shape[1] - last
        result.append([pool(row[:free], pooling, kernel) + [inf] * last for row in rows])
    return result


def window_score(
    prompt: Trace, window: int, granularity: str, pooling: str, kernel: int, rows: int | None = None
) -> Scores:
    """Score by the last `rows` (default: `window`) prompt queries, each causal; protect the window."""
    first = prompt.length - (window if rows is None else rows)
    queries = [layer[:, first:] for layer in prompt.queries]
    seen = range(first + 1, prompt.length + 1)
    return score(queries, prompt.keys, seen, granularity, pooling, kernel, window)


def top(scores: Sequence[float], count: int) -> list[int]:
    """The `count` best positions, ascending; of equal scores the lower position wins."""
    return sorted(sorted(range(len(scores)), key=lambda i: (-scores[i], i))[:count])


def keep(scores: Scores, budgets: Sequence[int]) -> Kept:
    return [[top(row, budget) for row in layer] for layer, budget in zip(scores, budgets, strict=True)]


def everything(prompt: Trace) -> Kept:
    """What is kept where nothing is evicted: the shared cache of G heads."""
    return [[list(range(prompt.length)) for _ in layer] for layer in prompt.keys]


def uniform(scores: Scores, budget: int) -> Result:
    return Result(keep(scores, [budget] * len(scores)), scores)


# --- One-shot policies ------------------------------------------------------------------------------------


def full(prompt: Trace, budget: int | None) -> Result:
    return Result(everything(prompt))


def streaming_llm(prompt: Trace, budget: int, *, n_sink: int = 4, granularity: str = "kv_head") -> Result:
    if prompt.length <= budget:
        return Result(everything(prompt))
    heads = prompt.queries[0] if granularity == "query_head" else prompt.keys[0]
    ends = [*range(n_sink), *range(prompt.length - (budget - n_sink), prompt.length)]
    return Result([[ends for _ in heads] for _ in prompt.keys])


def h2o(prompt: Trace, budget: int, *, queries: str = "all", window: int = 32, granularity: str = "kv_head") -> Result:
    if prompt.length <= budget:
        return Result(everything(prompt))
    rows = {"all": prompt.length, "window": window}[queries]
    return uniform(window_score(prompt, window, granularity, "none", 1, rows), budget)


def snapkv(
    prompt: Trace, budget: int, *, window: int = 32, kernel: int = 7, pooling: str = "max",
    granularity: str = "kv_head",
) -> Result:  # fmt: skip
    if prompt.length <= budget:
        return Result(everything(prompt))
    return uniform(window_score(prompt, window, granularity, pooling, kernel), budget)


def pyramid_budgets(length: int, layers: int, budget: int, window: int, beta: int = 20) -> list[int]:
    """Kept tokens of each layer, the window included, with the published floors."""
    mean = budget - window
    if length <= budget:
        return [length] * layers
    if length < 2 * mean or layers == 1:
        return [budget] * layers
    low = mean // beta
    high = 2 * mean - low
    if high >= length - window:
        high = length - window
        low = 2 * mean - high
    step = (high - low) // (layers - 1)
    return [high - layer * step + window for layer in range(layers)]


def pyramidkv(
    prompt: Trace, budget: int, *, window: int = 8, kernel: int = 7, pooling: str = "max", beta: int = 20,
    granularity: str = "kv_head",
) -> Result:  # fmt: skip
    if prompt.length <= budget:
        return Result(everything(prompt))
    scores = window_score(prompt, window, granularity, pooling, kernel)
    return Result(keep(scores, pyramid_budgets(prompt.length, len(scores), budget, window, beta)), scores)


# --- Lookahead --------------------------------------------------------------------------------------------


def lookahead(
    prompt: Trace, sizes: Sequence[int], build: Callable[[list[Tensor]], Kept],
    stop: Collection[int], eos: str, minimum: int,
) -> list[Round]:  # fmt: skip
    """Feed greedy tokens in rounds of `sizes`; `build` makes a workspace of the last queries.

    A token keeps the keys it got on its own workspace. Producing a stop id ends everything, but the first
    token, which the prompt produced, is not checked.
    """
    rounds: list[Round] = []
    trace, token, produced = prompt, greedy(prompt.logits, stop if minimum else ()), 1
    for size in sizes:
        workspace = build(rounds[-1].queries if rounds else [])
        tokens: list[int] = []
        steps: list[list[Tensor]] = []
        while len(tokens) < size:
            trace = forward(prompt.model, [token], trace, workspace)
            tokens.append(token)
            steps.append(trace.queries)
            token = greedy(trace.logits, stop if produced < minimum else ())
            produced += 1
            if eos == "stop" and token in stop:
                return [*rounds, Round(workspace, tokens, join(steps))]
        rounds.append(Round(workspace, tokens, join(steps)))
    return rounds


def final(
    prompt: Trace, rounds: list[Round], budget: int, granularity: str, pooling: str, kernel: int,
    stage2: int, mask: str,
) -> Result:  # fmt: skip
    """Score by [the prompt's last `stage2` queries; the lookahead's]; protect its last `stage2` tokens."""
    length = prompt.length
    tail = [layer[:, length - stage2 :] for layer in prompt.queries]
    queries = join([tail, *(done.queries for done in rounds)])
    count = queries[0].shape[1]
    # A lookahead query lies after the prompt and sees all of it; the official mask takes all queries for the
    # last of the prompt.
    seen = [*range(length - stage2 + 1, length + 1), *[length] * (count - stage2)]
    if mask == "official":
        seen = list(range(length - count + 1, length + 1))
    scores = score(queries, prompt.keys, seen, granularity, pooling, kernel, stage2)
    return Result(keep(scores, [budget] * len(scores)), scores, rounds)


def laq(
    prompt: Trace, budget: int, *, steps: int = 8, workspace: int | None = None, window: int = 32,
    kernel: int = 7, pooling: str = "max", stage2_window: int = 0, mask: str = "official",
    eos: str = "stop", granularity: str = "kv_head", stop: Collection[int] = (), minimum: int = 0,
) -> Result:  # fmt: skip
    if prompt.length <= budget:
        return Result(everything(prompt))
    room = budget if workspace is None else workspace
    first = snapkv(prompt, room, window=window, kernel=kernel, pooling=pooling, granularity=granularity).kept
    rounds = lookahead(prompt, [steps], lambda _: first, stop, eos, minimum)
    return final(prompt, rounds, budget, granularity, pooling, kernel, stage2_window, mask)


def proposals(prompt: Trace, anchors: int, steps: int) -> list[Tensor]:
    """Eq. 2: the last `anchors` queries before RoPE, rotated to each of the `steps` next positions."""
    ahead = range(prompt.length, prompt.length + steps)
    last = range(prompt.length - anchors, prompt.length)
    return [
        torch.cat([rotate(prompt.model, raw[:, [anchor] * steps], ahead) for anchor in last], 1) for raw in prompt.raw
    ]


def echokv(
    prompt: Trace, budget: int, *, steps: int = 8, workspace: int = 1024, anchors: int = 1,
    stage2_window: int = 0, pooling: str = "none", kernel: int = 7, refresh_at: Sequence[int] | None = None,
    bootstrap: str = "proposals", window: int = 32, bootstrap_pooling: str | None = None, eos: str = "stop",
    granularity: str = "kv_head", stop: Collection[int] = (), minimum: int = 0,
) -> Result:  # fmt: skip
    length = prompt.length
    if length <= budget:
        return Result(everything(prompt))
    cuts = [0, *((steps // 2,) if refresh_at is None else refresh_at), steps]

    def build(feedback: list[Tensor]) -> Kept:
        if length <= workspace:
            return everything(prompt)
        kind = pooling if feedback or bootstrap_pooling is None else bootstrap_pooling
        if bootstrap == "window" and not feedback:
            return uniform(window_score(prompt, window, granularity, kind, kernel), workspace).kept
        queries = feedback or proposals(prompt, anchors, steps)
        seen = [length] * queries[0].shape[1]
        return uniform(score(queries, prompt.keys, seen, granularity, kind, kernel), workspace).kept

    rounds = lookahead(prompt, [end - begin for begin, end in pairwise(cuts)], build, stop, eos, minimum)
    return final(prompt, rounds, budget, granularity, pooling, kernel, stage2_window, "none")


def stage1_only(prompt: Trace, budget: int, **fields: Any) -> Result:
    """Table 5: the workspace of the proposals, never rebuilt."""
    return echokv(prompt, budget, refresh_at=(), **fields)


def iterative_only(prompt: Trace, budget: int, **fields: Any) -> Result:
    """Table 5: the workspace of SnapKV, rebuilt halfway."""
    return echokv(prompt, budget, bootstrap="window", bootstrap_pooling="max", **fields)
