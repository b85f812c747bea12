"""A real browser for the tests."""

from __future__ import annotations

import os
import shutil

import pytest


@pytest.fixture(scope="session")
def chromium() -> str:
    """The browser's command. Without one the tests fail in CI; elsewhere they are skipped, and the run's last line says so."""
    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if found is None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)("no chromium was found (apt-get install chromium)")
    return found
