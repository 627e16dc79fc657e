"""A model's linear layers in float32 on a CPU, where torch's own leave half of the machine unused.

torch hands them to MKL, which multiplies a single row on one thread only and reaches a third of an AMD core's speed
with the dozen rows of a decode step. Here a few rows are multiplied with pieces of the weights, side by side, and
some more go to oneDNN, which comes with torch as well. A prompt's many rows are left to torch: oneDNN gains little
there and would keep code for every length. The sums are the same to float32's rounding.
"""

import math
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor
from torch.overrides import TorchFunctionMode

FEW = 4  # rows up to which pieces are faster than oneDNN
MANY = 64  # rows from which on oneDNN gains little
PIECES = 16  # at most so many: enough for each core to have some


def linear(
    x: Float[Tensor, "... K"], weight: Float[Tensor, "N K"], bias: Float[Tensor, " N"] | None = None
) -> Float[Tensor, "... N"]:
    """x W^T + b, as torch.nn.functional.linear; float32 on a CPU, without gradients."""
    features, inner = weight.shape
    rows = x.numel() // inner
    if rows > FEW:
        out: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
        return out
    pieces = math.gcd(features, PIECES)
    # MKL is quick if the columns are seen as the transpose of rows, and slow with the same numbers the other way.
    columns = x.reshape(rows, inner).T.expand(pieces, inner, rows)
    product = torch.bmm(weight.view(pieces, -1, inner), columns).view(features, rows).T
    out = (product if bias is None else product + bias).contiguous()
    return out.view(*x.shape[:-1], features)


class _Linear(TorchFunctionMode):
    """While it is active, `linear` stands for torch.nn.functional.linear wherever it can."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is F.linear and not kwargs and _suits(*args):
            return linear(*args)
        return func(*args, **(kwargs or {}))


def _suits(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> bool:
    here = x.is_cpu and weight.is_cpu and x.dtype == weight.dtype == torch.float32
    return here and 0 < x.numel() <= MANY * x.shape[-1] and weight.is_contiguous()


def quick(model: Any) -> AbstractContextManager[Any]:
    """A context in which the model's linear layers are computed here, if it is of float32 and on a CPU.

    Nothing of the model changes. Without oneDNN, in torch or by `torch.backends.mkldnn.flags(enabled=False)`, the
    context does nothing.
    """
    here = model.device.type == "cpu" and model.dtype == torch.float32
    known = torch.backends.mkldnn.enabled and hasattr(torch.ops.mkldnn, "_linear_pointwise")
    return _Linear() if here and known else nullcontext()
