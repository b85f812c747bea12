"""A real browser for the tests, and the records of the report's unit tests."""

from __future__ import annotations

import importlib.util
import os
import shutil
from pathlib import Path
from types import ModuleType

import pytest

_RECORDS = Path(__file__).parents[1] / "unit" / "reports" / "conftest.py"


@pytest.fixture(scope="session")
def chromium() -> str:
    """The browser's command. Without one the tests fail in CI; elsewhere they are skipped, and the run's last line says so."""
    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if found is None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)("no chromium was found (apt-get install chromium)")
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
