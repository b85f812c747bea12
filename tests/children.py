"""Processes that tests start: they import what the tests can import."""

from __future__ import annotations

import os
import sys


def same_imports() -> dict[str, str]:
    """The environment of this process, in which Python also finds the modules of the tests."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
