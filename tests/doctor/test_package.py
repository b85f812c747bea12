"""The doctor as a package: the standard library alone, a catalogue without gaps, a hook that needs nothing installed."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.doctor.conftest import SLOW

from unchoke_doctor.causes import catalogue

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "unchoke_doctor"


def imported(file: Path) -> set[str]:
    """The packages a module imports when it is loaded."""
    found: set[str] = set()
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add((node.module or "").split(".")[0])
    return found


def test_standard_library_only() -> None:
    allowed = {*sys.stdlib_module_names, "unchoke_doctor"}
    assert not {file.name: imported(file) - allowed for file in PACKAGE.rglob("*.py") if imported(file) - allowed}


@pytest.mark.parametrize("way", ["module", "hook"])
def test_runs_without_site_packages(tmp_path: Path, way: str) -> None:
    (tmp_path / "train.py").write_text(SLOW)
    shutil.copytree(PACKAGE, tmp_path / "src" / "unchoke_doctor", ignore=shutil.ignore_patterns("__pycache__"))
    if way == "hook":
        (tmp_path / "hooks").mkdir()
        script = shutil.copy(ROOT / "hooks" / "unchoke-lint", tmp_path / "hooks")
        command = [sys.executable, "-I", "-S", script, "train.py"]
    else:
        command = [sys.executable, "-S", "-m", "unchoke_doctor", "lint", "train.py"]
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=tmp_path, env={"PYTHONPATH": str(tmp_path / "src")}, check=False
    )
    assert done.returncode == 1, done.stderr
    assert "no-workers" in done.stdout


def test_pre_commit_accepts_the_hook() -> None:
    clientlib = pytest.importorskip("pre_commit.clientlib")
    (hook,) = clientlib.load_manifest(str(ROOT / ".pre-commit-hooks.yaml"))
    assert (hook["id"], hook["language"]) in {("unchoke-lint", "script"), ("unchoke-lint", "unsupported_script")}
    assert (ROOT / hook["entry"]).is_file()


def test_every_page_is_whole() -> None:
    pages = catalogue()
    assert len(pages) >= 20
    poor = [
        one.code for one in pages.values() if "## When this is fine" not in one.page or one.kind not in ("choke", "risk", "note")
    ]
    assert not poor


def test_every_code_has_a_page() -> None:
    """Findings name their cause by a literal code: each is in the catalogue."""
    from unchoke_doctor.lint import CODES

    assert set(CODES) <= set(catalogue())


def test_every_module_has_a_docstring() -> None:
    files = list(PACKAGE.rglob("*.py"))
    assert not [file.name for file in files if not ast.get_docstring(ast.parse(file.read_text(encoding="utf-8")))]


def test_own_training_code_is_clean() -> None:
    """What we ask of others holds here: the notebooks, and the modules that load batches, train or read weights."""
    from unchoke_doctor.lint import lint

    trains = re.compile(r"\bDataLoader\b|\.backward\(|\btorch\.load\(")
    modules = [file for file in (ROOT / "src" / "unchoke").rglob("*.py") if trains.search(file.read_text(encoding="utf-8"))]
    result = lint([ROOT / "notebooks", *modules])
    assert not [f"{found.path}:{found.cell or ''}:{found.line} {found.code}" for found in result.findings]
    assert not result.problems
    assert result.num_files > 15
