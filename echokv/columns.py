"""The attention that each token of a prompt receives from all of its queries: H2O's score, of a prefill."""

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
    return _in_chunks(queries, keys, None, scaling, chunk)[1]


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
    out, sums = _in_chunks(query[0], key[0], value[0], scaling, chunk)
    return out.transpose(0, 1)[None], sums


def _in_chunks(
    queries: Float[Tensor, "H L D"],
    keys: Float[Tensor, "G L D"],
    values: Float[Tensor, "G L D"] | None,
    scaling: float,
    chunk: int | None,
) -> tuple[Float[Tensor, "H L D"], Float[Tensor, "H L"]]:
    """Attention, left empty without values, and column sums."""
    heads, length, dim = queries.shape
    groups, dtype = keys.shape[0], accumulator(queries.dtype)
    shared, threads = heads // groups, torch.get_num_threads() if queries.is_cpu else 1
    if chunk is None:  # all threads' within LOGITS, and short beside the prompt: of their own square half is wasted
        chunk = max(1, min(CHUNK, scores.LOGITS // (shared * length) // threads, length // 8 // threads))
    chunk = min(chunk * threads, length)
    out = queries.new_empty(groups, shared, length, dim)
    sums = torch.zeros(groups, shared, length, dtype=dtype, device=keys.device)
    # One buffer for all chunks: fresh memory for each would cost as much as the products themselves.
    space = torch.empty(shared * chunk * length, dtype=dtype, device=keys.device)
    for group in range(groups):
        own, group_keys = queries[group * shared : (group + 1) * shared], keys[group].to(dtype)
        for first in range(0, length, chunk):
            last = min(first + chunk, length)
            some = own[:, first:last].to(dtype) * scaling
            weights = _probabilities(some, group_keys[:last], threads, space)
            pieces, n = weights.shape[0], weights.shape[2]
            if values is not None:
                seen = values[group, :last].expand(pieces, last, dim)
                found = torch.bmm(weights.view(pieces, -1, last), seen).view(pieces, shared, n, dim)
                out[group, :, first:last].view(shared, pieces, n, dim).copy_(found.transpose(0, 1))
            rows = weights.view(-1, n, last)
            summed = weights.new_ones(len(rows), 1, n) @ rows
            sums[group, :, :last].add_(summed.view(pieces, shared, last).sum(dim=0))
    return out.view(heads, length, dim), sums.view(heads, length)


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
