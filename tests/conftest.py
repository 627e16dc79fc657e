"""Fixtures that every test may use."""

import os
from pathlib import Path

import pytest

# Tests run in two processes; before torch is imported, for it reads this once.
os.environ.setdefault("OMP_NUM_THREADS", "1")

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of real records beside a checkout; a clone without it skips what needs it."""
    folder = ROOT.parent / "shared"
    if not folder.is_dir():
        pytest.skip("needs real LongBench records in ../shared, which this clone does not have")
    return folder


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a tiny random-weight model."""
    from tests.tiny import write

    return write(tmp_path_factory.mktemp("models") / "tiny")
