"""Fixtures that every test may use."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from absl import logging as absl_logging

# Tests run in two processes; before torch is imported, for it reads this once.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# rouge-score imports absl, whose log handler closes the stream it was made with when Hydra sets up logging.
# Under pytest that would be pytest's own.
absl_logging.get_absl_handler().python_handler.stream = sys.__stderr__

ROOT = Path(__file__).parent.parent
LONG = ("test_long_run.py", "test_wheel.py", "test_sweep.py")  # minutes of one process each


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest files come first: at the end the other process would wait for them."""
    items.sort(key=lambda item: (*LONG, item.path.name).index(item.path.name))


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


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A browser without a window; tests that need one skip where none is installed."""
    from eval.console.errors import UserError
    from eval.report.browser import chromium

    try:
        with chromium() as opened:
            yield opened
    except UserError as error:
        pytest.skip(str(error))
