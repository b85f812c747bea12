"""Without a browser these tests are skipped, and nobody can overlook it; in CI they fail."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def run_without_browser(tmp_path: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    tests = Path(__file__).with_name("test_trace_browser.py")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "drawn or sort", str(tests)]
    here = {name: value for name, value in os.environ.items() if name != "CI"}
    bare = {**here, "PATH": str(tmp_path), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", **variables}
    return subprocess.run(command, env=bare, capture_output=True, text=True, check=False)


def test_last_line_names_tests_without_chromium(tmp_path: Path) -> None:
    done = run_without_browser(tmp_path)
    assert done.returncode == 0, done.stdout
    last = done.stdout.splitlines()[-1]
    assert last.startswith("BROWSER TESTS DID NOT RUN: 2 of ")
    assert "browser/test_trace_browser.py" in last
    assert "apt-get install chromium" in last


def test_in_ci_a_run_without_chromium_fails(tmp_path: Path) -> None:
    done = run_without_browser(tmp_path, CI="true")
    assert done.returncode == 1, done.stdout
    assert "no chromium was found (apt-get install chromium)" in done.stdout
