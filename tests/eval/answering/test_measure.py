"""Peaks are of the device that works."""

import pytest
import torch

from eval.answering.measure import Meter


def test_a_model_on_the_cpu_of_a_machine_with_gpus_has_a_peak(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    with Meter() as meter:
        held = torch.ones(30_000_000)
    assert meter.peak > held.numel() * held.element_size()


def test_peaks_of_the_gpus_in_use_are_added_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Others are left alone: to ask them anything would take memory on them."""
    reserved, waited, reset = {0: 500, 1: 0, 2: 700}, [], []
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
    monkeypatch.setattr(torch.cuda, "memory_reserved", reserved.get)
    monkeypatch.setattr(torch.cuda, "synchronize", waited.append)
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", reset.append)
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", {0: 30, 2: 40}.__getitem__)
    with Meter() as meter:
        pass
    assert meter.peak == 70
    assert (waited, reset) == ([0, 2, 0, 2], [0, 2])
