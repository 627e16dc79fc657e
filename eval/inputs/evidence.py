"""Which prompt tokens carry the evidence of an example, and how much of it a selection keeps."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from echokv import Selection
from eval.console.errors import UserError
from eval.inputs import prompts
from eval.inputs.examples import Example, by_subset
from eval.inputs.truncation import Encoded, token_spans

ANNOTATED = "annotated"
STAND_IN = "answer string (stand-in)"


@dataclass(frozen=True)
class Evidence:
    """Token positions in the prompt, ascending; how many spans there are and how many the truncation touched."""

    tokens: tuple[int, ...]
    spans: int
    lost: int
    source: str


def spans(example: Example, stand_in: Sequence[str]) -> tuple[list[list[int]], str]:
    """Character spans in the context: the record's own, or for subsets in `stand_in` where an answer stands."""
    own = example.record.get("evidence") or []
    if own or example.subset.name not in stand_in:
        return own, ANNOTATED
    return _occurrences(example.record["context"], example.record["answers"]), STAND_IN


def locate(example: Example, encoded: Encoded, tokenizer: Any, stand_in: Sequence[str]) -> Evidence | None:
    """The evidence as token positions of `encoded`, exactly those whose characters it covers; None if there is none."""
    found, source = spans(example, stand_in)
    if not found:
        return None
    start = prompts.context_start(example.template, example.record)
    shifted = [[first + start, last + start] for first, last in found]
    ranges = token_spans(encoded, tokenizer, example.prompt, shifted)
    inside = [tokens for tokens in ranges if tokens is not None]
    positions = sorted({token for tokens in inside for token in tokens})
    return Evidence(tuple(positions), len(ranges), len(ranges) - len(inside), source)


def require(examples: Sequence[Example], stand_in: Sequence[str]) -> None:
    """Raise UserError if no example of a subset has evidence: better now than after the work."""
    for name, group in by_subset(examples).items():
        if not any(spans(example, stand_in)[0] for example in group):
            raise UserError(
                f"no record of {name} names its evidence: join it with scripts/join_evidence.py, use data=synthetic, "
                f"or take answer strings for it with analysis.stand_in=[{name}]"
            )


def retained(selection: Selection, tokens: Sequence[int]) -> float:
    """Share of the tokens that a selection keeps, mean over layers and heads."""
    layers = range(len(selection.indices))
    shares = [float(selection.held(layer)[:, list(tokens)].double().mean()) for layer in layers]
    return sum(shares) / len(shares)


def _occurrences(context: str, answers: Sequence[str]) -> list[list[int]]:
    """Every place where an answer stands as whole words, whatever its case and line breaks."""
    found = set()
    for answer in answers:
        words = [re.escape(word) for word in answer.split()]
        if words:
            pattern = r"(?<!\w)" + r"\s+".join(words) + r"(?!\w)"
            found |= {match.span() for match in re.finditer(pattern, context, re.IGNORECASE)}
    return [list(span) for span in sorted(found)]
