"""Loading the model that the settings name."""

from __future__ import annotations

from typing import Any

from transformers.utils.logging import disable_progress_bar

from echokv import load_model
from eval.planning.settings import Model


def loaded(model: Model) -> tuple[Any, Any]:
    """The model and its tokenizer. Raises UsageError as `echokv.load_model` does."""
    disable_progress_bar()  # ours is the only one
    return load_model(
        model.name,
        dtype=model.dtype,
        device=model.device,
        attention=model.attention,
        revision=model.revision,
        device_map=model.device_map,
    )
