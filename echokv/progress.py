"""A bar on a terminal that shows how far prefills have come, layer by layer."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

DELAY = 1.0  # seconds before it is drawn: what is quicker shows nothing


@contextmanager
def layer_bar(model: Any, prompts: int, wanted: bool = True, delay: float = DELAY) -> Iterator[None]:
    """Count the decoder layers that forward passes of some prompts end, while the block runs.

    It is drawn on standard error if that is a terminal, and wiped at the end. Passes beyond one for each prompt, which
    some presses make to choose, are counted past the total.
    """
    if not (wanted and sys.stderr.isatty()):
        yield
        return
    from transformers.utils.logging import tqdm  # silent where transformers is told to be

    layers = model.get_decoder().layers
    with tqdm(
        total=prompts * len(layers), desc="reading", unit="layer", file=sys.stderr, leave=False, delay=delay
    ) as bar:
        hooks = [layer.register_forward_hook(lambda *_: bar.update() and None) for layer in layers]
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()
