"""Seconds and peak memory of a stretch of work."""

import resource
import time
from pathlib import Path
from types import TracebackType

import torch

_RESET = Path("/proc/self/clear_refs")
_STATUS = Path("/proc/self/status")


class Meter:
    """Context manager: after the block, `seconds` it took and `peak` bytes in use at the worst moment.

    Of a process that works on GPUs the peak is that of torch's allocator over all of them. Of another it is the
    process's resident set, reset at entry where Linux allows it; without that the peak since the process started.
    """

    def __enter__(self) -> "Meter":
        _synchronize()
        for device in _used():
            torch.cuda.reset_peak_memory_stats(device)
        _reset_peak()
        self._start = time.perf_counter()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _synchronize()
        self.seconds = time.perf_counter() - self._start
        self.peak = sum(map(torch.cuda.max_memory_allocated, _used())) or _peak()


def _used() -> list[int]:
    """The GPUs on which this process holds memory: none if its model is on the CPU, on a machine with GPUs too."""
    if not torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        return []
    return [device for device in range(torch.cuda.device_count()) if torch.cuda.memory_reserved(device)]


def _synchronize() -> None:
    for device in _used():
        torch.cuda.synchronize(device)


def _reset_peak() -> None:
    try:
        _RESET.write_text("5")
    except OSError:  # not Linux, or not allowed: the peak then covers the whole process
        return


def _peak() -> int:
    try:
        lines = _STATUS.read_text().splitlines()
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))
