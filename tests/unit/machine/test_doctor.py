from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from unchoke.machine.doctor import diagnose_import, try_libraries

NMS = "Traceback (most recent call last):\n  File …\nRuntimeError: operator torchvision::nms does not exist\n"


def test_what_a_script_meets_is_what_is_told() -> None:
    script = subprocess.run([sys.executable, "-c", "import timm"], capture_output=True, text=True)
    with try_libraries() as find_fault:
        found = find_fault()
    assert (found is None) == (script.returncode == 0)
    assert found is None or script.stderr.strip().splitlines()[-1] in found.message


def test_the_way_round_that_is_told_works_as_typed() -> None:
    found = diagnose_import(NMS, torch="2.13.0+cpu", torchvision="0.28.0")
    around = found.fix.partition("before timm: ")[2].partition(". unchoke")[0]
    subprocess.run([sys.executable, "-c", f"{around}\nimport timm\ntimm.create_model('test_resnet')"], check=True)


def test_torchvision_of_another_build_is_a_warning() -> None:
    found = diagnose_import(NMS, torch="2.13.0+cpu", torchvision="0.28.0")
    assert (found.code, found.severity) == ("torchvision-build", "warning")
    assert "torchvision 0.28.0" in found.message and "torch 2.13.0+cpu" in found.message
    assert found.command.endswith("install --force-reinstall torch torchvision")


def test_libraries_that_do_not_load_are_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "timm.py").write_text("import nowhere\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with try_libraries() as find_fault:
        found = find_fault()
    assert found is not None and (found.code, found.severity) == ("import-timm", "error")
    assert "No module named 'nowhere'" in found.message
    assert "pip check" in found.command
