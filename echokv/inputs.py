"""Prompts in the forms that people have them in, as token ids."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from echokv.errors import UsageError

KINDS = (
    "pass token ids, what a tokenizer or apply_chat_template returns, or, with a tokenizer, text or messages "
    "({'role': ..., 'content': ...}); one prompt or a list of them"
)
_MARK = "\ue000answer\ue000"  # of an answer, to see what a chat template puts behind it


def prompts(inputs: Any, tokenizer: Any = None, pad: int | None = None) -> list[Int[Tensor, " L"]]:
    """One tensor of token ids a prompt, without padding.

    inputs: see `KINDS`. Padded rows come with their attention mask.
    pad: the id by which rows that come without one are seen to be padded.

    Raises UsageError for anything else.
    """
    if isinstance(inputs, Mapping) and "role" not in inputs:
        return _encoded(inputs, pad)
    if isinstance(inputs, Tensor):
        return _rows(inputs, pad)
    if isinstance(inputs, str):
        return [_ids_of(_text(inputs, tokenizer))]
    if hasattr(inputs, "__array__"):
        return _rows(torch.as_tensor(inputs), pad)
    if isinstance(inputs, Sequence) and len(inputs):
        if all(type(one) is int for one in inputs):
            return [torch.tensor(inputs)]
        if _messages(inputs):
            return [_ids_of(_chat(inputs, tokenizer))]
        return [prompt for one in inputs for prompt in _one(one, tokenizer, pad)]
    if isinstance(inputs, Sequence):
        raise UsageError("an empty list is given as the prompt: it must have at least one token")
    raise UsageError(f"a {type(inputs).__name__} is given as the prompt: {KINDS}")


def turns(inputs: Any, tokenizer: Any = None, pad: int | None = None) -> list[Int[Tensor, " n"]]:
    """The same for what follows something: no begin-of-text token, and of messages what follows an answer."""
    if isinstance(inputs, str):
        return [_ids_of(_text(inputs, tokenizer, more=True))]
    if isinstance(inputs, list | tuple):
        if _messages(inputs):
            return [_ids_of(_chat(inputs, tokenizer, more=True))]
        if any(isinstance(one, str) or _messages(one) for one in inputs):
            return [turn for one in inputs for turn in turns(one, tokenizer, pad)]
    return prompts(inputs, tokenizer, pad)


def _one(inputs: Any, tokenizer: Any, pad: int | None) -> list[Tensor]:
    found = prompts(inputs, tokenizer, pad)
    if len(found) != 1:
        raise UsageError(f"a list of prompts holds one that is {len(found)} prompts itself: give each by itself")
    return found


def _messages(inputs: Any) -> bool:
    return (
        isinstance(inputs, list | tuple)
        and bool(inputs)
        and all(isinstance(one, Mapping) and "role" in one for one in inputs)
    )


def _encoded(inputs: Mapping[str, Any], pad: int | None) -> list[Tensor]:
    """What a tokenizer returned, be it tensors or lists."""
    if "input_ids" not in inputs:
        raise UsageError(f"a mapping with {', '.join(map(str, inputs)) or 'nothing'} is given as the prompt: {KINDS}")
    other = sorted({str(key) for key in inputs} - {"input_ids", "attention_mask", "token_type_ids"})
    if other:
        raise UsageError(f"the prompt comes with {', '.join(other)}, of which a text model has no use: pass input_ids")
    ids, mask = inputs["input_ids"], inputs.get("attention_mask")
    flat = not isinstance(ids, Tensor) and all(type(one) is int for one in ids)
    rows = [ids] if flat else ids
    if mask is None:
        return _rows(rows, pad) if isinstance(rows, Tensor) else [_whole(torch.tensor(row)) for row in rows]
    masks: Any = [mask] if flat else mask
    if isinstance(rows, Tensor) and rows.dim() == 1:
        rows, masks = rows[None], masks[None]
    if len(rows) != len(masks):
        raise UsageError(f"{len(rows)} prompts come with {len(masks)} attention masks: they must be as many")
    pairs = zip(rows, masks, strict=True)
    return [_unpadded(torch.as_tensor(row), torch.as_tensor(used)) for row, used in pairs]


def _unpadded(ids: Tensor, mask: Tensor) -> Tensor:
    places = mask.nonzero()[:, 0].to(ids.device)
    if ids.shape != mask.shape or not torch.equal(mask.bool(), mask == 1):
        raise UsageError("an attention mask must have a 1 or a 0 for each token: pass the tokenizer's own")
    if len(places) and int(places[-1] - places[0]) + 1 != len(places):
        raise UsageError("an attention mask leaves out tokens amid a prompt: only padding at its ends is known here")
    return _whole(ids[places])


def _rows(ids: Tensor, pad: int | None) -> list[Tensor]:
    if ids.dim() not in (1, 2):
        raise UsageError(f"ids of shape {list(ids.shape)} are given: they must be [tokens] or [prompts, tokens]")
    rows = list(_whole(ids if ids.dim() == 2 else ids[None]))
    if len(rows) > 1 and ids.numel() and pad is not None and (ids[:, [0, -1]] == pad).any():
        raise UsageError(
            "several prompts are given as one tensor, some with padding at an end and no attention mask: pass all that "
            "the tokenizer returned, or a list with the ids of each"
        )
    return rows


def _whole(ids: Tensor) -> Tensor:
    if ids.is_floating_point() or ids.is_complex() or ids.dtype == torch.bool:
        if ids.numel():
            raise UsageError(f"ids of {ids.dtype} are given: token ids are whole numbers")
        return ids.long()
    return ids


def _text(text: str, tokenizer: Any, more: bool = False) -> Any:
    if tokenizer is None:
        raise UsageError(f"the text {text[:40]!r} is given without a tokenizer: pass tokenizer=, or tokenizer(text)")
    begun = more or (tokenizer.bos_token is not None and text.startswith(tokenizer.bos_token))
    return tokenizer(text, add_special_tokens=not begun, verbose=False)


def _chat(messages: Sequence[Mapping[str, Any]], tokenizer: Any, more: bool = False) -> Any:
    if tokenizer is None:
        raise UsageError("messages are given without a tokenizer: pass tokenizer=, whose chat template they go into")
    if not getattr(tokenizer, "chat_template", None):
        raise UsageError("messages are given, but the tokenizer has no chat template: pass text or token ids")
    before = [{"role": "user", "content": _MARK}, {"role": "assistant", "content": _MARK}] if more else []
    try:
        text = tokenizer.apply_chat_template([*before, *messages], tokenize=False, add_generation_prompt=True)
    except Exception as error:  # a template is a program of the checkpoint's, and may raise anything
        raise UsageError(f"the chat template refuses these messages: {' '.join(str(error).split())[:160]}") from error
    return tokenizer(text.rpartition(_MARK)[2] if more else text, add_special_tokens=False, verbose=False)


def _ids_of(encoded: Any) -> Tensor:
    return torch.tensor(encoded["input_ids"], dtype=torch.long)
