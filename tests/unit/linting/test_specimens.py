"""Each rule finds its choke point in realistic code, at the line where it stands, and nothing in the same job done right."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from tests.linted import each

from unchoke.core.findings import Finding
from unchoke.linting.lint_engine import lint
from unchoke.linting.rules import CODES

SPECIMENS = Path(__file__).resolve().parents[2] / "specimens" / "lint"
PYTORCH_ONLY = {"pin-without-cuda", "compile-unsafe", "channels-last-unsafe", "non-blocking-unsafe", "no-inference-mode"}
PYTORCH_ONLY |= {"frozen-gradients", "graph-kept", "workers-restarted"}
KERAS_ONLY = {"no-prefetch", "no-clear-session"}


def files(code: str, prefix: str) -> list[Path]:
    return sorted(file for file in (SPECIMENS / code).iterdir() if file.name.startswith(prefix))


def expected(code: str) -> dict[str, Any]:
    return tomllib.loads((SPECIMENS / code / "expected.toml").read_text(encoding="utf-8"))


def found_in(file: Path) -> list[Finding]:
    result = lint([file], nits=True)
    assert not result.problems
    return result.findings


@each("code", CODES)
def test_bad_and_good_exist_for_each_framework(code: str) -> None:
    frameworks = ("torch",) if code in PYTORCH_ONLY else ("keras",) if code in KERAS_ONLY else ("torch", "keras")
    for framework in frameworks:
        for kind in ("bad", "good"):
            written = files(code, f"{kind}_{framework}")
            assert written, f"{code}: no {kind} specimen for {framework}"
            assert all(len(file.read_text(encoding="utf-8").splitlines()) >= 20 for file in written)
    assert {file.name for file in files(code, "bad_")} == set(expected(code))


@each("code", CODES)
def test_the_bad_ones_are_found_where_they_stand(code: str) -> None:
    for name, told in expected(code).items():
        findings = found_in(SPECIMENS / code / name)
        own = [finding for finding in findings if finding.code == code]
        others = {finding.code for finding in findings if finding.kind != "nit"} - {code} - set(told.get("also", ()))
        assert not others, f"{name}: {sorted(others)}"
        assert len(own) == len(told["lines"]), f"{name}: {[finding.line for finding in own]}"
        for lines, finding in zip(told["lines"], own, strict=True):
            assert finding.line in lines, f"{name}: line {finding.line}, not {lines}"
            assert finding.cell == told.get("cell")


@each("code", CODES)
def test_nothing_is_found_in_the_good_ones(code: str) -> None:
    for file in files(code, "good_"):
        told = [finding for finding in found_in(file) if finding.code == code or finding.kind != "nit"]
        assert not [f"{finding.code} {finding.cell or ''}:{finding.line}" for finding in told], file.name
