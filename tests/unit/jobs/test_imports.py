"""The job machinery is light: a worker starts fast because nothing heavy comes along."""

from __future__ import annotations

import subprocess
import sys


def test_jobs_load_no_torch_numpy_or_pandas() -> None:
    loaded = "bool({'torch', 'numpy', 'pandas'} & set(sys.modules))"
    code = f"import sys, unchoke.jobs.run_jobs, unchoke.jobs.job_engines; sys.exit({loaded})"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
