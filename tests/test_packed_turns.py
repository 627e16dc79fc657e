"""Compressed prompts of which codes are stored: answers, further turns and questions, held against the naive twin."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from baselines.ada import AdaSnapKV
from baselines.full import FullKV
from baselines.snapkv import SnapKV
from echokv import Codec, Kivi, KVQuant, UsageError, compress, decode
from tests import test_codecs, test_kvquant, twin
from tests.models import ARCHITECTURES, prompt, tiny
from tests.policies import close, shared_prefill, trace
from tests.test_further import ANSWER, BUDGET, LENGTH, MORE, again, held_now, talk
from tests.twin_model import Kept, Trace

Stored = Callable[[Trace, Any, Any], Trace]
# Of one bit, for of more what was rounded to a grid lies amid the steps of the next, where rounding decides.
CODECS: list[tuple[Codec, Stored]] = [
    (Kivi(bits=1, group=8, scales="model"), test_codecs.twin_stored),
    (KVQuant(bits=4, scales="model"), test_kvquant.twin_stored),
    (Kivi(bits=1, group=8, scales="model", fake=True), test_codecs.twin_stored),
]
NAMES = ["kivi", "kvquant", "fake"]
PRESSES = [SnapKV(), AdaSnapKV(), FullKV()]


def of(kept: Kept) -> Any:
    """Kept positions as a codec's twin takes them."""
    return SimpleNamespace(positions=lambda: [[torch.tensor(head) for head in layer] for layer in kept])


@pytest.mark.parametrize("codec", [codec for codec, _ in CODECS], ids=NAMES)
@pytest.mark.parametrize("press", PRESSES, ids=lambda press: type(press).__name__)
def test_answers_are_those_of_a_selection_that_is_so_stored(press: Any, codec: Codec) -> None:
    p = shared_prefill("llama", LENGTH)
    budget = BUDGET if press.takes_budget else None
    held = compress(p.model, list(prompt(LENGTH)), press, budget, cache=codec)
    selection = press.select(p, budget)
    before = sum(codec.bytes(n, 16, 8) for layer in selection.kept for n in layer)
    positions = 4 * sum(max(layer) * len(layer) for layer in selection.kept) * codec.turns
    assert held.bytes == before + positions
    assert held.generate(max_new_tokens=9) == [decode(p, selection, 9, cache=codec)]
    assert held.bytes == before + positions + 8 * p.layers * p.groups * p.entry_bytes
    assert held.copy().generate(max_new_tokens=5) == held.generate(max_new_tokens=5)


def test_nothing_is_held_in_full_precision() -> None:
    held = compress(tiny("llama"), list(prompt(LENGTH)), SnapKV(), 40, cache=Kivi(bits=2, group=8))
    (row,) = held.rows
    assert row.packed is row.prefill.packed
    assert not isinstance(row.prefill.keys, list)
    assert [part.shape for part in row.prefill.keys] == [(2, 40, 16)] * 3
    assert held.bytes == sum(layer.bytes for layer in row.packed) < 0.2 * 2 * 3 * 2 * 40 * 16 * 8


@pytest.mark.parametrize("name", ARCHITECTURES)
@pytest.mark.parametrize(("codec", "stored"), CODECS, ids=NAMES)
def test_further_turns_are_those_of_the_twin(name: str, codec: Codec, stored: Stored) -> None:
    """What stays is packed anew, from what was read back, keys before RoPE by the positions they had."""
    state = trace(name, LENGTH)
    held = compress(state.model, list(prompt(LENGTH)), SnapKV(), BUDGET, cache=codec)
    kept = twin.snapkv(state, BUDGET).kept
    state, queries = stored(state, of(kept), codec), state.queries
    for seed in (1, 2):
        turn = prompt(MORE, seed=seed)
        answer, after, steps = talk(state, kept, turn, ANSWER)
        assert held.generate(max_new_tokens=ANSWER) == [answer]
        held.feed(list(turn))
        close(held.rows[0].logits, after.logits)
        first, end = state.keys[0].shape[1], after.keys[0].shape[1]
        queries = [torch.cat([old, *new], 1) for old, *new in zip(queries, *(s.queries for s in steps), strict=True)]
        kept = again(after, held_now(kept, first, end), [part[:, -32:] for part in queries], 32, 7)
        state = stored(replace(after, length=end), of(kept), codec)
    answer, _, _ = talk(state, kept, turn, ANSWER)
    assert held.generate(max_new_tokens=ANSWER) == [answer]


@pytest.mark.parametrize("codec", [codec for codec, _ in CODECS], ids=NAMES)
def test_questions_share_what_is_stored(codec: Codec) -> None:
    p = shared_prefill("llama", LENGTH)
    held = compress(p.model, list(prompt(LENGTH)), SnapKV(), BUDGET, cache=codec)
    asked: list[Sequence[int]] = [prompt(MORE, seed=5), prompt(9, seed=6)]
    answers = [held.copy().feed(list(one), evict=False).generate(max_new_tokens=6) for one in asked]
    assert answers == [held.copy().feed(list(one), evict=False).generate(max_new_tokens=6) for one in asked]
    handed = held.copy()
    (expected,) = handed.copy().feed(list(asked[0]), evict=False).generate(max_new_tokens=6)
    given = handed.handover(list(asked[0]))
    found = p.model.generate(**given, max_new_tokens=6, do_sample=False, pad_token_id=0)
    assert found[0, given["input_ids"].shape[1] :].tolist() == expected


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"cache": "kivi"}, r"cache is 'kivi': pass how what is kept is stored, such as echokv\.Kivi\(bits=4\)"),
        ({"cache": Kivi(group=32)}, r"Kivi\.group is 32, which does not divide this model's 16 channels"),
    ],
)
def test_wrong_caches_are_told(how: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        compress(tiny("llama"), list(prompt(50)), SnapKV(), 40, **how)


def test_evicting_every_few_tokens_beside_a_codec_is_refused() -> None:
    held = compress(tiny("llama"), list(prompt(50)), SnapKV(), 40, cache=Kivi(group=8))
    with pytest.raises(UsageError, match="a cache of KIVI-2, whose codes every eviction would round again: leave out"):
        held.generate(max_new_tokens=5, evict_every=4)
