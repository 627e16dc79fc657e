"""Recording a decode step on CUDA, so that each token is one launch instead of thousands."""

from typing import Any

import torch

from echokv.errors import UsageError
from echokv.rotary import rope_type
from echokv.rows import Step


def cuda_graph(step: Step, device: torch.device) -> Step:
    """A step that replays the kernels of the given one, which must have run before, on that device.

    Recording executes nothing: the first replay is the next step. What replaying returns is overwritten by the next.
    """
    graph = torch.cuda.CUDAGraph()
    # A graph records a stream of the current device: of another's kernels it would stay empty without an error.
    with torch.cuda.device(device), torch.cuda.graph(graph):
        made = step()

    def replay() -> tuple[torch.Tensor, torch.Tensor]:
        with torch.cuda.device(device):
            graph.replay()
        return made

    return replay


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
