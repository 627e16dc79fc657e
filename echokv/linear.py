"""A model's linear layers in float32 on a CPU, where torch's own leave a part of the machine unused.

torch hands them to MKL, Intel's library, which takes its quickest ways on Intel's own processors alone. On others it
multiplies a single row on one thread only and reaches a third of an AMD core's speed with the dozen rows of a decode
step. There a few rows are multiplied with pieces of the weights, side by side, which on an Intel core takes twice as
long as MKL. Some more rows go to oneDNN, which comes with torch as well, everywhere: quicker by a third if the weights
are held a second time in an order of its own (`hold`). A prompt's many rows are left to torch, since oneDNN would make
code for every length and keep it; but a model whose weights are held has its MLPs take them in pieces of one length,
where MKL is not on its own processor. The sums are the same to float32's rounding.

The maker of the processor decides, and no measurement: the same machine computes the same bits at any time.
"""

import math
import platform
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

FEW = 4  # rows up to which MKL, or pieces, are faster than oneDNN
MANY = 64  # rows from which on oneDNN gains little with weights in their usual order
PIECE = 512  # rows of a prompt that go through an MLP at a time: what it makes of them stays in the cores' caches
PIECES = 16  # at most so many: enough for each core to have some
HELD = 2**30  # bytes of weights that are held twice at most
MLP = {"gate_proj", "up_proj", "down_proj"}  # the layers of one, in transformers' words
USUAL = 18  # rows that the order is made for: it is as quick for five and for a piece


@cache
def torch_is_quick() -> bool:
    """Whether few rows are left to torch, because MKL is on a processor that it is made for."""
    try:
        about = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        about = platform.processor()
    return "GenuineIntel" in about


def linear(
    x: Float[Tensor, "... K"],
    weight: Float[Tensor, "N K"],
    bias: Float[Tensor, " N"] | None = None,
    ordered: Tensor | None = None,
) -> Float[Tensor, "... N"]:
    """x W^T + b, as torch.nn.functional.linear; float32 on a CPU, without gradients.

    ordered: the same weights in oneDNN's order, if they are held.
    """
    features, inner = weight.shape
    rows = x.numel() // inner
    if FEW < rows <= MANY or (rows == PIECE and ordered is not None and not torch_is_quick()):
        given = weight if ordered is None else ordered
        out: Tensor = torch.ops.mkldnn._linear_pointwise(x, given, bias, "none", [], "")
        return out
    if rows > MANY or torch_is_quick():
        return F.linear(x, weight, bias)
    pieces = math.gcd(features, PIECES)
    # MKL is quick if the columns are seen as the transpose of rows, and slow with the same numbers the other way.
    columns = x.reshape(rows, inner).T.expand(pieces, inner, rows)
    product = torch.bmm(weight.view(pieces, -1, inner), columns).view(features, rows).T
    out = (product if bias is None else product + bias).contiguous()
    return out.view(*x.shape[:-1], features)


@contextmanager
def quick(model: Any, rows: int) -> Iterator[None]:
    """A context in which the linear layers of passes over so many rows, or fewer, are computed here.

    That is so for a model of float32 on a CPU, unless all would be left to torch. Without oneDNN, in torch or by
    `torch.backends.mkldnn.flags(enabled=False)`, the context does nothing.

    So long each layer has a `forward` of its own; layers with one already, as other libraries give them, keep it.
    To watch all of torch's calls for these would take a quarter of a one-row step's time, and to enter this anew for
    each step a thirtieth.
    """
    ours = rows > FEW or not torch_is_quick()
    layers = _layers(model) if ours else []
    for layer in layers:
        _take(layer)
    try:
        yield
    finally:
        for layer in layers:
            del vars(layer)["forward"]


def hold(model: Any) -> None:
    """Hold the weights of a model's linear layers in oneDNN's order as well, for as long as the model lives.

    Its MLPs take a prompt in pieces then, where oneDNN multiplies them.

    For a program's own model alone: what is changed in its weights afterwards is not seen. One whose weights take
    more than `HELD`, or that `quick` leaves as it is, stays so.
    """
    layers = _layers(model)
    if sum(layer.weight.nbytes for layer in layers) > HELD:
        return
    for layer in layers:
        _take(layer, ordered(layer.weight.detach()))
    for module in model.modules() if layers and not torch_is_quick() else []:
        if dict(module.named_children()).keys() >= MLP and "forward" not in vars(module):
            vars(module)["forward"] = partial(in_pieces, module.forward)


def in_pieces(whole: Callable[[Tensor], Tensor], x: Float[Tensor, "... rows D"]) -> Float[Tensor, "... rows D"]:
    """What a module that looks at each row by itself makes of them, `PIECE` rows at a time."""
    if x.shape[-2] <= PIECE:
        return whole(x)
    out = torch.empty_like(x)
    for first in range(0, x.shape[-2], PIECE):
        some = (..., slice(first, first + PIECE), slice(None))
        out[some] = whole(x[some])
    return out


def ordered(weight: Float[Tensor, "N K"]) -> Tensor:
    """A copy in oneDNN's order, which only oneDNN can read."""
    found: Tensor = torch.ops.mkldnn._reorder_linear_weight(weight, USUAL)
    return found


def _layers(model: Any) -> list[Any]:
    """The layers that are computed here."""
    here = model.device.type == "cpu" and model.dtype == torch.float32
    known = torch.backends.mkldnn.enabled and hasattr(torch.ops.mkldnn, "_linear_pointwise")
    return [module for module in model.modules() if _suits(module)] if here and known else []


def _take(layer: Any, ordered: Tensor | None = None) -> None:
    """Have a layer computed here, until its `forward` is deleted."""
    vars(layer)["forward"] = partial(linear, weight=layer.weight, bias=layer.bias, ordered=ordered)


def _suits(module: Any) -> bool:
    if type(module) is not nn.Linear or "forward" in vars(module):
        return False
    weight = module.weight
    return weight.is_cpu and weight.dtype == torch.float32 and weight.is_contiguous()
