"""Without a browser these tests are skipped, and nobody can overlook it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def test_a_run_without_chromium_ends_with_a_loud_line(tmp_path: Path) -> None:
    tests = Path(__file__).with_name("test_trace_browser.py")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "diff or overview", str(tests)]
    bare = {**os.environ, "PATH": str(tmp_path), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(command, env=bare, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert "BROWSER TESTS DID NOT RUN: 2 skipped" in done.stdout
    assert "apt-get install chromium" in done.stdout
