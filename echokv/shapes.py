"""What of a model is evicted from, as its configuration says.

Nothing of torch or transformers is imported here: what does not fit a model is told before its weights are read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Shape:
    """Layers with full attention, each of H query heads that share G KV heads of D channels.

    places: of each layer, which of all the model's layers it is. groups: G. heads: H. dim: D.
    """

    places: tuple[int, ...]
    groups: int
    heads: int
    dim: int

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> Shape:
        """config: what config.json holds, or a loaded configuration's `to_dict()`, of a supported model.

        Raises KeyError, TypeError or ValueError where it lacks a number, or has something else in its place.
        """
        heads = int(config["num_attention_heads"])
        groups = int(config.get("num_key_value_heads") or heads)
        dim = int(config.get("head_dim") or config["hidden_size"] // heads)
        kinds = config.get("layer_types") or ["full_attention"] * int(config["num_hidden_layers"])
        window = config.get("sliding_window")
        wide = window is None or window >= config["max_position_embeddings"]  # one that is never full drops nothing
        places = tuple(layer for layer, kind in enumerate(kinds) if wide or kind == "full_attention")
        return cls(places, groups, heads, dim)
