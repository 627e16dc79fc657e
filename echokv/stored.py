"""What a codec has packed of a prompt, and reading it back a layer at a time."""

from collections.abc import Sequence
from functools import partial

import torch
from jaxtyping import Float, Int
from torch import Tensor

from echokv.buckets import gather
from echokv.codecs import Codec
from echokv.packing import Entries, Origin, Packed, padded
from echokv.prefilling import Prefill
from echokv.rotary import angles
from echokv.selection import Selection


def packed(prefill: Prefill, selection: Selection, codec: Codec, at: Sequence[Int[Tensor, "heads n"]]) -> list[Packed]:
    """What is selected of each layer, quantised once. Raises UsageError for what the codec cannot pack.

    at: the `positions` of what is selected.
    """
    made: list[Packed] = []
    codec.check_model(prefill.shape)
    for layer, (index, kept) in enumerate(zip(selection.indices, selection.kept, strict=True)):
        parts = (at[layer], *gather(index, prefill.keys[layer], prefill.values[layer]))
        places, keys, values = (torch.cat([head[:n] for head, n in zip(part, kept, strict=True)]) for part in parts)
        heads = [head * prefill.groups // len(kept) for head in range(len(kept))]
        turn = partial(angles, prefill.model, prefill.places[layer], like=keys)
        origin = Origin(layer, heads, places, turn)
        made.append(codec.pack(Entries(keys, values, kept, origin)))
    return made


def positions(prefill: Prefill, selection: Selection) -> list[Int[Tensor, "heads n"]]:
    """The positions of what is selected of each layer, which are its places until something has been evicted."""
    if not prefill.at:
        return selection.indices
    pairs = zip(prefill.at, selection.indices, strict=True)
    return [
        known.repeat_interleave(len(index) // len(known), dim=0).gather(1, index.clamp(min=0).to(known.device)).long()
        for known, index in pairs
    ]


class Unpacked(Sequence[Tensor]):
    """Keys, or values, of all layers [G, n, D], of which codes alone are stored: a layer is read back when wanted."""

    def __init__(self, layers: Sequence[Packed], kept: Sequence[list[int]], part: int) -> None:
        """kept: how many entries each head of a layer has. part: 0 for the keys, 1 for the values."""
        self.layers, self.kept, self.part = layers, kept, part

    def __len__(self) -> int:
        return len(self.layers)

    def __getitem__(self, layer: int) -> Float[Tensor, "G n D"]:  # type: ignore[override]
        return padded(self.layers[layer].unpack()[self.part], self.kept[layer])
