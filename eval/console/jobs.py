"""Jobs of a sweep (`-m`): each says which it is, all that failed are named; a launcher without a sweep is refused."""

from __future__ import annotations

import io
import traceback
from collections.abc import Callable, Mapping
from contextlib import redirect_stderr
from typing import Any

from hydra.core.hydra_config import HydraConfig
from hydra.core.utils import JobReturn
from hydra.types import RunMode

from eval.console.errors import UserError


def begin() -> None:
    """Print which job of a sweep begins, to where its table will follow.

    Raises UserError for a launcher without -m, which Hydra would pass over in silence.
    """
    config = HydraConfig.get()
    launcher = config.runtime.choices.get("hydra/launcher")
    if config.mode is RunMode.MULTIRUN:
        print(f"job {config.job.num}: {' '.join(config.overrides.task)}", flush=True)
    elif launcher not in (None, "basic"):
        raise UserError(f"hydra/launcher={launcher} starts the jobs of a sweep: add -m")


def failures(error: BaseException, explain: Callable[[BaseException], str | None]) -> str | None:
    """Name every job that failed in the sweep that ended with this error; None if it ended no sweep of several.

    Hydra raises the first job's error and hands out no result. Those of all jobs stand in its sweeper's frame.
    """
    jobs = next(filter(None, (_jobs(frame.f_locals) for frame, _ in traceback.walk_tb(error.__traceback__))), [])
    if len(jobs) < 2:
        return None
    shared = set.intersection(*(set(job.overrides or ()) for job in jobs))
    said: dict[str, list[str]] = {}
    for number, job in enumerate(jobs):
        if own := _error(job):
            varied = " ".join(word for word in job.overrides or () if word not in shared)
            said.setdefault(explain(own) or f"{type(own).__name__}: {own}", []).append(f"{number} ({varied})")
    count = sum(map(len, said.values()))
    parts = [f"{'jobs' if len(which) > 1 else 'job'} {', '.join(which)}: {what}" for what, which in said.items()]
    return f"{count} of {len(jobs)} jobs failed; {'; '.join(parts)}"


def _jobs(names: Mapping[str, Any]) -> list[JobReturn]:
    results = names.get("results")
    return results if isinstance(results, list) and all(isinstance(one, JobReturn) for one in results) else []


def _error(job: JobReturn) -> Exception | None:
    try:
        with redirect_stderr(io.StringIO()):  # asked for the value of a job that failed, Hydra prints and raises
            job.return_value  # noqa: B018
    except Exception as error:
        return error
    return None
