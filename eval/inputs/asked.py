"""An example as a model gets it: token ids, and when its answer ends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from echokv import UsageError
from echokv.generation import BARE, Generation
from eval.console.errors import UserError
from eval.inputs.examples import Example
from eval.inputs.prompts import context_start
from eval.inputs.protocol import Protocol
from eval.inputs.truncation import Encoded, encode, token_spans


@dataclass(frozen=True)
class Asked:
    """A prompt as token ids, and the rules for its answer.

    context: how many of the ids are evicted from, before the others are fed: all but under question=after.
    """

    encoded: Encoded
    stop_ids: frozenset[int]
    max_new_tokens: int
    min_new_tokens: int
    context: int
    generation: Generation = BARE
    tokenizer: Any = field(default=None, repr=False, compare=False)

    @property
    def ids(self) -> tuple[int, ...]:
        """The tokens that are evicted from."""
        return self.encoded.ids[: self.context]

    @property
    def question(self) -> tuple[int, ...]:
        """Those that are fed to the evicted cache."""
        return self.encoded.ids[self.context :]

    @classmethod
    def of(cls, example: Example, protocol: Protocol, model: Any, tokenizer: Any) -> Asked:
        """Tokenise a prompt for a model, or for anything that has a model's `config` and `generation_config`.

        Raises UserError for an empty prompt or one that leaves no positions for its answer, and for generation settings
        that are to be applied and cannot be.
        """
        subset, positions = example.subset, model.config.max_position_embeddings
        encoded = encode(
            example.prompt,
            tokenizer,
            limit=protocol.prompt_limit or max(2, positions - subset.max_new_tokens),
            chat=protocol.in_chat(subset),
            order=protocol.truncation,
            template_options=protocol.template_options,
            control_text=protocol.control_text,
        )
        length = len(encoded.ids)
        if not length:
            raise UserError(f"the prompt of {example.id} ({subset.name}) is empty")
        if length + subset.max_new_tokens > positions:
            raise UserError(
                f"the prompt of {example.id} ({subset.name}) has {length} tokens after truncation; with its "
                f"{subset.max_new_tokens} new ones it exceeds the model's {positions} positions: "
                "lower model.prompt_limit"
            )
        try:
            generation = Generation.of(model.generation_config) if protocol.generation == "checkpoint" else BARE
        except UsageError as error:
            raise UserError(str(error)) from error
        stop = stop_ids(model, tokenizer, protocol.stops_on(subset))
        return cls(
            encoded=encoded,
            stop_ids=stop,
            max_new_tokens=subset.max_new_tokens,
            min_new_tokens=generation.least_tokens(length, protocol.min_new_tokens(subset)),
            context=length if protocol.question == "within" else context_of(example, encoded, tokenizer),
            generation=generation,
            tokenizer=tokenizer,
        )


def context_of(example: Example, encoded: Encoded, tokenizer: Any) -> int:
    """How many tokens of a prompt come before what stands behind the record's context.

    Raises UserError where the template has the question before the context or nothing behind it, or where the cut took
    the end of the context.
    """
    about, template, prompt = f"{example.id} ({example.subset.name})", example.template, example.prompt
    before, after = template.split("{context}", 1)
    end = context_start(template, example.record) + len(str(example.record["context"]))
    if "{input}" in before or "{context}" in after or not prompt[end:].strip():
        raise UserError(
            f"preset.question=after: the template of {about} does not have all that it asks behind the context: "
            "use preset.question=within"
        )
    end += len(prompt[end:]) - len(prompt[end:].lstrip())
    (found,) = token_spans(encoded, tokenizer, prompt, [(end, end + 1)])
    if not found:  # no token, or the first: there is nothing to evict from
        raise UserError(
            f"preset.question=after: the prompt of {about} was cut behind its context: raise model.prompt_limit"
        )
    return found.start


def stop_ids(model: Any, tokenizer: Any, named_by: Sequence[str]) -> frozenset[int]:
    """The token ids that end an answer.

    named_by: "tokenizer" (its end of text), "checkpoint" (its generation settings), "newline" (its last token).

    Raises UserError where the tokenizer or the checkpoint names none.
    """
    found: set[int] = set()
    for source in named_by:
        if source == "newline":
            found.add(tokenizer.encode("\n", add_special_tokens=False)[-1])
            continue
        named = tokenizer.eos_token_id if source == "tokenizer" else model.generation_config.eos_token_id
        if named is None:
            others = "tokenizer" if source == "checkpoint" else "checkpoint"
            raise UserError(f"the {source} names no token that ends an answer: use preset.stop={others}")
        found.update(named if isinstance(named, list) else [named])
    return frozenset(found)
