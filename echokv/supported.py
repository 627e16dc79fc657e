"""Which models work here, by their config.json, and what is refused by name.

Nothing of torch or transformers is imported here: a model that cannot work is told of at once.
"""

from collections.abc import Mapping
from typing import Any

from echokv.errors import UsageError

# config.json's model_type: those held against transformers' own answers and the twin (tests/test_models.py).
KINDS = (
    "llama", "mistral", "qwen2", "qwen3", "qwen3_moe", "mixtral", "phi3", "gemma3_text", "olmo", "olmo2", "olmo3",
    "smollm3", "granite",
)  # fmt: skip
_TURNS = "its RoPE turns neighbouring pairs, where half a head apart is known"
REFUSED = {
    "gpt_oss": "its attention has sinks of its own, which are not computed here",
    "gemma2": "its attention logits are softcapped, which is not computed here",
    "gemma3": "it holds a vision model; use a text checkpoint, of type gemma3_text",
    "cohere": _TURNS,
    "cohere2": _TURNS,
    "glm": _TURNS,
    "glm4": _TURNS,
    "stablelm": "its layers do not pass on what the model is called with, so that its attention cannot be reached",
    "llama4_text": "its layers attend in chunks, and queries of layers without RoPE are scaled by their positions",
    "deepseek_v2": "its attention stores latent vectors instead of keys and values",
    "deepseek_v3": "its attention stores latent vectors instead of keys and values",
}
_MIXES = ("sliding_window_pattern", "max_window_layers")  # what tells which layers slide, where layer_types is missing


def refuse_unsupported(config: Mapping[str, Any]) -> None:
    """Raise UsageError for a model that eviction is not defined for, or whose own sizes contradict each other.

    config: what config.json holds, or a loaded configuration's `to_dict()`.
    """
    kind = config.get("model_type")
    if kind in REFUSED:
        raise UsageError(f"model type '{kind}' is not supported: {REFUSED[kind]}")
    if kind not in KINDS:
        raise UsageError(f"model type '{kind}' is not supported: it is none of those tried, {', '.join(KINDS)}")
    if config.get("attn_logit_softcapping") is not None:
        raise UsageError("this model's attention logits are softcapped, which is not computed here: use another model")
    if config.get("use_bidirectional_attention"):
        raise UsageError("this model's tokens see those behind them too: eviction is of causal models; use another")
    _refuse_layers(config)
    _refuse_heads(config)
    _refuse_rope(config)


def _refuse_layers(config: Mapping[str, Any]) -> None:
    """Raise UsageError for layers of an unknown kind, and where no layer has full attention."""
    kinds = set(config.get("layer_types") or [])
    if other := kinds - {"full_attention", "sliding_attention"}:
        raise UsageError(
            f"this model has {', '.join(sorted(map(str, other)))} layers; known are full_attention layers, which are "
            "evicted from, and sliding_attention layers, which drop keys themselves: use another model"
        )
    # Qwen's files name the window that they do not use; Mistral's and Phi's have one for all layers or none.
    window = config.get("sliding_window") if config.get("use_sliding_window", True) else None
    bounded = isinstance(window, int) and window < config.get("max_position_embeddings", window + 1)
    mixed = kinds - {"sliding_attention"} or (not kinds and any(config.get(name) is not None for name in _MIXES))
    if bounded and not mixed:
        raise UsageError(
            f"all layers of this model have a sliding window of {window} tokens and drop keys themselves, so that "
            "nothing is left to evict: use a checkpoint with full_attention layers"
        )


def _refuse_heads(config: Mapping[str, Any]) -> None:
    heads, hidden = config.get("num_attention_heads"), config.get("hidden_size")
    groups, dim = config.get("num_key_value_heads") or heads, config.get("head_dim")
    if not isinstance(heads, int) or not isinstance(groups, int) or not isinstance(hidden, int):
        return  # left to the model's own defaults
    if heads < 1 or groups < 1 or heads % groups:
        raise UsageError(f"config.json has {heads} query heads for {groups} KV heads: each KV head takes equally many")
    if dim is None and hidden % heads:
        raise UsageError(f"config.json divides a hidden size of {hidden} among {heads} heads: that leaves a rest")
    if isinstance(dim, int) and (dim < 2 or dim % 2):
        raise UsageError(f"config.json has heads of size {dim}: rotary positions turn pairs, so it must be even")


def _refuse_rope(config: Mapping[str, Any]) -> None:
    """Raise UsageError for a RoPE of which one long row of a batch changes the frequencies of all."""
    known = [config.get(name) for name in ("rope_parameters", "rope_scaling")]
    own = [one for one in known if isinstance(one, Mapping)]
    own += [one for some in own for one in some.values() if isinstance(one, Mapping)]  # by kind of layer
    if any(one.get("rope_type", one.get("type")) in ("longrope", "su") for one in own):
        raise UsageError(
            "this model's RoPE is 'longrope', whose frequencies depend on the longest sequence that is fed: rows could "
            "not be decoded together; use a checkpoint with another rope_type"
        )
