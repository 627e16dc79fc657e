"""From a prompt to token ids: middle truncation, chat template and BOS, in the two orders that papers used.

`truncate_first` is LongBench's own (THUDM/LongBench 2e00731, `pred.py`): tokenise the bare prompt, keep both
ends, turn them back into text, put that into the chat template, tokenise again. `template_first` is that of
KVCache-Factory and LAQ: the template goes on before the cut, so that a cut prompt loses the template's
special tokens. Either way the ids may be a few more or fewer than the limit: decoding and encoding again is
not exact, and in `truncate_first` the template comes on top.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from eval.console.errors import UserError, nearest
from eval.inputs.tokens import Text, control_spans

Order = Literal["truncate_first", "template_first"]
ControlText = Literal["token", "text"]

_ANCHOR = 64  # characters at the prompt's ends by which `token_spans` finds them in the final text
_STAND_IN = "\ue000text\ue000"  # of a prompt, to see what its chat template puts around it


@dataclass(frozen=True)
class Encoded:
    """A prompt as the model gets it.

    text: what `ids` were made of, template and all. plain: range of its characters in which no control token was seen.
    tokens_before: length in tokens of the text that the limit was applied to.
    control_tokens: how many control tokens the prompt spelled, before the cut and without the template's own.
    """

    ids: tuple[int, ...]
    text: str
    truncated: bool
    tokens_before: int
    plain: tuple[int, int] = (0, 0)
    control_tokens: int = 0

    def offsets(self, tokenizer: Any) -> list[tuple[int, int]]:
        """For each of `ids` its half-open range of characters of `text`. Raises UserError for a slow tokenizer."""
        return Text(self.text, self.plain).offsets(tokenizer)


def encode(
    prompt: str,
    tokenizer: Any,
    *,
    limit: int,
    chat: bool,
    order: Order = "truncate_first",
    template_options: Mapping[str, Any] | None = None,
    control_text: ControlText = "token",
) -> Encoded:
    """Tokenise `prompt`, cut in the middle to `limit` tokens if it is longer, in the chat template if `chat`.

    Args:
        tokenizer: of transformers; its chat template is used as one user turn plus the opening of the answer.
        limit: most tokens before the cut; an odd limit keeps one token fewer, as the official halves do.
        order: what comes first, the cut or the template.
        template_options: further variables of the chat template, such as Qwen3's `enable_thinking`.
        control_text: what becomes of a prompt's characters that spell a control token: "token", that token, as in
            LongBench's own code, which also loses it where the prompt is cut; "text", the tokens of its characters.

    Raises:
        UserError: limit below 2, unknown order, no chat template, not exactly one BOS in front, or text that cannot be
            told from the template around it.
    """
    if limit < 2:
        raise UserError(f"a prompt limit of {limit} tokens leaves nothing of the prompt; give 2 or more")
    if order not in get_args(Order):
        raise UserError(f"unknown truncation order {order!r}{nearest(order, get_args(Order))}")
    spelled = len(control_spans(prompt, tokenizer))
    literal = control_text == "text" and spelled > 0
    text = _text(prompt, literal)
    if chat and order == "template_first":
        text = _in_template(text, tokenizer, template_options or {})
    before = text.ids(tokenizer)
    truncated = len(before) > limit
    if truncated:
        half = limit // 2
        ends = (before[:half], before[len(before) - half :])
        text = _text("".join(str(tokenizer.decode(ids, skip_special_tokens=True)) for ids in ends), literal)
    if chat and order == "truncate_first":
        text = _in_template(text, tokenizer, template_options or {})
    ids = text.ids(tokenizer)
    _check_bos(ids, tokenizer)
    return Encoded(tuple(ids), text.content, truncated, len(before), text.plain, spelled)


def token_spans(encoded: Encoded, tokenizer: Any, prompt: str, spans: Sequence[Sequence[int]]) -> list[range | None]:
    """Map character spans of `prompt` to the token positions that cover them.

    Args:
        prompt: the text that `encode` was given; a context's spans are shifted by `prompts.context_start`.
        spans: half-open `[start, end)` character spans.

    Returns:
        Per span its tokens as a range of positions in `encoded.ids`; None for a span that the cut touched.

    Raises:
        UserError: the tokenizer cannot tell character offsets (only fast ones can).
    """
    if not getattr(tokenizer, "is_fast", False):
        raise UserError("mapping characters to tokens needs a fast tokenizer; this one is slow")
    body = prompt.strip()  # templates may strip it too
    lead = prompt.index(body)
    first, head = _kept(encoded.text, body)
    behind, tail = _kept(encoded.text[::-1], body[::-1])
    last = len(encoded.text) - behind  # where the body's end lies
    offsets = encoded.offsets(tokenizer)

    def locate(start: int, end: int) -> range | None:
        if start >= 0 and end <= head:
            shift = first
        elif len(body) - tail <= start and end <= len(body):
            shift = last - len(body)
        else:
            return None
        tokens = [i for i, (a, b) in enumerate(offsets) if a < end + shift and b > start + shift]
        return range(tokens[0], tokens[-1] + 1) if tokens else None

    return [locate(start - lead, end - lead) for start, end in spans]


def _kept(text: str, body: str) -> tuple[int, int]:
    """Return where `body` begins in `text` and for how long the two then agree; (0, 0) if nowhere."""
    at = text.find(body[:_ANCHOR])
    if at < 0:
        return 0, 0
    differs = (i for i, (left, right) in enumerate(zip(text[at:], body, strict=False)) if left != right)
    return at, next(differs, min(len(text) - at, len(body)))


def _text(content: str, literal: bool) -> Text:
    return Text(content, (0, len(content)) if literal else (0, 0))


def _in_template(prompt: Text, tokenizer: Any, options: Mapping[str, Any]) -> Text:
    """The prompt as the user's turn, plain where it was."""
    from jinja2 import TemplateError  # with the first template: plans are made without any

    if not getattr(tokenizer, "chat_template", None):
        raise UserError("the tokenizer has no chat template; use the chat policy `none` with this model")

    def rendered(content: str) -> str:
        turn = [{"role": "user", "content": content}]
        try:
            return str(tokenizer.apply_chat_template(turn, tokenize=False, add_generation_prompt=True, **options))
        except (ValueError, TypeError, TemplateError) as error:  # no default among several, and what one may raise
            own = tokenizer.chat_template
            why = f"of {', '.join(own)} none is the default" if isinstance(own, dict) else " ".join(str(error).split())
            raise UserError(f"the chat template cannot be used ({why}): use preset.chat=none, or mend it") from error

    text = rendered(prompt.content)
    if prompt.plain == (0, 0):
        return Text(text)
    head, _, tail = rendered(_STAND_IN).partition(_STAND_IN)
    start, end = len(head), len(text) - len(tail)
    if not (text.startswith(head) and text.endswith(tail) and text[start:end].strip() == prompt.content.strip()):
        raise UserError("the chat template changes the record's text: use preset.control_text=token")
    return Text(text, (start, end))


def _check_bos(ids: Sequence[int], tokenizer: Any) -> None:
    bos = tokenizer.bos_token_id
    wanted = bos is not None and tokenizer("", verbose=False)["input_ids"][:1] == [bos]
    leading = 0
    while leading < len(ids) and ids[leading] == bos:
        leading += 1
    if leading > 1 or (wanted and leading == 0):
        raise UserError(f"the prompt starts with {leading} BOS tokens instead of 1; check the chat template")
