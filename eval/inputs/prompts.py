"""Prompt templates: LongBench's official text, byte for byte, and the filling in of one record.

The text is not kept here. It is read from the task files of the installed `lm-eval` package, whose small
changes are undone, and every template must match the SHA-256 of the official one (`conf/prompts.sha256.json`,
of THUDM/LongBench 2e00731, `LongBench/config/dataset2prompt.json`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import cache
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from eval.console import conf
from eval.console.errors import UserError, nearest
from eval.inputs import subsets

_FIELD = re.compile(r"\{(context|input)\}")

# What lm-eval's editing took away: characters at the end, and one newline before the question.
_ENDS = {"passage_count": " ", "passage_retrieval_en": " ", "lcc": "\n", "repobench-p": "\n"}
_NEWLINES = ("triviaqa", "samsum")


def template(subset: str, file: str | Path | None = None) -> str:
    """Return the prompt template of a subset, with its fields `{context}` and `{input}`.

    `file` is a JSON object `{subset: template}` that replaces the official texts; `NAME_e` is looked up as
    `NAME` where the file does not name it.

    Raises:
        UserError: unknown subset; lm-eval is missing or its text differs from the official one; `file` is
            unreadable, lacks the subset, or its template lacks `{context}`.
    """
    found = subsets.load(subset)
    if file is not None:
        return _own(subset, Path(file))
    return found.template if found.template is not None else _official(subset.removesuffix("_e"))


def render(template: str, record: Mapping[str, Any]) -> str:
    """Fill `{context}` and `{input}` in one pass: braces in the record's own text stay as they are."""
    return _FIELD.sub(lambda field: str(record[field[1]]), template)


def context_start(template: str, record: Mapping[str, Any]) -> int:
    """Return the character offset of the record's context in `render(template, record)`."""
    return len(render(template[: template.index("{context}")], record))


@cache
def _official(subset: str) -> str:
    text = _task_text(_task_file(subset))
    text = text.replace("{{context}}", "{context}").replace("{{question}}", "{input}")
    if subset in _NEWLINES:
        text = text.replace("\n{input}", "\n\n{input}")
    text += _ENDS.get(subset, "")
    digests = json.loads((conf.CONF / "prompts.sha256.json").read_text(encoding="utf-8"))
    if sha256(text.encode()).hexdigest() != digests[subset]:
        raise UserError(
            f"{subset}: the installed lm-eval's prompt is not LongBench's official one (SHA-256 differs); "
            "install lm-eval 0.4.13, or give your own with data.prompts=FILE"
        )
    return text


def _task_file(subset: str) -> Path:
    spec = find_spec("lm_eval")  # finds the folder without importing the package
    folders = spec.submodule_search_locations if spec else None
    for folder in folders or ():
        path = Path(folder) / "tasks" / "longbench" / f"{subset}.yaml"
        if path.is_file():
            return path
    raise UserError(
        f"{subset}: the official prompt comes from the lm-eval package, which is "
        f"{'without a LongBench task of this name' if folders else 'not installed'}; "
        "run `pip install --no-deps lm-eval`, or give your own with data.prompts=FILE"
    )


class _TaskLoader(conf.Loader):
    """Reads lm-eval's task files, whose `!function` tags name code that is of no interest here."""


_TaskLoader.add_multi_constructor("!", lambda _loader, _suffix, _node: None)


def _task_text(path: Path) -> str:
    task = conf.read(path, _TaskLoader)
    text = task.get("doc_to_text") if isinstance(task, dict) else None
    if not isinstance(text, str):
        raise UserError(f"{path}: no doc_to_text; install lm-eval 0.4.13, or give data.prompts=FILE")
    return text


def _own(subset: str, path: Path) -> str:
    try:
        texts = json.loads(path.read_bytes().decode("utf-8"))
    except OSError as error:
        raise UserError(f"data.prompts={path}: {error.strerror}") from error
    except ValueError as error:  # malformed JSON and malformed UTF-8
        raise UserError(f"data.prompts={path}: not a UTF-8 JSON file ({error})") from error
    if not isinstance(texts, dict):
        raise UserError(f"data.prompts={path}: expected one JSON object {{subset: template}}")
    text = texts.get(subset, texts.get(subset.removesuffix("_e")))
    if text is None:
        raise UserError(f"data.prompts={path}: no template for {subset}{nearest(subset, texts)}")
    if not isinstance(text, str) or "{context}" not in text:
        raise UserError(f"data.prompts={path}: {subset}'s template must be a text with {{context}} in it")
    return text
