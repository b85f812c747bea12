"""`unchoke lint` on code that nobody here wrote, which is not part of this repository.

(a) A folder with `labels.json` (file → labels: `where` as `c<cell, from 0>:<line>` or `<line>`, `sev` M or m, `rule` or, where no
rule was known, `cat`): how many of the major and the minor choke points are found, near their line and by the right rule, with
and without nits; and how many findings no label covers.
(b) `--draw N`: N findings of the files below the folders named, drawn at random with `--seed`, as a table to be judged by hand.
(c) `--count`: findings below the folders by rule and kind.

    python benches/bench_lint_real.py FOLDER_WITH_LABELS [--show]
    python benches/bench_lint_real.py --draw 60 --seed 1 FOLDER… > drawn.md
    python benches/bench_lint_real.py --count FOLDER…
"""

from __future__ import annotations

import argparse
import json
import random
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from common import say

from unchoke.code.source import read_source
from unchoke.core.findings import Finding
from unchoke.linting.lint_engine import lint, source_files
from unchoke.linting.rules import CODES

NEAR_LINES = 10
WHERE = re.compile(r"(?:c(?P<cell>\d+):?)?(?P<line>\d+)?[a-z]?$")
RULES_OF = {  # what the labels call it, where they knew no rule for it
    "data-on-network-mount": ("network-mount",),
    "no-amp": ("no-mixed-precision",),
    "whole-dataset-for-names": ("decoded-for-labels",),
    "decode-for-shape": ("decoded-for-labels",),
    "dataset-copied": ("copied-each-run",),
    "no-prefetch": ("no-prefetch", "no-workers"),
    "idg-slow-path": ("heavy-augmentation",),
    "no-clear-session": ("no-clear-session",),
    "work-repeated-per-fold": ("frozen-recomputed",),
}


@dataclass(frozen=True)
class RealLabel:
    """One choke point as a reviewer wrote it down before any rule was run."""

    file: str
    cell: int | None
    line: int | None
    rules: tuple[str, ...]
    major: bool
    text: str

    def covers(self, finding: Finding, root: Path) -> bool:
        """Found by the finding itself, or by its naming this rule and line as what to do next on the same pipeline."""
        places = [{"code": finding.code, "cell": finding.cell, "line": finding.line}, *finding.evidence.get("also", ())]
        own = [place for place in places if place["code"] in self.rules and place["cell"] == self.cell]
        near = any(self.line is None or abs((place["line"] or 0) - self.line) <= NEAR_LINES for place in own)
        return finding.path == str(root / self.file) and near


def read_labels(root: Path) -> list[RealLabel]:
    tables = json.loads((root / "labels.json").read_text(encoding="utf-8"))
    return [_label(file, entry) for file, entries in tables.items() for entry in entries]


def _label(file: str, entry: dict[str, str]) -> RealLabel:
    place = WHERE.match(entry["where"])
    if place is None:
        raise SystemExit(f"{file}: cannot read where {entry['where']!r}")
    cell, line = place["cell"], place["line"]
    rules = (*((entry["rule"],) if entry["rule"] else ()), *RULES_OF.get(entry["cat"], ()))
    text = f"{entry['where']} {entry['cat']}: {entry['why']}"
    return RealLabel(file, int(cell) + 1 if cell else None, int(line) if line else None, rules, entry["sev"] == "M", text)


def compare(root: Path, *, show: bool) -> None:
    """Print how many labels are found, and say it as a record."""
    labels = read_labels(root)
    files = [root / file for file in dict.fromkeys(label.file for label in labels)]
    files += [root / file for file in json.loads((root / "labels.json").read_text(encoding="utf-8"))]
    findings = lint(dict.fromkeys(files), nits=True).findings
    met = {label: [item for item in findings if label.covers(item, root)] for label in labels}
    covered = {id(item) for items in met.values() for item in items}
    rest = [item for item in findings if id(item) not in covered]
    for word, major in (("majors", True), ("minors", False)):
        own = [label for label in labels if label.major is major]
        shown = sum(any(item.kind != "nit" for item in met[label]) for label in own)
        say(f"lint-real-{word}", labelled=len(own), found=shown, with_nits=sum(bool(met[label]) for label in own))
    say("lint-real-others", findings=sum(item.kind != "nit" for item in rest), nits=sum(item.kind == "nit" for item in rest))
    if show:
        for label in labels:
            found = ", ".join(sorted({f"{item.code} ({item.kind})" for item in met[label]}))
            print(f"{'M' if label.major else 'm'} {'found ' if found else 'missed'} {label.file} {label.text} {found}")
        for item in rest:
            print(f"no label: {item.kind} {item.code} {_short(item.path or '', root)} {_place(item)}: {item.message}")


def every_finding(folders: list[str], *, nits: bool) -> list[Finding]:
    """Files in folders are read one by one, with what they import beside them, also those that `lint` passes over."""
    found: list[Finding] = []
    for folder in folders:
        inside = (
            sorted(file for kind in ("*.py", "*.ipynb") for file in Path(folder).rglob(kind)) if Path(folder).is_dir() else []
        )
        for path in inside or source_files([folder]):
            found += lint([path], nits=nits).findings
    return found


def draw(folders: list[str], number: int, seed: int, *, nits: bool, code: str | None) -> None:
    """A table of findings drawn at random; the two last columns are for the judge."""
    findings = [item for item in every_finding(folders, nits=nits) if code in (None, item.code)]
    drawn = random.Random(seed).sample(findings, min(number, len(findings)))
    print(f"{len(drawn)} of {len(findings)} findings, seed {seed}.\n")
    print("| file | place | rule | kind | what it says | line | right? | why |")
    print("|---|---|---|---|---|---|---|---|")
    for item in sorted(drawn, key=lambda item: (item.path or "", item.cell or 0, item.line or 0)):
        texts = (_short(item.path or "", None), _place(item), item.code, item.kind, item.message, _line(item))
        print("| " + " | ".join(str(text).replace("|", "\\|") for text in texts) + " | | |")


def count(folders: list[str]) -> None:
    """Findings by rule and kind."""
    findings = every_finding(folders, nits=True)
    kinds = Counter((item.code, item.kind) for item in findings)
    print("| rule | chokes | risks | nits |\n|---|--:|--:|--:|")
    for code in CODES:
        row = [kinds[code, kind] for kind in ("choke", "risk", "nit")]
        if any(row):
            print(f"| {code} | {' | '.join(map(str, row))} |")
    say("lint-count", **{kind: sum(item.kind == kind for item in findings) for kind in ("choke", "risk", "nit")})


def _short(path: str, root: Path | None) -> str:
    if root is not None:
        return str(Path(path).relative_to(root))
    return path.rpartition("site-packages/")[2] if "site-packages/" in path else "/".join(Path(path).parts[-3:])


def _place(item: Finding) -> str:
    return f"{item.line}" if item.cell is None else f"cell {item.cell}, line {item.line}"


def _line(item: Finding) -> str:
    """The line of the source it points at."""
    for cell in read_source(Path(item.path or "")).cells:
        if cell.number == item.cell:
            lines = cell.text.splitlines()
            return f"`{lines[(item.line or 1) - 1].strip()[:100]}`" if (item.line or 1) <= len(lines) else ""
    return ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+")
    parser.add_argument("--show", action="store_true", help="every label, and every finding that none covers")
    parser.add_argument("--draw", type=int, metavar="N")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--nits", action="store_true", help="draw from nits too")
    parser.add_argument("--rule", help="draw from the findings of this rule alone")
    parser.add_argument("--count", action="store_true")
    options = parser.parse_args()
    there = [folder for folder in options.folders if Path(folder).exists()]
    for folder in options.folders:
        if folder not in there:
            print(f"skipped: there is no {folder}")
    if options.draw:
        draw(there, options.draw, options.seed, nits=options.nits, code=options.rule)
    elif options.count:
        count(there)
    else:
        for folder in there:
            compare(Path(folder), show=options.show)


if __name__ == "__main__":
    main()
