"""H2O's column sums as two Triton kernels, for CUDA tensors: no matrix of L x L logits is ever stored.

A column sum adds up softmax rows, and a row's denominator is known only after all its keys were seen. Where the
prefill's own attention does not hand it out the logits are computed twice, block by block: the first kernel keeps the
log-sum-exp of each row (by a running maximum and sum: Dao et al. 2022, section 3.1), the second turns logits into
probabilities with it and adds them up for each key. One program writes a sum, in one order, so equal inputs give equal
bits.

Importing this module imports Triton, which takes a while and is missing on most machines without a GPU: import it
where it is used.
"""

import subprocess
import warnings
from functools import cache
from math import e, log2

import torch
import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor

WIDEST = 128  # the head dim up to which the blocks below fit into the shared memory of every supported GPU


def fits(queries: Tensor) -> bool:
    """Whether the kernels can run on this tensor: CUDA, float16, bfloat16 or float32, a head dim of at most 128.

    Triton supports GPUs from compute capability 8.0 on, and builds its launcher with a C compiler when it first
    starts. Where it cannot, a warning says so once.
    """
    return (
        queries.is_cuda
        and queries.dtype in (torch.float16, torch.bfloat16, torch.float32)
        and queries.shape[-1] <= WIDEST
        and torch.cuda.get_device_capability(queries.device) >= (8, 0)
        and _starts()
    )


@cache
def _starts() -> bool:
    try:
        triton.runtime.driver.active.get_current_target()
    except (RuntimeError, OSError, AssertionError, subprocess.SubprocessError) as error:
        warnings.warn(
            f"column sums and decode attention run on plain torch, which is slower: Triton cannot start ({error}); "
            "it needs a C compiler and Python's headers",
            stacklevel=2,
        )
        return False
    return True


def column_sums(
    queries: Float[Tensor, "H L D"],
    keys: Float[Tensor, "G L D"],
    scaling: float,
    normalizers: Float[Tensor, "H L"] | None = None,
) -> Float[Tensor, "H L"]:
    """Attention each key receives from all L causal queries, summed, in float32: `scores.column_sums` on a GPU.

    queries, keys: of one dtype, on one device, such that `fits(queries)`. Products are added up in float32, those of
        float32 without rounding to TF32. Query head h reads KV head h // (H // G) where it lies; nothing is repeated.
    normalizers: the log-sum-exp of each query's logits, in float32; without them the first kernel makes them.
    """
    queries, keys = (part if part.stride(-1) == 1 else part.contiguous() for part in (queries, keys))
    heads, length, dim = queries.shape
    sums = torch.empty(heads, length, dtype=torch.float32, device=queries.device)
    binary = torch.empty_like(sums) if normalizers is None else (normalizers * log2(e)).contiguous()
    # Float32 products use no tensor cores: blocks of the larger size would not fit into registers.
    own, step, warps = (64, 32, 8) if queries.dtype == torch.float32 else (128, 64, 4)
    where = (*queries.stride()[:2], *keys.stride()[:2], heads // keys.shape[0])
    sizes = {"D": dim, "WIDTH": max(16, triton.next_power_of_2(dim)), "OWN": own, "STEP": step, "num_warps": warps}
    grid = (triton.cdiv(length, own), heads)
    with torch.cuda.device(queries.get_device()):  # a model may be spread over several
        if normalizers is None:
            _normalize[grid](queries, keys, binary, length, scaling * log2(e), *where, **sizes)
        _sum[grid](queries, keys, binary, sums, length, scaling * log2(e), *where, **sizes)
    return sums


# A program owns OWN rows of one operand, a multiple of STEP, and reads the other operand STEP rows at a time. Logits
# carry a factor of log2(e), for 2 ** x is what a GPU computes. Rows lie `*_row` elements apart, heads `*_head`.


@triton.jit
def _rows(
    start: tl.tensor, first: tl.tensor, length: tl.tensor, stride: tl.tensor,
    COUNT: tl.constexpr, D: tl.constexpr, WIDTH: tl.constexpr,
) -> tl.tensor:  # fmt: skip
    """COUNT rows of a [length, D] matrix, from row `first` on, as [COUNT, WIDTH]; zeros outside of it."""
    rows, columns = tl.arange(0, COUNT), tl.arange(0, WIDTH)
    inside = (first + rows < length)[:, None] & (columns < D)[None, :]
    start += tl.cast(first, tl.int64) * stride  # 64 bits: a long prompt's rows pass 2 ** 31 elements
    return tl.load(start + rows[:, None] * stride + columns[None, :], mask=inside, other=0.0)


@triton.jit(do_not_specialize=["length", "shared"])
def _normalize(
    queries: tl.tensor, keys: tl.tensor, normalizers: tl.tensor, length: tl.tensor, scaling: tl.tensor,
    query_head: tl.tensor, query_row: tl.tensor, key_head: tl.tensor, key_row: tl.tensor, shared: tl.tensor,
    D: tl.constexpr, WIDTH: tl.constexpr, OWN: tl.constexpr, STEP: tl.constexpr,
) -> None:  # fmt: skip
    """Write log2 of the sum of 2 ** logit over the keys that each query sees, [H, L]; a program owns queries."""
    first = (tl.num_programs(0) - 1 - tl.program_id(0)) * OWN  # the last queries see most: start with them
    head = tl.cast(tl.program_id(1), tl.int64)
    keys += head // shared * key_head
    own = _rows(queries + head * query_head, first, length, query_row, OWN, D, WIDTH)
    rows = first + tl.arange(0, OWN)
    largest = tl.full([OWN], -float("inf"), tl.float32)
    total = tl.zeros([OWN], tl.float32)
    for begin in range(0, tl.minimum(first + OWN, length), STEP):
        some = _rows(keys, begin, length, key_row, STEP, D, WIDTH)
        logits = tl.dot(own, tl.trans(some), input_precision="ieee") * scaling
        columns = begin + tl.arange(0, STEP)
        logits = tl.where(rows[:, None] >= columns[None, :], logits, -float("inf"))
        # Key 0 lies in the first block and every query sees it: `largest` is finite from there on.
        before, largest = largest, tl.maximum(largest, tl.max(logits, 1))
        total = total * tl.exp2(before - largest) + tl.sum(tl.exp2(logits - largest[:, None]), 1)
    tl.store(normalizers + head * length + rows, largest + tl.log2(total), mask=rows < length)


@triton.jit(do_not_specialize=["length", "shared"])
def _sum(
    queries: tl.tensor, keys: tl.tensor, normalizers: tl.tensor, sums: tl.tensor, length: tl.tensor, scaling: tl.tensor,
    query_head: tl.tensor, query_row: tl.tensor, key_head: tl.tensor, key_row: tl.tensor, shared: tl.tensor,
    D: tl.constexpr, WIDTH: tl.constexpr, OWN: tl.constexpr, STEP: tl.constexpr,
) -> None:  # fmt: skip
    """Write the sum over the queries that see a key of the probability each gives it, [H, L]; a program owns keys."""
    first = tl.program_id(0) * OWN
    head = tl.cast(tl.program_id(1), tl.int64)
    queries += head * query_head
    own = _rows(keys + head // shared * key_head, first, length, key_row, OWN, D, WIDTH)
    columns = first + tl.arange(0, OWN)
    total = tl.zeros([OWN], tl.float32)
    for begin in range(first, length, STEP):
        some = _rows(queries, begin, length, query_row, STEP, D, WIDTH)
        rows = begin + tl.arange(0, STEP)
        inside = rows < length
        normalizer = tl.load(normalizers + head * length + rows, mask=inside, other=0.0)
        # Keys lie along the first axis: the sum over queries then stays inside a warp.
        logits = tl.dot(own, tl.trans(some), input_precision="ieee") * scaling
        seen = (rows[None, :] >= columns[:, None]) & inside[None, :]
        total += tl.sum(tl.where(seen, tl.exp2(logits - normalizer[None, :]), 0.0), 1)
    tl.store(sums + head * length + columns, total, mask=columns < length)
