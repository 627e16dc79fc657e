"""Tiny models with random weights of further architectures, in float64: what sets their attention apart is in them."""

from functools import cache
from typing import Any
from zlib import crc32

import torch
from transformers import (
    AutoModelForCausalLM,
    Gemma3TextConfig,
    GraniteConfig,
    MixtralConfig,
    Olmo2Config,
    Olmo3Config,
    OlmoConfig,
    Phi3Config,
    Qwen2Config,
    Qwen3MoeConfig,
    SmolLM3Config,
)

from tests.models import VOCAB, randomise

WINDOW = 24
SHAPE = {
    "vocab_size": VOCAB, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 4, "num_attention_heads": 8,
    "num_key_value_heads": 2, "max_position_embeddings": 2048, "bos_token_id": None, "eos_token_id": None,
    "pad_token_id": 0,
}  # fmt: skip
SLIDING = {"use_sliding_window": True, "sliding_window": WINDOW}
MIXED = ["sliding_attention", "full_attention", "sliding_attention", "full_attention"]
EXPERTS = {"num_experts_per_tok": 2, "head_dim": 16, "experts_implementation": "eager"}  # others lack float64
YARN = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 512}
NEAR = {"rope_type": "default", "rope_theta": 100.0}
# name: configuration class, what differs from the common shape
FAMILIES: dict[str, tuple[Any, dict[str, Any]]] = {
    "qwen3_moe": (Qwen3MoeConfig, {**EXPERTS, "num_experts": 4, "moe_intermediate_size": 32}),
    "mixtral": (MixtralConfig, {**EXPERTS, "num_local_experts": 4, "sliding_window": None}),
    "phi3": (Phi3Config, {"sliding_window": None}),
    "phi3_partial": (Phi3Config, {"sliding_window": None, "partial_rotary_factor": 0.75, "hidden_size": 128}),
    "olmo": (OlmoConfig, {"clip_qkv": 2.0}),
    "olmo2": (Olmo2Config, {}),
    "granite": (GraniteConfig, {"attention_multiplier": 0.7}),
    "smollm3": (SmolLM3Config, {"no_rope_layer_interval": 2}),
    "gemma3": (
        Gemma3TextConfig,
        {
            "head_dim": 16, "sliding_window": WINDOW, "query_pre_attn_scalar": 11, "layer_types": MIXED,
            "rope_parameters": {"full_attention": YARN, "sliding_attention": NEAR},
        },
    ),
    "olmo3": (Olmo3Config, {"sliding_window": WINDOW, "layer_types": MIXED}),
    "smollm3_sliding": (SmolLM3Config, {**SLIDING, "no_rope_layer_interval": 2}),
    "qwen2_sliding": (Qwen2Config, {**SLIDING, "max_window_layers": 2}),
}  # fmt: skip
SLIDE = ("gemma3", "olmo3", "smollm3_sliding", "qwen2_sliding")  # two of their four layers


@cache
def family(name: str) -> Any:
    """The shared model of that name; do not change it."""
    kind, changes = FAMILIES[name]
    changes = dict(changes)
    experts = changes.pop("experts_implementation", None)
    config = kind(**{**SHAPE, **changes})
    if experts:
        config._experts_implementation = experts
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config).double().eval()
    randomise(model, seed=crc32(name.encode()))
    return model.requires_grad_(False)
