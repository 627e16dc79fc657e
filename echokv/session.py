"""One sequence on its evicted cache: what it has been fed, and by which rule the next token follows.

`echokv.decoding` feeds them.
"""

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from echokv.buckets import gather
from echokv.codecs import Codec
from echokv.devices import sent
from echokv.errors import UsageError
from echokv.generation import BARE
from echokv.packing import Packed, padded
from echokv.prefilling import Prefill
from echokv.selection import Selection
from echokv.stored import packed, positions

Made = TypeVar("Made")


class Session:
    """Greedy decoding that sees the selected prompt tokens and whatever it has been fed.

    The full cache is only read. Positions are absolute: the first token fed sits at position L whatever was
    evicted.

    record: keep the queries of every token fed.
    bare: take the most probable token as it is, be it a stop id or one that `prefill.generation` changes.
    codec: how the selected entries are stored; None is as they are. packed: so stored, per layer.
    fed: tokens fed so far, the first `given` of them from outside (`echokv.further.ask`).
    next_token: produced, not fed yet; at first that after the prompt.
    queries: per layer [H, len(fed), D] post-RoPE, if the session records.
    """

    def __init__(
        self,
        prefill: Prefill,
        selection: Selection,
        record: bool = False,
        bare: bool = False,
        codec: Codec | None = None,
    ) -> None:
        if selection.length != prefill.length or len(selection.indices) != prefill.layers:
            raise UsageError(
                f"the selection is of {selection.length} tokens and {len(selection.indices)} layers, the prefill "
                f"of {prefill.length} and {prefill.layers}: select from the same prefill"
            )
        self.prefill = prefill
        self.selection = selection
        self.record = record
        self.codec = codec
        self.packed = self._packed()
        self.generation = BARE if bare else prefill.generation
        self.min_new_tokens = 0 if bare else prefill.min_new_tokens
        self.fed: list[int] = []
        self.given = 0
        self.next_token = self._choose(self.generation.first(prefill.ids, prefill.logits))
        self.queries: list[Float[Tensor, "H fed D"]] = []
        self.tail_keys: list[Float[Tensor, "G fed D"]] = []
        self.tail_values: list[Float[Tensor, "G fed D"]] = []
        self.rings = prefill.rings  # of the sliding layers, after what was fed
        self._returned = 0

    def _choose(self, logits: Float[Tensor, " V"]) -> int:
        """The most probable token; stop ids are no choice before `min_new_tokens` tokens."""
        if len(self.fed) - self.given < self.min_new_tokens and self.prefill.stop_ids:
            logits = logits.index_fill(0, sent(sorted(self.prefill.stop_ids), logits.device), -torch.inf)
        return int(logits.argmax())

    @property
    def stopped(self) -> bool:
        """Whether the token produced last is a stop id."""
        return self.next_token in self.prefill.stop_ids

    @property
    def whole(self) -> bool:
        """Whether every entry of every KV head is read as it is in the shared cache."""
        prefill = self.prefill
        return self.codec is None and all(kept == [prefill.length] * prefill.groups for kept in self.selection.kept)

    def move(self, selection: Selection) -> None:
        """Swap the prompt part of the cache for another selection; what was fed stays."""
        self.selection = selection
        self.packed = self._packed()

    def _packed(self) -> Sequence[Packed]:
        """What is selected, quantised once."""
        if self.codec is None:
            return ()
        return self.prefill.packed or packed(
            self.prefill, self.selection, self.codec, positions(self.prefill, self.selection)
        )

    def kept(self, layer: int) -> tuple[Float[Tensor, "heads longest D"], Float[Tensor, "heads longest D"]]:
        """The selected keys and values of a layer, as attention sees them; what lies behind a head's own is finite."""
        if not self.packed:
            return gather(self.selection.indices[layer], self.prefill.keys[layer], self.prefill.values[layer])
        keys, values = self.packed[layer].unpack()
        return padded(keys, self.selection.kept[layer]), padded(values, self.selection.kept[layer])

    @property
    def bytes(self) -> int:
        """Bytes of the keys and values stored of the prompt, those of sliding layers included."""
        if not self.packed:
            return self.selection.bytes(self.prefill)
        return sum(one.bytes for one in self.packed) + self.prefill.beside() * self.prefill.entry_bytes

    def had(self) -> Int[Tensor, " L+fed"]:
        """The tokens of the prompt and those fed."""
        return torch.cat([self.prefill.ids, self.prefill.ids.new_tensor(self.fed)])

    def take(self, n: int) -> list[int]:
        """Up to n produced tokens that were not returned before."""
        produced = [*self.fed, self.next_token]
        taken = produced[self._returned : self._returned + n]
        self._returned += len(taken)
        return taken

    def missing(self, n: int) -> int:
        """How many more tokens must be fed so that n new ones can be returned."""
        return 0 if self.stopped else max(0, n - (len(self.fed) + 1 - self._returned))

    def feed(self, logits: Float[Tensor, " V"], best: int) -> None:
        """Note that the pending token has been fed and which one follows: `best`, unless that may not be."""
        self.fed.append(self.next_token)
        self.next_token = best if len(self.fed) - self.given >= self.min_new_tokens else self._choose(logits)

    def answer(self, logits: Float[Tensor, " V"]) -> None:
        """Begin an answer behind what was fed last, which came from outside; logits: after it."""
        self.given = self._returned = len(self.fed)
        self.next_token = self._choose(self.generation.first(self.had(), logits))

    def add_queries(self, new: list[Float[Tensor, "H n D"]]) -> None:
        """Append recorded queries."""
        both = zip(self.queries, new, strict=True)
        self.queries = [torch.cat(pair, dim=1) for pair in both] if self.queries else new

    def like(self, other: "Session") -> bool:
        """Whether both are in the same state: of one prompt and rule, the same kept and the same fed tokens."""
        rules = (self.prefill, self.codec, self.generation, self.min_new_tokens, self.given)
        if rules != (other.prefill, other.codec, other.generation, other.min_new_tokens, other.given):
            return False
        if [*self.fed, self.next_token] != [*other.fed, other.next_token]:
            return False
        pairs = zip(self._tensors(), other._tensors(), strict=True)
        return all(one.shape == two.shape and torch.equal(one, two.to(one.device)) for one, two in pairs)

    def _tensors(self) -> list[Tensor]:
        rings = [part for ring in self.rings for part in (ring.keys, ring.values)]
        return [*self.selection.indices, *self.tail_keys, *self.tail_values, *rings]

    def repeat(self, other: "Session") -> None:
        """Take over what was fed to a session that had been in the same state."""
        new = len(other.fed) - len(self.fed)
        if self.record:
            self.add_queries([part[:, part.shape[1] - new :] for part in other.queries])
        self.fed, self.next_token = list(other.fed), other.next_token
        self.tail_keys, self.tail_values, self.rings = other.tail_keys, other.tail_values, other.rings


@dataclass
class Stretch:
    """Tokens that a session is to be fed: `steps` at the most and, with `stop`, none after a stop id was produced."""

    session: Session
    steps: int
    stop: bool = True

    def __post_init__(self) -> None:
        if self.steps < 0:
            raise UsageError(f"a stretch of {self.steps} tokens; it must be at least 0")

    @property
    def over(self) -> bool:
        """Whether the token fed last was the last."""
        return self.steps == 0 or (self.stop and self.session.stopped)


Ahead = Generator[Stretch, None, Made]  # work that yields what it wants fed, goes on once it is, and returns its result


def ahead(made: Made | Ahead[Made]) -> Ahead[Made]:
    """What a step of a policy comes to, be it a plain function's result or work that decodes ahead.

    Raises UsageError if the work yields anything but a `Stretch`.
    """
    if not isinstance(made, Generator):
        return made
    while True:
        try:
            asked = next(made)
        except StopIteration as end:
            result: Made = end.value
            return result
        if not isinstance(asked, Stretch):
            who = getattr(made, "__qualname__", "a policy").rpartition("<locals>.")[2]
            raise UsageError(
                f"{who} yielded a value of type {type(asked).__name__}; it may yield a Stretch, which is fed, and must "
                "return what it comes to"
            )
        yield asked
