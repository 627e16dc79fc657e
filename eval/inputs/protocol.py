"""Which rules turn a record into a prompt and end its answer: a preset's named values."""

from __future__ import annotations

from typing import Any, Literal

from eval.console.fields import Section
from eval.inputs.subsets import Subset
from eval.inputs.truncation import ControlText, Order

Where = Literal["none", "official", "all"]


class Rules(Section):
    """The rules that a preset names.

    chat: which subsets go into the model's chat template: none, those of LongBench's rule, all.
    stop: which tokens end an answer: the end that the tokenizer names, alone; those that the checkpoint's generation
        settings name; or LongBench's rule: the checkpoint's, but the tokenizer's and the newline for samsum.
    min_length: where an answer's first token may not be a stop token: nowhere, samsum, everywhere.
    generation: "checkpoint" changes logits as the checkpoint's generation settings say (echokv/generation.py), which
        `generate` does for whoever calls it; "bare" takes the most probable token as it is.
    question: what is evicted from: "within", the whole prompt, question and all, so that a method may choose by it;
        "after", the prompt up to the end of the record's context, and what follows is fed to the evicted cache.
    control_text: what a record's text that spells a control token becomes (truncation.py).
    """

    chat: Where
    truncation: Order
    stop: Literal["tokenizer", "checkpoint", "official"]
    min_length: Where
    generation: Literal["checkpoint", "bare"]
    question: Literal["within", "after"]
    control_text: ControlText


class Protocol(Rules):
    """How a record becomes a prompt and when its answer ends.

    prompt_limit: most tokens of a prompt, None for all positions that its answer leaves.
    """

    prompt_limit: int | None
    template_options: dict[str, Any]

    def in_chat(self, subset: Subset) -> bool:
        return self.chat == "all" or (self.chat == "official" and subset.chat)

    def stops_on(self, subset: Subset) -> tuple[str, ...]:
        """What names the stop tokens of a subset's answers: "tokenizer", "checkpoint", "newline"."""
        if self.stop == "official":
            return ("tokenizer", "newline") if subset.newline_stop else ("checkpoint",)
        return (self.stop,)

    def min_new_tokens(self, subset: Subset) -> int:
        return int(self.min_length == "all" or (self.min_length == "official" and subset.newline_stop))

    @classmethod
    def of(cls, rules: Rules, prompt_limit: int | None, template_options: dict[str, Any]) -> Protocol:
        """The rules of a preset, for a model."""
        named = {name: getattr(rules, name) for name in Rules.model_fields}
        return cls(**named, prompt_limit=prompt_limit, template_options=template_options)
