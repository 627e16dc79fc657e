"""What a checkpoint's generation settings change under greedy decoding, applied by transformers' own processors."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from echokv.errors import UsageError

if TYPE_CHECKING:
    from transformers import LogitsProcessorList

# Fields of transformers' GenerationConfig that change no token of one greedy answer whose length the caller gives.
WITHOUT_EFFECT = frozenset(
    (
        # lengths that the caller's own overrule
        "max_length", "max_new_tokens",
        # sampling, and beams of which there is one
        "do_sample", "temperature", "top_k", "top_p", "min_p", "top_h", "typical_p", "epsilon_cutoff", "eta_cutoff",
        "early_stopping", "length_penalty",
        # what is returned, and names of tokens (the caller says which end an answer)
        "output_attentions", "output_hidden_states", "output_scores", "output_logits", "return_dict_in_generate",
        "pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id",
        # how it is computed: the cache is ours
        "use_cache", "cache_config", "max_cache_len", "compile_config", "disable_compile", "prefill_chunk_size",
        "low_memory",
        # settings of an assistant model, of which there is none
        "is_assistant", "num_assistant_tokens", "num_assistant_tokens_schedule", "assistant_confidence_threshold",
        "max_matching_ngram_size", "assistant_lookbehind", "target_lookbehind", "assistant_ensemble_weight",
        "speculation_type",
        "transformers_version",
    )
)  # fmt: skip
# Values, besides None, False and what is empty, at which a field that is not applied changes nothing.
_NEUTRAL: Mapping[str, tuple[Any, ...]] = {
    "num_beams": (1,),
    "num_beam_groups": (1,),
    "num_return_sequences": (1,),
    "guidance_scale": (1,),
    "encoder_repetition_penalty": (1,),
    "no_repeat_ngram_size": (0,),
    "encoder_no_repeat_ngram_size": (0,),
    "diversity_penalty": (0,),
    "penalty_alpha": (0,),
    "cache_implementation": ("dynamic", "static", "hybrid"),
}


@dataclass(frozen=True)
class Generation:
    """How a checkpoint wants its logits changed before the most probable token is taken; by default not at all.

    repetition_penalty: divides positive logits of tokens that the prompt or the answer has already, and multiplies
        negative ones (Keskar et al. 2019, arXiv 1909.05858, section 4.1, in transformers' form).
    suppress_tokens: never chosen. begin_suppress_tokens: never chosen as an answer's first.
    min_length, min_new_tokens: tokens, with and without the prompt, before which no stop token may come.
    """

    repetition_penalty: float = 1.0
    suppress_tokens: tuple[int, ...] = ()
    begin_suppress_tokens: tuple[int, ...] = ()
    min_length: int = 0
    min_new_tokens: int | None = None

    @classmethod
    def of(cls, config: Any) -> "Generation":
        """What a transformers GenerationConfig names.

        Raises UsageError for a setting that changes greedy decoding and is not applied here, and for a wrong value.
        """
        settings = {name: value for name, value in config.to_dict().items() if not name.startswith("_")}
        known = _APPLIED.keys() | WITHOUT_EFFECT
        refused = [
            f"{name}={settings[name]!r}" for name in sorted(settings.keys() - known) if acts(name, settings[name])
        ]
        if refused:
            raise UsageError(
                f"the checkpoint's generation settings name {', '.join(refused)}, which is not applied here: "
                "decode without them by preset.generation=bare, or remove it from generation_config.json"
            )
        found: dict[str, Any] = {
            name: read(name, settings[name]) for name, read in _APPLIED.items() if settings.get(name) is not None
        }
        return cls(**found)

    def least_tokens(self, length: int, asked: int) -> int:
        """New tokens before which no stop token may come, as `generate` settles it.

        length: of the prompt. asked: what the caller wants, which `generate` would be told as
        min_length=length+asked; it overrules the checkpoint's min_length, and min_new_tokens overrules both.
        """
        if self.min_new_tokens is not None:
            return self.min_new_tokens
        return asked or max(0, self.min_length - length)

    def processors(self, begin: bool, device: torch.device) -> "LogitsProcessorList":
        """Transformers' processors, of the first token if `begin`.

        They look at which tokens there were, never at their order or number, and wait for nothing on the device.
        """
        from transformers import LogitsProcessorList, RepetitionPenaltyLogitsProcessor, SuppressTokensLogitsProcessor

        made = LogitsProcessorList()
        if self.repetition_penalty != 1.0:
            made.append(RepetitionPenaltyLogitsProcessor(self.repetition_penalty))
        banned = self.suppress_tokens + (self.begin_suppress_tokens if begin else ())
        if banned:
            made.append(SuppressTokensLogitsProcessor(banned, device=str(device)))
        return made

    def first(self, ids: Int[Tensor, " L"], logits: Float[Tensor, " V"]) -> Float[Tensor, " V"]:
        """The logits from which an answer's first token is taken, in float32 as in `generate` if anything changes.

        ids: of the prompt.
        """
        if self == BARE:
            return logits
        changed: Tensor = self.processors(True, logits.device)(ids[None], logits[None].float())[0]
        return changed

    def named(self) -> dict[str, Any]:
        """The settings that change anything, by name."""
        return {name: value for name, value in vars(self).items() if value != getattr(BARE, name)}


class Ruled:
    """The rows of a batch whose logits one `Generation` changes, and the tokens that each of them has had."""

    def __init__(
        self, generation: Generation, rows: Sequence[int], had: Sequence[Int[Tensor, " n"]], room: int
    ) -> None:
        """Note the rows' places in the batch and, of each, the tokens of its prompt and those fed; `room` more fit."""
        device = had[0].device
        self.rows = torch.tensor(rows, device=device)
        self.processors = generation.processors(False, device)
        # Places without a token yet repeat one that the row has had anyway: how often it was makes no difference.
        self.had = torch.stack([row[:1].expand(max(map(len, had)) + room) for row in had])
        for place, row in enumerate(had):
            self.had[place, : len(row)] = row

    def change(
        self,
        tokens: Int[Tensor, "rows 1"],
        positions: Int[Tensor, "rows 1"],
        logits: Float[Tensor, "rows V"],
        best: Int[Tensor, " rows"],
    ) -> tuple[Float[Tensor, "rows V"], Int[Tensor, " rows"]]:
        """The logits after `tokens` were fed at `positions` and the most probable next token, changed for these rows.

        As in `generate`, what is changed is computed in float32. Waits for nothing on the device.
        """
        self.had.scatter_(1, positions[self.rows], tokens[self.rows])
        changed = self.processors(self.had, logits[self.rows].float())
        whole = logits.to(torch.promote_types(logits.dtype, torch.float32))
        return (
            whole.index_copy(0, self.rows, changed.to(whole.dtype)),
            best.index_copy(0, self.rows, changed.argmax(dim=-1)),
        )


def acts(name: str, value: Any) -> bool:
    return value is not None and value is not False and value not in ([], {}, *_NEUTRAL.get(name, ()))


def _penalty(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < float("inf"):
        raise UsageError(_wrong(name, value, "a number above 0"))
    return float(value)


def _tokens(name: str, value: Any) -> tuple[int, ...]:
    ids = tuple(value) if isinstance(value, list | tuple) else (None,)
    if not all(type(token) is int for token in ids):
        raise UsageError(_wrong(name, value, "a list of token ids"))
    return ids


def _count(name: str, value: Any) -> int:
    if type(value) is not int or value < 0:
        raise UsageError(_wrong(name, value, "a whole number of tokens"))
    return value


def _wrong(name: str, value: Any, words: str) -> str:
    return (
        f"the checkpoint's generation settings name {name}={value!r}; it must be {words}: correct "
        "generation_config.json, or decode without it by preset.generation=bare"
    )


_APPLIED = {
    "repetition_penalty": _penalty,
    "suppress_tokens": _tokens,
    "begin_suppress_tokens": _tokens,
    "min_length": _count,
    "min_new_tokens": _count,
}
BARE = Generation()
