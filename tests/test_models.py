"""Every supported architecture: held against transformers' own `generate`, and against a twin of its attention.

The twin shares no code with the library: all tokens go through the model together, and each layer's attention is
written out, with -inf for a key that a head has evicted or that a window has left behind.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from math import inf
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import AttentionInterface, AutoConfig

from baselines.ada import AdaSnapKV
from baselines.cake import CAKE
from baselines.critical_snapkv import CriticalSnapKV
from baselines.dapq import DapQ
from baselines.expected_attention import ExpectedAttention
from baselines.full import FullKV
from baselines.pyramidkv import PyramidKV
from baselines.snapkv import SnapKV
from echokv import EchoKV, Needs, Prefill, Session, Stretch, UsageError, advance, compress, decode_rows, prefill
from echokv.attention import forward
from echokv.further import feed
from echokv.probe import probe
from echokv.shapes import Shape
from echokv.supported import KINDS, refuse_unsupported
from tests.families import FAMILIES, SLIDE, WINDOW, family
from tests.models import ARCHITECTURES, prompt, tiny
from tests.policies import as_lists

LENGTHS, BUDGET, ANSWER = (90, 200, 17), 40, 40  # one prompt is shorter than the window until its answer is decoded
PRESSES: dict[str, Any] = {
    "snapkv": SnapKV(window=8),
    "query_heads": SnapKV(window=8, granularity="query_head"),
    "ada": AdaSnapKV(window=8),
    "echokv": EchoKV(workspace=60),
}


@cache
def filled(name: str, length: int) -> Prefill:
    return prefill(family(name), torch.tensor(prompt(length)), Needs(window=32, moments=frozenset({4})))


@contextmanager
def written_out(model: Any, length: int, kept: list[list[list[int]]] | None, upto: int) -> Iterator[None]:
    """The model with the twin's attention. Tokens from place `upto` on see of the first `length` only what is kept."""
    full = iter(range(model.config.num_hidden_layers))

    def attend(module: Any, query: Tensor, key: Tensor, value: Tensor, _mask: Any, **facts: Any) -> tuple[Tensor, None]:
        window = facts.get("sliding_window")
        own = next(full) if window is None else None
        tokens, ratio, out = query.shape[2], query.shape[1] // key.shape[1], []
        at = torch.arange(tokens)
        for head in range(query.shape[1]):
            seen = at[None] <= at[:, None]
            if window is not None:
                seen &= at[:, None] - at[None] < window
            elif kept is not None:
                heads = kept[own]
                held = heads[head if len(heads) == query.shape[1] else head // ratio]
                gone = torch.ones(length, dtype=torch.bool)
                gone[held] = False
                seen[upto:, :length] &= ~gone
            logits = query[0, head] @ key[0, head // ratio].T * facts["scaling"]
            out.append(logits.masked_fill(~seen, -inf).softmax(-1) @ value[0, head // ratio])
        return torch.stack(out, 1)[None], None

    AttentionInterface.register("twin", attend)
    before, model.config._attn_implementation = model.config._attn_implementation, "twin"
    try:
        yield
    finally:
        model.config._attn_implementation = before


@torch.no_grad()
def twin(model: Any, tokens: list[int], length: int, kept: Any = None, upto: int | None = None) -> Tensor:
    """Logits after every token."""
    with written_out(model, length, kept, length if upto is None else upto):
        logits: Tensor = model(torch.tensor([tokens]), use_cache=False).logits[0]
    return logits


def close(mine: Tensor, other: Tensor) -> None:
    torch.testing.assert_close(mine, other, rtol=1e-4, atol=1e-4)  # norms and RoPE take a detour by float32


@pytest.mark.parametrize("name", FAMILIES)
def test_a_full_cache_answers_as_generate_does(name: str) -> None:
    """Rows of unequal length together, past the window."""
    model, ids = family(name), [list(prompt(n)) for n in LENGTHS]
    mine = compress(model, ids, FullKV()).generate(max_new_tokens=ANSWER)
    for own, answer in zip(ids, mine, strict=True):
        asked = torch.tensor([own])
        out = model.generate(
            asked, attention_mask=torch.ones_like(asked), max_new_tokens=ANSWER, do_sample=False, eos_token_id=None
        )
        assert answer == out[0, len(own) :].tolist()
    assert len({token for answer in mine for token in answer}) > 10


@pytest.mark.parametrize("press", PRESSES)
@pytest.mark.parametrize("name", FAMILIES)
def test_an_evicted_cache_answers_as_the_twin_does(name: str, press: str) -> None:
    """All rows in one batch: every token, and the queries' logits after the last."""
    model = family(name)
    prefills = [filled(name, length) for length in LENGTHS]
    chosen = [PRESSES[press].select(p, BUDGET) for p in prefills]
    answers = decode_rows([Session(p, one) for p, one in zip(prefills, chosen, strict=True)], ANSWER)
    for p, one, answer in zip(prefills, chosen, answers, strict=True):
        assert len(one.kept) == p.layers == (2 if name in SLIDE else 4)
        tokens = [*p.ids.tolist(), *answer]
        logits = twin(model, tokens, p.length, as_lists(one))
        assert logits[p.length - 1 : -1].argmax(-1).tolist() == answer
        close(p.logits, logits[p.length - 1])
        session = Session(p, one)
        close(feed(session, answer), logits[-1])


@pytest.mark.parametrize("name", FAMILIES)
def test_further_turns_are_those_of_the_twin(name: str) -> None:
    """Fed at once, then decoded, then fed again: a turn longer than the window, and one shorter."""
    p = filled(name, 90)
    one = SnapKV(window=8).select(p, BUDGET)
    session = Session(p, one)
    advance(Stretch(session, 5))
    for turn in (prompt(WINDOW + 9, seed=1), prompt(3, seed=2)):
        logits = feed(session, list(turn))
        expected = twin(p.model, [*p.ids.tolist(), *session.fed], p.length, as_lists(one))[-1]
        close(logits, expected)
        session.next_token = int(logits.argmax())
        advance(Stretch(session, 4))
        expected = twin(p.model, [*p.ids.tolist(), *session.fed], p.length, as_lists(one))[-1]
        assert session.next_token == int(expected.argmax())


class Turned:
    """Keeps post-RoPE queries; attention gives values, so that a single token's stream is the same at all positions."""

    def __init__(self) -> None:
        self.queries: list[Tensor] = []

    def attend(self, _layer: int, query: Tensor, key: Tensor, value: Tensor, _scaling: float) -> Tensor:
        self.queries.append(query[0, :, 0])
        return value.repeat_interleave(query.shape[1] // key.shape[1], 1).transpose(1, 2)

    def slide(self, _layer: int, query: Tensor, key: Tensor, value: Tensor, scaling: float, _window: int) -> Tensor:
        out = self.attend(0, query, key, value, scaling)
        self.queries.pop()
        return out


@pytest.mark.parametrize("name", FAMILIES)
def test_queries_move_as_the_model_itself_turns_them(name: str) -> None:
    """One token at two positions: whether a layer turns its queries, which numbers of a head, and by which angles."""
    p = filled(name, 90)
    at: dict[int, list[Tensor]] = {}
    for position in (0, 50, 1203):
        seen = Turned()
        forward(p.model, torch.tensor([[7]]), torch.tensor([[position]]), seen)
        at[position] = seen.queries
    assert len(at[0]) == p.layers
    for layer in range(p.layers):
        moved = p.rotate(layer, at[50][layer], 50, torch.tensor([1203, 0]))
        close(moved[:, 0], at[1203][layer])
        close(moved[:, 1], at[0][layer])
    same = [torch.equal(*pair) for pair in zip(at[0], at[1203], strict=True)]
    assert same == ([False, True] * 2 if name == "smollm3" else [False] * p.layers)


@pytest.mark.parametrize("name", FAMILIES)
def test_moments_are_of_queries_before_rope(name: str) -> None:
    p = filled(name, 200)
    for layer, (mean, _) in enumerate(p.query_moments(4)):
        all_queries = prefill(p.model, p.ids, Needs(window=200)).queries[layer]
        back = [p.rotate(layer, all_queries[:, i], i, torch.tensor([0]))[:, 0] for i in range(4, 200)]
        close(mean, torch.stack(back).mean(0))


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("press", [ExpectedAttention(), CriticalSnapKV(window=8), CAKE(window=8), DapQ(window=8)])
def test_other_methods_answer(name: str, press: Any) -> None:
    p = prefill(family(name), torch.tensor(prompt(90)), press.needs)
    one = press.select(p, BUDGET)
    assert len(one.kept) == p.layers
    answer = decode_rows([Session(p, one)], 6)[0]
    logits = twin(p.model, [*p.ids.tolist(), *answer], p.length, as_lists(one))
    assert logits[p.length - 1 : -1].argmax(-1).tolist() == answer


@pytest.mark.parametrize("name", [*ARCHITECTURES, *FAMILIES])
def test_a_configuration_says_what_is_evicted_from(name: str) -> None:
    model = tiny(name) if name in ARCHITECTURES else family(name)
    p = prefill(model, torch.tensor(prompt(17)))
    assert Shape.of(model.config.to_dict()) == p.shape
    assert len(p.shape.places) == (2 if name in SLIDE else model.config.num_hidden_layers)


@pytest.mark.parametrize("name", SLIDE)
def test_a_sliding_layer_stores_its_window(name: str) -> None:
    """It is counted so, whatever is evicted, and no more of it is held."""
    p = filled(name, 200)
    assert [ring.keys.shape for ring in p.rings] == [(2, WINDOW, p.keys[0].shape[-1])] * 2
    assert all(ring.keys.untyped_storage().nbytes() == ring.keys.nbytes for ring in p.rings)
    assert p.beside() == 2 * 2 * WINDOW
    one = SnapKV(window=8).select(p, BUDGET)
    assert one.entries == 2 * 2 * BUDGET
    assert one.bytes(p) == (one.entries + p.beside()) * 2 * p.keys[0].shape[-1] * 8
    held = compress(p.model, list(prompt(200)), SnapKV(window=8), BUDGET)
    assert held.entries == [2 * 2 * (BUDGET + WINDOW)]
    held.generate(max_new_tokens=11)
    assert held.entries == [2 * 2 * (BUDGET + 10 + WINDOW)]
    assert held.bytes == held.entries[0] * p.entry_bytes
    short = filled(name, 17)
    assert (short.beside(), short.beside(3), short.beside(100)) == (2 * 2 * 17, 2 * 2 * 20, 2 * 2 * WINDOW)


@pytest.mark.parametrize("name", SLIDE)
def test_budgets_range_over_the_evicted_layers(name: str) -> None:
    kept = PyramidKV(window=8).select(filled(name, 200), BUDGET).kept
    assert len(kept) == 2
    assert kept[0][0] > BUDGET > kept[1][0]
    cake = CAKE(window=8, total="exact").select(filled(name, 200), BUDGET).kept
    assert sum(layer[0] for layer in cake) == 2 * BUDGET


@pytest.mark.parametrize("name", FAMILIES)
def test_a_cache_that_is_handed_over_goes_on_as_here(name: str) -> None:
    held = compress(family(name), list(prompt(90)), SnapKV(window=8), BUDGET)
    held.generate(max_new_tokens=5)
    turn = list(prompt(7, seed=4))
    handed = held.handover(turn)
    before = handed["input_ids"].shape[1]
    out = held.model.generate(**handed, max_new_tokens=ANSWER, do_sample=False, eos_token_id=None)
    assert out[0, before:].tolist() == held.feed(turn, evict=False).generate(max_new_tokens=ANSWER)[0]


@pytest.mark.parametrize("name", FAMILIES)
def test_a_further_eviction_and_constant_memory(name: str) -> None:
    """A sliding layer is carried along through evictions: rows alone answer as they do in a batch."""
    ids = [list(prompt(n)) for n in LENGTHS]
    together = compress(family(name), ids, SnapKV(window=8), BUDGET)
    answers = together.generate(max_new_tokens=60, evict_every=12)
    for own, answer in zip(ids, answers, strict=True):
        alone = compress(family(name), own, SnapKV(window=8), BUDGET)
        assert alone.generate(max_new_tokens=60, evict_every=12) == [answer]
    assert max(together.entries) <= 2 * (2 * (BUDGET + WINDOW) if name in SLIDE else 4 * BUDGET)


@pytest.mark.parametrize("name", SLIDE)
def test_a_probe_sees_the_window_behind_it(name: str) -> None:
    p, more = filled(name, 90), list(prompt(30, seed=6))
    found: list[Tensor] = []
    probe(p, more, lambda _layer, queries, _keys: found.append(queries))
    whole = prefill(p.model, torch.tensor([*p.ids.tolist(), *more]), Needs(window=30))
    for mine, other in zip(found, whole.queries, strict=True):
        close(mine, other)
    with pytest.raises(UsageError, match="of which the model's sliding layers have dropped the keys"):
        probe(p, more, lambda *_: None, seen=80)
    short: list[Tensor] = []
    probe(filled(name, 17), more, lambda _layer, queries, _keys: short.append(queries), seen=10)
    whole = prefill(p.model, torch.tensor([*prompt(17)[:10], *more]), Needs(window=30))
    for mine, other in zip(short, whole.queries, strict=True):
        close(mine, other)


def test_every_kind_is_tried() -> None:
    kinds = {family(name).config.model_type for name in FAMILIES} | {
        tiny(name).config.model_type for name in ARCHITECTURES
    }
    assert kinds == set(KINDS)


@pytest.mark.parametrize("name", [*FAMILIES, *ARCHITECTURES])
def test_configurations_are_known(name: str) -> None:
    refuse_unsupported((family(name) if name in FAMILIES else tiny(name)).config.to_dict())


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("gpt_oss", "sinks of its own"),
        ("gemma2", "softcapped"),
        ("glm4", "neighbouring pairs"),
        ("stablelm", "cannot be reached"),
    ],
)
def test_transformers_own_configurations_are_refused_by_name(kind: str, message: str) -> None:
    with pytest.raises(UsageError, match=f"model type '{kind}' is not supported: .*{message}"):
        refuse_unsupported(AutoConfig.for_model(kind).to_dict())


@pytest.mark.parametrize("fact", ["softcap", "s_aux"])
def test_attention_that_is_not_computed_here_is_refused_wherever_it_is_met(
    fact: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even if no configuration told of it: no result is silently wrong."""
    model = tiny("llama")
    call = type(model.model.layers[0].self_attn).forward
    monkeypatch.setattr(
        type(model.model.layers[0].self_attn),
        "forward",
        lambda self, *a, **more: call(self, *a, **more, **{fact: 30.0}),
    )
    with pytest.raises(UsageError, match="which is not computed here: use another model"):
        prefill(model, torch.tensor(prompt(9)))
