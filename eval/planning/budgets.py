"""Budgets as tokens per head: as they are given, or as many as a number of bytes has room for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from echokv.checkpoints import Checkpoint, read_json
from echokv.codecs import Codec
from echokv.shapes import Shape
from eval.console.errors import UserError
from eval.inputs import hub
from eval.planning.codings import Coding
from eval.planning.policies import Policy
from eval.planning.settings import Model, Settings
from eval.planning.weights import EMBEDDED, weights

SIZES = {"float16": 2, "bfloat16": 2, "float32": 4, "float64": 8}  # bytes of a number


@dataclass(frozen=True)
class Room:
    """What policies evict from, in numbers of `size` bytes, and of how many positions at most."""

    shape: Shape
    size: int
    positions: int

    def bytes(self, kept: int, heads: int, codec: Codec | None) -> int:
        """Bytes of a cache in which each of the heads of a layer keeps so many tokens."""
        dim = self.shape.dim
        own = codec.bytes(kept, dim, self.size) if codec else 2 * kept * dim * self.size
        return len(self.shape.places) * heads * own


def budgets(settings: Settings, policy: Policy, coding: Coding | None) -> Sequence[int | None]:
    """Tokens that each head of a policy's keeps, stored in some way; None for a policy that takes no budget.

    Raises UserError for a budget that the method has no meaning at.
    """
    return list(dict.fromkeys(budget for budget, _ in given(settings, policy, coding)))


def given(settings: Settings, policy: Policy, coding: Coding | None) -> list[tuple[int | None, int | None]]:
    """The same, each with the one of `budget_bytes` that it was made of, None where tokens were given.

    It is the most tokens whose keys and values, summed over layers and heads, take no more bytes; several numbers of
    bytes may have room for as many tokens.

    Raises UserError for a budget that the method has no meaning at.
    """
    if not policy.takes_budget:
        return [(None, None)]
    if not settings.budget_bytes:
        for budget in settings.budget:
            policy.check(budget)
        return [(budget, None) for budget in settings.budget]
    room = room_of(settings.model)
    return [(_most(room, policy, coding, most), most) for most in settings.budget_bytes]


def _most(room: Room, policy: Policy, coding: Coding | None, most: int) -> int:
    shape = room.shape
    heads = shape.heads if policy.fields.get("granularity") == "query_head" else shape.groups
    codec = coding.codec if coding else None
    who = " ".join(filter(None, [policy.name, coding.variant if coding else ""]))
    # From above: under a residual of its own a codec may take fewer bytes for more tokens.
    for kept in range(room.positions, policy.least_budget - 1, -1):
        if room.bytes(kept, heads, codec) <= most:
            return kept
    least = room.bytes(policy.least_budget, heads, codec)
    raise UserError(
        f"budget_bytes {most:,} is too small for {who}: its least budget of {policy.least_budget} tokens a head takes "
        f"{least:,} bytes in this model"
    )


def room_of(model: Model) -> Room:
    """From config.json, without the weights. Raises UserError where there is none, or a number is missing in it."""
    config = read_json(_config(model))
    dtype = model.dtype if model.dtype != "auto" else str(config.get("dtype") or config.get("torch_dtype"))
    try:
        return Room(Shape.of(config), SIZES[dtype], int(config["max_position_embeddings"]))
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(
            f"budget_bytes: config.json of this model does not say {error}: give budget= in tokens"
        ) from error


def _config(model: Model) -> Path:
    commit = weights(model.name, model.revision).revision  # which tells of a model that is not there
    if model.name == EMBEDDED:
        from echokv.embedded import folder  # with transformers; it is converted once

        return folder() / "config.json"
    place = Path(model.name).expanduser()
    if not place.exists():
        return hub.file(model.name, "config.json", revision=commit)
    found: Any = Checkpoint.at(place).config
    if found is None:
        raise UserError(f"budget_bytes: {place} has no config.json to know its cache by: give budget= in tokens")
    return Path(found)
