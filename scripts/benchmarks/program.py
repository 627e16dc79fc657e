"""What a program of one's own waits for: tokens of `generate`, memory of a long answer, a further turn."""

from __future__ import annotations

from copy import deepcopy
from functools import partial
from typing import Any

import torch
from transformers import DynamicCache

from echokv import Compressed, compress
from echokv.caches import cache_name
from eval.answering.measure import Meter

from .bench import Bench
from .measured import Measured, Row, shortest, trim

BUDGET, EVERY = 256, 16
ANSWER = 2000  # tokens of the long answer
TURN = 64  # tokens of a further turn
LEVEL, FLAT, SECOND = 1.0, 0.1, 0.2
REPEATS = 3


def program(bench: Bench) -> Measured:
    """Tokens per second here over transformers' own, growth of memory, and a second turn over a prefill anew.

    Every figure of `generate` is of decoding alone: both begin with the prompt's cache, and make as many forward
    passes of one token. The model is as `echokv.load_model` gives it: transformers' own is not to gain by what the
    runner does to one.
    """
    bench = bench.bare()
    return Measured([*speeds(bench), *memory(bench), *turn(bench)])


def speeds(bench: Bench) -> list[Row]:
    """Greedy decoding by `Compressed.generate` and by the model's own, turn by turn; the quickest of each counts."""
    model, ids, steps = bench.model, bench.ids(bench.length), bench.options.tokens
    size = least(bench)
    with torch.no_grad():
        cache = DynamicCache(config=model.config)
        handed: dict[str, Any] = {cache_name(model): cache}
        model(ids[None, :-1].to(model.device), **handed, use_cache=True, logits_to_keep=1)
    full = compress(model, ids, bench.presses["full"])
    small = compress(model, ids, bench.presses["echokv"], size)
    ours, evicted, theirs = [], [], []
    for _ in range(REPEATS):
        # A copy, for both add to their caches; it is made before the clock runs.
        theirs.append(shortest(partial(transformers, model, ids, deepcopy(cache), steps)))
        ours.append(shortest(partial(generate, full.copy(), steps + 1)))  # the first token costs no pass
        evicted.append(shortest(partial(generate, small.copy(), steps + 1)))
    here, there, at = steps / min(ours), steps / min(theirs), steps / min(evicted)
    said = f"generate, {bench.length} tokens"
    return [
        Row(f"{said}, full cache: tokens per second", here),
        Row(f"{said}, full cache: transformers' own, tokens per second", there),
        Row(f"{said}, full cache: tokens per second / transformers' own", here / there, LEVEL, at_least=True),
        Row(f"{said}, budget {size}: tokens per second / transformers' own with the full cache", at / there),
    ]


def memory(bench: Bench) -> list[Row]:
    """What the process takes more in a long answer's second half than in its first, over what its tokens would."""
    size = least(bench)
    every = min(EVERY, size // 4)
    room = bench.model.config.max_position_embeddings - bench.length
    half = min(ANSWER, room) // 2
    held = compress(bench.model, bench.ids(bench.length), bench.presses["snapkv"], size)
    before = held.bytes
    trim()
    first, second = peak(held, half, every), peak(held, half, every)
    prefill = held.rows[0].prefill
    kept = half * prefill.layers * prefill.groups * prefill.entry_bytes
    said = f"answer of {2 * half} tokens, budget {size}, evicting every {every} (SnapKV)"
    return [
        Row(f"{said}: bytes stored at its end / after the prompt", held.bytes / before, LEVEL),
        Row(f"{said}: growth of memory in its second half / bytes of that", (second - first) / kept, FLAT),
    ]


def turn(bench: Bench) -> list[Row]:
    """Feeding a turn behind an answer and evicting again, over compressing the whole conversation anew."""
    press, size = bench.presses["echokv"], least(bench)
    held = compress(bench.model, bench.ids(bench.length), press, size)
    generate(held, bench.options.tokens)
    more = bench.ids(TURN)
    conversation = [*held.ids[0], *more.tolist()]
    second = min(shortest(partial(held.copy().feed, more)) for _ in range(REPEATS))
    del held
    anew = shortest(partial(compress, bench.model, conversation, press, size), REPEATS, limit=10)
    said = f"second turn of {TURN} tokens after {bench.length} and an answer of {bench.options.tokens}"
    return [Row(f"{said}: feeding it / prefilling all anew (EchoKV, budget {size})", second / anew, SECOND)]


def least(bench: Bench) -> int:
    """The budget: 256, or what the largest that was asked for leaves of it."""
    return min(BUDGET, max(bench.budgets))


def generate(held: Compressed, tokens: int, every: int | None = None) -> None:
    """Generate exactly so many tokens, the most probable each time."""
    held.generate(max_new_tokens=tokens, min_new_tokens=tokens, do_sample=False, evict_every=every)


def transformers(model: Any, ids: torch.Tensor, cache: Any, tokens: int) -> None:
    """The same by the model's own `generate`, on a cache that lacks the prompt's last token."""
    given = ids[None].to(model.device)
    handed: dict[str, Any] = {cache_name(model): cache}
    model.generate(
        given,
        attention_mask=torch.ones_like(given),
        **handed,
        max_new_tokens=tokens,
        min_new_tokens=tokens,
        do_sample=False,
        pad_token_id=0,
    )


def peak(held: Compressed, tokens: int, every: int) -> int:
    """Bytes in use at the worst moment of so many further tokens."""
    with Meter() as meter:
        generate(held, tokens, every)
    return int(meter.peak)
