"""Bringing what the host knows to a device without making the host wait."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor


def sent(values: Tensor | Sequence[Any], device: torch.device) -> Tensor:
    """The values on a device.

    A copy out of a GPU's own kind of host memory joins the queue of its work; any other copy to it waits until the
    queue is empty.
    """
    here = values if isinstance(values, Tensor) else torch.tensor(values)
    if here.device.type != "cpu" or device.type == "cpu":
        return here.to(device)
    return (here.pin_memory() if device.type == "cuda" else here).to(device, non_blocking=True)
