"""Which rules turn a record into a prompt and end its answer: a preset's named values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, get_args

from eval.console.errors import UserError
from eval.inputs.subsets import Subset
from eval.inputs.truncation import ControlText, Order
from eval.scoring.metrics import Edit

RULES = {  # a preset's fields that name a rule; `edit` is for the scores of what a run answers
    "chat": ("none", "official", "all"),
    "truncation": get_args(Order),
    "stop": ("tokenizer", "checkpoint", "official"),
    "min_length": ("none", "official", "all"),
    "control_text": get_args(ControlText),
    "edit": get_args(Edit),
}


@dataclass(frozen=True)
class Protocol:
    """How a record becomes a prompt and when its answer ends.

    chat: which subsets go into the model's chat template: none, those of LongBench's rule, all.
    stop: which tokens end an answer: the end that the tokenizer names, alone; those that the checkpoint's generation
        settings name; or LongBench's rule: the checkpoint's, but the tokenizer's and the newline for samsum.
    min_length: where an answer's first token may not be a stop token: nowhere, samsum, everywhere.
    control_text: what a record's text that spells a control token becomes (truncation.py).
    """

    chat: str
    truncation: str
    stop: str
    min_length: str
    control_text: str
    prompt_limit: int
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
    def of(cls, config: dict[str, Any]) -> Protocol:
        """Raises UserError for a value that names no rule, and for a prompt limit that is no number of tokens."""
        preset, model = config["preset"], config["model"]
        for field, allowed in RULES.items():
            if preset.get(field) not in allowed:
                raise UserError(f"preset.{field} is {preset.get(field)!r}; use {', '.join(allowed)}")
        limit = model["prompt_limit"]
        if isinstance(limit, bool) or not isinstance(limit, int) or limit < 2:
            raise UserError(f"model.prompt_limit is {limit!r}; give a whole number of tokens, at least 2")
        rules = {field: preset[field] for field in RULES if field != "edit"}
        return cls(**rules, prompt_limit=limit, template_options=model["template_options"])
