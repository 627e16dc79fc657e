"""KVzip against a naive twin: every chunk is repeated behind the prompt, one query and one key at a time."""

from math import inf, sqrt
from typing import Any

import pytest

from baselines.kvzip import KVzip
from echokv import Prefill, UsageError, compress, decode, prefill
from tests.models import ARCHITECTURES, prompt, tiny
from tests.policies import as_lists, close, trace
from tests.twin import Result
from tests.twin_defensive import best
from tests.twin_model import Trace, forward
from tests.twin_model import decode as twin_decode
from tests.twin_rivals import softmax

LENGTH, BUDGET = 90, 24
FIELDS: dict[str, dict[str, Any]] = {
    "one": {},
    "chunks": {"chunk": 32, "n_sink": 3, "lead": 5},
    "layer": {"chunk": 45, "across": "layer", "prefix": 7},
}


class Letters:
    """A tokenizer: each letter of a text is a token."""

    def encode(self, text: str, add_special_tokens: bool) -> list[int]:
        assert not add_special_tokens
        return [ord(letter) % 50 for letter in text]


def filled(name: str, press: KVzip) -> Prefill:
    return prefill(tiny(name), prompt(LENGTH), press.needs, tokenizer=Letters())


def naive(
    whole: Trace, press: KVzip, n_sink: int = 4, chunk: int = 2048, lead: int = 8, prefix: int = 0,
    across: str = "model", granularity: str = "kv_head",
) -> Result:  # fmt: skip
    spelled, ids = Letters().encode, list(prompt(LENGTH))
    heads, groups = len(whole.queries[0]), len(whole.keys[0])
    scores = [[[0.0] * LENGTH for _ in range(heads)] for _ in whole.keys]
    for begin in range(prefix, LENGTH, chunk):
        part = ids[begin : begin + chunk]
        asked = spelled(press.later, False) + ids[max(0, begin - lead) : begin]
        if begin == prefix:
            asked = spelled(press.first, False)
        fed = asked + spelled(press.suffix, False) + part
        after = forward(whole.model, fed, whole)
        context = [*range(min(n_sink, begin)), *range(begin, begin + len(part))]
        for layer, (queries, keys) in enumerate(zip(after.queries, after.keys, strict=True)):
            for head in range(heads):
                own = keys[head // (heads // groups)]
                for place, query in enumerate(queries[head]):
                    seen = [*context, *range(LENGTH, LENGTH + place + 1)]
                    paid = softmax([float(query @ own[i]) / sqrt(len(query)) for i in seen])
                    for i, one in zip(seen, paid, strict=True):
                        if begin <= i < begin + len(part):
                            scores[layer][head][i] = max(scores[layer][head][i], one)
    if granularity == "kv_head":
        ratio = heads // groups
        scores = [
            [
                [max(column) for column in zip(*layer[first : first + ratio], strict=True)]
                for first in range(0, heads, ratio)
            ]
            for layer in scores
        ]
    stay = max(n_sink, prefix)
    scores = [[[inf] * stay + row[stay:] for row in layer] for layer in scores]
    many = len(scores[0])
    if across == "layer":
        return Result([best(layer, BUDGET * many) for layer in scores], scores)
    rows = best([row for layer in scores for row in layer], BUDGET * many * len(scores))
    return Result([rows[first : first + many] for first in range(0, len(rows), many)], scores)


@pytest.mark.parametrize("fields", FIELDS)
@pytest.mark.parametrize("granularity", ["kv_head", "query_head"])
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_scores_selections_and_answers_equal_the_twins(name: str, granularity: Any, fields: str) -> None:
    press = KVzip(granularity=granularity, **FIELDS[fields])
    p, whole = filled(name, press), trace(name, LENGTH)
    expected = naive(whole, press, granularity=granularity, **FIELDS[fields])
    keys = [layer.clone() for layer in p.keys]
    for mine, other in zip(press.scores(p), expected.scores, strict=True):
        close(mine, other)
    selection = press.select(p, BUDGET)
    assert as_lists(selection) == expected.kept
    assert selection.entries == BUDGET * selection.heads * p.layers
    assert len({n for layer in selection.kept for n in layer}) > 1  # heads differ
    assert decode(p, selection, 4) == twin_decode(whole, expected.kept, 4)[0]
    assert all(bool((before == now).all()) for before, now in zip(keys, p.keys, strict=True))  # nothing is left behind


def test_pieces_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    press = KVzip()
    p = filled("qwen2", press)
    whole = press.scores(p)
    monkeypatch.setattr("baselines.kvzip.LOGITS", 1)
    for mine, other in zip(press.scores(p), whole, strict=True):
        close(mine, other)


def test_positions_end() -> None:
    press = KVzip(chunk=10_000, overflow="refuse")
    with pytest.raises(UsageError, match=r"KVzip repeats 10000 tokens behind the prompt's 90, and the model has"):
        press.select(filled("qwen2", press), BUDGET)
    shrunk = KVzip(chunk=10_000)
    p = filled("qwen2", shrunk)
    p.model.config.max_position_embeddings, before = LENGTH + 100, p.model.config.max_position_embeddings
    try:
        assert max(end - begin for begin, end, _ in shrunk.replays(p)) < LENGTH
        assert [ids for *_, ids in shrunk.replays(p)]
        assert all(len(ids) <= 100 for *_, ids in shrunk.replays(p))
    finally:
        p.model.config.max_position_embeddings = before


def test_a_tokenizer_is_asked_for() -> None:
    with pytest.raises(UsageError, match=r"token ids of .* were not recorded: prefill with .* tokenizer=TOKENIZER"):
        KVzip().select(prefill(tiny("qwen2"), prompt(LENGTH), KVzip().needs), BUDGET)
    with pytest.raises(UsageError, match=r"were not recorded"):
        compress(tiny("qwen2"), prompt(LENGTH), KVzip(), BUDGET)
