"""Compressed prompts that generate: held against transformers' own `generate` and against the harness's decoding."""

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    GenerationConfig,
    LogitsProcessor,
    PreTrainedModel,
    StoppingCriteria,
    TextIteratorStreamer,
)

from baselines.full import FullKV
from baselines.h2o import H2O
from baselines.pyramidkv import PyramidKV
from baselines.snapkv import SnapKV
from echokv import EchoKV, UsageError, compress, decode, prefill
from tests.models import ARCHITECTURES, build, prompt, tiny
from tests.policies import POLICIES, shared_prefill

LENGTH = 200


@cache
def floats(name: str) -> PreTrainedModel:
    """In float32, in which `generate` changes logits."""
    return build(name).float()


@pytest.fixture(scope="module")
def small(tiny_folder: Path) -> tuple[Any, Any]:
    model = AutoModelForCausalLM.from_pretrained(tiny_folder, dtype=torch.float32).eval()
    return model, AutoTokenizer.from_pretrained(tiny_folder)


def generate(model: Any, ids: Sequence[int], count: int, **options: Any) -> list[int]:
    tensor = torch.tensor([ids])
    found = model.generate(
        tensor, attention_mask=torch.ones_like(tensor), max_new_tokens=count, pad_token_id=0, **options
    )
    return found[0, len(ids) :].tolist()


@pytest.mark.parametrize("name", POLICIES)
def test_greedy_answers_are_those_of_a_selection(name: str) -> None:
    press, p = POLICIES[name].press(), shared_prefill("llama", LENGTH)
    held = compress(p.model, list(prompt(LENGTH)), press, 96)
    expected = press.select(p, 96)
    assert held.generate(max_new_tokens=20) == [decode(p, expected, 20)]
    assert held.finished == ["length"]
    assert held.entries == [expected.entries + 19 * p.layers * p.groups]


def test_what_is_evicted_is_freed() -> None:
    held = compress(tiny("llama"), list(prompt(LENGTH)), SnapKV(), 40)
    assert [part.shape for part in held.rows[0].prefill.keys] == [(2, 40, 16)] * 3
    assert held.bytes == 2 * 3 * 2 * 40 * 16 * 8


SETTINGS: tuple[dict[str, Any], ...] = (
    {"do_sample": False},
    {"do_sample": True},
    {"do_sample": True, "temperature": 0.7, "top_p": 0.8},
    {"do_sample": True, "temperature": 1.6, "top_k": 0, "min_p": 0.02},
    {"do_sample": True, "top_k": 7, "repetition_penalty": 1.3, "no_repeat_ngram_size": 2},
    {"do_sample": True, "typical_p": 0.6, "epsilon_cutoff": 0.001, "eta_cutoff": 0.001, "renormalize_logits": True},
    {"do_sample": True, "top_h": 0.6, "suppress_tokens": [1, 2, 3], "begin_suppress_tokens": list(range(60))},
    {"do_sample": False, "repetition_penalty": 1.2, "bad_words_ids": [[4], [5, 6]], "min_length": 215},
    {"do_sample": False, "min_new_tokens": 9, "exponential_decay_length_penalty": (3, 1.5)},
    {"do_sample": False, "sequence_bias": [[[9], 2.0], [[3, 4], -5.0]], "remove_invalid_values": True},
)


@pytest.mark.filterwarnings("ignore:Unfeasible length constraints")
@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_every_setting_is_that_of_generate(settings: dict[str, Any]) -> None:
    """Token by token, with torch's own draws; the settings as a config and by name."""
    model, ids = floats("qwen2"), prompt(LENGTH)
    ends = generate(model, ids, 3, do_sample=False)[1:] if "min" not in str(settings) else [*range(20)]
    torch.manual_seed(5)
    expected = generate(model, ids, 30, eos_token_id=ends, **settings)
    held = compress(model, torch.tensor(ids), FullKV())
    config = GenerationConfig(max_new_tokens=30, eos_token_id=ends, **settings)
    for given, changes in ((config, {}), (None, {"max_new_tokens": 30, "eos_token_id": ends, **settings})):
        torch.manual_seed(5)
        assert held.copy().generate(given, **changes) == [expected]


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_rows_of_unequal_lengths_are_those_of_each(name: str) -> None:
    ids = [list(prompt(n)) for n in (61, 200, 140)]
    model = floats(name)
    config = {"max_new_tokens": 25, "do_sample": True, "temperature": 0.9, "repetition_penalty": 1.1}
    expected = []
    for own, seed in zip(ids, (3, 4, 5), strict=True):
        torch.manual_seed(seed)
        expected.append(generate(model, own, 25, **{k: v for k, v in config.items() if k != "max_new_tokens"}))
    assert compress(model, ids, FullKV()).generate(**config, seed=[3, 4, 5]) == expected
    assert expected[0] != expected[1]
    small = compress(model, ids, SnapKV(), 48)
    assert small.copy().generate(**config, seed=[3, 4, 5]) == small.copy().generate(**config, seed=[3, 4, 5])
    assert small.copy().generate(**config, seed=[3, 4, 5]) != small.copy().generate(**config, seed=[6, 7, 8])


def test_a_second_call_goes_on() -> None:
    p = shared_prefill("mistral", LENGTH)
    held = compress(p.model, list(prompt(LENGTH)), SnapKV(), 48)
    first, second = held.generate(max_new_tokens=7)[0], held.generate(max_new_tokens=9)[0]
    assert [*first, *second] == decode(p, SnapKV().select(p, 48), 16)
    assert held.ids == [[*prompt(LENGTH), *first, *second]]


class NeverTheBest(LogitsProcessor):  # type: ignore[misc]
    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        return scores.index_fill(1, scores.argmax(-1), -torch.inf)


class AfterSix(StoppingCriteria):  # type: ignore[misc]
    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor, **_: Any) -> torch.Tensor:
        return torch.tensor([input_ids.shape[1] >= LENGTH + 6])


def test_processors_and_criteria_of_ones_own() -> None:
    model, ids = floats("llama"), prompt(LENGTH)
    own = {"logits_processor": [NeverTheBest()], "stopping_criteria": [AfterSix()]}
    expected = generate(model, ids, 30, do_sample=False, **own)
    held = compress(model, list(ids), FullKV())
    assert held.generate(max_new_tokens=30, **own) == [expected]
    assert len(expected) == 6
    assert held.finished == ["stop"]


def test_stop_strings_are_those_of_generate(small: tuple[Any, Any]) -> None:
    model, tokenizer = small
    ids = tokenizer("a text to go on with " * 8).input_ids
    text = tokenizer.decode(generate(model, ids, 60, do_sample=False))
    string = text[20:22]
    expected = generate(model, ids, 60, do_sample=False, stop_strings=[string], tokenizer=tokenizer)
    held = compress(model, ids, FullKV(), tokenizer=tokenizer)
    assert held.copy().generate(max_new_tokens=60, stop_strings=string) == [expected]
    assert len(expected) < 40
    assert held.generate(max_new_tokens=5, stop_strings="never to be met \ue123")
    assert held.finished == ["length"]


def test_a_streamer_is_told_each_token(small: tuple[Any, Any]) -> None:
    model, tokenizer = small
    held = compress(model, "stream this text, please " * 5, SnapKV(), 64, tokenizer=tokenizer)
    expected = held.copy().reply(max_new_tokens=20)
    streamer = TextIteratorStreamer(tokenizer, skip_prompt=True, timeout=10, skip_special_tokens=True)
    assert held.reply(max_new_tokens=20, streamer=streamer) == expected
    assert "".join(streamer) == expected


class Broken(Exception):
    pass


class Breaks(StoppingCriteria):  # type: ignore[misc]
    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor, **_: Any) -> Any:
        if input_ids.shape[1] > LENGTH + 4:
            raise Broken
        return torch.tensor([False])


def test_an_answer_that_breaks_leaves_no_trace() -> None:
    held = compress(tiny("llama"), list(prompt(LENGTH)), SnapKV(), 48)
    expected = held.copy().generate(max_new_tokens=12)
    with pytest.raises(Broken):
        held.generate(max_new_tokens=12, stopping_criteria=[Breaks()])
    assert held.generate(max_new_tokens=12) == expected


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({}, "no max_new_tokens is given: say how long"),
        ({"max_new_tokens": 0}, "an answer of 0 new tokens is asked for"),
        ({"max_new_tokens": 9, "num_beams": 4}, "name num_beams=4, which is not applied here: leave it out"),
        ({"max_new_tokens": 9, "temprature": 4}, "generation has no setting temprature"),
        ({"max_new_tokens": 9, "do_sample": True, "temperature": 0.0}, "a generation setting is wrong: .*temperature"),
        (
            {"max_new_tokens": 9, "do_sample": True, "seed": 3},
            r"seed=3 is given for 2 prompts: give one for each, seed=\[",
        ),
        ({"max_new_tokens": 9, "stop_strings": "a"}, "stop_strings are given without a tokenizer"),
        ({"max_new_tokens": 9, "stop_strings": [""]}, "each must be a text of at least one character"),
        ({"max_new_tokens": 9, "streamer": "x"}, "a str is given as the streamer"),
        ({"max_new_tokens": "9"}, "an answer of '9' new tokens is asked for"),
        ({"config": {"max_new_tokens": 9}}, "a dict is given as the generation settings: pass a GenerationConfig"),
        ({"max_new_tokens": 9, "eos_token_id": "a"}, "eos_token_id is 'a'; it must be a token id or a list"),
        ({"max_new_tokens": 4000}, "the model has 2048 positions: give fewer"),
    ],
    ids=str,
)
def test_wrong_settings_are_told_in_one_line(settings: dict[str, Any], told: str) -> None:
    held = compress(tiny("llama"), [list(prompt(60)), list(prompt(70))], SnapKV(), 40)
    with pytest.raises(UsageError, match=told) as error:
        held.generate(**settings)
    assert "\n" not in str(error.value)
    assert len(held.generate(max_new_tokens=2)) == 2


def test_a_streamer_of_several_rows_is_told() -> None:
    held = compress(tiny("llama"), [list(prompt(60)), list(prompt(70))], SnapKV(), 40)
    with pytest.raises(UsageError, match="a streamer is given for 2 rows: it takes one"):
        held.generate(max_new_tokens=3, streamer=TextIteratorStreamer(None))


def test_wrong_arguments_are_told() -> None:
    model, ids = tiny("llama"), list(prompt(60))
    wrong: list[tuple[tuple[Any, ...], str]] = [
        (("llama", ids, SnapKV(), 40), "a str is given as the model: pass a loaded"),
        ((model, ids, SnapKV, 40), "SnapKV is given as the press: pass a policy with its settings"),
        ((model, ids, "snapkv", 40), "str is given as the press"),
        ((model, ids, SnapKV()), "budget is None: say how many tokens each KV head keeps"),
        ((model, ids, SnapKV(), 0.5), "budget is 0.5: say how many"),
        ((model, ids, SnapKV(), 20), "budget 20 is too small for SnapKV: it needs at least 33"),
        ((model, "text", SnapKV(), 40), "without a tokenizer"),
        ((model, [ids, []], SnapKV(), 40), "an empty list is given"),
        ((model, [5, 128], SnapKV(), 40), "token id 128 is given; the model embeds 128"),
        ((model, [5, -1], SnapKV(), 40), "token id -1 is given"),
        ((model, ids, SnapKV(granularity="query_head"), 40), "use granularity='kv_head'"),
    ]
    for arguments, told in wrong:
        with pytest.raises(UsageError, match=told):
            compress(*arguments)


def test_a_model_that_moved_is_told() -> None:
    model = build("llama")
    held = compress(model, list(prompt(60)), SnapKV(), 40)
    model.float()
    with pytest.raises(
        UsageError, match=r"in torch.float64 on cpu, which is now in torch.float32 on cpu: compress again"
    ):
        held.generate(max_new_tokens=3)
    with pytest.raises(UsageError, match="compress again"):
        held.feed([1, 2])


def test_other_presses_are_no_other_case() -> None:
    for press in (H2O(), PyramidKV(), EchoKV(workspace=64)):
        p = prefill(tiny("qwen3"), torch.tensor(prompt(150)), press.needs)
        assert compress(p.model, list(prompt(150)), press, 48).generate(max_new_tokens=9) == [
            decode(p, press.select(p, 48), 9)
        ]
