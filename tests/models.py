"""Tiny models with random weights, in float64, for tests that compare the library with the naive twin.

Every model is a fixed function of its name: 3 layers, hidden size 64, 8 query heads of 16, 2 KV heads, 128
token ids, weights large enough that attention is far from uniform. No test may leave a cached one changed.
"""

from collections.abc import Callable
from functools import cache
from typing import Any
from zlib import crc32

import torch
from torch import Tensor, nn
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    PreTrainedModel,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

VOCAB = 128
ARCHITECTURES = ("llama", "mistral", "qwen2", "qwen3")
YARN = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 512}
LLAMA3 = {
    "rope_type": "llama3", "rope_theta": 10000.0, "factor": 8.0, "original_max_position_embeddings": 256,
    "low_freq_factor": 1.0, "high_freq_factor": 4.0,
}  # fmt: skip
# name: configuration class, model class, what differs from the common shape
KINDS: dict[str, tuple[Callable[..., Any], Callable[..., Any], dict[str, Any]]] = {
    "llama": (LlamaConfig, LlamaForCausalLM, {}),
    "mistral": (MistralConfig, MistralForCausalLM, {"sliding_window": None}),
    "qwen2": (Qwen2Config, Qwen2ForCausalLM, {}),
    "qwen3": (Qwen3Config, Qwen3ForCausalLM, {}),
    "ungrouped": (LlamaConfig, LlamaForCausalLM, {"num_key_value_heads": 8}),
    "yarn": (LlamaConfig, LlamaForCausalLM, {"rope_parameters": YARN}),
    "llama3": (LlamaConfig, LlamaForCausalLM, {"rope_parameters": LLAMA3}),
    "layers32": (LlamaConfig, LlamaForCausalLM, {"num_hidden_layers": 32, "hidden_size": 16, "head_dim": 2}),
    "layers28": (LlamaConfig, LlamaForCausalLM, {"num_hidden_layers": 28, "hidden_size": 16, "head_dim": 2}),
    "layers1": (LlamaConfig, LlamaForCausalLM, {"num_hidden_layers": 1}),
}


class Float64Norm(nn.Module):
    """RMS norm without the float32 detour of transformers.

    The detour rounds at 6e-8, so two correct float64 computations could differ by that much; without it they
    agree to 1e-12, and a comparison at 1e-9 means something.
    """

    def __init__(self, weight: Tensor, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight)
        self.eps = eps

    def forward(self, hidden: Tensor) -> Tensor:
        return self.weight * hidden * torch.rsqrt(hidden.pow(2).mean(-1, keepdim=True) + self.eps)


def build(name: str) -> PreTrainedModel:
    """A fresh model of the kind `name`, for tests that change its weights."""
    configuration, model_class, changes = KINDS[name]
    shape = {
        "vocab_size": VOCAB, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3,
        "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 16, "max_position_embeddings": 2048,
        "bos_token_id": None, "eos_token_id": None, "pad_token_id": None,
    }  # fmt: skip
    model: PreTrainedModel = model_class(configuration(**{**shape, **changes})).double().eval()
    randomise(model, seed=crc32(name.encode()))
    swap_norms(model)
    return model.requires_grad_(False)


def randomise(model: PreTrainedModel, seed: int) -> None:
    """Draw all weights anew: matrices N(0, 0.2), biases N(0, 0.5), norms in [0.5, 2]."""
    generator = torch.Generator().manual_seed(seed)
    for name, weight in model.named_parameters():
        if weight.ndim > 1:
            weight.data.normal_(0.0, 0.2, generator=generator)
        elif name.endswith("bias"):
            weight.data.normal_(0.0, 0.5, generator=generator)
        else:
            low, high = (1.0, 3.0) if "q_norm" in name or "k_norm" in name else (0.5, 2.0)
            weight.data.uniform_(low, high, generator=generator)


def swap_norms(model: PreTrainedModel) -> None:
    """Put a `Float64Norm` in the place of each RMS norm."""
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if type(child).__name__.endswith("RMSNorm"):
                setattr(parent, name, Float64Norm(child.weight.data, child.variance_epsilon))


@cache
def tiny(name: str) -> PreTrainedModel:
    """The shared model of the kind `name`; do not change it."""
    return build(name)


@cache
def counting() -> PreTrainedModel:
    """A model that answers every token id with the next one, so a test can say when a stop id is produced.

    Long embeddings keep the residual stream near the token's own embedding whatever attention adds; the
    output matrix reads it back one place further.
    """
    model = build("llama")
    embedding = model.get_input_embeddings().weight.data.mul_(100.0)
    model.get_output_embeddings().weight.data.copy_(embedding.roll(1, 0))
    return model


@cache
def prompt(length: int, seed: int = 0) -> tuple[int, ...]:
    """Random token ids."""
    generator = torch.Generator().manual_seed(1000 * seed + length)
    return tuple(torch.randint(0, VOCAB, (length,), generator=generator).tolist())
