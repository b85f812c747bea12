"""The manual is built without a dead link, asks nobody for anything, and is searched from the disk."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from cdp import Browser

pytest.importorskip("material")
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The manual, built as `make docs` does."""
    folder = tmp_path_factory.mktemp("manual") / "site"
    subprocess.run([sys.executable, ROOT / "docs" / "make_pages.py"], check=True)
    build_site(ROOT / "mkdocs.yml", folder)
    return folder


def build_site(config: Path, folder: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-f", config, "-d", folder]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"}, check=False)
    assert done.returncode == 0, done.stderr


def test_no_page_asks_another_machine_for_anything(site: Path) -> None:
    asking = [file.name for file in site.rglob("*.html") if 'src="http' in file.read_text(encoding="utf-8")]
    assert not asking
    assert not [file for file in site.rglob("*.html") if '<link rel="stylesheet" href="http' in file.read_text(encoding="utf-8")]


def test_the_search_finds_pages_from_the_disk(site: Path, browser: Browser) -> None:
    page = browser.open(site / "index.html", ready="document.readyState === 'complete'")
    page.until("typeof __index === 'object'")
    page.type(".md-search__input", "quarantine")
    page.press("End")  # the search listens to keys
    page.until("document.querySelectorAll('.md-search-result__link').length > 0")
    links = page.ask("[...document.querySelectorAll('.md-search-result__link')].map(one => one.getAttribute('href')).join(' ')")
    assert "reference/files.html" in links
    assert not [address for address in page.asked if not address.startswith(("file:", "data:", "blob:", "about:"))]


@pytest.mark.parametrize("link", ["nowhere.md", "claims.md#no-such-heading"])
def test_a_dead_link_or_anchor_ends_the_build(link: str, tmp_path: Path) -> None:
    shutil.copy(ROOT / "mkdocs.yml", tmp_path)
    config = (tmp_path / "mkdocs.yml").read_text(encoding="utf-8")
    (tmp_path / "mkdocs.yml").write_text(config.partition("nav:\n")[0] + "nav: [index.md, claims.md]\n", encoding="utf-8")
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "claims.md").write_text("# What was measured\n")
    (tmp_path / "docs" / "index.md").write_text(f"# Page\n\n[dead]({link})\n")
    with pytest.raises(AssertionError, match=r"nowhere|no-such-heading"):
        build_site(tmp_path / "mkdocs.yml", tmp_path / "site")
