"""Kept prompt tokens on disk, read without a model: what `record.selections=true` leaves.

`eval.answering.recorder` writes it.

A step is one selection: a workspace W1, W2, ... of a policy that decodes ahead, or the final cache. Its positions are
stored head by head and ascending, as gaps (how many tokens are skipped) in variable-length bytes, deflated and in
base64. Prompts are stored once each, in files named by their digest, so that folders can be merged by copying.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from eval.console.errors import UserError
from eval.keeping import reading

if TYPE_CHECKING:
    from jaxtyping import Bool, Int

FOLDER = "selections"  # within the results folder
PROMPTS = "prompts"  # beside the folders of the runs
FINAL = "final"
_BYTES = 4  # most that a gap takes: 28 bits


@dataclass(frozen=True)
class Step:
    """One selection of a prompt of `length` tokens: per layer and head int64 [kept], ascending."""

    name: str
    length: int
    layers: tuple[Sequence[Int[np.ndarray, " kept"]], ...]

    @property
    def pairs(self) -> int:
        """Number of (layer, head) pairs."""
        return sum(len(layer) for layer in self.layers)

    def counts(self, layers: Sequence[int] | None = None, head: int | None = None) -> Int[np.ndarray, " length"]:
        """By how many (layer, head) pairs each prompt token is kept; `layers` and `head` narrow the pairs."""
        shown = [self.layers[place] for place in (range(len(self.layers)) if layers is None else layers)]
        kept = [layer if head is None else layer[head : head + 1] for layer in shown]
        return np.bincount(np.concatenate([one for layer in kept for one in layer]), minlength=self.length)


@dataclass(frozen=True)
class Prompt:
    """A prompt cut at its tokens: `"".join(pieces)` is its text. A token that shares its characters has an empty piece.

    evidence: half-open token ranges of the record's annotated evidence that the truncation left.
    """

    pieces: tuple[str, ...]
    evidence: tuple[tuple[int, int], ...]


def pack(step: Step) -> dict[str, Any]:
    """Return a step as JSON values; `data` is None where every token is kept.

    `kept` is a number for a layer whose heads keep equally many, and a list of numbers for another.

    Raises:
        ValueError: positions that are not ascending, or not within the prompt.
    """
    sizes = [[len(head) for head in layer] for layer in step.layers]
    kept = [own[0] if len(set(own)) == 1 else own for own in sizes]
    about = {"name": step.name, "heads": len(step.layers[0]), "kept": kept}
    if all(size == step.length for size in kept):
        return {**about, "data": None}
    heads = [head for layer in step.layers for head in layer]
    gaps = np.concatenate([np.diff(head, prepend=-1) - 1 for head in heads])
    if (gaps < 0).any() or any((head >= step.length).any() for head in heads):
        raise ValueError(f"positions of {step.name} must ascend below {step.length}")
    return {**about, "data": base64.b64encode(zlib.compress(_variable(gaps), 9)).decode("ascii")}


def unpack(packed: dict[str, Any], length: int) -> Step:
    """Return the step that `pack` was given.

    Raises:
        ValueError: the data are damaged.
    """
    heads = int(packed["heads"])
    kept = [own if isinstance(own, list) else [own] * heads for own in packed["kept"]]
    if packed["data"] is None:
        whole = (np.arange(length),) * heads
        return Step(packed["name"], length, tuple(whole for _ in kept))
    try:
        raw = zlib.decompress(base64.b64decode(packed["data"], validate=True))
    except zlib.error as error:
        raise ValueError(str(error)) from error
    if any(len(own) != heads for own in kept):
        raise ValueError(f"sizes of {min(map(len, kept))} heads where there are {heads}")
    gaps = _numbers(np.frombuffer(raw, dtype=np.uint8))
    ends = np.cumsum([0, *(size for own in kept for size in own)])
    if len(gaps) != ends[-1]:
        raise ValueError(f"{len(gaps)} positions where {ends[-1]} were stored")
    found = [(gaps[first:last] + 1).cumsum() - 1 for first, last in pairwise(ends)]
    return Step(packed["name"], length, tuple(found[at * heads : (at + 1) * heads] for at in range(len(kept))))


def steps(row: dict[str, Any]) -> list[Step]:
    """Return the steps of a stored row, the final cache last.

    Raises:
        UserError: the row is damaged.
    """
    try:
        return [unpack(packed, row["prompt_tokens"]) for packed in row["steps"]]
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(
            f"the stored selections of {row.get('_id')!r} are damaged ({error}): record them again"
        ) from error


def folder(run: Path) -> Path:
    """Return where the selections of a run's answers lie: RESULTS/selections/DATA/MODEL/RUN."""
    return run.parents[2] / FOLDER / run.relative_to(run.parents[2])


def rows(run: Path, subset: str) -> dict[str, dict[str, Any]]:
    """Return the selections of a run's answers to a subset by `_id`, still packed; empty if none were recorded."""
    return reading.stored(folder(run), subset)


def prompt(run: Path, digest: str) -> Prompt:
    """Read a prompt that a row of the run names.

    Raises:
        UserError: it is missing or damaged.
    """
    path = folder(run).parent / PROMPTS / f"{digest}.json"
    try:
        content = reading.readable(path.read_text(encoding="utf-8"))
        return Prompt(tuple(content["pieces"]), tuple((first, last) for first, last in content["evidence"]))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path} is missing or damaged: record the selections again") from error


def cut(text: str, ends: Iterable[int]) -> list[str]:
    """Cut a text behind each token, given where each ends; what no token covers goes with the next one."""
    pieces, last = [], 0
    for end in ends:
        pieces.append(text[last:end] if end > last else "")
        last = max(last, end)
    if pieces:
        pieces[-1] += text[last:]
    return pieces


def _variable(values: Int[np.ndarray, " n"]) -> bytes:
    """Seven bits a byte, lowest first; the highest bit says that another byte follows."""
    if len(values) and values.max() >> (7 * _BYTES):
        raise ValueError(f"a gap of {values.max()} tokens is too large")
    parts = (values[:, None] >> (7 * np.arange(_BYTES))) & 127
    more: Bool[np.ndarray, "n bytes"] = values[:, None] >> (7 * np.arange(1, _BYTES + 1)) > 0
    used = np.column_stack([np.ones(len(values), dtype=bool), more[:, :-1]])
    return bytes((parts | more * 128)[used].astype(np.uint8))


def _numbers(raw: np.ndarray) -> Int[np.ndarray, " n"]:
    if not len(raw):
        return np.zeros(0, dtype=np.int64)
    ends = np.flatnonzero(raw < 128)
    if not len(ends) or ends[-1] != len(raw) - 1:
        raise ValueError("the data end within a number")
    starts = np.concatenate([[0], ends[:-1] + 1])
    place = np.arange(len(raw)) - np.repeat(starts, ends - starts + 1)
    found: np.ndarray = np.add.reduceat((raw.astype(np.int64) & 127) << (7 * place), starts)
    return found
