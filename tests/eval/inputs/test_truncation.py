"""Prompt to token ids, on a byte-level tokenizer made here, against the official steps written out."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from eval.console.errors import UserError
from eval.inputs import prompts, truncation

MERGES = [("t", "h"), ("th", "e"), ("Ġ", "the"), ("a", "b"), ("ab", "c")]
TEMPLATE = "{{ bos_token }}[I]{{ messages[0]['content'] | trim }}[/I]{% if add_generation_prompt %} {% endif %}"


def tokenizer(bos: bool = True, template: str | None = TEMPLATE) -> Any:
    pieces = sorted(pre_tokenizers.ByteLevel.alphabet()) + [left + right for left, right in MERGES]
    core = Tokenizer(models.BPE({piece: i for i, piece in enumerate(pieces)}, MERGES))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    core.add_special_tokens(["<s>", "[I]", "[/I]"])
    special = [("<s>", core.token_to_id("<s>"))]
    start = "<s> $A" if bos else "$A"
    core.post_processor = processors.TemplateProcessing(single=start, pair=f"{start} $B", special_tokens=special)
    made = PreTrainedTokenizerFast(
        tokenizer_object=core,
        bos_token="<s>" if bos else None,
        additional_special_tokens=["[I]", "[/I]"],
        clean_up_tokenization_spaces=False,
    )
    made.chat_template = template if bos or template is None else template.replace("{{ bos_token }}", "")
    return made


TOKENIZER, BARE = tokenizer(), tokenizer(bos=False)


def official(prompt: str, limit: int, *, chat: bool) -> list[int]:
    """LongBench's pred.py step by step: count with BOS, two halves as text, template last, tokenise again."""
    ids = TOKENIZER(prompt).input_ids
    if len(ids) > limit:
        half = int(limit / 2)
        left = TOKENIZER.decode(ids[:half], skip_special_tokens=True)
        prompt = left + TOKENIZER.decode(ids[-half:], skip_special_tokens=True)
    if not chat:
        return list(TOKENIZER(prompt).input_ids)
    return list(TOKENIZER(f"<s>[I]{prompt.strip()}[/I] ", add_special_tokens=False).input_ids)


@settings(max_examples=150)
@given(st.text(alphabet="abcthe é字{}\n", max_size=80), st.integers(2, 60), st.booleans())
def test_truncate_first_is_the_official_order(prompt: str, limit: int, chat: bool) -> None:
    found = truncation.encode(prompt, TOKENIZER, limit=limit, chat=chat)
    assert list(found.ids) == official(prompt, limit, chat=chat)
    assert found.tokens_before == len(TOKENIZER(prompt).input_ids)
    assert found.truncated == (found.tokens_before > limit)
    assert found.ids.count(TOKENIZER.bos_token_id) == 1
    assert found.ids[0] == TOKENIZER.bos_token_id


def test_a_cut_keeps_both_ends_and_an_odd_limit_drops_one_more() -> None:
    found = truncation.encode("0123456789", BARE, limit=7, chat=False)
    assert (found.text, len(found.ids), found.tokens_before) == ("012789", 6, 10)
    assert truncation.encode("0123456789", BARE, limit=10, chat=False).text == "0123456789"


def test_a_cut_inside_a_character_leaves_the_replacement_sign() -> None:
    assert truncation.encode("字" * 4, BARE, limit=4, chat=False).text == "\ufffd" * 3  # an open start, two stray ends


def test_template_first_loses_the_templates_tokens_in_a_cut() -> None:
    whole = truncation.encode("0123456789", BARE, limit=50, chat=True, order="template_first")
    assert whole.ids == truncation.encode("0123456789", BARE, limit=50, chat=True).ids
    cut = truncation.encode("0123456789", BARE, limit=8, chat=True, order="template_first")
    assert (cut.text, cut.tokens_before) == ("01289 ", 13)
    kept = truncation.encode("0123456789", BARE, limit=8, chat=True)
    assert kept.text == "[I]01236789[/I] "


def test_bos_comes_back_after_a_cut_of_a_templated_prompt() -> None:
    cut = truncation.encode("0123456789", TOKENIZER, limit=8, chat=True, order="template_first")
    assert not cut.text.startswith("<s>")
    assert cut.ids[0] == TOKENIZER.bos_token_id
    assert cut.ids.count(TOKENIZER.bos_token_id) == 1


def test_wrong_input_is_told() -> None:
    with pytest.raises(UserError, match="no chat template"):
        truncation.encode("a", tokenizer(template=None), limit=9, chat=True)
    with pytest.raises(UserError, match="did you mean truncate_first"):
        truncation.encode("a", BARE, limit=9, chat=True, order="truncate")  # type: ignore[arg-type]
    for limit in (1, 0, -5):
        with pytest.raises(UserError, match="leaves nothing"):
            truncation.encode("a", BARE, limit=limit, chat=False)
    doubled = tokenizer(template="{{ bos_token }}" + TEMPLATE)
    with pytest.raises(UserError, match="2 BOS tokens instead of 1"):
        truncation.encode("a", doubled, limit=9, chat=True)


@settings(max_examples=150)
@given(st.data(), st.booleans(), st.sampled_from(["truncate_first", "template_first"]))
def test_spans_cover_their_text(data: st.DataObject, chat: bool, order: truncation.Order) -> None:
    words = data.draw(st.lists(st.text(alphabet="abthe字", min_size=1, max_size=5), min_size=30, max_size=60))
    prompt = "\n" + " ".join(f"{i}{word}" for i, word in enumerate(words)) + " "
    limit = data.draw(st.sampled_from([1000, 240, 160]))
    start = data.draw(st.integers(1, len(prompt) - 3))
    end = data.draw(st.integers(start + 1, len(prompt) - 1))
    found = truncation.encode(prompt, TOKENIZER, limit=limit, chat=chat, order=order)
    (span,) = truncation.token_spans(found, TOKENIZER, prompt, [(start, end)])
    if not found.truncated:
        assert span is not None
    if span is not None:
        assert prompt[start:end] in TOKENIZER.decode(found.ids[span.start : span.stop])
        for fewer in (span[1:], span[:-1]):  # no token more than needed, of which a character may take three
            assert prompt[start:end] not in TOKENIZER.decode(found.ids[fewer.start : fewer.stop])


def test_a_span_in_the_cut_is_reported_as_gone() -> None:
    prompt = " ".join(f"word{i}" for i in range(200))
    found = truncation.encode(prompt, BARE, limit=300, chat=False)
    middle, first, last = prompt.index("word100"), prompt.index("word5"), prompt.index("word198")
    spans = [(at, at + 6) for at in (first, middle, last)]
    head, gone, tail = truncation.token_spans(found, BARE, prompt, spans)
    assert gone is None
    assert head is not None
    assert tail is not None
    assert BARE.decode(found.ids[tail.start : tail.stop]).strip() == "word19"
    assert BARE.decode(found.ids[head.start : head.stop]).strip().startswith("word5")


def test_context_start_shifts_a_records_spans() -> None:
    record = {"context": "the abc", "input": "who {context}?"}
    template = "{input}\n{context}!"
    start, prompt = prompts.context_start(template, record), prompts.render(template, record)
    found = truncation.encode(prompt, BARE, limit=99, chat=True)
    (span,) = truncation.token_spans(found, BARE, prompt, [(start + 4, start + 7)])
    assert span is not None
    assert BARE.decode(found.ids[span.start : span.stop]) == " abc"[-len("abc") :]
