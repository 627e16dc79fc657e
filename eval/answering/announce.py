"""What a run is about to do, said before anything heavy is loaded."""

from __future__ import annotations

import os

from eval.planning.settings import Settings


def said(settings: Settings) -> str:
    """One line: model, dtype, device, threads, preset, data, methods and budgets."""
    model = settings.model
    name = str(model.label) if model.label == model.name else f"{model.label} ({model.name})"
    place = f"device_map {model.device_map}" if model.device_map else f"device {model.device}"
    data = settings.data.target.rpartition(".")[2].lower()
    budgets = ", ".join(map(str, settings.budget))
    if settings.budget_bytes:
        budgets = ", ".join(f"{room:,}" for room in settings.budget_bytes) + " bytes"
    return (
        f"{name}, {model.dtype}, {place}, {threads()} threads; preset {settings.preset.name}; data {data}; "
        f"{', '.join(settings.methods)} at {budgets}"
    )


def threads() -> int:
    """How many threads a computation on the CPU takes: OMP_NUM_THREADS, else as many as the process may use."""
    asked = os.environ.get("OMP_NUM_THREADS", "")
    if asked.isdigit() and int(asked):
        return int(asked)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
