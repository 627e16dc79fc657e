"""What `compress` and its results refuse: one line each, saying what to pass instead."""

from collections.abc import Sequence
from typing import Any

from echokv.codecs import Codec
from echokv.errors import UsageError
from echokv.prefilling import Prefill
from echokv.press import Press
from echokv.shapes import Shape


def check_arguments(model: Any, press: Any, budget: Any) -> None:
    """Raise UsageError unless there are a loaded model, a press and a budget that it can keep."""
    if not hasattr(model, "generation_config") or not hasattr(model, "config"):
        raise UsageError(
            f"a {type(model).__name__} is given as the model: pass a loaded transformers model, "
            "model, tokenizer = echokv.load_model(name)"
        )
    if isinstance(press, type) or not callable(getattr(press, "select", None)):
        found = press.__name__ if isinstance(press, type) else type(press).__name__
        raise UsageError(f"{found} is given as the press: pass a policy with its settings, such as echokv.EchoKV()")
    if press.takes_budget and type(budget) is not int:
        raise UsageError(f"budget is {budget!r}: say how many tokens each KV head keeps, such as budget=256")
    press.check(budget)
    press.check_model(Shape.of(model.config.to_dict()))


def check_cache(model: Any, cache: Any) -> None:
    """Raise UsageError for anything but a codec that can store what this model computes, or None."""
    if cache is not None and not isinstance(cache, Codec):
        raise UsageError(
            f"cache is {cache!r}: pass how what is kept is stored, such as echokv.Kivi(bits=4), or nothing to store it "
            "as it is"
        )
    if cache is not None:
        cache.check_model(Shape.of(model.config.to_dict()))


def check_place(model: Any, prefill: Prefill) -> None:
    """Raise UsageError if the model is no longer where, or what, it was at the prefill."""
    before = f"{prefill.keys[0].dtype} on {prefill.logits.device}"
    now = f"{model.dtype} on {model.get_output_embeddings().weight.device}"
    if now != before:
        raise UsageError(
            f"the prompt was compressed with the model in {before}, which is now in {now}: compress again after it"
        )


def check_every(every: Any, press: Press, budget: int | None, cache: Codec | None) -> None:
    """Raise UsageError for an interval of evictions that leaves the press less than its least budget, or with a codec.

    A codec would round the same entries again every few tokens, until nothing is left of them.
    """
    if every is None:
        return
    if cache is not None:
        raise UsageError(
            f"evict_every is given for a cache of {cache.label}, whose codes every eviction would round again: leave "
            "out evict_every, or cache"
        )
    if budget is None:
        raise UsageError(f"evict_every is given, and {type(press).__name__} evicts nothing: leave it out")
    most = budget - press.least_budget
    if type(every) is not int or not 1 <= every <= most:
        raise UsageError(f"evict_every is {every!r}; at budget {budget} {type(press).__name__} takes 1 to {most}")


def seeds_of(seed: int | Sequence[int] | None, count: int, sample: bool) -> list[int | None]:
    """A seed for each row, or none. Raises UsageError for another number of them."""
    if seed is None or not sample:
        return [None] * count
    seeds = [seed] if isinstance(seed, int) else list(seed)
    if len(seeds) != count or not all(type(one) is int for one in seeds):
        raise UsageError(f"seed={seed!r} is given for {count} prompts: give one for each, seed={list(range(count))}")
    return list(seeds)


def check_streamer(streamer: Any, count: int) -> None:
    """Raise UsageError for a streamer of several rows, or what is none."""
    if streamer is None:
        return
    if not (hasattr(streamer, "put") and hasattr(streamer, "end")):
        raise UsageError(f"a {type(streamer).__name__} is given as the streamer: pass one of transformers' streamers")
    if count != 1:
        raise UsageError(f"a streamer is given for {count} rows: it takes one; compress one prompt for it")
