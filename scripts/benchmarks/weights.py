"""Which weights a pass reads. Needs torch's models alone, so that the check of a GPU shares it."""

from __future__ import annotations

from typing import Any


def inner(model: Any) -> int:
    """Weights between the embedding and the head."""
    ends = {id(model.get_input_embeddings().weight), id(model.get_output_embeddings().weight)}
    return sum(weight.numel() for weight in model.parameters() if id(weight) not in ends)


def step_bytes(model: Any) -> int:
    """Bytes of the weights that one decode step reads: all but the embedding, of which it takes a row a sequence."""
    head = model.get_output_embeddings().weight
    return int(inner(model) * head.element_size() + head.nbytes)
