"""Going on with an evicted cache: many tokens in one step, and eviction of what has come since.

What is evicted is gone: the cache that goes on holds kept entries alone, and a token's place in it is not its
position. Positions stay absolute, that of the next token is `Prefill.end`.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeVar

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

from echokv.attention import forward
from echokv.buckets import gather
from echokv.codecs import Codec
from echokv.devices import sent
from echokv.errors import UsageError
from echokv.linear import quick
from echokv.prefilling import Needs, Prefill
from echokv.press import Press
from echokv.rotary import check_reach
from echokv.scores import attention_mass
from echokv.selection import Selection
from echokv.session import Session
from echokv.sliding import Ring
from echokv.stored import Unpacked, packed, positions

One = TypeVar("One", bound=Session)
PIECE = 512  # tokens fed at a time, so that no matrix of logits has more rows


def feed(session: Session, tokens: Sequence[int]) -> Float[Tensor, " V"]:
    """Feed given tokens to a session, and return the logits after the last of them.

    Each sees the kept entries, what was fed before, and those of the new tokens up to itself. The session's next
    token is left to the caller.

    Raises UsageError for tokens that the model has no embedding or no positions for, or none.
    """
    model, start = session.prefill.model, session.prefill.end + len(session.fed)
    check_ids(model.config, tokens)
    check_positions(model.config, start + len(tokens))
    for first in range(0, len(tokens), PIECE):
        some = torch.tensor([tokens[first : first + PIECE]], device=session.prefill.ids.device)
        positions = torch.arange(start + first, start + first + some.shape[1], device=some.device)
        step = _Step(session)
        with quick(model, some.numel()):
            logits = forward(model, some, positions[None], step)
        session.tail_keys, session.tail_values, session.rings = step.keys, step.values, step.rings
        session.fed += some[0].tolist()
        if session.record:
            session.add_queries(step.queries)
    return logits[0]


def ask(session: Session, tokens: Sequence[int]) -> None:
    """Feed a question to a session that chose without it; what it produces next is the answer.

    Raises UsageError as `feed` does.
    """
    session.answer(feed(session, tokens))


def check_ids(config: Any, tokens: Sequence[int]) -> None:
    """Raise UsageError unless there are tokens, and the model has an embedding for each."""
    if not tokens:
        raise UsageError("no token is given: a prompt and a turn must have at least one")
    for token in (min(tokens), max(tokens)):
        if not 0 <= token < config.vocab_size:
            raise UsageError(
                f"token id {token} is given; the model embeds {config.vocab_size}: take the tokenizer of the model"
            )


def check_positions(config: Any, end: int) -> None:
    """Raise UsageError unless the model has that many positions."""
    check_reach(config, end)
    if end > config.max_position_embeddings:
        raise UsageError(
            f"{end} tokens are wanted in all, evicted ones included; the model has "
            f"{config.max_position_embeddings} positions: give fewer, or begin anew"
        )


class _Step:
    """The attention of several new tokens to all that a session holds, and causally to each other."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.keys: list[Tensor] = []
        self.values: list[Tensor] = []
        self.queries: list[Tensor] = []
        self.rings: list[Ring] = []

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, scaling: float) -> Tensor:
        session = self.session
        index = session.selection.indices[layer]
        tail_keys, tail_values = key[0], value[0]
        if session.fed:
            tail_keys = torch.cat([session.tail_keys[layer], tail_keys], dim=1)
            tail_values = torch.cat([session.tail_values[layer], tail_values], dim=1)
        self.keys.append(tail_keys)
        self.values.append(tail_values)
        self.queries.append(query[0].clone())
        heads, new = query.shape[1], query.shape[2]
        kept_keys, kept_values = session.kept(layer)
        keys, values = _joined(kept_keys, tail_keys, heads), _joined(kept_values, tail_values, heads)
        seen = _seen(index.to(query.device), tail_keys.shape[1], new, heads)
        out = F.scaled_dot_product_attention(query, keys[None], values[None], attn_mask=seen[None], scale=scaling)
        return out.transpose(1, 2)

    def slide(self, layer: int, query: Tensor, key: Tensor, value: Tensor, scaling: float, _window: int) -> Tensor:
        ring, end = self.session.rings[layer], self.session.prefill.end + len(self.session.fed)
        self.rings.append(ring.extended(key[0], value[0], end))
        return ring.attend(query, key, value, scaling, end)


def _joined(
    kept: Float[Tensor, "heads kept D"], tail: Float[Tensor, "G n D"], heads: int
) -> Float[Tensor, "H kept+n D"]:
    parts = [part.repeat_interleave(heads // len(part), dim=0) for part in (kept, tail)]
    return torch.cat(parts, dim=1)


def _seen(index: Tensor, tail: int, new: int, heads: int) -> Bool[Tensor, "H new kept+tail"]:
    """Which entries each new token sees: the kept ones of its head, the tail up to itself."""
    kept = (index >= 0).repeat_interleave(heads // len(index), dim=0)
    causal = torch.ones(new, tail, dtype=torch.bool, device=index.device).tril(tail - new)
    return torch.cat([kept[:, None].expand(-1, new, -1), causal.expand(heads, new, tail)], dim=-1)


def compact(prefill: Prefill, selection: Selection, codec: Codec | None = None) -> tuple[Prefill, Selection]:
    """The kept entries alone, so that nothing holds the others any longer, and their selection.

    codec: packs them, so that nothing holds them in full precision either.

    Raises UsageError for a selection of query heads: several would keep entries of one KV head.
    """
    if selection.heads != prefill.groups:
        raise UsageError(
            f"the press selects for {selection.heads} query heads, the model has {prefill.groups} KV heads to evict "
            "from: use granularity='kv_head'"
        )
    if codec is None and selection.entries == sum(map(_entries, prefill.keys)):
        return prefill, selection
    index, length = selection.indices, max(part.shape[1] for part in selection.indices)
    small = replace(prefill, **_kept(prefill, selection, codec), length=length, moments={})
    if prefill.sums is not None:
        small = replace(small, sums=[_of_heads(some, part) for some, part in zip(prefill.sums, index, strict=True)])
    slots = [torch.where(some >= 0, torch.arange(some.shape[1], device=some.device), -1) for some in index]
    return small, Selection(slots, selection.kept, length, selection.ties)


def _kept(prefill: Prefill, selection: Selection, codec: Codec | None) -> dict[str, Any]:
    """The fields of a prefill that hold what is kept."""
    index = selection.indices
    if codec is None:
        keys, values = zip(*map(gather, index, prefill.keys, prefill.values), strict=True)
        return {"keys": keys, "values": values}
    at, kept = positions(prefill, selection), selection.kept
    made = packed(prefill, selection, codec, at)
    held = [part.to(torch.int32) for part in at] if codec.turns else ()
    return {"keys": Unpacked(made, kept, 0), "values": Unpacked(made, kept, 1), "packed": made, "at": held}


def _entries(keys: Tensor) -> int:
    return keys.shape[0] * keys.shape[1]


def _of_heads(sums: Float[Tensor, "H n"], index: Tensor) -> Float[Tensor, "H kept"]:
    """The sums of the entries that each query head's KV head keeps."""
    return sums.gather(1, index.clamp(min=0).repeat_interleave(len(sums) // len(index), dim=0).to(sums.device))


def evict(session: One, press: Press, budget: int | None, logits: Float[Tensor, " V"]) -> One | None:
    """A session that holds `budget` entries of what this one holds, chosen by the press; None if it is no more.

    What was fed counts as prompt, and a press sees what it would after a prefill: the entries held, the last queries,
    and sums of attention that go on from those of the entries that stayed.

    session: one that records, and whose heads hold equally many entries. logits: after the token fed last.

    Raises UsageError where the press needs what is not at hand.
    """
    if press.check(budget) >= session.prefill.length + len(session.fed):
        return None
    whole = merged(session, press.needs, logits, type(press).__name__)
    prefill, selection = compact(whole, press.select(whole, budget), session.codec)
    return type(session)(prefill, selection, record=True, codec=session.codec)


def merged(session: Session, needs: Needs, logits: Float[Tensor, " V"], name: str) -> Prefill:
    """What a session holds, as a prefill of as many entries."""
    prefill, selection = session.prefill, session.selection
    if any(kept != [prefill.length] * prefill.groups for kept in selection.kept):
        raise UsageError(
            f"{name} keeps unequally many tokens in layers or heads; a further eviction is only defined where all keep "
            "as many: pass evict=False, or take another press"
        )
    if needs.moments:
        raise UsageError(
            f"{name} needs the moments of all queries of a prompt, which no further turn has: pass evict=False, or "
            "take another press"
        )
    keys, values, at, fed = prefill.keys, prefill.values, prefill.at, len(session.fed)
    if fed:
        keys = [torch.cat(pair, dim=1) for pair in zip(keys, session.tail_keys, strict=True)]
        values = [torch.cat(pair, dim=1) for pair in zip(values, session.tail_values, strict=True)]
        since = torch.arange(prefill.end, prefill.end + fed, dtype=torch.int32)
        at = [torch.cat([part, sent(since, part.device).expand(len(part), -1)], dim=1) for part in at]
    return replace(
        prefill,
        keys=keys,
        values=values,
        queries=_last(session, needs.window),
        sums=_sums(session, keys) if needs.column_sums else None,
        logits=logits.clone(),
        ids=session.had(),
        length=keys[0].shape[1],
        moments={},
        rings=session.rings,
        packed=(),
        at=at,
    )


def _last(session: Session, window: int) -> list[Float[Tensor, "H w D"]]:
    """The last queries, of the prompt as far as those of the tokens fed are too few."""
    parts = zip(session.prefill.queries, session.queries or session.prefill.queries, strict=True)
    joined = [torch.cat([old, new], dim=1) if session.queries else old for old, new in parts]
    return [part[:, max(0, part.shape[1] - window) :].clone() for part in joined]


def _sums(session: Session, keys: Sequence[Tensor]) -> list[Float[Tensor, "H n"]]:
    """The attention that each entry has received since it is there: before, and from what was fed."""
    old, fed, found = session.prefill.column_sums(), len(session.fed), []
    for layer, part in enumerate(keys):
        sums = F.pad(old[layer], (0, fed))
        if fed:
            visible = torch.arange(part.shape[1] - fed + 1, part.shape[1] + 1)
            sums = sums + attention_mass(session.queries[layer], part, session.prefill.scaling, visible)
        found.append(sums)
    return found
