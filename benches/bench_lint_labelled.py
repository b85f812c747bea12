"""`unchoke lint` on public code that nobody here wrote and that is not part of this repository, against a reviewer's labels.

FOLDER holds one file or folder per label set, named as in LABELS (`nb01.ipynb`, `sc07/`). A label is found where a finding of its
kind, or one that names that kind under `also` or its place under `further`, stands within ten lines of one of the label's places.
Findings without a label are listed: whether they are right and useful is for a person to say.

    python benches/bench_lint_labelled.py FOLDER LABELS.json [--all]
"""

from __future__ import annotations

import argparse
import json
import re
from dataclasses import dataclass
from pathlib import Path

from common import say

from unchoke_doctor.finding import Finding
from unchoke_doctor.lint import lint

NEAR_LINES = 10
CODES = {  # what reviewers call it, and the rules that say it
    "no-workers": {"no-workers", "few-workers", "no-prefetch"},
    "few-workers": {"few-workers"},
    "no-gpu": {"never-on-gpu"},
    "drive": {"network-mount"},
    "frozen-recompute": {"frozen-recomputed"},
    "no-save": {"no-checkpoint"},
    "no-ckpt": {"no-checkpoint"},
    "no-early-stop": {"no-checkpoint"},
    "no-grad": {"no-inference-mode"},
    "no-amp": {"no-mixed-precision"},
    "no-prefetch": {"no-prefetch"},
    "upscale": {"heavy-augmentation"},
    "idg-aug": {"heavy-augmentation"},
    "cpu-aug": {"heavy-augmentation"},
    "aug-before-resize": {"heavy-augmentation"},
    "decode-big": {"oversized-decode"},
    "decode-once": {"images-in-list"},
    "float64": {"images-in-list"},
    "batch-1": {"one-at-a-time"},
    "tiny-batch": {"one-at-a-time"},
    "images-in-list": {"images-in-list"},
    "log-images": {"host-sync"},
    "sync": {"host-sync"},
    "per-sample": {"per-sample-scan"},
    "no-cache": {"oversized-decode", "no-prefetch"},
    "cacheable": {"oversized-decode", "no-prefetch"},
    "cpu-metrics": {"host-sync"},
    "serial-map": {"no-prefetch"},
    "many-workers": {"few-workers"},
    "ram": {"images-in-list"},
    "per-sample-copy": {"per-sample-scan"},
    "idg-workers": {"no-workers"},
    "unpicklable": {"unpicklable-dataset"},
    **{kind: {"per-sample-scan"} for kind in ("stat", "list", "open", "table-scan", "parse")},
}


@dataclass(frozen=True)
class Label:
    name: str
    major: bool
    kind: str
    where: str
    why: str

    def places(self) -> list[tuple[str, int | None, int | None]]:
        """File (empty: any), cell and line of `c7:4/c24:2`, `train.py:26/data.py:26`, `96`, `c12`."""
        found = []
        for part in re.split(r"[/,](?=c\d|\w+\.py|\d)", self.where):
            file, _, rest = part.rpartition(":") if ".py" in part else ("", "", part)
            cell = re.match(r"c(\d+)", rest)
            line = re.search(r"(?:^|:)(\d+)$", rest)
            found.append((Path(file).name, int(cell[1]) if cell else None, int(line[1]) if line else None))
        return found

    def covers(self, finding: Finding) -> bool:
        """Is this the finding of the label, or does it name it?"""
        codes = CODES.get(self.kind, set())
        own = [(finding.code, finding.cell, finding.line)]
        own += [(finding.code, other["cell"], other["line"]) for other in finding.evidence.get("further", ())]
        own += [(other["code"], other["cell"], other["line"]) for other in finding.evidence.get("also", ())]
        for file, cell, line in self.places():
            same_file = not file or Path(finding.path or "").name == file
            for code, its_cell, its_line in own:
                near = line is None or abs((its_line or 0) - line) <= NEAR_LINES
                if same_file and code in codes and cell == its_cell and near:
                    return True
        return False


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("labels", type=Path)
    parser.add_argument("--all", action="store_true", help="the text of every finding, not only of those without a label")
    options = parser.parse_args()
    counts = {True: [0, 0, 0], False: [0, 0, 0]}  # labelled, found by default, found with notes
    shown = labelled = 0
    for name, told in json.loads(options.labels.read_text(encoding="utf-8")).items():
        path = next((one for one in (options.folder / f"{name}.ipynb", options.folder / name) if one.exists()), None)
        if path is None:
            print(f"{name} is not there")
            continue
        labels = [Label(name, severity == "M", kind, where, why) for severity, kind, where, why in told["labels"]]
        findings = lint([path], notes=True).findings
        loud = [one for one in findings if one.kind != "note"]
        for label in labels:
            quiet = any(label.covers(one) for one in findings)
            found = any(label.covers(one) for one in loud)
            counts[label.major][0] += 1
            counts[label.major][1] += found
            counts[label.major][2] += quiet
            word = "found " if found else "noted " if quiet else "MISSED"
            print(f"{name} {'M' if label.major else 'm'} {word} {label.kind} {label.where} {label.why}")
        for one in loud:
            covered = any(label.covers(one) for label in labels)
            shown, labelled = shown + 1, labelled + covered
            if options.all or not covered:
                where = f"{Path(one.path or '').name}:{f'cell {one.cell}:' if one.cell else ''}{one.line}"
                print(f"{name}   {'labelled' if covered else 'no label'} {where} {one.code} ({one.kind}): {one.message}")
    for word, major in (("majors", True), ("minors", False)):
        labels_, found_, quiet_ = counts[major]
        say(f"lint-labelled-{word}", labelled=labels_, found=found_, with_notes=quiet_)
    say("lint-labelled-findings", shown=shown, labelled=labelled, to_judge=shown - labelled)


if __name__ == "__main__":
    main()
