"""Acceptance tests of the prefill and of decoding: the library against the naive twin and transformers."""

from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import PreTrainedModel

from baselines.full import FullKV
from echokv import EchoKV, Session, decode, decode_rows, prefill
from tests import twin
from tests.models import ARCHITECTURES, KINDS, prompt, tiny
from tests.policies import ALL, EVERYTHING, POLICIES, as_lists, close, shared_prefill, trace
from tests.twin_model import decode as twin_decode
from tests.twin_model import forward, rotate

LENGTH = 200
BUDGET = 96
GRANULARITIES = ("kv_head", "query_head")
architectures = pytest.mark.parametrize("name", ARCHITECTURES)
granularities = pytest.mark.parametrize("granularity", GRANULARITIES)
policies = pytest.mark.parametrize("policy", POLICIES)


def generate(model: PreTrainedModel, ids: tuple[int, ...], count: int, **options: Any) -> list[int]:
    """The answer of transformers itself, on the complete cache."""
    tensor = torch.tensor([ids])
    mask = torch.ones_like(tensor)
    out = model.generate(tensor, attention_mask=mask, max_new_tokens=count, do_sample=False, **options)
    return out[0, len(ids) :].tolist()


@cache
def full_answer(name: str) -> tuple[list[int], list[Tensor]]:
    """The twin's answer on the complete cache."""
    return twin_decode(trace(name, LENGTH), None, 12)


@pytest.mark.parametrize("name", KINDS)
def test_the_twin_is_the_model(name: str) -> None:
    """By-hand forward, all at once and token by token, against transformers."""
    model, whole = tiny(name), trace(name, LENGTH)
    close(whole.logits, model(torch.tensor([prompt(LENGTH)])).logits[0, -1])
    steps = forward(model, prompt(LENGTH)[:-3])
    for token in prompt(LENGTH)[-3:]:
        steps = forward(model, [token], steps)
    close(steps.logits, whole.logits)
    assert full_answer(name)[0] == generate(model, prompt(LENGTH), 12)


# 1. FullKV equality


@architectures
def test_a_budget_of_the_whole_prompt_is_full_kv(name: str) -> None:
    ids = prompt(LENGTH)
    answer = generate(tiny(name), ids, 12)
    everything = twin.everything(trace(name, LENGTH))
    for press in [FullKV(), *(ALL[policy].press(granularity=g) for policy in ALL for g in GRANULARITIES)]:
        p = prefill(tiny(name), torch.tensor(ids), press.needs)
        close(p.logits, trace(name, LENGTH).logits)
        for budget in [None] if isinstance(press, FullKV) else [LENGTH, LENGTH + 1]:
            selection = press.select(p, budget)
            assert as_lists(selection) == everything
    session = Session(p, FullKV().select(p, None), record=True)
    assert decode_rows([session], 12)[0] == answer
    for mine, other in zip(session.queries, full_answer(name)[1], strict=True):
        close(mine, other)


@architectures
def test_stop_ids_end_an_answer_as_in_generate(name: str) -> None:
    ids, whole = prompt(LENGTH), trace(name, LENGTH)
    answer = generate(tiny(name), ids, 12)
    for minimum in (0, 1, 4):
        stop = [answer[0], answer[6]]
        p = prefill(tiny(name), torch.tensor([ids]), stop_ids=stop, min_new_tokens=minimum)
        tokens = decode(p, FullKV().select(p, None), 12)
        options = {"eos_token_id": stop, "min_new_tokens": minimum, "pad_token_id": 0}
        assert tokens == generate(tiny(name), ids, 12, **options)
        assert tokens == twin_decode(whole, None, 12, stop, minimum)[0]
        assert (len(tokens) == 1) == (minimum == 0)


# 4 and 5. Positions, and evicted means masked


@policies
@granularities
@architectures
def test_evicted_means_masked(name: str, granularity: str, policy: str) -> None:
    """Decoding on a selection equals full attention with the evicted keys at -inf."""
    p, whole = shared_prefill(name, LENGTH), trace(name, LENGTH)
    selection = POLICIES[policy].press(granularity=granularity).select(p, 40)
    session = Session(p, selection, record=True)
    tokens, queries = twin_decode(whole, as_lists(selection), 10)
    assert decode_rows([session], 10)[0] == tokens
    for mine, other in zip(session.queries, queries, strict=True):
        close(mine, other)
    assert not torch.allclose(queries[-1][:, 0], full_answer(name)[1][-1][:, 0])  # the eviction is felt


@architectures
def test_sessions_decoded_as_a_batch_equal_the_twin(name: str) -> None:
    """Rows of different policies, budgets, granularities and lengths of answer."""
    p, whole = shared_prefill(name, LENGTH), trace(name, LENGTH)
    presses = [policy.press(granularity=granularity) for policy in POLICIES.values() for granularity in GRANULARITIES]
    selections = [press.select(p, 35 + 3 * row) for row, press in enumerate(presses)]
    counts = [1 + row % 9 for row in range(len(selections))]
    answers = decode_rows([Session(p, selection) for selection in selections], counts)
    assert answers == [twin_decode(whole, as_lists(s), n)[0] for s, n in zip(selections, counts, strict=True)]


@architectures
def test_kept_keys_and_decode_queries_stay_at_their_positions(name: str) -> None:
    """In the first layer, where no eviction is felt, each product q.k is that of the uncompressed cache."""
    p = shared_prefill(name, LENGTH)
    selection = POLICIES["snapkv"].press(granularity="query_head").select(p, 40)
    session = Session(p, selection, record=True)
    tokens = decode_rows([session], 8)[0]
    assert session.queries[0].shape[1] == 7
    uncut = forward(tiny(name), [*prompt(LENGTH), *tokens[:-1]])
    for head, kept in enumerate(selection.indices[0]):
        mine = session.queries[0][head] @ p.keys[0][head // 4][kept].T
        close(mine, uncut.queries[0][head, LENGTH:] @ uncut.keys[0][head // 4][kept].T)
    for layer in range(3):
        close(p.keys[layer], uncut.keys[layer][:, :LENGTH])
        close(p.values[layer], uncut.values[layer][:, :LENGTH])


# 6. No state


def test_samples_and_methods_do_not_touch_each_other() -> None:
    model, first, second = tiny("qwen2"), prompt(LENGTH), prompt(150, seed=1)

    def state() -> tuple[dict[str, Any], str]:
        assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
        return dict(vars(model.config)), model.config._attn_implementation

    def answers(*samples: tuple[int, ...]) -> list[Any]:
        out = []
        for ids in samples:
            p = prefill(model, torch.tensor(ids), EVERYTHING)
            chosen = [policy.press().select(p, 40) for policy in POLICIES.values()]
            out.append([(as_lists(selection), decode(p, selection, 6)) for selection in chosen])
        return out

    logits, before = model(torch.tensor([first])).logits, state()
    both = answers(first, second)
    assert answers(second, first) == both[::-1]
    assert answers(first) == both[:1]
    assert torch.equal(model(torch.tensor([first])).logits, logits)
    assert state() == before


# 9. RoPE


@pytest.mark.parametrize("name", KINDS)
def test_queries_rotate_as_in_the_model(name: str) -> None:
    """The prompt's queries are R(p) of those before RoPE, and proposals are later rotations of the last."""
    p, whole = shared_prefill(name, LENGTH), trace(name, LENGTH)
    targets = [LENGTH, LENGTH + 5, LENGTH + 600]
    for layer, raw in enumerate(whole.raw):
        last = raw[:, LENGTH - 1 : LENGTH]
        close(p.last_queries(layer, 1), rotate(tiny(name), last, [LENGTH - 1]))
        moved = p.rotate(layer, p.last_queries(layer, 1)[:, 0], LENGTH - 1, torch.tensor(targets))
        # Cosines and sines are float32 in every dtype, so undoing one rotation costs 1e-7.
        close(moved, rotate(tiny(name), last.expand(-1, 3, -1), targets), 1e-6)


@pytest.mark.parametrize("name", [*ARCHITECTURES, "yarn", "llama3"])
def test_proposals_choose_the_first_workspace(name: str) -> None:
    naive = twin.echokv(trace(name, LENGTH), BUDGET, workspace=100)
    workspace = EchoKV(workspace=100).rounds(shared_prefill(name, LENGTH), BUDGET)[0].workspace
    assert as_lists(workspace) == naive.rounds[0].workspace


def test_proposals_carry_the_bias_of_qwen() -> None:
    """Without the bias of the query projection the twin chooses another workspace: the test above sees it."""
    whole = trace("qwen2", LENGTH)
    biases = [layer.self_attn.q_proj.bias.view(8, 1, 16) for layer in tiny("qwen2").model.layers]
    assert all(bias.abs().min() > 0 for bias in biases)
    bare = replace(whole, raw=[raw - bias for raw, bias in zip(whole.raw, biases, strict=True)])
    workspace = EchoKV(workspace=100).rounds(shared_prefill("qwen2", LENGTH), BUDGET)[0].workspace
    assert twin.echokv(bare, BUDGET, workspace=100).rounds[0].workspace != as_lists(workspace)
