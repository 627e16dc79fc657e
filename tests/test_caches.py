"""An evicted cache in transformers' own hands: right, or refused."""

import copy
from typing import Any

import pytest
import torch
from transformers import DynamicCache

from baselines.ada import AdaSnapKV
from baselines.full import FullKV
from baselines.pyramidkv import PyramidKV
from baselines.snapkv import SnapKV
from echokv import Compressed, UsageError, compress
from tests.models import ARCHITECTURES, build, prompt, tiny
from tests.policies import close

LENGTH, BUDGET, MORE = 200, 48, 13


@pytest.fixture(params=[(name, kernel) for name in ARCHITECTURES for kernel in ("sdpa", "eager")], ids=str)
def held(request: pytest.FixtureRequest) -> Compressed:
    name, kernel = request.param
    model = build(name)
    model.set_attn_implementation(kernel)
    return compress(model, list(prompt(LENGTH)), SnapKV(), BUDGET)


def generate(held: Compressed, count: int, turn: Any = None, **how: Any) -> list[int]:
    given = held.handover(turn)
    found = held.model.generate(**given, max_new_tokens=count, do_sample=False, pad_token_id=0, **how)
    return found[0, given["input_ids"].shape[1] :].tolist()


def test_generate_goes_on_where_the_cache_ends(held: Compressed) -> None:
    """After a turn of many tokens, after an answer, and after both; with every mask that transformers makes."""
    turn = list(prompt(MORE, seed=1))
    for _ in range(2):
        expected = held.copy().feed(turn, evict=False).generate(max_new_tokens=15)
        assert generate(held, 15, turn) == expected[0]
        held.generate(max_new_tokens=6)
        assert generate(held, 9) == held.copy().generate(max_new_tokens=9)[0]
    held.feed(turn)
    held.generate(max_new_tokens=3)
    assert generate(held, 9) == held.copy().generate(max_new_tokens=9)[0]


def test_the_model_itself_is_right_without_positions(held: Compressed) -> None:
    turn = list(prompt(MORE, seed=1))
    given = held.handover(turn)
    (name,) = given.keys() - {"input_ids", "attention_mask"}
    cache = given[name]
    assert cache.get_seq_length() == LENGTH
    for some in (turn[:4], turn[4:5], turn[5:]):
        out = held.model(input_ids=torch.tensor([some]), **{name: cache})
    assert cache.get_seq_length() == LENGTH + MORE
    # Eager attention takes its softmax in float32.
    close(out.logits[0, -1], held.copy().feed(turn, evict=False).rows[0].logits, tolerance=1e-5)


def test_a_plain_shortened_cache_would_be_silently_wrong() -> None:
    """What this is for: the same entries in transformers' own class give another answer, and no error."""
    model, turn = tiny("llama"), list(prompt(MORE, seed=1))
    held = compress(model, list(prompt(LENGTH)), SnapKV(), BUDGET)
    right, given = generate(held, 15, turn), held.handover(turn)
    (name,) = given.keys() - {"input_ids", "attention_mask"}
    plain = DynamicCache()
    for number, layer in enumerate(given[name].layers):
        plain.update(layer.keys, layer.values, number)
    wrong = model.generate(**{**given, name: plain}, max_new_tokens=15, do_sample=False, pad_token_id=0)
    assert wrong[0, LENGTH + MORE :].tolist() != right


def test_beams_and_samples_share_the_prompt() -> None:
    """Rows are repeated and reordered: of a cache that keeps all, as without one."""
    model, ids, turn = tiny("qwen2"), list(prompt(LENGTH)), list(prompt(MORE, seed=1))
    held = compress(model, ids, FullKV())
    how = {"max_new_tokens": 9, "do_sample": False, "num_beams": 3, "pad_token_id": 0}
    expected = model.generate(torch.tensor([ids + turn]), attention_mask=torch.ones(1, LENGTH + MORE), **how)
    given = held.handover(turn)
    with pytest.raises(UsageError, match=r"3 rows are fed to a cache of 1: .* batch_repeat_interleave\(3\)"):
        model.generate(**given, **how)
    given = held.handover(turn)
    next(one for one in given.values() if not isinstance(one, torch.Tensor)).batch_repeat_interleave(3)
    assert model.generate(**given, **how).tolist() == expected.tolist()


def test_what_generate_adds_is_its_own() -> None:
    held = compress(tiny("llama"), list(prompt(LENGTH)), SnapKV(), BUDGET)
    before = [part.clone() for part in held.rows[0].prefill.keys]
    expected = held.copy().generate(max_new_tokens=5)
    generate(held, 9, [1, 2, 3])
    assert all(torch.equal(*pair) for pair in zip(before, held.rows[0].prefill.keys, strict=True))
    assert held.generate(max_new_tokens=5) == expected


@pytest.mark.parametrize("press", [PyramidKV(), AdaSnapKV()], ids=["layers", "heads"])
def test_unequal_lengths_are_refused(press: Any) -> None:
    held = compress(tiny("llama"), list(prompt(LENGTH)), press, BUDGET)
    with pytest.raises(UsageError, match="keep unequally many tokens, for which transformers has no mask"):
        held.handover([1, 2])


def test_other_refusals() -> None:
    held = compress(tiny("llama"), list(prompt(LENGTH)), SnapKV(), BUDGET)
    with pytest.raises(UsageError, match=r"has seen every token.*: pass a turn to handover\(\)"):
        held.handover()
    with pytest.raises(UsageError, match="token id 900 is given"):
        held.handover([900])
    two = compress(tiny("llama"), [list(prompt(60)), list(prompt(61))], SnapKV(), BUDGET)
    with pytest.raises(UsageError, match="2 rows are held: one can be handed over"):
        two.handover([[1], [2]])
    cache = next(value for value in held.handover([1]).values() if not isinstance(value, torch.Tensor))
    for act in (lambda: cache.crop(-1), cache.reset):
        with pytest.raises(UsageError, match="an evicted cache cannot be"):
            act()
    assert copy.deepcopy(cache).get_seq_length() == LENGTH
