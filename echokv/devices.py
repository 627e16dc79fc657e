"""What lies on which device, and bringing what the host knows there without making the host wait."""

import time
from collections.abc import Iterator, Sequence
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


def now(device: torch.device) -> float:
    """Seconds on a clock, once the device has done what it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


def runs(layers: Sequence[Tensor], most: int) -> Iterator[range]:
    """Neighbouring layers of one shape that lie on one device, at most so many at a time."""
    first = 0
    while first < len(layers):
        like, last = layers[first], first + 1
        while last < min(len(layers), first + most) and (layers[last].shape, layers[last].device) == (
            like.shape,
            like.device,
        ):
            last += 1
        yield range(first, last)
        first = last
