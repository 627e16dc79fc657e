"""From text to token ids, with BOS where it belongs, and the control tokens that a text spells.

A tokenizer makes a control token (an end of text, a turn's opening) of the characters that spell it, wherever they
stand: so does the text of a record. Characters in a `plain` range are taken for what they are, characters.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from eval.console.errors import UserError


def spelled(counts: Sequence[float], rule: str | None) -> str | None:
    """A sentence for a table whose records spell control tokens; None if none does.

    counts: of each record. rule: what was made of them, the preset's `control_text`.
    """
    if not (records := sum(count > 0 for count in counts)):
        return None
    return (
        f"{records} of {len(counts)} records spell control tokens in their text ({sum(counts):.0f} in all), "
        f"taken as {'these tokens' if rule == 'token' else 'plain text'} (control text: {rule})."
    )


@dataclass(frozen=True)
class Text:
    """A text to be tokenised. plain: half-open range of characters in which no control token is seen, if any."""

    content: str
    plain: tuple[int, int] = (0, 0)

    def ids(self, tokenizer: Any) -> list[int]:
        """Token ids, with BOS in front unless the text begins with it.

        Raises UserError for a tokenizer that cannot take the plain range apart from the rest.
        """
        return [token for part in self._parts(tokenizer) for token in part.ids(tokenizer)]

    def offsets(self, tokenizer: Any) -> list[tuple[int, int]]:
        """For each token its half-open range of characters. Raises UserError for a slow tokenizer."""
        _need_fast(tokenizer, "saying which characters a token covers")
        return [
            (start + part.start, end + part.start)
            for part in self._parts(tokenizer)
            for start, end in part.called(tokenizer, return_offsets_mapping=True)["offset_mapping"]
        ]

    def _parts(self, tokenizer: Any) -> list[_Part]:
        """Pieces that are tokenised alone, cut where a control token of the chat template cuts the text anyway."""
        start, end = self.plain
        # Not where the text (a rendered template) starts with it.
        bos = not (tokenizer.bos_token and self.content.startswith(tokenizer.bos_token)) or (start == 0 < end)
        if start == end:
            return [_Part(self.content, 0, bos, plain=False)]
        if (start, end) == (0, len(self.content)):
            return [_Part(self.content, 0, bos, plain=True)]
        parts = self._around(tokenizer, bos)
        _check_apart(self, parts, tokenizer)
        return parts

    def _around(self, tokenizer: Any, bos: bool) -> list[_Part]:
        start, end = self.plain
        before = [last for _, last in control_spans(self.content[:start], tokenizer)]
        behind = [end + first for first, _ in control_spans(self.content[end:], tokenizer)]
        first, last = (before or [0])[-1], (behind or [len(self.content)])[0]
        parts = [
            _Part(self.content[:first], 0, bos, plain=False),
            _Part(self.content[first:last], first, bos and first == 0, plain=True),
            _Part(self.content[last:], last, False, plain=False),
        ]
        return [part for part in parts if part.content]


@dataclass(frozen=True)
class _Part:
    content: str
    start: int  # in the whole text
    bos: bool
    plain: bool

    def ids(self, tokenizer: Any) -> list[int]:
        return [int(token) for token in self.called(tokenizer)["input_ids"]]

    def called(self, tokenizer: Any, **more: Any) -> Any:
        # verbose=False: no warning about prompts beyond the model's length; the cut is our business
        apart = {"split_special_tokens": True} if self.plain else {}
        return tokenizer(self.content, add_special_tokens=self.bos, verbose=False, **apart, **more)


def _check_apart(text: Text, parts: list[_Part], tokenizer: Any) -> None:
    """Raise UserError unless the pieces' tokens are those of the whole, told by a text without control tokens."""
    start, end = text.plain
    harmless = Text(f"{text.content[:start]}a{text.content[end:]}", (start, start + 1))
    bos = parts[0].bos
    apart = [token for part in harmless._around(tokenizer, bos) for token in part.ids(tokenizer)]
    if apart != _Part(harmless.content, 0, bos, plain=False).ids(tokenizer):
        raise UserError(
            "this tokenizer's chat template and the record's text cannot be tokenised apart: use "
            "preset.control_text=token, or preset.chat=none"
        )


def control_spans(text: str, tokenizer: Any) -> list[tuple[int, int]]:
    """Where the tokenizer sees its control tokens in a text, as half-open ranges of characters, in order.

    Raises UserError for a slow tokenizer and a text in which such a token may stand.
    """
    known = _control(tokenizer)
    if not any(spelling in text for spelling in known.values()):
        return []
    _need_fast(tokenizer, "finding control tokens in a text")
    found = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
    pairs = zip(found["input_ids"], found["offset_mapping"], strict=True)
    return [(start, end) for token, (start, end) in pairs if token in known]


def _control(tokenizer: Any) -> dict[int, str]:
    return {number: str(token) for number, token in tokenizer.added_tokens_decoder.items() if token.special}


def _need_fast(tokenizer: Any, what: str) -> None:
    if not getattr(tokenizer, "is_fast", False):
        raise UserError(f"{what} needs a fast tokenizer; this one is slow")
