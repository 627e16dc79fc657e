"""Metrics against recorded official scores, against separately written twins, and on the known quirks."""

from __future__ import annotations

import difflib
import json
import subprocess
import sys
import types
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from eval import synthetic
from eval.console.errors import UserError
from eval.inputs import subsets
from eval.scoring import metrics, official, rouge_l

# Left out for their time: Rouge-L over these takes 25 s. The golden lines hold samples of all four.
SLOW = ("gov_report", "multi_news", "dureader", "vcsum")

PHRASES = st.text(alphabet="abAB .,-'\n", max_size=12)
SENTENCES = st.lists(st.lists(st.sampled_from("uvwx"), min_size=1, max_size=5), min_size=1, max_size=3)
LINES = st.text(alphabet="ab(/#`\n ", max_size=24)


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_bytes().split(b"\n") if line]


def test_every_golden_line(shared: Path) -> None:
    golden = lines(shared / "reference" / "metric_golden.jsonl")
    assert {row["dataset"] for row in golden} == set(subsets.expand(["all"]))
    for row in golden:
        subset = subsets.load(row["dataset"])
        for edit, key in (("difflib", "score"), ("levenshtein", "score_levenshtein")):
            if key in row:
                found = official.score(row["pred"], row["answers"], subset, row["all_classes"], edit)
                assert found == pytest.approx(row[key], abs=1e-12, rel=0), (row, edit)


@pytest.mark.parametrize("name", [name for name in subsets.expand(["all"]) if name not in SLOW])
def test_published_scores_of_a_dump(shared: Path, name: str) -> None:
    folder = shared / "predictions" / "llama3-8b-instruct"
    subset, rows = subsets.load(name), lines(folder / f"{name}.jsonl")
    values = [official.score(row["pred"], row["answers"], subset, row["all_classes"]) for row in rows]
    assert len(values) == subset.records
    assert round(100 * sum(values) / len(values), 2) == json.loads((folder / "result.json").read_text())[name]


def test_levenshtein_scores_of_a_dump(shared: Path) -> None:
    for name, published in (("lcc", 64.89), ("repobench-p", 56.84)):
        rows = lines(shared / "predictions" / "llama3-8b-instruct" / f"{name}.jsonl")
        subset = subsets.load(name)
        values = [official.score(r["pred"], r["answers"], subset, None, "levenshtein") for r in rows]
        assert round(100 * sum(values) / len(values), 2) == published


# --- twins


def f1_twin(predicted: list[str], expected: list[str]) -> float:
    left, shared_words = list(expected), 0
    for word in predicted:
        if word in left:
            left.remove(word)
            shared_words += 1
    return 2 * shared_words / (len(predicted) + len(expected)) if shared_words else 0.0


@given(st.lists(st.sampled_from("abc"), max_size=6), st.lists(st.sampled_from("abc"), max_size=6))
def test_bag_f1_is_twice_the_overlap_over_both_sizes(predicted: list[str], expected: list[str]) -> None:
    assert metrics.bag_f1(predicted, expected) == pytest.approx(f1_twin(predicted, expected))


def lcs_words(reference: Sequence[str], words: Sequence[str]) -> set[str]:
    """One longest common subsequence, chosen as `rouge` does: rather drop a word of `words`."""
    length = [[0] * (len(words) + 1) for _ in range(len(reference) + 1)]
    for i, left in enumerate(reference):
        for j, right in enumerate(words):
            length[i + 1][j + 1] = length[i][j] + 1 if left == right else max(length[i][j + 1], length[i + 1][j])
    i, j, found = len(reference), len(words), set()
    while i and j:
        if reference[i - 1] == words[j - 1]:
            i, j = i - 1, j - 1
            found.add(reference[i])
        elif length[i - 1][j] > length[i][j - 1]:
            i -= 1
        else:
            j -= 1
    return found


def rouge_twin(prediction: list[list[str]], reference: list[list[str]]) -> float:
    union = {word for ours in reference for theirs in prediction for word in lcs_words(ours, theirs)}
    precision = len(union) / len({word for sentence in prediction for word in sentence})
    recall = len(union) / len({word for sentence in reference for word in sentence})
    return 2 * precision * recall / (precision + recall + 1e-8)


@settings(max_examples=200)
@given(SENTENCES, SENTENCES)
def test_rouge_is_the_union_lcs_over_sets_of_words(prediction: list[list[str]], reference: list[list[str]]) -> None:
    left, right = (". ".join(" ".join(words) for words in text) for text in (prediction, reference))
    assert metrics.rouge(left, right) == pytest.approx(rouge_twin(prediction, reference), abs=1e-12)


def classification_twin(prediction: str, answer: str, classes: list[str]) -> float:
    named = [name for name in classes if name in prediction]
    place = 0
    while place < len(named):
        if named[place] in answer and named[place] != answer:
            del named[named.index(named[place])]  # and on to the next place: one element is never looked at
        place += 1
    return 1 / len(named) if answer in named else 0.0


@given(
    st.text(alphabet="ab ", max_size=8),
    st.text(alphabet="ab", max_size=3),
    st.lists(st.text(alphabet="ab", min_size=1, max_size=3), unique=True, max_size=6),
)
def test_classification_removes_while_walking(prediction: str, answer: str, classes: list[str]) -> None:
    assert metrics.classification(prediction, answer, classes) == classification_twin(prediction, answer, classes)


def indel_twin(left: str, right: str) -> int:
    if not left or not right:
        return 100 if left == right else 0
    row = [0] * (len(right) + 1)
    for char in left:
        previous, row = row, [0]
        for j, other in enumerate(right):
            row.append(previous[j] + 1 if char == other else max(previous[j + 1], row[j]))
    return round(100 * 2 * row[-1] / (len(left) + len(right)))


@given(st.text(alphabet="abc (", max_size=20), st.text(alphabet="abc (", max_size=20))
def test_levenshtein_ratio_is_twice_the_common_subsequence(left: str, right: str) -> None:
    # a quotient that ends in exactly .5 may round either way by its last binary digit
    assert abs(metrics.ratio_levenshtein(left, right) - indel_twin(left, right)) <= 1
    total = len(left) + len(right)
    assume(total == 0 or all((200 * common) % total * 2 != total for common in range(total)))
    assert metrics.ratio_levenshtein(left, right) == indel_twin(left, right)


@given(st.text(alphabet="abc (", max_size=250), st.text(alphabet="abc (", max_size=250))
def test_difflib_ratio_is_that_of_fuzzywuzzy(left: str, right: str) -> None:
    fuzz = pytest.importorskip("fuzzywuzzy.fuzz")
    if fuzz.SequenceMatcher is not difflib.SequenceMatcher:
        pytest.skip("python-Levenshtein is installed, so fuzzywuzzy does not use difflib")
    assert metrics.ratio_difflib(left, right) == fuzz.ratio(left, right)


def first_line_twin(prediction: str) -> str:
    while prediction.startswith("\n"):
        prediction = prediction[1:]
    for line in prediction.split("\n"):
        if "`" not in line and "#" not in line and "//" not in line:
            return line
    return ""


@given(LINES)
def test_first_code_line(prediction: str) -> None:
    assert metrics.first_code_line(prediction) == first_line_twin(prediction)


# --- properties


@given(PHRASES, PHRASES, st.sampled_from(["qa_f1", "rouge", "count", "code_sim", "code_sim_levenshtein"]))
def test_every_score_lies_between_0_and_1(prediction: str, answer: str, name: str) -> None:
    assert 0 <= metrics.METRICS[name](prediction, answer, None) <= 1


@given(PHRASES)
def test_a_text_equals_itself(text: str) -> None:
    assert metrics.qa_f1(text, text) == (1 if metrics.normalise(text) else 0)
    assert metrics.rouge(text, text) == pytest.approx(1 if rouge_l.sentences(text) else 0)
    assert metrics.ratio_difflib(text, text) == metrics.ratio_levenshtein(text, text) == 100


@given(st.lists(PHRASES, min_size=1, max_size=4), PHRASES)
def test_the_best_answer_counts(answers: list[str], prediction: str) -> None:
    found = official.score(prediction, answers, subsets.load("qasper"))
    assert found == max(metrics.qa_f1(prediction, answer) for answer in answers)


# --- quirks, one by one


@pytest.mark.parametrize(
    ("left", "right", "value"),
    [
        ("1,000", "1000", 1.0),
        ("U.S.", "US", 1.0),
        ("don’t", "don't", 0.0),  # noqa: RUF001  (typographic quotes are no ASCII punctuation)
        ("a-b", "ab", 1.0),  # punctuation goes before articles
        ("The", "a", 0.0),
        ("", "", 0.0),
    ],
)
def test_normalisation(left: str, right: str, value: float) -> None:
    assert metrics.qa_f1(left, right) == value


def test_only_four_subsets_are_cut_to_their_first_line() -> None:
    cut = [name for name in subsets.expand(["all"]) if subsets.load(name).first_line]
    assert cut == ["trec", "triviaqa", "samsum", "lsht"]
    assert official.score("\n\nParis\nRome", ["paris"], subsets.load("triviaqa")) == 1
    assert official.score("\n \nParis", ["paris"], subsets.load("triviaqa")) == 0  # a blank line is a line
    assert official.score("Paris\nRome", ["paris"], subsets.load("qasper")) == pytest.approx(2 / 3)


def test_numbers_are_compared_as_text() -> None:
    assert metrics.count("5.0", "5") == 0.5
    assert metrics.count("05", "5") == metrics.count("five", "5") == 0
    assert metrics.retrieval("Paragraph 15 and 2", "Paragraph 15") == 0.5
    assert metrics.retrieval_zh("段落15", "段落15") == 1
    with pytest.raises(UserError, match="names no paragraph"):
        metrics.retrieval("15", "15")


def test_code_lines_with_comments_are_skipped_and_percents_are_whole() -> None:
    assert metrics.code_sim("x = 1  # one\ny = 2", "y = 2") == 1
    assert metrics.code_sim("x = 1  # one", "x = 1  # one") == 0
    assert metrics.code_sim("```python\n", "") == 1  # the line after the fence, empty as the answer
    assert metrics.code_sim("    return a", "return a") == round(100 * 16 / 20) / 100  # never stripped


def test_the_two_edit_similarities_differ() -> None:
    subset = subsets.load("lcc")
    # difflib takes the longest block, "xyz"; the longest common subsequence is "1234"
    assert official.score("xyz1a2b3c4d", ["1234xyz"], subset, edit="difflib") == 0.33
    assert official.score("xyz1a2b3c4d", ["1234xyz"], subset, edit="levenshtein") == 0.44


def test_difflib_ignores_what_is_frequent_in_200_characters() -> None:
    assert metrics.ratio_difflib("ab" * 99, "x" + "ab" * 99) == 100
    assert metrics.ratio_difflib("ab" * 100, "x" + "ab" * 100) == 0
    assert metrics.ratio_levenshtein("ab" * 100, "x" + "ab" * 100) == 100


def test_rouge_counts_what_the_package_refuses() -> None:
    failures: Counter[str] = Counter()
    for prediction in ("", "...", " ", "fine"):
        official.score(prediction, ["It is fine. "], subsets.load("qmsum"), failures=failures)
    assert failures == {"qmsum": 2}
    official.score("", ["好"], subsets.load("vcsum"), failures=failures)
    assert failures["vcsum"] == 1
    assert metrics.rouge(" ", "A mat. It was happy. ") > 0  # a blank is a word that a trailing ". " also has


def test_rouge_survives_sentences_beyond_the_recursion_limit() -> None:
    from rouge import Rouge

    limit = sys.getrecursionlimit()
    ours, theirs = "p " * (limit + 100) + "end", "r " * 50 + "end"
    with pytest.raises(RecursionError):
        Rouge(metrics=["rouge-l"]).get_scores(ours, theirs)
    assert metrics.rouge(ours, theirs) == pytest.approx(0.5)  # of the words {p, end} and {r, end}
    assert sys.getrecursionlimit() == limit


def plain_lcs(prediction: str, answer: str) -> float:
    left, right = prediction.replace(".", "").split(), answer.replace(".", "").split()
    common = 2 * difflib.SequenceMatcher(None, left, right, False).find_longest_match().size
    return common / (len(left) + len(right))


@pytest.mark.parametrize("broken", [plain_lcs, lambda _prediction, _answer: 1.0, lambda: None])
def test_a_foreign_rouge_is_refused(monkeypatch: pytest.MonkeyPatch, broken: Any) -> None:
    class Rouge:
        def __init__(self, metrics: list[str]) -> None:
            del metrics

        def get_scores(self, hyps: list[str], refs: list[str]) -> list[dict[str, dict[str, float]]]:
            return [{"rouge-l": {"f": broken(hyps[0], refs[0])}}]

    foreign = types.ModuleType("rouge")
    foreign.Rouge, foreign.__file__ = Rouge, "foreign.py"  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "rouge", foreign)
    rouge_l._checked_package.cache_clear()
    try:
        with pytest.raises(UserError, match=r"rouge==1\.0\.1"):
            metrics.rouge("a b", "a b")
    finally:
        rouge_l._checked_package.cache_clear()


def test_google_rouge_is_another_measure() -> None:
    assert metrics.rouge_score_l("The cat", "the cat sat on the mat") == pytest.approx(0.5)
    assert metrics.rouge("The cat", "the cat sat on the mat") == pytest.approx(2 / 7)


def test_chinese_metrics() -> None:
    assert metrics.qa_f1_zh("北京。", "北京") == 1
    assert metrics.qa_f1_zh("！", "？") == 0  # noqa: RUF001
    assert metrics.normalise_zh("Ａ 北，京！") == "ａ北京"  # noqa: RUF001
    assert metrics.rouge_zh("我爱北京", "我爱北京") == pytest.approx(1)


def test_wrong_input_is_told() -> None:
    subset = subsets.load("lcc")
    with pytest.raises(UserError, match="did you mean levenshtein"):
        official.score("a", ["a"], subset, edit="levenstein")  # type: ignore[arg-type]
    for answers in ([], "Paris"):
        with pytest.raises(UserError, match="must be a list"):
            official.score("a", answers, subset)
    with pytest.raises(UserError, match="needs all_classes"):
        official.score("a", ["a"], subsets.load("trec"), None)


def test_english_metrics_load_neither_torch_nor_jieba() -> None:
    code = (
        "import sys, eval.score, eval.inputs.data, eval.inputs.truncation; "
        "print(sorted({'torch', 'jieba', 'transformers', 'lm_eval', 'pandas'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
    noisy = "from eval.scoring.metrics import qa_f1_zh; print(qa_f1_zh('北京', '北京'))"
    done = subprocess.run([sys.executable, "-c", noisy], capture_output=True, text=True, check=True)
    assert (done.stdout.strip(), done.stderr) == ("1.0", "")


@pytest.mark.parametrize(
    ("subset", "answers", "classes", "says"),
    [
        ("trec", ["a"], None, "all_classes must list the classes"),
        ("trec", ["a"], [], "all_classes must list the classes"),
        ("lsht", ["a", "b"], ["c"], "no answer is among all_classes: a, b"),
        ("passage_retrieval_en", ["Paragraph 3", "3"], None, "of the form Paragraph 7, found '3'"),
        ("passage_retrieval_zh", ["Paragraph 3"], None, "of the form 段落7, found 'Paragraph 3'"),
        ("passage_count_e", ["3 of 4"], None, "whole numbers, such as 7, found '3 of 4'"),
    ],
)
def test_what_a_metric_needs_of_a_record(subset: str, answers: list[str], classes: list[str] | None, says: str) -> None:
    with pytest.raises(UserError, match=f"{subset} is scored by .*: .*{says}"):
        official.check(subsets.load(subset), answers, classes)


def test_real_and_synthetic_records_have_what_their_metrics_need(shared: Path) -> None:
    paths = [*(shared / "longbench").glob("*.jsonl"), *(shared / "predictions").glob("*/*.jsonl")]
    assert len(paths) > 30
    for path in paths:
        for line in path.read_text(encoding="utf-8").split("\n"):
            if line:
                record = json.loads(line)
                official.check(subsets.load(path.stem), record["answers"], record["all_classes"])
    for task in synthetic.TASKS:
        record = synthetic.make(task, 0)
        official.check(subsets.load(task), record["answers"], record["all_classes"])
