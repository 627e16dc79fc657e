"""Give LongBench records their evidence: `python scripts/join_evidence.py --longbench FOLDER --out results/evidence`.

LongBench ships answers without evidence. The data sets that its records were taken from have it: supporting facts
of HotpotQA and 2WikiMultihopQA, the passages that answers of Qasper rest on. Records are joined by their question,
each evidence text is looked up in the record's context, and what is found becomes character spans in a copy of the
record. Records without a match are counted and left out.

An upstream file is JSON, JSON lines or Parquet in the data set's published form; without one the hub is asked.
"""

from __future__ import annotations

import argparse
import json
import logging
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from eval.console.errors import Parser, UserError, command
from eval.inputs.data import Record, load_folder
from eval.inputs.sources.longbench import LongBench

# Where the hub keeps each data set: repository, files, revision.
HUB = {
    "hotpotqa": ("hotpotqa/hotpot_qa", "distractor/validation-*.parquet", "main"),
    "2wikimqa": ("xanhho/2WikiMultihopQA", "dev.parquet", "main"),
    "qasper": ("allenai/qasper", "qasper/*/*.parquet", "refs/convert/parquet"),
}

_FACTS = ("context", "supporting_facts")


@dataclass(frozen=True)
class Upstream:
    """One question of an upstream data set and the texts that its answer rests on."""

    question: str
    texts: tuple[str, ...]


@dataclass(frozen=True)
class Joined:
    """Records with evidence, and what became of the others."""

    records: list[Record]
    unmatched: int  # no upstream question is the record's
    unfound: int  # the question is known, but none of its evidence stands in the context
    partly: int  # some, but not all of the evidence was found


def questions(subset: str, items: Iterable[Mapping[str, Any]]) -> Iterator[Upstream]:
    """The questions of an upstream data set in its published form.

    Raises UserError for an item that is not of that form.
    """
    read = _paper_questions if subset == "qasper" else _multi_hop_question
    for number, item in enumerate(items, 1):
        try:
            yield from read(item)
        except (KeyError, TypeError, IndexError, ValueError) as error:
            raise UserError(
                f"{subset}: item {number} is not of the data set's published form ({error!r}); download it again"
            ) from error


def _multi_hop_question(item: Mapping[str, Any]) -> Iterator[Upstream]:
    """HotpotQA and 2WikiMultihopQA: (title, sentence number) pairs; the hub's copies hold them as columns."""
    # JSON within a string in one of the hub's copies.
    context, facts = (json.loads(part) if isinstance(part, str) else part for part in map(item.__getitem__, _FACTS))
    if isinstance(context, Mapping):
        context = list(zip(context["title"], context["sentences"], strict=True))
        facts = list(zip(facts["title"], facts["sent_id"], strict=True))
    sentences = {title: list(lines) for title, lines in context}
    # A few of the published facts point past the end of their paragraph.
    texts = [sentences[title][int(place)] for title, place in facts if int(place) < len(sentences.get(title, ()))]
    yield Upstream(item["question"], tuple(texts))


def _paper_questions(item: Mapping[str, Any]) -> Iterator[Upstream]:
    """Qasper: every annotator's evidence paragraphs of every question about a paper."""
    asked = item["qas"]
    if isinstance(asked, Mapping):  # as columns
        asked = [{"question": q, "answers": a} for q, a in zip(asked["question"], asked["answers"], strict=True)]
    for one in asked:
        answers = one["answers"]
        if isinstance(answers, Mapping):
            answers = [{"answer": answer} for answer in answers["answer"]]
        texts = [text for answer in answers for text in answer["answer"]["evidence"]]
        # Figures and tables are named, not quoted.
        yield Upstream(one["question"], tuple(dict.fromkeys(t for t in texts if not t.startswith("FLOAT SELECTED"))))


def join(records: Sequence[Record], upstream: Iterable[Upstream]) -> Joined:
    """Copies of the records with `evidence`; of several questions alike, that with most of its evidence found."""
    known: dict[str, list[Upstream]] = {}
    for one in upstream:
        known.setdefault(_plain(one.question), []).append(one)
    joined, unmatched, unfound, partly = [], 0, 0, 0
    for record in records:
        candidates = known.get(_plain(record["input"]), [])
        found = [(one, locate(one.texts, record["context"])) for one in candidates]
        best = max(found, key=lambda pair: _share(*pair), default=None)
        if best is None:
            unmatched += 1
        elif not best[1]:
            unfound += 1
        else:
            partly += len(best[1]) < len(best[0].texts)
            joined.append({**record, "evidence": merged(best[1])})
    return Joined(joined, unmatched, unfound, partly)


def locate(texts: Sequence[str], context: str) -> list[list[int]]:
    """The first place of each text in the context, whatever the white space; texts that are not there are missing."""
    spans = []
    for text in texts:
        pattern = r"\s+".join(map(re.escape, text.split()))
        if pattern and (match := re.search(pattern, context)):
            spans.append([match.start(), match.end()])
    return spans


def merged(spans: Iterable[Sequence[int]]) -> list[list[int]]:
    """Spans in order; those that touch each other become one."""
    whole: list[list[int]] = []
    for start, end in sorted(map(tuple, spans)):
        if whole and start <= whole[-1][1]:
            whole[-1][1] = max(end, whole[-1][1])
        else:
            whole.append([start, end])
    return whole


def _share(one: Upstream, spans: Sequence[Sequence[int]]) -> float:
    return len(spans) / max(1, len(one.texts))


def _plain(question: str) -> str:
    """A question without case, white space and the mark at its end."""
    return " ".join(question.lower().split()).rstrip("?. ")


def read(path: Path) -> list[Mapping[str, Any]]:
    """The items of an upstream file; Qasper's own JSON is an object of papers.

    Raises UserError for a file that is missing or of no known form.
    """
    try:
        if path.suffix == ".parquet":
            return _rows(path)
        text = path.read_text(encoding="utf-8")
        if path.suffix == ".jsonl":
            return [json.loads(line) for line in text.split("\n") if line.strip()]
        content = json.loads(text)
    except (OSError, ValueError, ImportError) as error:
        raise UserError(
            f"cannot read {path} ({error}): give the data set's JSON, JSON lines or Parquet file"
        ) from error
    return list(content.values()) if isinstance(content, dict) else content


def from_hub(subset: str) -> list[Mapping[str, Any]]:
    """The items of an upstream data set from the hub, downloaded once into its cache.

    Raises UserError if they cannot be had.
    """
    from huggingface_hub import snapshot_download

    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)  # what fails in the end is told
    repository, files, revision = HUB[subset]
    instead = f"or download it and give the file with --{subset} FILE"
    try:
        folder = snapshot_download(repository, repo_type="dataset", revision=revision, allow_patterns=files)
    except Exception as error:  # the hub's own errors, or those of a transport that differs by its edition
        raise UserError(
            f"cannot get {repository} from the hub ({type(error).__name__}): check network and HF_ENDPOINT, {instead}"
        ) from error
    found = sorted(Path(folder).glob(files))
    if not found:
        raise UserError(f"{repository} at {revision} has no {files} any more: look for them there, {instead}")
    return [item for path in found for item in read(path)]


def _rows(path: Path) -> list[Mapping[str, Any]]:
    """The rows of a Parquet file. Raises ValueError if it is none."""
    from datasets import Dataset, disable_progress_bars
    from datasets.exceptions import DatasetGenerationError

    disable_progress_bars()
    logging.getLogger("datasets").setLevel(logging.CRITICAL)  # what fails is told
    with TemporaryDirectory() as scratch:
        try:
            return list(Dataset.from_parquet(str(path), cache_dir=scratch, keep_in_memory=True))
        except (DatasetGenerationError, FileNotFoundError) as error:
            raise ValueError(str(error.__cause__ or error).partition("\n")[0]) from error


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status, 1 with one line on stderr for wrong input."""
    parser = Parser(description="Join LongBench records with their evidence.")
    parser.add_argument("--longbench", type=Path, help="folder or zip of LongBench's records (default: the hub's)")
    parser.add_argument("--out", type=Path, default=Path("results/evidence"), help="folder to write SUBSET.jsonl to")
    for subset in HUB:
        parser.add_argument(f"--{subset}", type=Path, metavar="FILE", help="upstream file (default: the hub's)")
    parser.add_argument("--only", nargs="+", choices=HUB, default=list(HUB), help="join these alone")
    return command(parser, arguments, _join)


def _join(options: argparse.Namespace) -> None:
    chosen = vars(options)
    for subset in chosen["only"]:
        _one(subset, chosen)
    # It has no annotated evidence anywhere; a copy lets the analysis look for answer strings in the same folder.
    if chosen["only"] == list(HUB):
        _write(chosen["out"] / "multifieldqa_en.jsonl", _records("multifieldqa_en", chosen))


def _one(subset: str, chosen: Mapping[str, Any]) -> None:
    records = _records(subset, chosen)
    items = read(chosen[subset]) if chosen[subset] else from_hub(subset)
    joined = join(records, questions(subset, items))
    print(
        f"{subset}: {len(joined.records)} of {len(records)} records joined ({joined.partly} with part of their "
        f"evidence); left out: {joined.unmatched} without a match, {joined.unfound} whose evidence is elsewhere"
    )
    if not joined.records:
        raise UserError(f"{subset}: no record joined; is the upstream file of another data set?")
    _write(chosen["out"] / f"{subset}.jsonl", joined.records)


def _records(subset: str, chosen: Mapping[str, Any]) -> Sequence[Record]:
    loaded = load_folder(chosen["longbench"], subset) if chosen["longbench"] else LongBench().read(subset)
    return loaded.records


def _write(path: Path, records: Sequence[Record]) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(json.dumps(one, ensure_ascii=False) + "\n" for one in records), encoding="utf-8")
    except OSError as error:
        raise UserError(f"cannot write {path} ({error.strerror}): choose another --out") from error


if __name__ == "__main__":
    sys.exit(main())
