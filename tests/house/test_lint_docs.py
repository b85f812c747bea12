"""The pages in docs/lint are what the rules say now; what they cite exists; the hook can be used."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from unchoke.linting.rule_pages import build_pages, write_pages
from unchoke.linting.rules import all_rules

ROOT = Path(__file__).resolve().parents[2]
PAGES = ROOT / "docs" / "lint"
HOOKS = ROOT / ".pre-commit-hooks.yaml"


def test_the_pages_are_those_of_the_rules() -> None:
    """If it fails: `python -m unchoke.linting.rule_pages` in the root of the repository writes them again."""
    written = {file.name: file.read_text(encoding="utf-8") for file in PAGES.glob("*.md")}
    pages = build_pages()
    assert sorted(written) == sorted(pages)
    assert not [name for name, text in pages.items() if written[name] != text]


def test_every_rule_says_what_to_write_and_when_it_is_fine() -> None:
    assert not [loaded.rule.code for loaded in all_rules() if "When this is fine" not in loaded.page]


def test_every_claim_a_rule_cites_is_a_heading() -> None:
    headings = set(re.findall(r"^#+ (.+)$", (ROOT / "docs" / "claims.md").read_text(encoding="utf-8"), re.MULTILINE))
    cited = {loaded.rule.code: loaded.rule.claim for loaded in all_rules() if loaded.rule.claim}
    assert not {code: claim for code, claim in cited.items() if claim not in headings}


def test_rule_pages_are_stable(tmp_path: Path) -> None:
    assert sorted(write_pages(tmp_path)) == sorted(build_pages())
    assert write_pages(tmp_path) == []
    (tmp_path / "gone-rule.md").write_text("old")
    (tmp_path / "index.md").write_text("old")
    assert sorted(write_pages(tmp_path)) == ["gone-rule.md", "index.md"]


def test_the_hook_is_one_that_pre_commit_accepts() -> None:
    yaml = pytest.importorskip("yaml")
    (hook,) = yaml.safe_load(HOOKS.read_text(encoding="utf-8"))
    assert (hook["id"], hook["entry"], hook["language"]) == ("unchoke-lint", "unchoke lint", "python")
    assert hook["types_or"] == ["python", "jupyter"]
    clientlib = pytest.importorskip("pre_commit.clientlib")
    (loaded,) = clientlib.load_manifest(str(HOOKS))
    assert loaded["id"] == "unchoke-lint"
