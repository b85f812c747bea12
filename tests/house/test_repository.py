"""What is in the repository holds on any machine: no local paths, no download addresses, no command that does not exist."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "README.md"
DEVELOPING = ROOT / "docs" / "how-to" / "develop.md"
# Put together here, so that this file does not contain what it looks for.
LOCAL_PATHS = ["/" + "work/", "/" + "root/", "/" + "opt/pypi", "/" + "opt/wheels", "file:" + "//"]
REGISTRIES = [
    "pypi" + ".org/simple",
    "files.python" + "hosted.org",
    "download.py" + "torch.org",
    "--extra-" + "index-url",
    "--find-" + "links",
]
TARGETS = re.compile(r"^(?:\$ )?make ([a-z-]+)")


def repository_files() -> list[Path]:
    """Tracked files, and new ones that git does not ignore."""
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout.decode().split("\0")
    return [ROOT / name for name in names if name and (ROOT / name).is_file()]


def test_no_local_paths_or_registries() -> None:
    found = []
    for file in repository_files():
        text = file.read_bytes().decode("utf-8", errors="ignore")
        found += [f"{file.relative_to(ROOT)}: {part}" for part in LOCAL_PATHS + REGISTRIES if part in text]
    assert not found


def test_constraints_are_exact_versions_and_nothing_else() -> None:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    wrong = [
        line
        for line in lines
        if line.strip() and not line.startswith("#") and not re.fullmatch(r"[A-Za-z0-9._-]+==[^\s@:/]+", line)
    ]
    assert not wrong


def test_licence_is_complete_and_named() -> None:
    text = (ROOT / "LICENSE").read_text()
    assert "Apache License" in text
    assert "END OF TERMS AND CONDITIONS" in text
    assert tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["license"] == "Apache-2.0"


def test_the_check_before_a_merge_is_make_test() -> None:
    script = ROOT / ".ci" / "run"
    assert script.read_text().splitlines()[-1] == "make test"
    assert script.stat().st_mode & 0o111


def test_make_does_all_the_set_up_before_demo_and_test() -> None:
    for target in ("demo", "test"):
        plan = subprocess.run(["make", "-n", "-B", target], cwd=ROOT, capture_output=True, text=True, check=True).stdout
        assert "pip install -c constraints.txt" in plan
    assert "ruff check" in plan
    assert "ruff format --check" in plan
    assert "mypy" in plan
    assert "pytest" in plan


def test_make_installs_when_dependencies_change(tmp_path: Path) -> None:
    shutil.copy(ROOT / "Makefile", tmp_path)
    for name in ("pyproject.toml", "constraints.txt"):
        (tmp_path / name).touch()
    python = tmp_path / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text('#!/bin/sh\necho "$@" >> installs.log\n')
    python.chmod(0o755)

    def num_installs() -> int:
        subprocess.run(["make", "setup", f"PYTHON={sys.executable}"], cwd=tmp_path, capture_output=True, check=True)
        return len((tmp_path / "installs.log").read_text().splitlines())

    assert [num_installs(), num_installs()] == [1, 1]
    later = (tmp_path / ".venv" / ".dev").stat().st_mtime + 5
    os.utime(tmp_path / "constraints.txt", (later, later))
    assert num_installs() == 2


def test_make_names_what_is_missing_when_python_is_too_old() -> None:
    command = ["make", "-B", "setup", "PYTHON=no-such-python"]
    failed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert failed.returncode != 0
    assert "try    install Python 3.11" in failed.stderr


def code_lines(text: str) -> list[str]:
    """The lines of fenced code and the contents of inline code, comments left out."""
    fenced = [
        line.split(" # ")[0].strip()
        for block in re.findall(r"^```.*?\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
        for line in block.splitlines()
    ]
    indented = [line.strip().split(" # ")[0] for line in text.splitlines() if line.startswith("    ")]
    return fenced + indented + re.findall(r"`([^`\n]+)`", text)


def named(pattern: re.Pattern[str], text: str) -> set[str]:
    return {match[1] for line in code_lines(text) if (match := pattern.match(line))}


def test_every_make_target_the_documents_name_exists() -> None:
    targets = named(TARGETS, README.read_text() + DEVELOPING.read_text())
    assert {"demo", "test", "test-all", "docs"} <= targets
    assert targets <= set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
