"""Threads wait briefly, unless someone said otherwise or it is too late to say."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from unchoke.core.brief_waits import BRIEFLY

TELL = "import os; from unchoke.core.brief_waits import wait_briefly; wait_briefly(); print(os.environ.get('GOMP_SPINCOUNT'))"


@pytest.mark.parametrize(
    ("given", "before", "expected"),
    [
        ({}, "", BRIEFLY),
        ({"GOMP_SPINCOUNT": "7"}, "", "7"),
        ({"OMP_WAIT_POLICY": "active"}, "", "None"),
        ({}, "import sys; sys.modules['torch'] = sys; ", "None"),
    ],
)
def test_set_only_if_unset_and_before_torch(given: dict[str, str], before: str, expected: str) -> None:
    clean = {name: value for name, value in os.environ.items() if name not in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")}
    told = subprocess.run(
        [sys.executable, "-c", before + TELL], env={**clean, **given}, capture_output=True, text=True, check=True
    )
    assert told.stdout.strip() == expected


def test_scripts_of_others_are_run_as_they_would_run_alone() -> None:
    clean = {name: value for name, value in os.environ.items() if name not in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")}
    script = [sys.executable, "-c", "import os; print('spins', os.environ.get('GOMP_SPINCOUNT'))"]
    told = subprocess.run(
        [sys.executable, "-m", "unchoke", "profile", "--", *script], env=clean, capture_output=True, text=True, check=False
    )
    assert "spins None" in told.stdout + told.stderr
