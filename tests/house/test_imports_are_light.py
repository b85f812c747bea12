"""Importing unchoke, asking for help and completing a command line load nothing heavy."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

HEAVY = [
    "torch",
    "torchvision",
    "timm",
    "torchmetrics",
    "openvino",
    "pandas",
    "pyarrow",
    "scipy",
    "sklearn",
    "ray",
    "starlette",
    "uvicorn",
]
LOADED = f"import sys; loaded = [name for name in {HEAVY} if name in sys.modules]; assert not loaded, loaded"
COMMAND = """
import sys
sys.argv = ["unchoke", *{arguments}]
from unchoke.cli.main import main
try:
    main()
except SystemExit as stop:
    assert stop.code in (0, None), stop.code
"""


def run(code: str, **environment: str) -> str:
    env = {**os.environ, **environment}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("module", ["unchoke", "unchoke.cli.main", "unchoke.machine.backend", "unchoke.core.workspace"])
def test_importing_loads_no_torch(module: str) -> None:
    run(f"import {module}\n{LOADED}")


def test_help_loads_no_torch_and_says_something() -> None:
    assert "fit" in run(COMMAND.format(arguments=["--help"]) + LOADED)


def test_shell_completion_loads_no_torch_and_offers_commands() -> None:
    code = COMMAND.format(arguments=[]) + LOADED
    answer = run(code, _UNCHOKE_COMPLETE="complete_bash", COMP_WORDS="unchoke fi", COMP_CWORD="1")
    assert "fit" in answer.split()
