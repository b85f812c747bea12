"""Do two checkouts give the same results? Whole commands run with one checkout, and what came out is kept and compared.

    python benches/compare_outputs.py record CHECKOUT FOLDER     # about ten minutes; writes FOLDER/outputs.json
    python benches/compare_outputs.py compare BEFORE/outputs.json AFTER/outputs.json

Kept are exit codes, the results of `--json` without times and paths, and a digest of every file that two runs of one checkout
write alike: shards, manifests, queues, tiles, masks, heads, predictions. Numbers may differ by one part in a thousand.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import json
import math
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
COMMANDS = {
    "demo": "demo --out {out}/demo",
    "check": "check {demo} --out {out}/demo/workspace",
    "sweep": "train --sweep 4 --out {out}/demo/workspace",
    "blocks": "train {demo} --cut blocks --out {out}/blocks",
    "cut": "train {small} --cut -4 --epochs 2 --out {out}/cut",
    "full": "train {small} --cut none --epochs 1 --batch-size 16 --out {out}/full",
    "folds": "fit {small} --fold all --folds 3 --epochs 3 --out {out}/folds",
    "table": "fit {photos}/table.csv --images {photos}/part_1 --images {photos}/part_2 --id image_id --label dx --group lesion "
    "--out {out}/table",
    "values": "fit {photos}/values.csv --path image_path --long target_name,target --positive --out {out}/values",
    "minutes": "fit {small} --minutes 0.5 --out {out}/minutes",
    "again": "fit {photos}/table.csv --out {out}/table",
    "evaluate": "evaluate latest --out {out}/table",
    "report": "report latest --out {out}/table",
    "predict": "predict latest {photos}/part_1 --to {out}/answers.csv --out {out}/table",
    "predict values": "predict latest {photos}/part_1 --to {out}/values.csv --out {out}/values",
    "export": "export latest --format onnx --to {out}/model --out {out}/table",
    "curate": "curate {small} --out {out}/cut",
    "runs": "runs list --out {out}/table",
    "scenes": "demo scenes --out {out}/scenes",
    "budget": "budget {small} --cut none --out {out}/full --dry-run",
    "bad option": "fit {small} --epoch 3 --out {out}/bad",
    "bad folder": "fit {photos}/nothing --out {out}/bad",
}  # fmt: skip
_TIMES = re.compile(
    r"second|_s$|_ms$|time|minutes|when|per_s|elapsed|bytes|memory|speed|load|path|report|workspace|machine|version|pid|run_id|cores"
    r"|started|ended|created|reason|gain|fingerprint_of_code|host|command|batch|choices|why|notes?$|seen|cost",
    re.IGNORECASE,
)
_FILES = ("*.npz", "manifest.csv", "jobs_queue.csv", "patch_manifest*.csv", "*.tif", "*.png", "answers.csv", "values.csv")


def make_photos(demo: Path, folder: Path) -> None:
    """A table with two image folders and groups, a long table of values, and a few class folders, all of the demo's photos."""
    classes = sorted(path for path in demo.iterdir() if path.is_dir())
    photos = [photo for one in classes for photo in sorted(one.iterdir())[:30]]
    rows, long = [], []
    for number, photo in enumerate(photos):
        part = folder / f"part_{1 + number % 2}"
        part.mkdir(parents=True, exist_ok=True)
        shutil.copy(photo, part / f"p{number:04}{photo.suffix}")
        rows.append({"image_id": f"p{number:04}", "dx": photo.parent.name, "lesion": f"l{number // 2}"})
        for target, value in (("grass", photo.stat().st_size / 1000), ("clover", 5 + number % 7)):
            long.append({"image_path": f"{part.name}/p{number:04}{photo.suffix}", "target_name": target, "target": value})
    for name, some in (("table.csv", rows), ("values.csv", long)):
        with (folder / name).open("w", newline="") as file:
            writer = csv.DictWriter(file, list(some[0]))
            writer.writeheader()
            writer.writerows(some)
    for one in classes[:4]:
        (folder / "small" / one.name).mkdir(parents=True)
        for photo in sorted(one.iterdir())[:24]:
            shutil.copy(photo, folder / "small" / one.name / photo.name)


def record(checkout: Path, folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    photos, kept = folder / "input", {}
    places = {"out": folder / "out", "demo": folder / "out/demo/photos", "photos": photos, "small": photos / "small"}
    env = {**os.environ, "PYTHONPATH": str(checkout.resolve() / "src")}
    for name, words in COMMANDS.items():
        typed = [word.format(**places) for word in words.split()]
        done = subprocess.run([sys.executable, "-m", "unchoke", *typed, "--json"], env=env, capture_output=True, text=True)
        last = json.loads(done.stdout.splitlines()[-1]) if done.stdout.strip() else {}
        kept[name] = {"exit": done.returncode, "result": dict(_plain(last, str(folder)))}
        print(f"{name:16} exit {done.returncode}", file=sys.stderr, flush=True)
        if name == "demo":
            make_photos(places["demo"], photos)
    files = sorted({path for pattern in _FILES for path in (folder / "out").rglob(pattern)})
    kept["files"] = {str(path.relative_to(folder / "out")): hashlib.sha256(path.read_bytes()).hexdigest()[:16] for path in files}
    (folder / "outputs.json").write_text(json.dumps(kept, indent=1))


def _plain(value: Any, folder: str, at: str = "") -> Iterator[tuple[str, Any]]:
    """The leaves of a result by their place, without times, sizes and paths."""
    if at and _TIMES.search(at.rpartition(".")[2]):
        return
    if isinstance(value, dict):
        for key, part in value.items():
            yield from _plain(part, folder, f"{at}.{key}".strip("."))
    elif isinstance(value, list):
        yield f"{at}.len", len(value)
        for number, part in enumerate(value[:50]):
            yield from _plain(part, folder, f"{at}.{number}")
    elif not (isinstance(value, str) and (folder in value or "/" in value)):
        yield at, value


def compare(before: Path, after: Path) -> int:
    old, new = (json.loads(path.read_text()) for path in (before, after))
    num_other = 0
    for name in sorted({*old, *new}):
        one, other = ({} if part.get(name) is None else part[name] for part in (old, new))
        parts = [part if name == "files" else {"exit": part.get("exit"), **(part.get("result") or {})} for part in (one, other)]
        for key in {**parts[0], **parts[1]}:
            if not _same(parts[0].get(key), parts[1].get(key)):
                num_other += 1
                print(f"{name}: {key}: {parts[0].get(key)!r} -> {parts[1].get(key)!r}")
    print(f"{num_other} differences", file=sys.stderr)
    return 1 if num_other else 0


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=1e-3, abs_tol=1e-6)
    return bool(one == other)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("record", "compare"))
    parser.add_argument("first", type=Path)
    parser.add_argument("second", type=Path)
    asked = parser.parse_args()
    if asked.what == "compare":
        sys.exit(compare(asked.first, asked.second))
    record(asked.first, asked.second)


if __name__ == "__main__":
    main()
