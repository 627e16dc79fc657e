"""question=after: methods choose from the context alone, and the question is fed to what they kept."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoTokenizer

from baselines.full import FullKV
from baselines.snapkv import SnapKV
from echokv import EchoKV, Prefill, Selection, Session, decode_rows, prefill
from echokv.further import ask
from eval.answering import runner
from eval.answering.answers import Wanted, _decode
from eval.console.errors import UserError
from eval.inputs import prompts, subsets
from eval.inputs.asked import context_of
from eval.inputs.data import Record
from eval.inputs.examples import Example
from eval.inputs.truncation import encode
from eval.tables import build, collect
from tests.eval.answering.test_runner import stored
from tests.models import prompt, tiny
from tests.policies import as_lists, trace
from tests.test_configs import composed
from tests.twin_model import forward, greedy

CONTEXT, QUESTION = "The blue whale sings. The plaice is flat. " * 12 + "It ends HERE.", "Who sings?"


def record(subset: str, context: str = CONTEXT) -> Record:
    return {
        "_id": "a", "input": QUESTION, "context": context, "answers": ["blue whale"], "length": 96,
        "dataset": subset, "language": "en", "all_classes": None,
    }  # fmt: skip


@pytest.mark.parametrize("order", ["truncate_first", "template_first"])
@pytest.mark.parametrize("chat", [False, True])
@pytest.mark.parametrize("name", [*subsets.ENGLISH, *subsets.CHINESE])
def test_the_context_is_all_up_to_its_end(name: str, chat: bool, order: Any, tiny_folder: Path) -> None:
    """Of every LongBench task; also where the prompt is cut in the middle of the context."""
    tokenizer = AutoTokenizer.from_pretrained(tiny_folder)
    example = Example(subsets.load(name), dict(record(name)), prompts.template(name))
    for limit in (20_000, len(tokenizer(example.prompt).input_ids) - 100):
        encoded = encode(example.prompt, tokenizer, limit=limit, chat=chat, order=order)
        cut = context_of(example, encoded, tokenizer)
        before, behind = tokenizer.decode(encoded.ids[:cut]), tokenizer.decode(encoded.ids[cut:])
        assert before.rstrip().endswith("It ends HERE.")
        assert QUESTION not in before
        assert (QUESTION in behind) is ("{input}" in example.template)
        assert behind.startswith(example.template.split("{context}")[1].lstrip()[:2].replace("{i", "Wh"))


def test_templates_that_ask_before_the_context_are_told(tiny_folder: Path) -> None:
    tokenizer, own = AutoTokenizer.from_pretrained(tiny_folder), subsets.load("qasper")
    for template in ("{input} {context} Answer:", "{input}{context}", "Sum up: {context}\n"):
        example = Example(own, dict(record("qasper")), template)
        encoded = encode(example.prompt, tokenizer, limit=9000, chat=False)
        with pytest.raises(UserError, match=r"behind the context: use preset\.question=within"):
            context_of(example, encoded, tokenizer)
    example = Example(own, dict(record("qasper")), "{context} " + "and so on " * 40)
    encoded = encode(example.prompt, tokenizer, limit=100, chat=False)
    with pytest.raises(UserError, match=r"was cut behind its context: raise model\.prompt_limit"):
        context_of(example, encoded, tokenizer)


def answer(p: Prefill, kept: Any, question: Sequence[int], n: int) -> list[int]:
    """The twin: kept context entries alone are seen."""
    state = forward(p.model, list(question), trace("llama", p.length), kept)
    tokens = [greedy(state.logits, [5])]  # the first token may not end it
    while len(tokens) < n and tokens[-1] != 5:
        state = forward(p.model, tokens[-1:], state, kept)
        tokens.append(greedy(state.logits))
    return tokens


def test_answers_are_those_of_the_twin() -> None:
    """Rows of one batch, each with what its press kept; stop rules count from the question on."""
    p = prefill(tiny("llama"), torch.tensor(prompt(200)), SnapKV().needs, [5], min_new_tokens=1)
    question = prompt(25, seed=7)
    presses: list[tuple[Any, int | None]] = [
        (SnapKV(), 40), (SnapKV(granularity="query_head"), 40), (EchoKV(workspace=64), 48), (FullKV(), None)
    ]  # fmt: skip
    chosen = [press.select(p, budget) for press, budget in presses]
    wanted = [Wanted(p, selection, 12, question) for selection in chosen]
    found = [tokens for tokens, *_ in _decode(wanted, None)]
    assert found == [answer(p, as_lists(selection), question, 12) for selection in chosen]
    whole = prefill(tiny("llama"), torch.tensor([*prompt(200), *question]), None, [5], min_new_tokens=1)
    everything = Selection.everything(whole.layers, whole.groups, whole.length)
    assert found[3] == decode_rows([Session(whole, everything)], 12)[0]
    session = Session(p, chosen[0])
    ask(session, question)
    assert decode_rows([session], 5) == [found[0][:5]]
    assert decode_rows([session], 7) == [found[0][5:]]


def run(folder: Path, tiny_folder: Path, *rules: str) -> dict[str, Any]:
    (folder / "records").mkdir(exist_ok=True)
    (folder / "records" / "qasper.jsonl").write_text(json.dumps(record("qasper")) + "\n")
    where = [f"model.name={tiny_folder}", "model.label=tiny", "data=jsonl", f"data.path={folder / 'records'}"]
    results = folder / "-".join(("results", *rules)).replace("=", "-")
    runner.run(composed(*where, "method=[full,snapkv,echokv]", "budget=64", f"results={results}", *rules))
    return {one["method"]: one for one in stored(results).values()} | {"results": results}


def test_whole_runs(tiny_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    within, after = (run(tmp_path, tiny_folder, f"preset={name}") for name in ("equal_bytes", "context_only"))
    said = capsys.readouterr().out.split("n = 1 per task")
    assert "Methods choose from the context alone" not in said[1]
    assert "Methods choose from the context alone; the question comes after" in said[2]
    assert within["full"]["pred"] == after["full"]["pred"]  # nothing is evicted: the order makes no difference
    assert within["full"]["entries"] == after["full"]["entries"]
    tail = after["snapkv"]["entries"] - within["snapkv"]["entries"]
    assert tail > 0
    assert after["echokv"]["entries"] == within["echokv"]["entries"] + tail
    assert (
        after["snapkv"]["bytes"] / after["snapkv"]["entries"] == within["snapkv"]["bytes"] / within["snapkv"]["entries"]
    )
    assert after["snapkv"]["prompt_tokens"] == within["snapkv"]["prompt_tokens"]
    runs = collect.find(after["results"], "jsonl", "tiny", {})
    assert [run.identity["protocol"]["question"] for run in runs] == ["after"] * 3
    assert "the question comes after" in "".join(build.gates.question(runs))


def test_what_shows_whole_prompts_refuses(tiny_folder: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"record\.selections shows prompts with their question"):
        run(tmp_path, tiny_folder, "preset=context_only", "record.selections=true")
