"""A real browser for the tests, and the records of the report's unit tests."""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path
from types import ModuleType

import pytest

_RECORDS = Path(__file__).parents[1] / "unit" / "reports" / "conftest.py"


@pytest.fixture(scope="session")
def chromium() -> str:
    """The browser's command; without one these tests are skipped, and the end of the whole run says so (tests/conftest.py)."""
    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if found is None:
        pytest.skip("no chromium on this machine (apt-get install chromium)")
    return found


@pytest.fixture(scope="session")
def records() -> ModuleType:
    """The builders of realistic records."""
    spec = importlib.util.spec_from_file_location("report_records", _RECORDS)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
