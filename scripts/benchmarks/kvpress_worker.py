"""Answers one prompt after the other with NVIDIA's kvpress, for against_kvpress.py beside it.

Runs in kvpress's own environment and imports nothing of this repository. JSON, one object a line: in comes the model
once, then one cell at a time; out goes one reply to each. Seconds are those of prefill, compression and decoding.
A cell without a number of tokens is answered with the positions that are kept.
"""

from __future__ import annotations

import ctypes
import json
import os
import platform
import sys
import time
from importlib.metadata import version
from typing import Any

import kvpress
import torch
from transformers import AutoModelForCausalLM, DynamicCache


def main() -> None:
    """Serve requests from standard input until it ends."""
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print must not come between the replies
    requests = map(json.loads, sys.stdin)
    model = load(next(requests))
    reply(replies, {name: version(name) for name in ("kvpress", "torch", "transformers")})
    for request in requests:
        reply(replies, (answer if "tokens" in request else kept)(model, **request))


def load(request: dict[str, Any]) -> Any:
    """The model in evaluation mode; `threads` is the number the other side computes with."""
    torch.set_num_threads(request["threads"])
    model = AutoModelForCausalLM.from_pretrained(
        request["model"], dtype=getattr(torch, request["dtype"]), attn_implementation=request["attention"]
    )
    return model.to(request["device"]).eval()


def reply(out: Any, content: dict[str, Any]) -> None:
    print(json.dumps(content), file=out, flush=True)


@torch.no_grad()
def answer(model: Any, press: str, settings: dict[str, Any], ids: list[int], tokens: int) -> dict[str, Any]:
    """Answer greedily with as many tokens as asked for: seconds, tokens, and the entries each layer kept."""
    prompt, length = torch.tensor([ids], device=model.device), len(ids)
    compress = getattr(kvpress, press)(**settings)
    cache = DynamicCache()
    trim()
    begun = now(model)
    with compress(model):
        logits = model(input_ids=prompt, past_key_values=cache, logits_to_keep=1).logits
    kept = [layer.keys.shape[1] * layer.keys.shape[2] for layer in cache.layers]
    found = [int(logits[0, -1].argmax())]
    for position in range(length, length + tokens - 1):
        logits = model(
            input_ids=torch.tensor([found[-1:]], device=model.device),
            past_key_values=cache,
            position_ids=torch.tensor([[position]], device=model.device),
        ).logits
        found.append(int(logits[0, -1].argmax()))
    return {"seconds": now(model) - begun, "tokens": found, "kept": kept}


@torch.no_grad()
def kept(model: Any, press: str, settings: dict[str, Any], ids: list[int], inner: str | None = None) -> dict[str, Any]:
    """Which positions each layer and KV head keeps: where the compressed cache's keys stand in the full one.

    inner: the press that `press` wraps, which then takes the settings of its own name in `settings["press"]`.
    """
    if inner is not None:
        settings = {**settings, "press": getattr(kvpress, inner)(**settings["press"])}
    prompt = torch.tensor([ids], device=model.device)
    compress, whole, cut = getattr(kvpress, press)(**settings), DynamicCache(), DynamicCache()
    model(input_ids=prompt, past_key_values=whole, logits_to_keep=1)
    with compress(model):
        model(input_ids=prompt, past_key_values=cut, logits_to_keep=1)
    layers = []
    for number, (full, short) in enumerate(zip(whole.layers, cut.layers, strict=True)):
        masked = getattr(model.model.layers[number].self_attn, "masked_key_indices", None)
        if masked is not None:  # this press hides keys instead of dropping them
            _, heads, places = masked
            gone = [set(places[heads == head].tolist()) for head in range(full.keys.shape[1])]
            layers.append([[i for i in range(len(ids)) if i not in own] for own in gone])
        else:
            pairs = zip(full.keys[0], short.keys[0], strict=True)
            layers.append(
                [(some[:, None] == every).all(-1).int().argmax(1).sort()[0].tolist() for every, some in pairs]
            )
    return {"kept": layers}


def trim() -> None:
    """Give freed memory back to the system, as the other side does before each answer."""
    if platform.system() == "Linux":
        ctypes.CDLL("libc.so.6").malloc_trim(0)


def now(model: Any) -> float:
    """Seconds of a clock, once the device has done what it was given."""
    if model.device.type == "cuda":
        torch.cuda.synchronize(model.device)
    return time.perf_counter()


if __name__ == "__main__":
    main()
