"""The checkpoint's generation settings, applied in batched rows: token by token what `generate` does."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import GenerationConfig, PreTrainedModel

from baselines.full import FullKV
from baselines.laq import LAQ
from baselines.snapkv import SnapKV
from echokv import EchoKV, Session, UsageError, decode, decode_rows, load_model, prefill
from echokv.decoding import ROOM
from echokv.generation import BARE, Generation
from echokv.rows import Rows
from tests import twin
from tests.models import ARCHITECTURES, build, prompt
from tests.policies import EVERYTHING, trace
from tests.test_acceptance_lookahead import compare_rounds
from tests.test_rows import recorded
from tests.twin_model import forward

PENALTIES = (0.8, 1.05, 1.3)
pytestmark = pytest.mark.filterwarnings("ignore:Unfeasible length constraints")
SETTINGS: tuple[dict[str, Any], ...] = (
    *({"repetition_penalty": penalty} for penalty in PENALTIES),
    {"suppress_tokens": [3, 17, 40, 90], "begin_suppress_tokens": list(range(0, 128, 3))},
    {"repetition_penalty": 1.2, "begin_suppress_tokens": list(range(64)), "suppress_tokens": [100], "min_length": 205},
    {"repetition_penalty": 1.3, "min_new_tokens": 5},
)


@cache
def floats(name: str) -> PreTrainedModel:
    """In float32, in which `generate` changes logits."""
    return build(name).float()


def generate(model: PreTrainedModel, ids: Sequence[int], count: int, **options: Any) -> list[int]:
    tensor = torch.tensor([ids])
    out = model.generate(
        tensor, attention_mask=torch.ones_like(tensor), max_new_tokens=count, do_sample=False, pad_token_id=0, **options
    )
    return out[0, len(ids) :].tolist()


def whole(model: PreTrainedModel, ids: Sequence[int], generation: Generation, stop: Sequence[int] = ()) -> Session:
    least = generation.least_tokens(len(ids), 0)
    p = prefill(model, torch.tensor(ids), stop_ids=stop, min_new_tokens=least, generation=generation)
    return Session(p, FullKV().select(p, None))


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_one_answer_is_that_of_generate(name: str, settings: dict[str, Any]) -> None:
    """Of a model whose own settings these are, with stop ids that come early where nothing bans them."""
    model, ids = build(name).float(), prompt(200)
    model.generation_config = GenerationConfig(**settings)
    generation = Generation.of(model.generation_config)
    bare = generate(floats(name), ids, ROOM + 20)
    stop = [bare[0], bare[3]]
    for chosen in (stop, []):
        expected = generate(model, ids, ROOM + 20, **({"eos_token_id": chosen} if chosen else {}))
        assert decode_rows([whole(model, ids, generation, chosen)], ROOM + 20) == [expected]
        if not chosen:
            assert expected != bare  # the settings are felt


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_rows_of_unequal_lengths_and_rules_are_those_of_generate(name: str) -> None:
    """One batch of every rule on several prompts, whose rows leave at different times and outgrow the first room."""
    model, expected, sessions, limits = floats(name), [], [], []
    for place, settings in enumerate(({}, *SETTINGS)):
        config = GenerationConfig(**settings)
        for length in (61, 200, 140):
            ids, count = prompt(length, seed=place), ROOM + 3 * place + length // 20
            expected.append(generate(model, ids, count, generation_config=config))
            sessions.append(whole(model, ids, Generation.of(config)))
            limits.append(count)
    assert decode_rows(sessions, limits) == expected


def test_rows_of_one_prompt_keep_their_own_rules() -> None:
    """Evicted caches, of which some are alike in all but the rule."""
    ids, rules = torch.tensor(prompt(200)), [BARE, *(Generation(repetition_penalty=one) for one in (0.8, 1.3, 1.8))]
    filled = [prefill(floats("llama"), ids, EVERYTHING, generation=rule) for rule in rules]

    def rows() -> list[Session]:
        return [Session(p, SnapKV().select(p, budget)) for p in filled for budget in (40, 41, 200)]

    alone = [decode_rows([session], 20)[0] for session in rows()]
    assert decode_rows(rows(), 20) == alone
    assert len({tuple(answer) for answer in alone[::3]}) == len(rules)
    mixed = [Session(filled[1], FullKV().select(filled[1], None), bare=bare) for bare in (True, False, True)]
    assert decode_rows(mixed, 20) == [alone[2], alone[5], alone[2]]


@pytest.mark.parametrize("penalty", [1.05, 1.3])
def test_smollm2_answers_as_in_generate(penalty: float) -> None:
    model, tokenizer = load_model("smollm2", dtype="float32")
    texts = ["The capital of France is Paris. " * 12, "def add(a, b):\n    return a + b\n\n" * 9, "One, two, three"]
    config = GenerationConfig(**{**model.generation_config.to_dict(), "repetition_penalty": penalty})
    prompts = [tokenizer(text).input_ids for text in texts]
    expected = [generate(model, ids, 40, generation_config=config) for ids in prompts]
    stop = [model.generation_config.eos_token_id]
    rows = [whole(model, ids, Generation.of(config), stop) for ids in prompts]
    assert decode_rows(rows, 40) == expected
    assert expected != [generate(model, ids, 40) for ids in prompts]


def penalised(logits: Tensor, had: Sequence[int], penalty: float) -> int:
    """The definition, written out: every token that was there loses, once, however often it was."""
    scores = logits.double().tolist()
    for token in set(had):
        scores[token] = scores[token] / penalty if scores[token] > 0 else scores[token] * penalty
    return max(range(len(scores)), key=scores.__getitem__)


@pytest.mark.parametrize("penalty", [0.8, 1.3])
def test_the_penalty_is_what_it_says(penalty: float) -> None:
    """In float64, by hand, on an evicted cache."""
    whole_trace, ids = trace("qwen2", 200), list(prompt(200))
    p = prefill(whole_trace.model, torch.tensor(ids), EVERYTHING, generation=Generation(repetition_penalty=penalty))
    selection = SnapKV().select(p, 40)
    kept, state, tokens = [layer.tolist() for layer in selection.indices], whole_trace, []
    for _ in range(12):
        tokens.append(penalised(state.logits, [*ids, *tokens], penalty))
        state = forward(p.model, [tokens[-1]], state, kept)
    assert decode(p, selection, 12) == tokens


def test_a_ruled_step_waits_for_nothing() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    generation = Generation(repetition_penalty=1.3, suppress_tokens=(3, 4))
    sessions = [whole(floats("llama"), prompt(n), generation) for n in (60, 75)]
    rows = Rows(sessions, 4)
    (ruled,) = rows.ruled
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    rows.tokens, rows.positions = mode.from_tensor(rows.tokens), mode.from_tensor(rows.positions)
    rows.column, rows.number = mode.from_tensor(rows.column), mode.from_tensor(rows.number)
    ruled.had = mode.from_tensor(ruled.had)
    with mode:
        _, best = rows.step()
    assert best.shape == (2,)


def test_ruled_steps_can_be_recorded() -> None:
    def sessions() -> list[Session]:
        rules = (Generation(repetition_penalty=1.3), BARE, Generation(repetition_penalty=0.9, suppress_tokens=(5,)))
        return [whole(floats("mistral"), prompt(60 + n), rule) for n, rule in enumerate(rules)]

    limits = [ROOM + 9, 5, 21]
    assert decode_rows(sessions(), limits, recorded) == decode_rows(sessions(), limits)


def test_rows_without_rules_have_nothing_to_do() -> None:
    rows = Rows([whole(floats("llama"), prompt(60), BARE)], 4)
    assert rows.ruled == []
    logits, best = rows.step()
    assert logits.dtype == torch.float32
    assert torch.equal(best, logits.argmax(-1))


@pytest.mark.parametrize("minimum", [0, 1])
def test_a_first_token_that_may_not_end_is_the_next_best(minimum: int) -> None:
    """`generate` is told min_length=L+1, as the public scripts tell it."""
    for settings in ({}, *SETTINGS[:5]):
        config, ids = GenerationConfig(**settings), prompt(150)
        generation = Generation.of(config)
        stop = generate(floats("llama"), ids, 2, generation_config=config)
        least = generation.least_tokens(len(ids), minimum)
        p = prefill(floats("llama"), torch.tensor(ids), None, stop, least, generation)
        asked = {"min_length": len(ids) + 1} if minimum else {}
        expected = generate(floats("llama"), ids, 12, generation_config=config, eos_token_id=stop, **asked)
        assert decode(p, FullKV().select(p, None), 12) == expected
        assert (expected[0] in stop) is (least == 0)


# What the lookahead follows


@pytest.mark.parametrize("press", [LAQ(decoding="bare"), EchoKV(workspace=160, decoding="bare")], ids=["laq", "echokv"])
def test_a_bare_lookahead_follows_the_raw_argmax(press: Any) -> None:
    """A stop id as the first token is fed, and neither rule of the answer acts; the answer itself follows both."""
    naive = {"LAQ": twin.laq, "EchoKV": partial_echokv}[type(press).__name__]
    whole_trace, ids = trace("llama", 200), torch.tensor(prompt(200))
    first = twin.greedy(whole_trace.logits, ())
    rules = {"stop_ids": [first], "min_new_tokens": 1, "generation": Generation(repetition_penalty=1.5)}
    p = prefill(whole_trace.model, ids, EVERYTHING, **rules)
    rounds = press.rounds(p, 96)
    compare_rounds(rounds, naive(whole_trace, 96, stop=[first]).rounds)
    assert rounds[0].tokens[0] == first
    ruled = replace(press, decoding="answer").rounds(p, 96)
    assert ruled[0].tokens[0] == decode(p, press.select(p, 96), 1)[0] != first


def partial_echokv(*arguments: Any, **fields: Any) -> twin.Result:
    return twin.echokv(*arguments, workspace=160, **fields)


# What a checkpoint may name

REFUSED: dict[str, Any] = {
    "no_repeat_ngram_size": 3, "encoder_no_repeat_ngram_size": 2, "encoder_repetition_penalty": 1.2,
    "bad_words_ids": [[1]], "sequence_bias": [[[1], -1.0]], "forced_bos_token_id": 0, "forced_eos_token_id": 2,
    "exponential_decay_length_penalty": [5, 1.1], "remove_invalid_values": True, "renormalize_logits": True,
    "guidance_scale": 1.5, "num_beams": 2, "num_beam_groups": 2, "diversity_penalty": 0.5, "penalty_alpha": 0.6,
    "dola_layers": "high", "constraints": [1], "force_words_ids": [[1]], "stop_strings": ["x"], "max_time": 2.0,
    "prompt_lookup_num_tokens": 3, "assistant_early_exit": 2, "use_mtp": True, "token_healing": True,
    "watermarking_config": {"bias": 2.0}, "cache_implementation": "quantized", "a_field_of_tomorrow": 1,
    "num_return_sequences": 2, "continuous_batching_config": {"a": 1},
}  # fmt: skip


class Named:
    """What a file may hold, whatever this edition of transformers says about it."""

    def __init__(self, **settings: Any) -> None:
        self.settings = GenerationConfig().to_dict() | settings

    def to_dict(self) -> dict[str, Any]:
        return dict(self.settings)


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_applied_is_refused_by_name(name: str) -> None:
    with pytest.raises(UsageError, match=rf"name {name}=.*: decode without them by preset\.generation=bare"):
        Generation.of(Named(**{name: REFUSED[name]}))
    for nothing in (None, False, []):
        assert Generation.of(Named(**{name: nothing})) == BARE


def test_every_setting_of_transformers_is_applied_refused_or_without_effect() -> None:
    """Whatever value: a name is either one of these tests' or changes nothing, and those are listed."""
    harmless = {
        name for name in GenerationConfig().to_dict() if not name.startswith("_") and name not in REFUSED
    } - set(vars(BARE))
    for name in sorted(harmless):
        assert Generation.of(Named(**{name: "anything"})) == BARE
    sampling = GenerationConfig(do_sample=True, temperature=0.7, top_p=0.8, top_k=20, max_length=50, length_penalty=2.0)
    assert Generation.of(sampling) == BARE
    ids = prompt(150)
    assert generate(floats("llama"), ids, 12, generation_config=sampling) == generate(floats("llama"), ids, 12)


@pytest.mark.parametrize(
    ("name", "value", "must"),
    [
        ("repetition_penalty", 0, "a number above 0"),
        ("repetition_penalty", "1.05", "a number above 0"),
        ("repetition_penalty", float("nan"), "a number above 0"),
        ("suppress_tokens", [1, "a"], "a list of token ids"),
        ("begin_suppress_tokens", 5, "a list of token ids"),
        ("min_new_tokens", -1, "a whole number of tokens"),
        ("min_length", 1.5, "a whole number of tokens"),
    ],
)
def test_a_wrong_value_is_told(name: str, value: Any, must: str) -> None:
    with pytest.raises(UsageError, match=f"name {name}=.*; it must be {must}"):
        Generation.of(Named(**{name: value}))


def test_what_acts_is_named() -> None:
    assert Generation.of(Named(repetition_penalty=1, temperature=0.7)) == BARE
    made = Generation.of(Named(repetition_penalty=1.05, suppress_tokens=[], min_length=0))
    assert made.named() == {"repetition_penalty": 1.05}


def test_the_minimum_is_settled_as_in_generate() -> None:
    assert Generation(min_length=100).least_tokens(90, 0) == 10
    assert Generation(min_length=100).least_tokens(90, 1) == 1  # what the caller asks for overrules it
    assert Generation(min_length=100).least_tokens(200, 0) == 0
    assert Generation(min_new_tokens=3, min_length=100).least_tokens(90, 1) == 3
    assert Generation(min_new_tokens=0).least_tokens(90, 1) == 0
