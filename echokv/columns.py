"""The attention that each token of a prompt receives from all of its queries: H2O's score, of a prefill."""

from collections.abc import Iterator

import torch
from jaxtyping import Float
from torch import Tensor

from echokv import scores
from echokv.scores import accumulator, hide

CHUNK = 64  # queries of a head that a thread takes at a time; more or fewer were not faster


def column_sums(
    queries: Float[Tensor, "H L D"],
    keys: Float[Tensor, "G L D"],
    scaling: float,
    chunk: int | None = None,
    normalizers: Float[Tensor, "H L"] | None = None,
) -> Float[Tensor, "H L"]:
    """Attention each key receives from all L causal queries, summed: H2O's score (Zhang et al. 2023, section 4).

    On a CUDA GPU the Triton kernels of `echokv.kernels` do this and store no logits. Plain torch does it elsewhere,
    for float64, and where Triton is not installed or cannot run (`kernels.fits`): the same numbers to float32's
    rounding, only slower. There each thread takes `chunk` queries at a time (64, or fewer for many threads or a long
    prompt) with the keys they can see, so the largest matrix is chunk x L per head and thread.

    normalizers: the log-sum-exp of each query's logits, from the prefill's own attention, if that hands it out. With
        them a GPU's kernel computes the logits once instead of twice.
    """
    if queries.is_cuda and (kernels := scores.triton_kernels()) and kernels.fits(queries):
        summed: Tensor = kernels.column_sums(queries, keys, scaling, normalizers)
        return summed
    sums = queries.new_zeros(queries.shape[:2], dtype=accumulator(queries.dtype))
    for heads, seen, weights in _chunks(queries, keys, scaling, chunk):
        sums[heads, seen] += _summed(weights)
    return sums


def in_one_pass(query: Tensor) -> bool:
    """Whether attention and its column sums are made together: on a CPU, where neither rounds to half precision.

    Rounding there would depend on who else wants the prefill. In float32 it does, by less than another batch's.
    """
    return query.device.type == "cpu" and query.dtype in (torch.float32, torch.float64)


def summed_attention(
    query: Float[Tensor, "1 H L D"],
    key: Float[Tensor, "1 G L D"],
    value: Float[Tensor, "1 G L D"],
    scaling: float,
    chunk: int | None = None,
) -> tuple[Float[Tensor, "1 L H D"], Float[Tensor, "H L"]]:
    """Causal attention, and its `column_sums` from the same probabilities: each is computed once for both."""
    out, sums = torch.empty_like(query[0]), query.new_zeros(query.shape[1:3])
    for heads, seen, weights in _chunks(query[0], key[0], scaling, chunk):
        sums[heads, seen] += _summed(weights)
        pieces, shared, own, last = weights.shape
        values = value[0, heads.start // shared, seen].expand(pieces, -1, -1)
        found = torch.bmm(weights.view(pieces, shared * own, last), values).view(pieces, shared, own, -1)
        out[heads, last - pieces * own : last] = found.transpose(0, 1).flatten(1, 2)
    return out.transpose(0, 1)[None], sums


def _chunks(
    queries: Float[Tensor, "H L D"], keys: Float[Tensor, "G L D"], scaling: float, chunk: int | None
) -> Iterator[tuple[slice, slice, Float[Tensor, "pieces heads own seen"]]]:
    """Heads that share a KV head, the tokens that their next queries see, and what these queries pay to them.

    The queries are those of the last tokens seen, piece by piece. Each yield overwrites the weights of the last one.
    """
    heads, length, _ = queries.shape
    groups, dtype = keys.shape[0], accumulator(queries.dtype)
    shared, threads = heads // groups, torch.get_num_threads() if queries.is_cpu else 1
    if chunk is None:  # all threads' within LOGITS, and short beside the prompt: of their own square half is wasted
        chunk = max(1, min(CHUNK, scores.LOGITS // (shared * length) // threads, length // 8 // threads))
    chunk = min(chunk * threads, length)
    # One buffer for all chunks: fresh memory for each would cost as much as the products themselves.
    space = torch.empty(shared * chunk * length, dtype=dtype, device=keys.device)
    for group in range(groups):
        own, group_keys = slice(group * shared, (group + 1) * shared), keys[group].to(dtype)
        for first in range(0, length, chunk):
            last = min(first + chunk, length)
            some = queries[own, first:last].to(dtype) * scaling
            yield own, slice(last), _probabilities(some, group_keys[:last], threads, space)


def _summed(weights: Float[Tensor, "pieces heads own seen"]) -> Float[Tensor, "heads seen"]:
    """Over all queries, as a product: a sum over rows that lie apart takes longer."""
    pieces, shared, own, seen = weights.shape
    rows = weights.view(pieces * shared, own, seen)
    return (rows.new_ones(len(rows), 1, own) @ rows).view(pieces, shared, seen).sum(dim=0)


def _probabilities(
    queries: Float[Tensor, "heads n D"], keys: Float[Tensor, "L D"], threads: int, space: Float[Tensor, " size"]
) -> Float[Tensor, "pieces heads own L"]:
    """What the queries of the last n of L positions pay to the keys they see; it lies in `space`.

    The queries are cut into pieces, each the work of one thread from the product to the sum, so that its logits
    stay in that core's cache: with half of them in another's this takes 1.2 to 1.7 times as long on two cores.
    """
    heads, n, dim = queries.shape
    length = keys.shape[0]
    pieces = threads if n % threads == 0 else 1
    own = n // pieces
    by_piece = queries.view(heads, pieces, own, dim).transpose(0, 1).reshape(pieces, heads * own, dim)
    logits = space[: heads * n * length].view(pieces, heads * own, length)
    torch.bmm(by_piece, keys.T.expand(pieces, dim, length), out=logits)
    visible = torch.arange(length - n + 1, length + 1, device=keys.device)
    hide(logits.view(pieces, heads, own, length), visible.view(pieces, 1, own), n)
    torch.softmax(logits, dim=-1, out=logits)
    return logits.view(pieces, heads, own, length)
