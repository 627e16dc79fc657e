"""Prompts in the forms that people have them in."""

from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoTokenizer, BatchEncoding

from echokv import UsageError, prefill
from echokv.inputs import prompts, turns
from tests.models import prompt, tiny


@pytest.fixture
def tokenizer(tiny_folder: Path) -> Any:
    return AutoTokenizer.from_pretrained(tiny_folder)


def lists(found: list[torch.Tensor]) -> list[list[int]]:
    assert all(one.dim() == 1 and not one.is_floating_point() for one in found)
    return [one.tolist() for one in found]


@pytest.mark.parametrize("side", ["left", "right"])
def test_every_form_of_one_and_of_several(tokenizer: Any, side: str) -> None:
    texts = ["one", "and another", "x"]
    expected = [tokenizer(text).input_ids for text in texts]
    tokenizer.padding_side = side
    padded = tokenizer(texts, padding=True, return_tensors="pt")
    for form in (texts, expected, list(map(torch.tensor, expected)), padded, tokenizer(texts), dict(padded)):
        assert lists(prompts(form, tokenizer)) == expected
    for form in (texts[1], expected[1], torch.tensor(expected[1]), torch.tensor([expected[1]]), tokenizer(texts[1])):
        assert lists(prompts(form, tokenizer)) == [expected[1]]
    assert lists(prompts(tokenizer(texts[1], return_tensors="pt"))) == [expected[1]]
    encoded = [tokenizer(text, return_tensors="pt") for text in texts]
    assert lists(prompts(encoded)) == expected


def test_messages_go_into_the_template(tokenizer: Any) -> None:
    chats = [[{"role": "user", "content": text}] for text in ("hello", "what else?")]
    expected = [tokenizer(f"<|user|>{text}<|answer|>").input_ids for text in ("hello", "what else?")]
    assert lists(prompts(chats[0], tokenizer)) == expected[:1]
    assert lists(prompts(chats, tokenizer)) == expected
    rendered = tokenizer.apply_chat_template(chats[0], add_generation_prompt=True)
    assert isinstance(rendered, BatchEncoding)
    assert lists(prompts(rendered)) == expected[:1]
    assert lists(turns(chats[1], tokenizer)) == expected[1:]
    assert lists(turns(chats, tokenizer)) == expected


def test_a_turn_of_messages_begins_where_the_answer_ends(tokenizer: Any) -> None:
    """Of a template that ends each answer, too."""
    tokenizer.chat_template = (
        "{% for m in messages %}{{ '<|user|>' if m['role'] == 'user' else '<|answer|>' }}{{ m['content'] }}<|end|>"
        "{% endfor %}{% if add_generation_prompt %}<|answer|>{% endif %}"
    )
    (found,) = turns([{"role": "user", "content": "more"}], tokenizer)
    assert tokenizer.decode(found) == "<|end|><|user|>more<|end|><|answer|>"


@given(st.lists(st.tuples(st.lists(st.integers(0, 99), min_size=1, max_size=9), st.booleans()), min_size=1, max_size=5))
def test_padding_at_either_end_is_taken_off(rows: list[tuple[list[int], bool]]) -> None:
    longest = max(len(ids) for ids, _ in rows)
    ids, mask = [], []
    for own, left in rows:
        blank = [0] * (longest - len(own))
        ids.append(blank + own if left else own + blank)
        mask.append(blank + [1] * len(own) if left else [1] * len(own) + blank)
    form = {"input_ids": torch.tensor(ids), "attention_mask": torch.tensor(mask)}
    assert lists(prompts(form, pad=0)) == [own for own, _ in rows]


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ("a text", "the text 'a text' is given without a tokenizer: pass tokenizer="),
        (["a", "b"], "without a tokenizer"),
        ([{"role": "user", "content": "a"}], "messages are given without a tokenizer"),
        ({"role": "user", "content": "a"}, "a dict is given as the prompt: pass token ids"),
        ([], "an empty list is given"),
        (7, "a int is given as the prompt: pass token ids"),
        (None, "a NoneType is given as the prompt"),
        ({"pixel_values": 1}, "a mapping with pixel_values is given"),
        ({"input_ids": [1], "pixel_values": 1}, "the prompt comes with pixel_values"),
        (torch.ones(1, 5), "ids of torch.float32 are given"),
        (torch.ones(1, 1, 5, dtype=torch.long), r"ids of shape \[1, 1, 5\] are given"),
        (torch.tensor([[1, 2], [0, 2]]), "several prompts are given as one tensor, some with padding"),
        ([[[1], [2]]], "a list of prompts holds one that is 2 prompts itself"),
        ([1.5, 2.5], "a float is given as the prompt"),
        ({"input_ids": [[1, 2, 3]], "attention_mask": [[1, 0, 1]]}, "leaves out tokens amid a prompt"),
        ({"input_ids": [[1, 2, 3]], "attention_mask": [[1, 2, 1]]}, "must have a 1 or a 0 for each token"),
        ({"input_ids": [[1, 2, 3]], "attention_mask": [[1], [1]]}, "1 prompts come with 2 attention masks"),
    ],
    ids=str,
)
def test_what_is_no_prompt_is_told_in_one_line(wrong: Any, told: str) -> None:
    with pytest.raises(UsageError, match=told) as error:
        prompts(wrong, pad=0)
    assert "\n" not in str(error.value)


def test_a_template_that_refuses_is_told(tokenizer: Any) -> None:
    tokenizer.chat_template = "{{ raise_exception('roles must alternate') }}"
    with pytest.raises(UsageError, match="the chat template refuses these messages: roles must alternate"):
        prompts([{"role": "user", "content": "a"}], tokenizer)
    tokenizer.chat_template = None
    with pytest.raises(UsageError, match="the tokenizer has no chat template"):
        prompts([{"role": "user", "content": "a"}], tokenizer)


def test_a_prefill_takes_what_a_tokenizer_returned() -> None:
    ids = list(prompt(60))
    expected = prefill(tiny("llama"), torch.tensor(ids))
    forms: list[Any] = [
        ids,
        [ids],
        torch.tensor(ids).numpy(),
        BatchEncoding({"input_ids": [ids], "attention_mask": [[1] * 60]}),
    ]
    forms.append(BatchEncoding({"input_ids": torch.tensor([[5, 5, *ids]]), "attention_mask": [[0, 0] + [1] * 60]}))
    for form in forms:
        assert torch.equal(prefill(tiny("llama"), form).logits, expected.logits)
    for empty in (torch.zeros(1, 0, dtype=torch.long), torch.zeros(0), []):
        with pytest.raises(UsageError, match=r"the prompt has 0 tokens|an empty list is given"):
            prefill(tiny("llama"), empty)
    with pytest.raises(UsageError, match="2 prompts given: a prefill takes one"):
        prefill(tiny("llama"), [ids, ids])
    with pytest.raises(UsageError, match="without a tokenizer"):
        prefill(tiny("llama"), "a text")
