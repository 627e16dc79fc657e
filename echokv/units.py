"""The cache of all rows on a GPU: every head's kept tokens where they lie, for the kernels of `echokv.ragged`."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from echokv.buckets import entries, longer
from echokv.devices import runs, sent
from echokv.masses import joined
from echokv.prefilling import Prefill
from echokv.ragged import Layer, Unit, opened
from echokv.scores import room
from echokv.session import Session


class Ragged:
    """Rows of any form. Of the prompt, a row that keeps everything reads the shared cache; others hold copies.

    tails: for neighbouring layers on one device, keys and values [layers, rows, G, capacity, D] fed since the prompt.
    """

    def __init__(self, sessions: list[Session], capacity: int) -> None:
        first = sessions[0].prefill
        self.heads = first.heads
        self.tails = []
        for some in runs(first.keys, first.layers):
            like = first.keys[some.start]
            shape = (len(some), len(sessions), like.shape[0], capacity, like.shape[-1])
            tails = like.new_zeros(shape), like.new_zeros(shape)
            for row, session in enumerate(sessions):
                if session.fed:
                    for tail, fed in zip(tails, (session.tail_keys, session.tail_values), strict=True):
                        tail[:, row, :, : len(session.fed)] = torch.stack([fed[layer] for layer in some])
            self.tails.append(tails)
        self._open(_units(sessions), len(sessions))

    def _open(self, units: Sequence[Sequence[Unit]], count: int) -> None:
        self.count = count
        self.layers: list[Layer] = []
        for tails in self.tails:
            first = len(self.layers)
            self.layers += opened(units[first : first + len(tails[0])], self.heads, *tails)

    def attend(
        self, layer: int, query: Tensor, key: Tensor, value: Tensor, scaling: float, column: Tensor
    ) -> Float[Tensor, "rows H D"]:
        return self.layers[layer].attend(query, key, value, scaling, column)

    def tail(self, row: int, used: int) -> tuple[list[Tensor], list[Tensor]]:
        keys, values = ([part[:, row, :, :used].clone() for part in parts] for parts in zip(*self.tails, strict=True))
        return [layer for part in keys for layer in part], [layer for part in values for layer in part]

    def grow(self, room: int) -> None:
        self.tails = [(longer(keys, room), longer(values, room)) for keys, values in self.tails]
        self._open([layer.units for layer in self.layers], self.count)

    def keep(self, rows: list[int]) -> None:
        number, index = {row: place for place, row in enumerate(rows)}, torch.tensor(rows)
        self.tails = [
            (keys.index_select(1, own), values.index_select(1, own))
            for keys, values in self.tails
            for own in [sent(index, keys.device)]
        ]
        units = [[unit.moved(number[unit.row]) for unit in layer.units if unit.row in number] for layer in self.layers]
        self._open(units, len(rows))


def _units(sessions: Sequence[Session]) -> list[list[Unit]]:
    """Per layer, the heads of every row."""
    prefills = {id(session.prefill): session.prefill for session in sessions}
    found: list[list[Unit]] = [[] for _ in range(sessions[0].prefill.layers)]
    apart = []
    for row, session in enumerate(sessions):
        if not session.whole and session.codec is None:
            apart.append((row, session))
            continue
        for layer, units in enumerate(found):
            parts = session.prefill.keys[layer], session.prefill.values[layer]
            units += _heads(row, session, layer, *(parts if session.whole else session.kept(layer)))
    for prefill in prefills.values():
        _gathered(prefill, [(row, session) for row, session in apart if session.prefill is prefill], found)
    return found


def _gathered(prefill: Prefill, rows: Sequence[tuple[int, Session]], found: list[list[Unit]]) -> None:
    """Add the units of rows that keep a part of the prompt: copies, taken out of several layers at once."""
    keys = prefill.keys[0]
    for some in runs(prefill.keys, max(1, room(keys) // keys.numel())) if rows else []:
        full = [joined([part[layer] for layer in some]) for part in (prefill.keys, prefill.values)]
        for row, session in rows:
            index = _places(session, some, full[0])
            taken = [entries(part, index) for part in full]
            for place, layer in enumerate(some):
                found[layer] += _heads(row, session, layer, *(part[place] for part in taken))


def _places(session: Session, some: range, full: Float[Tensor, "layers*G L D"]) -> Int[Tensor, "layers heads longest"]:
    """Where in the cache of some layers the kept entries lie; behind those of a head, places that nobody reads."""
    indices = [session.selection.indices[layer] for layer in some]
    longest = max(index.shape[1] for index in indices)
    uneven = any(n < longest for layer in some for n in session.selection.kept[layer])
    if uneven:
        indices = [F.pad(index, (0, longest - index.shape[1])).clamp(min=0) for index in indices]
    stacked = sent(torch.stack(indices), full.device)
    groups, length, _ = full.shape
    heads = len(some) * stacked.shape[1]
    first = torch.arange(heads, device=full.device) // (heads // groups) * length
    return stacked + first.view(len(some), -1, 1)


def _heads(row: int, session: Session, layer: int, keys: Tensor, values: Tensor) -> list[Unit]:
    kept = session.selection.kept[layer]
    count = session.prefill.heads // len(kept)
    return [Unit(row, place * count, count, keys[place, :n], values[place, :n]) for place, n in enumerate(kept)]
