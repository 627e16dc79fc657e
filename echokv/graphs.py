"""Recording a decode step on CUDA, so that each token is one launch instead of thousands."""

import warnings
from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Any, Literal, TypeVar

import torch

from echokv.devices import now
from echokv.errors import UsageError
from echokv.rotary import rope_type
from echokv.rows import Record, Step, Stepped

Wanted = bool | Literal["auto"]
Made = TypeVar("Made")

TRIED = 3  # steps of each kind that are timed
REPAID = 32  # steps in which a recording has to win back its time: a batch is recorded anew when half of it is over


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

    def replay() -> Stepped:
        with torch.cuda.device(device):
            graph.replay()
        return made

    return replay


@cache
def _pool(device: torch.device) -> Any:
    """The memory of all graphs of a device: each with its own would ask the driver for new memory."""
    with torch.cuda.device(device):
        return torch.cuda.graph_pool_handle()


class Quicker:
    """Records steps where that turns out to be quicker on this device: the first batch that is long enough is timed.

    What is recorded are the same kernels, so that the answers do not depend on the clock.
    """

    def __init__(self, device: torch.device, tell: Callable[[str], None]) -> None:
        """tell: is given one line with what was measured and decided."""
        self.device, self.tell = device, tell
        self.graphs: bool | None = None  # undecided

    def __call__(self, step: Step) -> Step:
        if self.graphs is None:
            return partial(next, self._tried(step))
        return cuda_graph(step, self.device) if self.graphs else step

    def _tried(self, step: Step) -> Iterator[Stepped]:
        """Steps as they are, then replayed ones, and all others in the quicker way."""
        plain, replayed = [], []
        for _ in range(TRIED):
            made, seconds = self._timed(step)
            plain.append(seconds)
            yield made
        replay, recording = self._timed(lambda: cuda_graph(step, self.device))
        for _ in range(TRIED):
            made, seconds = self._timed(replay)
            replayed.append(seconds)
            yield made
        saved = min(plain) - min(replayed)
        self.graphs = replay is not step and saved * REPAID > recording
        self.tell(
            f"a decode step takes {1000 * min(plain):.1f} ms, replayed as a CUDA graph {1000 * min(replayed):.1f} ms "
            f"(recording: {1000 * recording:.0f} ms): steps {'are recorded' if self.graphs else 'run as they are'}"
        )
        best = replay if self.graphs else step
        while True:
            yield best()

    def _timed(self, work: Callable[[], Made]) -> tuple[Made, float]:
        begun = now(self.device)
        made = work()
        return made, now(self.device) - begun


def step_recorder(wanted: Wanted, model: Any, tell: Callable[[str], None]) -> Record | None:
    """What records the decode steps of a model, if they are to be recorded; "auto": if they can be and are quicker.

    Raises UsageError where it is wanted for certain and cannot be.
    """
    hindrance = unsuited(model) if wanted else None
    if wanted is True and hindrance:
        raise UsageError(f"decode_graph=true {hindrance}: leave it at auto")
    if not wanted or hindrance:
        return None
    return partial(cuda_graph, device=model.device) if wanted is True else Quicker(model.device, tell)


def unsuited(model: Any) -> str | None:
    """Why no step of this model can be recorded: it is on several devices or none of CUDA, or its RoPE is dynamic.

    A graph is of one device, and nothing in it may wait for a value; a dynamic RoPE does, for the longest position.
    """
    if "dynamic" in rope_type(model.config):
        return "cannot record the steps of a model with a dynamic RoPE"
    devices = {parameter.device for parameter in model.parameters()}
    if len(devices) > 1 or next(iter(devices)).type != "cuda":
        return f"records graphs of one CUDA device; this model is on {', '.join(sorted(map(str, devices)))}"
    return None
