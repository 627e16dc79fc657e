"""Decode attention over heads that keep unequally many tokens, as two Triton kernels a layer for all rows.

A unit is a head of a row with the prompt tokens that it keeps, wherever they lie: FullKV's are the shared cache itself.
The work is cut into pieces of about equal size, a stretch of one unit's prompt or the tokens fed since: a program
attends to one piece and leaves a running maximum, sum and weighted values (Dao et al. 2022, section 3.1); a second
kernel joins the pieces of each unit. The first also stores the new token. Nothing is padded, masked or repeated.

Importing this module imports Triton: import it where it is used.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import e, log2

import torch
import triton
import triton.language as tl
from jaxtyping import Float, Int
from torch import Tensor

from echokv.devices import sent

SPAN = 1024  # prompt tokens of a piece


@dataclass(frozen=True, eq=False)
class Unit:
    """A head of a row. row: its place in the batch. head: the first of the `count` query heads that it serves.

    keys, values: the prompt tokens it keeps, contiguous.
    """

    row: int
    head: int
    count: int
    keys: Float[Tensor, "kept D"]
    values: Float[Tensor, "kept D"]

    def moved(self, row: int) -> "Unit":
        """The same in another place of the batch."""
        return replace(self, row=row)


class Layer:
    """The caches of all rows in one layer. The tail is stored once per KV head, whatever the units are.

    tail_keys, tail_values: [rows, G, capacity, D], tokens fed since the prompt.
    """

    def __init__(
        self,
        units: Sequence[Unit],
        heads: int,
        tail_keys: Float[Tensor, "rows G capacity D"],
        tail_values: Float[Tensor, "rows G capacity D"],
        pieces: Int[Tensor, "pieces 3"],
        about: Int[Tensor, "units 7"],
    ) -> None:
        self.units = units  # what is pointed to must live as long
        self.heads, self.tail_keys, self.tail_values = heads, tail_keys, tail_values
        self.pieces, self.about = pieces, about
        self.most = max(unit.count for unit in units)

    def attend(
        self,
        query: Float[Tensor, "rows H D"],
        key: Float[Tensor, "rows G D"],
        value: Float[Tensor, "rows G D"],
        scaling: float,
        column: Int[Tensor, " rows"],
    ) -> Float[Tensor, "rows H D"]:
        """Store one new token per row at its column of the tail, and attend to all that the row has up to it."""
        query, key, value = query.contiguous(), key.contiguous(), value.contiguous()
        _, groups, capacity, dim = self.tail_keys.shape
        block = max(16, triton.next_power_of_2(self.most))  # tensor cores multiply sixteen rows at least
        width = max(16, triton.next_power_of_2(dim))
        count = len(self.pieces)
        best, total = (torch.empty(count, block, dtype=torch.float32, device=query.device) for _ in range(2))
        found = torch.empty(count, block, width, dtype=torch.float32, device=query.device)
        out = torch.empty_like(query)
        sizes = {"H": self.heads, "D": dim, "WIDTH": width, "BLOCK": block}
        step = 32 if query.dtype == torch.float32 else 64
        with torch.cuda.device(query.get_device()):  # a model may be spread over several
            _attend[(count,)](
                query, key, value, self.tail_keys, self.tail_values, self.pieces, self.about, column, best, total,
                found, scaling * log2(e), groups, capacity, STEP=step, num_warps=4, **sizes,
            )  # fmt: skip
            _join[(len(self.units),)](self.about, best, total, found, out, num_warps=4, **sizes)
        return out


def opened(
    units: Sequence[Sequence[Unit]],
    heads: int,
    tail_keys: Float[Tensor, "layers rows G capacity D"],
    tail_values: Float[Tensor, "layers rows G capacity D"],
) -> list[Layer]:
    """Layers on one device and of one dtype. heads: H. In each every query head of every row belongs to one unit."""
    tables = [table for some in units for table in _tables(some)]
    flat = sent([number for table in tables for line in table for number in line], tail_keys.device)
    parts, first = [], 0
    for table in tables:
        lines, width = len(table), len(table[0])
        parts.append(flat[first : first + lines * width].view(lines, width))
        first += lines * width
    return [
        Layer(some, heads, tail_keys[layer], tail_values[layer], *parts[2 * layer : 2 * layer + 2])
        for layer, some in enumerate(units)
    ]


def _tables(units: Sequence[Unit]) -> tuple[list[tuple[int, ...]], list[tuple[int, ...]]]:
    """Of each piece its unit, first token and end, where the tail is from -1; and what is known about each unit."""
    pieces: list[tuple[int, ...]] = []
    about: list[tuple[int, ...]] = []
    for number, unit in enumerate(units):
        first, kept = len(pieces), len(unit.keys)
        pieces += [(number, begin, min(begin + SPAN, kept)) for begin in range(0, kept, SPAN)]
        pieces.append((number, -1, 0))
        pointers = unit.keys.data_ptr(), unit.values.data_ptr()
        about.append((unit.row, unit.head, unit.count, *pointers, first, len(pieces)))
    return pieces, about


@triton.jit(do_not_specialize=["groups", "capacity"])
def _attend(
    query: tl.tensor, key: tl.tensor, value: tl.tensor, tail_keys: tl.tensor, tail_values: tl.tensor,
    pieces: tl.tensor, about: tl.tensor, column: tl.tensor, best: tl.tensor, total: tl.tensor, found: tl.tensor,
    scaling: tl.tensor, groups: tl.tensor, capacity: tl.tensor,
    H: tl.constexpr, D: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr, STEP: tl.constexpr,
) -> None:  # fmt: skip
    """Attend to one piece: the maximum of its logits, the sum of 2 ** logit below it, and the values so weighted."""
    piece = tl.cast(tl.program_id(0), tl.int64)
    unit = tl.load(pieces + piece * 3)
    begin, end = tl.load(pieces + piece * 3 + 1), tl.load(pieces + piece * 3 + 2)
    about += unit * 7
    row, head, count = tl.load(about), tl.load(about + 1), tl.load(about + 2)
    columns, lines = tl.arange(0, WIDTH), tl.arange(0, BLOCK)
    inside = columns < D
    own = (lines < count)[:, None] & inside[None, :]
    queries = tl.load(query + (row * H + head + lines[:, None]) * D + columns[None, :], mask=own, other=0.0)
    place = row * groups + head // (H // groups)
    since = begin < 0
    new_key = tl.load(key + place * D + columns, mask=inside & since, other=0.0)
    new_value = tl.load(value + place * D + columns, mask=inside & since, other=0.0)
    at = tl.load(column + row)
    first = head % (H // groups) == 0  # of the units that share a tail one writes
    tail = place * capacity * D
    tl.store(tail_keys + tail + at * D + columns, new_key, mask=inside & since & first)
    tl.store(tail_values + tail + at * D + columns, new_value, mask=inside & since & first)
    # The new token is taken from where it is, not from where it has just been stored: nobody has to wait.
    logit = tl.sum(queries.to(tl.float32) * new_key.to(tl.float32)[None, :], 1) * scaling
    largest = tl.where(since, logit, tl.full([BLOCK], -float("inf"), tl.float32))
    summed = tl.where(since, tl.full([BLOCK], 1.0, tl.float32), tl.zeros([BLOCK], tl.float32))
    weighted = tl.zeros([BLOCK, WIDTH], tl.float32) + new_value.to(tl.float32)[None, :]
    kind = tl.pointer_type(query.dtype.element_ty)
    keys = tl.where(since, tl.cast(tail_keys + tail, tl.int64), tl.load(about + 3))
    values = tl.where(since, tl.cast(tail_values + tail, tl.int64), tl.load(about + 4))
    keys, values = tl.cast(keys, kind, bitcast=False), tl.cast(values, kind, bitcast=False)
    begin, end = tl.where(since, 0, begin), tl.where(since, at, end)
    for start in range(begin, end, STEP):
        tokens = start + tl.arange(0, STEP)
        there = (tokens < end)[:, None] & inside[None, :]
        some = tl.load(keys + tokens[:, None] * D + columns[None, :], mask=there, other=0.0)
        logits = tl.dot(queries, tl.trans(some), input_precision="ieee") * scaling
        logits = tl.where((tokens < end)[None, :], logits, -float("inf"))
        before, largest = largest, tl.maximum(largest, tl.max(logits, 1))
        shrunk, weights = tl.exp2(before - largest), tl.exp2(logits - largest[:, None])
        summed = summed * shrunk + tl.sum(weights, 1)
        some = tl.load(values + tokens[:, None] * D + columns[None, :], mask=there, other=0.0)
        weighted = weighted * shrunk[:, None] + tl.dot(weights.to(some.dtype), some, input_precision="ieee")
    tl.store(best + piece * BLOCK + lines, largest)
    tl.store(total + piece * BLOCK + lines, summed)
    tl.store(found + (piece * BLOCK + lines[:, None]) * WIDTH + columns[None, :], weighted)


@triton.jit
def _join(
    about: tl.tensor, best: tl.tensor, total: tl.tensor, found: tl.tensor, out: tl.tensor,
    H: tl.constexpr, D: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr,
) -> None:  # fmt: skip
    """Weigh the pieces of one unit against each other and write the attention of its queries."""
    about += tl.cast(tl.program_id(0), tl.int64) * 7
    row, head, count = tl.load(about), tl.load(about + 1), tl.load(about + 2)
    first, end = tl.load(about + 5), tl.load(about + 6)
    columns, lines = tl.arange(0, WIDTH), tl.arange(0, BLOCK)
    largest = tl.full([BLOCK], -float("inf"), tl.float32)
    summed = tl.zeros([BLOCK], tl.float32)
    weighted = tl.zeros([BLOCK, WIDTH], tl.float32)
    for piece in range(first, end):
        own = tl.load(best + piece * BLOCK + lines)
        before, largest = largest, tl.maximum(largest, own)
        shrunk, share = tl.exp2(before - largest), tl.exp2(own - largest)
        summed = summed * shrunk + tl.load(total + piece * BLOCK + lines) * share
        more = tl.load(found + (piece * BLOCK + lines[:, None]) * WIDTH + columns[None, :])
        weighted = weighted * shrunk[:, None] + more * share[:, None]
    inside = (lines < count)[:, None] & (columns < D)[None, :]
    made = (weighted / summed[:, None]).to(out.dtype.element_ty)
    tl.store(out + (row * H + head + lines[:, None]) * D + columns[None, :], made, mask=inside)
