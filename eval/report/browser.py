"""Debian's Chromium, driven by Playwright, for tests, timings and pictures of the report. Needs the extra `dev`."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from eval.console.errors import UserError

QUIET = (
    "--no-sandbox",  # it runs as root in containers, on pages that are our own
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


def found() -> str | None:
    """Return the path of Chromium, None where there is none."""
    return shutil.which("chromium") or shutil.which("chromium-browser")


@contextmanager
def chromium() -> Iterator[Any]:
    """A headless browser with a fresh profile.

    Raises:
        UserError: Chromium or Playwright is missing.
    """
    path = found()
    try:
        from playwright.sync_api import sync_playwright
    except ImportError as error:
        raise UserError("playwright is missing: pip install -e .[dev]") from error
    if path is None:
        raise UserError("chromium is missing: apt-get install chromium")
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=list(QUIET))
        try:
            yield browser
        finally:
            browser.close()
