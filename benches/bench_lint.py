"""`unchoke lint` against a labelled corpus, and its speed.

(a) Precision and recall by rule on the two halves of benches/lint/corpus: the half that was read while the rules were written and
the half that was held back. Of the held half only counts are printed, unless --show-held is given.
(b) Seconds for 1,000 cells, in many notebooks and in one, with and without starting Python, and whether torch was loaded.

    python benches/bench_lint.py [--half seen|held] [--show] [--show-held] [--no-speed]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import tomllib
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from common import say

from unchoke.core.findings import Finding
from unchoke.linting.lint_engine import lint
from unchoke.linting.rules import CODES

CORPUS = Path(__file__).resolve().parent / "lint" / "corpus"
HALVES = ("seen", "held")
NUM_CELLS = 1000
TIMED = """
import json, sys, time
started = time.perf_counter()
from unchoke.linting.lint_engine import lint
ready = time.perf_counter()
result = lint([sys.argv[1]])
done = time.perf_counter()
heavy = [name for name in ("torch", "numpy", "pandas", "tensorflow") if name in sys.modules]
times = {"import_s": ready - started, "lint_s": done - ready}
print(json.dumps({"cells": result.cells, "findings": len(result.findings), **times, "heavy": heavy}))
"""


@dataclass
class Label:
    """One choke point that should be found."""

    rule: str
    file: str
    cell: int | None
    lines: list[int]
    taken: bool = False


@dataclass
class Score:
    """Counts by rule of one half, and what was wrong."""

    true: Counter[str] = field(default_factory=Counter)
    false: Counter[str] = field(default_factory=Counter)
    missed: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    def row(self, code: str) -> tuple[int, int, int]:
        return self.true[code], self.false[code], self.missed[code]

    def totals(self) -> tuple[int, int, int]:
        return self.true.total(), self.false.total(), self.missed.total()


def folders(half: str) -> list[Path]:
    return [folder for folder in sorted(CORPUS.iterdir()) if folder.name.startswith(f"{half}_")]


def labels_of(folder: Path) -> list[Label]:
    tables = tomllib.loads((folder / "labels.toml").read_text(encoding="utf-8"))
    return [
        Label(entry["rule"], str(folder / name), entry.get("cell"), entry["lines"])
        for name, table in tables.items()
        for entry in table["labels"]
    ]


def score(half: str) -> Score:
    """Every finding is matched with at most one label; one on another line of a label already found counts neither way."""
    result = Score()
    for folder in folders(half):
        labels = labels_of(folder)
        for finding in lint([folder], nits=True).findings:
            match_finding(finding, labels, result)
        for label in labels:
            if not label.taken:
                result.missed[label.rule] += 1
                result.wrong.append(f"missed {label.rule:24s} {Path(label.file).name} {label.cell or ''}:{label.lines}")
    return result


def match_finding(finding: Finding, labels: list[Label], result: Score) -> None:
    fitting = [
        label
        for label in labels
        if (label.rule, label.file, label.cell) == (finding.code, finding.path, finding.cell) and finding.line in label.lines
    ]
    fresh = next((label for label in fitting if not label.taken), None)
    if fresh is not None:
        fresh.taken = True
        result.true[finding.code] += 1
    elif not fitting:
        result.false[finding.code] += 1
        result.wrong.append(f"false  {finding.code:24s} {Path(finding.path or '').name} {finding.cell or ''}:{finding.line}")


def share(part: int, rest: int) -> str:
    return f"{100 * part / (part + rest):.0f} %" if part + rest else "–"


def table(scores: dict[str, Score]) -> str:
    """One row for each rule: true, false and missed, precision and recall, for each half."""
    heads = "".join(f" {half}: true | false | missed | precision | recall |" for half in scores)
    lines = [f"| rule |{heads}", "|---|" + "--:|" * (5 * len(scores))]
    lines += [f"| {code} |" + "".join(cells(*result.row(code)) for result in scores.values()) for code in CODES]
    lines.append("| **all** |" + "".join(cells(*result.totals()) for result in scores.values()))
    return "\n".join(lines)


def cells(true: int, false: int, missed: int) -> str:
    return f" {true} | {false} | {missed} | {share(true, false)} | {share(true, missed)} |"


def corpus_cells() -> list[dict[str, Any]]:
    """The cells of the notebooks that may be read, and each script as one cell, to fill notebooks with."""
    found: list[dict[str, Any]] = []
    for folder in folders("seen"):
        for path in sorted(folder.iterdir()):
            if path.suffix == ".ipynb":
                book = json.loads(path.read_text(encoding="utf-8"))
                found += book.get("cells") or []
            elif path.suffix == ".py":
                source = path.read_text(encoding="utf-8").splitlines(keepends=True)
                found.append({"cell_type": "code", "metadata": {}, "outputs": [], "execution_count": None, "source": source})
    return found


def write_notebook(path: Path, some: list[dict[str, Any]]) -> None:
    path.write_text(json.dumps({"cells": some, "metadata": {}, "nbformat": 4, "nbformat_minor": 4}), encoding="utf-8")


def timed(target: Path) -> dict[str, Any]:
    """Seconds of the lint alone, of its import, and of a whole command that starts Python."""
    import time

    started = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", TIMED, str(target)], capture_output=True, text=True, check=True)
    whole_s = time.perf_counter() - started
    figures: dict[str, Any] = json.loads(done.stdout)
    return {**figures, "whole_s": whole_s}


def speed() -> dict[str, Any]:
    """1,000 cells in notebooks of 20, and in one notebook."""
    material = corpus_cells()
    some = [material[number % len(material)] for number in range(NUM_CELLS)]
    with tempfile.TemporaryDirectory() as folder:
        many, one = Path(folder) / "many", Path(folder) / "one"
        many.mkdir()
        one.mkdir()
        for first in range(0, NUM_CELLS, 20):
            write_notebook(many / f"book_{first:04d}.ipynb", some[first : first + 20])
        write_notebook(one / "book.ipynb", some)
        return {"many": timed(many), "one": timed(one)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--half", choices=HALVES, action="append")
    parser.add_argument("--show", action="store_true", help="what was missed or false in the half that may be read")
    parser.add_argument("--show-held", action="store_true", help="the same for the half that was held back")
    parser.add_argument("--no-speed", action="store_true")
    options = parser.parse_args()
    scores = {half: score(half) for half in options.half or HALVES}
    print(table(scores))
    for half, result in scores.items():
        if (options.show and half == "seen") or (options.show_held and half == "held"):
            print(f"\n{half}:", *sorted(result.wrong), sep="\n")
        true, false, missed = result.totals()
        labelled = {label.rule for folder in folders(half) for label in labels_of(folder)}
        younger = sum(result.false[code] for code in CODES if code not in labelled)
        rules = {code: result.row(code) for code in CODES if any(result.row(code))}
        say(
            f"lint-{half}",
            true=true,
            false=false,
            missed=missed,
            false_of_rules_without_labels=younger,
            precision=share(true, false),
            recall=share(true, missed),
            by_rule=rules,
        )
    if not options.no_speed:
        say("lint-speed", **speed())


if __name__ == "__main__":
    main()
