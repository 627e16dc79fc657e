"""What a run would ask, shown instead of run: `inspect=3`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from echokv import UsageError, load_tokenizer
from eval.console.errors import UserError, printable
from eval.inputs.asked import Asked
from eval.inputs.examples import Example
from eval.inputs.protocol import Protocol
from eval.planning.settings import Model

ENDS = 300  # characters shown of each end of a prompt
IDS = 8  # token ids shown of each end


def preview(model: Model, protocol: Protocol, examples: Sequence[Example]) -> str:
    """Prompt ends, token counts, truncation and stop ids of the examples. Loads no weights.

    Raises UserError if the tokenizer cannot be had.
    """
    try:
        about, tokenizer = load_tokenizer(model.name, model.revision)
    except UsageError as error:
        raise UserError(str(error)) from error
    return "\n\n".join(_one(example, protocol, about, tokenizer) for example in examples)


def _one(example: Example, protocol: Protocol, about: Any, tokenizer: Any) -> str:
    asked = Asked.of(example, protocol, about, tokenizer)
    stops = ", ".join(f"{token} {tokenizer.decode([token])!r}" for token in sorted(asked.stop_ids))
    encoded = asked.encoded
    text = encoded.text
    ends = [text] if len(text) <= 2 * ENDS else [text[:ENDS], text[-ENDS:]]
    ids = list(encoded.ids)
    lines = [
        f"{example.subset.name} {printable(example.id)}",
        f"  tokens: {len(ids)}"
        + (f", cut in the middle from {encoded.tokens_before}" if encoded.truncated else ", not cut"),
        *(
            [f"  control tokens spelled: {encoded.control_tokens} (preset.control_text={protocol.control_text})"]
            if encoded.control_tokens
            else []
        ),
        f"  chat template: {'yes' if protocol.in_chat(example.subset) else 'no'} (preset.chat={protocol.chat})",
        f"  answer: at most {asked.max_new_tokens} tokens, stops at {stops}"
        + (", not as its first token" if asked.min_new_tokens else ""),
        f"  generation settings: {_settings(asked)} (preset.generation={protocol.generation})",
        *([f"  evicted from: the first {asked.context} tokens (preset.question=after)"] if asked.question else []),
        f"  first ids: {ids[:IDS]}",
        f"  last ids: {ids[max(0, len(ids) - IDS) :]}",
        *(f"  {end!r}" for end in ends),
    ]
    return "\n".join(lines)


def _settings(asked: Asked) -> str:
    return ", ".join(f"{name} {value}" for name, value in asked.generation.named().items()) or "nothing is changed"
