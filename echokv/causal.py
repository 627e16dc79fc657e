"""Complete causal attention over a prompt, by a kernel that has a name.

Kernels round differently in half precision, so which one ran belongs to an answer. `scaled_dot_product_attention`
left to itself takes another one with each version of torch and each GPU: on compute capability 9.0 cuDNN's, which
builds a plan for every length that it has not seen. Here the order is fixed: flash attention, the memory-efficient
kernel, plain products; cuDNN's never.
"""

from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor
from torch.backends.cuda import SDPAParams, can_use_efficient_attention, can_use_flash_attention
from torch.nn.attention import SDPBackend, sdpa_kernel

from echokv.sliding import band, masked

BACKENDS = {
    "flash": SDPBackend.FLASH_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
    "math": SDPBackend.MATH,
}
FLASH_ATTN = "flash_attention_2"  # transformers' word for the package flash-attn


def causal_attention(
    query: Float[Tensor, "1 H L D"],
    key: Float[Tensor, "1 G L D"],
    value: Float[Tensor, "1 G L D"],
    scaling: float,
    implementation: str = "sdpa",
    window: int | None = None,
) -> Float[Tensor, "1 L H D"]:
    """Attention of every token to itself and those before it.

    implementation: "flash_attention_2" for the package flash-attn, which must be installed; torch's kernels otherwise.
    window: how many tokens each sees, itself included; None is all. Torch's kernels take a window as a mask: of a
        window's length of queries at a time, so that no mask is of L x L.
    """
    length = query.shape[2]
    if window is not None and window < length and implementation != FLASH_ATTN:
        return torch.cat([_windowed(query, key, value, scaling, window, n) for n in range(0, length, window)], dim=1)
    if implementation == FLASH_ATTN:
        from flash_attn import flash_attn_func  # type: ignore[import-not-found]

        rows = (part.transpose(1, 2) for part in (query, key, value))
        back = -1 if window is None else window - 1
        out: Tensor = flash_attn_func(*rows, softmax_scale=scaling, causal=True, window_size=(back, 0))
        return out
    if not query.is_cuda:
        return _torch(query, key, value, scaling)
    name = _on_cuda(query, key, value)
    if name != "flash":  # of the others only those of L x L logits take several query heads for a KV head
        shared = query.shape[1] // key.shape[1]
        key, value = key.repeat_interleave(shared, 1), value.repeat_interleave(shared, 1)
    with sdpa_kernel(BACKENDS[name]):
        return _torch(query, key, value, scaling)


def normalized_attention(
    query: Float[Tensor, "1 H L D"],
    key: Float[Tensor, "1 G L D"],
    value: Float[Tensor, "1 G L D"],
    scaling: float,
    implementation: str = "sdpa",
) -> tuple[Float[Tensor, "1 L H D"], Float[Tensor, "H L"] | None]:
    """The same attention, bit for bit, and the log-sum-exp of each query's logits where the kernel hands it out.

    That are flash attention for CUDA, torch's and the package's; None elsewhere. On a CPU nobody needs it: there
    `columns.summed_attention` makes column sums and attention at once.
    """
    causal = query.shape[2] > 1
    if implementation == FLASH_ATTN:
        from flash_attn import flash_attn_func

        rows = (part.transpose(1, 2) for part in (query, key, value))
        out, found, _ = flash_attn_func(*rows, softmax_scale=scaling, causal=True, return_attn_probs=True)
        return out, found[0]
    # Torch pads other dims before it calls the kernel.
    if query.is_cuda and query.shape[-1] % 8 == 0 and _on_cuda(query, key, value) == "flash":
        flash = torch.ops.aten._scaled_dot_product_flash_attention
        out, found, *_ = flash(query, key, value, 0.0, causal, False, scale=scaling)
        return out.transpose(1, 2), found[0]
    return causal_attention(query, key, value, scaling, implementation), None


def _windowed(query: Tensor, key: Tensor, value: Tensor, scaling: float, window: int, first: int) -> Tensor:
    """The attention of the queries of one window's length, from `first` on."""
    since, some = max(0, first - window + 1), query[:, :, first : first + window]
    end = first + some.shape[2]
    seen = band(some.shape[2], first - since, window, query.device)
    if not query.is_cuda:
        return masked(some, key[:, :, since:end], value[:, :, since:end], scaling, seen)
    with sdpa_kernel([BACKENDS["efficient"], BACKENDS["math"]], set_priority=True):
        return masked(some, key[:, :, since:end], value[:, :, since:end], scaling, seen)


def _torch(query: Tensor, key: Tensor, value: Tensor, scaling: float) -> Tensor:
    causal, grouped = query.shape[2] > 1, query.shape[1] != key.shape[1]
    out = F.scaled_dot_product_attention(query, key, value, is_causal=causal, scale=scaling, enable_gqa=grouped)
    return out.transpose(1, 2)


def _on_cuda(query: Tensor, key: Tensor, value: Tensor) -> str:
    """The first kernel that takes these tensors."""
    causal, heads = query.shape[2] > 1, query.shape[1]
    if can_use_flash_attention(SDPAParams(query, key, value, None, 0.0, causal, heads != key.shape[1])):
        return "flash"
    # Only shapes, strides and types are looked at: heads that share a KV head need not be repeated to ask.
    whole = query.new_empty(1, heads, 1, key.shape[-1]).expand(1, heads, *key.shape[2:])
    params = SDPAParams(query, whole, whole, None, 0.0, causal, False)
    return "efficient" if can_use_efficient_attention(params) else "math"


def kernel(model: Any) -> str:
    """The kernel of this model's prefills: "flash_attention_2", "flash", "efficient", "math", or "cpu" for a CPU's.

    It is that of the layers which are evicted; a sliding window's is "efficient" or "math" where it is not flash-attn.
    """
    implementation: str = model.config._attn_implementation
    if implementation == FLASH_ATTN:
        return implementation
    weight = next(model.parameters()).new_empty(0, dtype=model.dtype)
    if not weight.is_cuda:
        return "cpu"
    config = model.config
    dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    query = weight.new_empty(1, config.num_attention_heads, 2, dim)
    key = weight.new_empty(1, config.num_key_value_heads, 2, dim)
    return _on_cuda(query, key, key)
