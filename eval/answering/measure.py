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

    On CUDA the peak is that of torch's allocator over all devices. Elsewhere it is the process's resident set,
    reset at entry where Linux allows it; without that it is the peak since the process started.
    """

    def __enter__(self) -> "Meter":
        self._cuda = torch.cuda.is_available()
        if self._cuda:
            _synchronize()
            for device in range(torch.cuda.device_count()):
                torch.cuda.reset_peak_memory_stats(device)
        else:
            _reset_peak()
        self._start = time.perf_counter()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._cuda:
            _synchronize()
        self.seconds = time.perf_counter() - self._start
        if self._cuda:
            self.peak = sum(torch.cuda.max_memory_allocated(device) for device in range(torch.cuda.device_count()))
        else:
            self.peak = _peak()


def _synchronize() -> None:
    for device in range(torch.cuda.device_count()):
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
