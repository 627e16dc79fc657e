"""A model's linear layers in float32 on a CPU, where torch's own leave a part of the machine unused.

torch hands them to MKL, Intel's library, which takes its quickest ways on Intel's own processors alone. On others it
multiplies a single row on one thread only and reaches a third of an AMD core's speed with the dozen rows of a decode
step. There a few rows are multiplied with pieces of the weights, side by side, which on an Intel core takes twice as
long as MKL. Some more rows go to oneDNN, which comes with torch as well, everywhere. A prompt's many rows are left to
torch: oneDNN gains little there and would keep code for every length. The sums are the same to float32's rounding.

The maker of the processor decides, and no measurement: the same machine computes the same bits at any time.
"""

import math
import platform
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor
from torch.overrides import TorchFunctionMode

FEW = 4  # rows up to which MKL, or pieces, are faster than oneDNN
MANY = 64  # rows from which on oneDNN gains little
PIECES = 16  # at most so many: enough for each core to have some


@cache
def torch_is_quick() -> bool:
    """Whether few rows are left to torch, because MKL is on a processor that it is made for."""
    try:
        about = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        about = platform.processor()
    return "GenuineIntel" in about


def linear(
    x: Float[Tensor, "... K"], weight: Float[Tensor, "N K"], bias: Float[Tensor, " N"] | None = None
) -> Float[Tensor, "... N"]:
    """x W^T + b, as torch.nn.functional.linear; float32 on a CPU, without gradients."""
    features, inner = weight.shape
    rows = x.numel() // inner
    if rows > FEW:
        out: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
        return out
    if torch_is_quick():
        return F.linear(x, weight, bias)
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


def quick(model: Any, rows: int) -> AbstractContextManager[Any]:
    """A context in which the linear layers of a pass over so many rows are computed here.

    That is so for a model of float32 on a CPU, unless all would be left to torch. Nothing of the model changes. Without
    oneDNN, in torch or by `torch.backends.mkldnn.flags(enabled=False)`, the context does nothing.
    """
    here = model.device.type == "cpu" and model.dtype == torch.float32
    known = torch.backends.mkldnn.enabled and hasattr(torch.ops.mkldnn, "_linear_pointwise")
    ours = FEW < rows <= MANY or not torch_is_quick()
    return _Linear() if here and known and ours else nullcontext()
