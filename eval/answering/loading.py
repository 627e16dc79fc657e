"""Loading the model that the settings name, and what is held against it before its weights are read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from transformers.utils.logging import disable_progress_bar

from echokv import UsageError, load_model
from echokv.linear import hold
from echokv.shapes import Shape
from eval.console.foreign import blamed
from eval.planning.plan import Cell
from eval.planning.settings import Model


def loaded(model: Model, held: bool = True) -> tuple[Any, Any]:
    """The model and its tokenizer. Raises UsageError as `echokv.load_model` does.

    held: spend memory on speed (`linear.hold`); without it the model is as a user of the library has it.
    """
    disable_progress_bar()  # ours is the only one
    found, tokenizer = load_model(
        model.name,
        dtype=model.dtype,
        device=model.device,
        attention=model.attention,
        revision=model.revision,
        device_map=model.device_map,
    )
    if held:
        hold(found)
    return found, tokenizer


def check_model(grid: Sequence[Cell], known: Any) -> None:
    """Hold methods, codecs and their files against the model's configuration.

    known: what `echokv.load_tokenizer` returned of the model. Raises UsageError for what does not fit.
    """
    shape = Shape.of(known.config.to_dict())
    for cell in grid:
        with blamed(f"method {cell.method}", UsageError):
            cell.press.check_model(shape)
        if cell.codec:
            cell.codec.check_model(shape)
