"""Evidence as tokens, its retention, and the outcomes of a choice, beside naive computations."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from baselines.full import FullKV
from baselines.pyramidkv import PyramidKV
from baselines.snapkv import SnapKV
from echokv import EchoKV, Press, Selection
from eval import synthetic
from eval.analysis import outcomes
from eval.console.errors import UserError
from eval.inputs import evidence, subsets
from eval.inputs.examples import Example
from eval.inputs.prompts import template
from eval.inputs.truncation import encode
from tests import twin
from tests.policies import as_lists, shared_prefill, trace
from tests.twin_model import decode

LENGTH, BUDGET = 200, 40


@pytest.fixture(scope="module")
def tokenizer(tiny_folder: Path) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(tiny_folder)


def example(task: str = "syn_facts", **changes: Any) -> Example:
    record = synthetic.make(task, 0, length=512) | changes
    return Example(subsets.load(task), record, template(task))


@pytest.mark.parametrize("chat", [False, True])
@pytest.mark.parametrize("task", ["syn_facts", "syn_hops", "syn_trec"])
def test_evidence_tokens_spell_the_spans(task: str, chat: bool, tokenizer: Any) -> None:
    """With one token a byte, the tokens found must spell exactly the evidence."""
    one = example(task)
    encoded = encode(one.prompt, tokenizer, limit=10_000, chat=chat)
    found = evidence.locate(one, encoded, tokenizer, ())
    assert found is not None
    spelt = "".join(tokenizer.decode([encoded.ids[place]]) for place in found.tokens)
    expected = sorted(one.record["evidence"])
    assert spelt == "".join(one.record["context"][start:end] for start, end in expected)
    assert (found.spans, found.lost, found.source) == (len(expected), 0, "annotated")


def test_truncated_evidence_is_told_apart(tokenizer: Any) -> None:
    one = example()
    spans = sorted(one.record["evidence"])
    middle = one.prompt.index(one.record["context"]) + spans[1][0]
    half = middle + 5  # the cut begins within the second span
    encoded = encode(one.prompt, tokenizer, limit=2 * half, chat=False)
    if len(one.prompt) - half <= one.prompt.index(one.record["context"]) + spans[1][1]:
        pytest.fail("the setting no longer cuts the second span")
    found = evidence.locate(one, encoded, tokenizer, ())
    assert found is not None
    assert found.lost >= 1
    kept = "".join(tokenizer.decode([encoded.ids[place]]) for place in found.tokens)
    assert kept.startswith(one.record["context"][slice(*spans[0])])
    assert one.record["context"][slice(*spans[1])] not in kept


def test_answer_strings_stand_in_only_where_asked() -> None:
    one = example(
        "syn_fact", evidence=[], context="A whale. The Blue\nWhale is a blue whalebone.", answers=["blue whale"]
    )
    assert evidence.spans(one, ()) == ([], evidence.ANNOTATED)
    spans, source = evidence.spans(one, ("syn_fact",))
    assert [one.record["context"][start:end] for start, end in spans] == ["Blue\nWhale"]
    assert source == evidence.STAND_IN


def test_no_evidence_is_one_line() -> None:
    with pytest.raises(
        UserError, match=r"no record of syn_fact names its evidence: join it with scripts/join_evidence"
    ):
        evidence.require([example("syn_fact", evidence=[])], ())
    evidence.require([example("syn_fact", evidence=[]), example("syn_fact")], ())


@pytest.mark.parametrize("granularity", ["kv_head", "query_head"])
def test_retained_is_the_naive_share(granularity: Any) -> None:
    selection = SnapKV(granularity=granularity).select(shared_prefill("llama", LENGTH), BUDGET)
    tokens = [3, 17, 18, 19, 120, 199]
    shares = [len(set(head) & set(tokens)) / len(tokens) for layer in as_lists(selection) for head in layer]
    assert evidence.retained(selection, tokens) == pytest.approx(sum(shares) / len(shares), abs=1e-12)
    assert 0 < evidence.retained(selection, tokens) < 1


def test_everything_retains_everything() -> None:
    assert evidence.retained(Selection.everything(3, 2, LENGTH), [0, 5, LENGTH - 1]) == 1


@pytest.mark.parametrize(
    "press", [SnapKV(), SnapKV(granularity="query_head"), PyramidKV(total="exact"), EchoKV(workspace=80)]
)
def test_fidelity_is_the_naive_share(press: Press) -> None:
    filled, prompt = shared_prefill("qwen2", LENGTH), trace("qwen2", LENGTH)
    selection = press.select(filled, BUDGET)
    true = decode(prompt, None, 9)[1]
    scores = twin.score(true, prompt.keys, [LENGTH] * 8, press.granularity)
    shares = [
        len(set(kept) & set(twin.top(row, len(kept)))) / len(kept)
        for layer, rows in zip(as_lists(selection), scores, strict=True)
        for kept, row in zip(layer, rows, strict=True)
    ]
    layered = torch.tensor(shares).view(3, -1).mean(1).mean()  # every layer has as many heads
    mine = outcomes.fidelity(selection, outcomes.true_queries(filled, 8), filled)
    assert mine == pytest.approx(float(layered), abs=1e-6)


def test_fidelity_of_a_lookahead_that_sees_everything_is_one() -> None:
    filled = shared_prefill("llama", LENGTH)
    selection = EchoKV(workspace=LENGTH).select(filled, BUDGET)
    assert outcomes.fidelity(selection, outcomes.true_queries(filled, 8), filled) == 1
    assert outcomes.fidelity(FullKV().select(filled), outcomes.true_queries(filled, 8), filled) == 1
    assert outcomes.fidelity(SnapKV().select(filled, BUDGET), outcomes.true_queries(filled, 8), filled) < 1


def test_shared_evidence_is_readable(shared: Path, tokenizer: Any) -> None:
    """Real supporting facts: every span maps to tokens that spell it."""
    file = shared / "evidence" / "hotpotqa.jsonl"
    if not file.is_file():
        pytest.skip("the shared folder holds no evidence/hotpotqa.jsonl")
    with file.open(encoding="utf-8") as lines:
        record = json.loads(next(iter(lines)))
    record["evidence"] = [[span["start"], span["end"]] for span in record["evidence"]]
    one = Example(subsets.load("hotpotqa"), record, "Read:\n{context}\nAsk: {input}")
    encoded = encode(one.prompt, tokenizer, limit=40_000, chat=False)
    found = evidence.locate(one, encoded, tokenizer, ())
    assert found is not None
    spelt = tokenizer.decode([encoded.ids[place] for place in found.tokens])
    assert spelt == "".join(record["context"][start:end] for start, end in sorted(record["evidence"]))
