"""A real browser for the tests."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator

import pytest
from cdp import Browser, open_browser


@pytest.fixture(scope="session")
def chromium() -> str:
    """The browser's command. Without one the tests fail in CI; elsewhere they are skipped, and the run's last line says so."""
    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if found is None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)("no chromium was found (apt-get install chromium)")
    return found


@pytest.fixture(scope="session")
def browser(chromium: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """One browser for all tests of this process; each opens pages of its own."""
    with open_browser(chromium, tmp_path_factory.mktemp("profile")) as opened:
        yield opened
