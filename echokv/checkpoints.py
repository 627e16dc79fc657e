"""What a checkpoint's files are and say before its weights are read, and what is refused because of it.

Nothing of torch or transformers is imported here: a model that cannot work is told of at once.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from echokv.errors import UsageError

INDEX = "model.safetensors.index.json"
# What transformers reads of a folder besides weights and configuration; a folder has some of them.
TOKENIZER = (
    "tokenizer.json",
    "tokenizer.model",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "vocab.txt",
    "merges.txt",
    "spiece.model",
    "sentencepiece.bpe.model",
    "tekken.json",
    "tiktoken.model",
    "chat_template.jinja",
    "chat_template.json",
    "additional_chat_templates/*.jinja",
)


@dataclass(frozen=True)
class Checkpoint:
    """The files that loading a folder, or a GGUF file, would read; no others that lie beside them.

    config: None for a GGUF file, which holds its own.
    """

    weights: tuple[Path, ...]
    config: Path | None
    tokenizer: tuple[Path, ...]
    generation: Path | None

    @classmethod
    def at(cls, place: Path) -> "Checkpoint":
        """Raises UsageError for a folder that lacks config.json, safetensors or a shard that its index names."""
        folder = place if place.is_dir() else place.parent
        tokenizer = tuple(path for name in TOKENIZER for path in sorted(folder.glob(name)))
        generation = next(folder.glob("generation_config.json"), None)
        if not place.is_dir():
            return cls((place,), None, tokenizer, generation)
        if not (folder / "config.json").is_file():
            hint = "; it holds an adapter: merge it into its model first" if _is_adapter(folder) else ""
            raise UsageError(f"cannot load a model from {place}: it has no config.json{hint}")
        return cls(_weights(folder), folder / "config.json", tokenizer, generation)


def _weights(folder: Path) -> tuple[Path, ...]:
    """One file, or the shards that an index names: transformers looks for them in this order."""
    if (folder / "model.safetensors").is_file():
        return (folder / "model.safetensors",)
    if not (folder / INDEX).is_file():
        raise UsageError(
            f"cannot load a model from {folder}: it has no model.safetensors; other formats of weights are not read"
        )
    named = read_json(folder / INDEX).get("weight_map")
    if not isinstance(named, dict) or not named or not all(isinstance(name, str) for name in named.values()):
        raise UsageError(f"{folder / INDEX} names no files: copy it again")
    shards = tuple(folder / name for name in sorted(set(named.values())))
    if lacking := [shard.name for shard in shards if not shard.is_file()]:
        raise UsageError(f"cannot load a model from {folder}: {lacking[0]}, which {INDEX} names, is missing")
    return shards


def _is_adapter(folder: Path) -> bool:
    return (folder / "adapter_config.json").is_file()


def read_json(path: Path) -> dict[str, Any]:
    """A file's JSON object. Raises UsageError for anything else."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(
            f"{path} is not readable JSON ({' '.join(str(error).split())[:100]}): copy it again"
        ) from error
    if not isinstance(content, dict):
        raise UsageError(f"{path} holds no JSON object: copy it again")
    return content


def refuse_incomplete(name: str, found: Mapping[str, Any]) -> None:
    """Raise UsageError for weights that are not those of the configured model, naming the first of them.

    found: transformers' loading info. Weights that a file lacks would be drawn at random. A tied output matrix is
        not among them.
    """
    lacking, extra = sorted(found["missing_keys"]), sorted(found["unexpected_keys"])
    other = sorted(found["mismatched_keys"])
    said = [
        *([f"lacks {_first(lacking)}"] if lacking else []),
        *([f"has {_first(extra)}, which the model has no place for"] if extra else []),
        *([f"has {_first([_shapes(*one) for one in other])}"] if other else []),
    ]
    if said:
        raise UsageError(
            f"{name}: the weights are not those of config.json's model; the checkpoint {', and '.join(said)}"
        )


def _shapes(key: str, stored: Any, wanted: Any) -> str:
    return f"{key} of shape {'x'.join(map(str, stored))} instead of {'x'.join(map(str, wanted))}"


def _first(keys: list[str]) -> str:
    return ", ".join(keys[:2]) + (f" and {len(keys) - 2} more" if len(keys) > 2 else "")


def refuse_quantized(name: str, config: Mapping[str, Any], known: Iterable[str]) -> None:
    """Raise UsageError for a kind of quantisation that transformers would pass over, and so read codes as weights."""
    about = config.get("quantization_config")
    if about is None:
        return
    about = about if isinstance(about, Mapping) else {}
    # Files of bitsandbytes may name no method.
    method = about.get("quant_method") or next((key for key in about if key.startswith("load_in_")), None)
    if method not in {*known, "bitsandbytes", "load_in_8bit", "load_in_4bit"}:
        raise UsageError(f"{name} is quantised by {method!r}, which transformers does not read: use another checkpoint")


def refuse_tokenizer(name: str, tokenizer: Any, vocabulary: int, ends: Iterable[int | None]) -> None:
    """Raise UsageError for a tokenizer that makes ids beyond the embedding, or that puts tokens behind the text.

    vocabulary: rows of the embedding. ends: end-of-text ids that the checkpoint names.
    """
    beyond = sorted((token, text) for text, token in tokenizer.get_vocab().items() if token >= vocabulary)
    if beyond:
        token, text = beyond[0]
        raise UsageError(
            f"{name}: the tokenizer makes id {token} ({text!r}), but the model embeds {vocabulary} tokens: "
            "take the tokenizer that belongs to it"
        )
    for end in ends:
        if end is not None and not 0 <= end < vocabulary:
            raise UsageError(
                f"{name}: the end-of-text id is {end}, but the model embeds {vocabulary} tokens: "
                "correct eos_token_id in config.json and generation_config.json"
            )
    front, behind = added(tokenizer)
    if behind:
        raise UsageError(
            f"{name}: the tokenizer puts {tokenizer.decode(behind)!r} behind every text, so a prompt would be over "
            "before its answer: set add_eos_token to false in tokenizer_config.json, or correct the post_processor in "
            "tokenizer.json"
        )
    if front not in ([], [tokenizer.bos_token_id]):
        raise UsageError(
            f"{name}: the tokenizer puts {tokenizer.decode(front)!r} in front of every text; at most the "
            f"begin-of-text token is known there ({tokenizer.bos_token!r})"
        )


def added(tokenizer: Any) -> tuple[list[int], list[int]]:
    """The ids that a tokenizer puts before and behind a text."""
    text = "a"
    whole, bare = (tokenizer(text, add_special_tokens=add, verbose=False)["input_ids"] for add in (True, False))
    for start in range(len(whole) - len(bare) + 1):
        if whole[start : start + len(bare)] == bare:
            return whole[:start], whole[start + len(bare) :]
    return whole, []
