"""Recording a decode step on CUDA, so that each token is one launch instead of thousands."""

import warnings
from functools import cache
from typing import Any

import torch

from echokv.errors import UsageError
from echokv.rotary import rope_type
from echokv.rows import Step


def cuda_graph(step: Step, device: torch.device) -> Step:
    """A step that replays the kernels of the given one, which must have run before, on that device.

    Recording executes nothing: the first replay is the next step. What replaying returns is overwritten by the next.
    Steps that are recorded one after the other share their memory: only the last may be replayed. Where recording
    fails, as for lack of memory, a warning says why and the step goes on as it is.
    """
    graph = torch.cuda.CUDAGraph()
    try:
        # A graph records a stream of the current device: of another's kernels it would stay empty without an error.
        with torch.cuda.device(device), torch.cuda.graph(graph, pool=_pool(device)):
            made = step()
    except RuntimeError as error:  # torch.OutOfMemoryError is one
        told = " ".join(str(error).split())[:200]
        warnings.warn(f"a decode step could not be recorded and runs without a CUDA graph: {told}", stacklevel=2)
        return step

    def replay() -> tuple[torch.Tensor, torch.Tensor]:
        with torch.cuda.device(device):
            graph.replay()
        return made

    return replay


@cache
def _pool(device: torch.device) -> Any:
    """The memory of all graphs of a device: each with its own would ask the driver for new memory."""
    with torch.cuda.device(device):
        return torch.cuda.graph_pool_handle()


def check_graphs(model: Any) -> None:
    """Raise UsageError unless the whole model is on one CUDA device, with frequencies that no step looks at.

    A graph is of one device, and nothing in it may wait for a value; a dynamic RoPE does, for the longest position.
    """
    if "dynamic" in rope_type(model.config):
        raise UsageError("decode_graph=true cannot record the steps of a model with a dynamic RoPE: leave it false")
    devices = {parameter.device for parameter in model.parameters()}
    if len(devices) > 1 or next(iter(devices)).type != "cuda":
        names = ", ".join(sorted(map(str, devices)))
        raise UsageError(
            f"decode_graph=true records graphs of one CUDA device; this model is on {names}: leave it false"
        )
